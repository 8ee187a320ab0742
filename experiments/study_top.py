"""The top of the list and the AUC: our default beside tuned peers, and every lever one at a time.

    python -m experiments.study_top --data_dir=DIR [--parts=methods,levers,gowalla,picture]

Five positives per user are held out. Everything was chosen on the split seeds 0–4; what is reported are
the split seeds from `first_seed` on, the same splits for all. implicit's ALS has the settings that were
tuned for these data (the best found at k = 64), lightfm-next's WARP likewise (docs/derivations.md#peers); `MFAUC()`
has none. Differences are paired: one per split seed, Student's interval over the seeds. Gowalla has its published
split; what was tried there was tried on a fifth of each user's training positives (`gowalla-validation`), and only
the best of it by Recall@20 sees the test positives, beside the default.
"""

import dataclasses
import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import flags, frontier, peers, results
from experiments.frontier import COLUMNS
from experiments.variants import GOWALLA, LEVERS, METHODS, OURS, PICTURED, TITLES, TUNED
from mfauc_jax import MFAUC, data
from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines import wrmf
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data and parts, on how many splits."""

    data_dir: str = "data"
    parts: tuple[str, ...] = flags.option(
        ("picture", "methods", "levers", "gowalla"), "which of these to run"
    )
    datasets: tuple[str, ...] = tuple(TITLES)
    lever_datasets: tuple[str, ...] = ("ml-100k",)
    methods: tuple[str, ...] = flags.option(("all",), "rows of METHODS, or all")
    levers: tuple[str, ...] = flags.option(("all",), "rows of LEVERS, or all")
    first_seed: int = flags.option(100, "the first split seed; 0–4 were for choosing")
    seeds: int = flags.option(10, "splits of MovieLens 100K")
    seeds_large: int = flags.option(5, "splits of the larger data sets")
    lever_seeds: int = flags.option(5, "splits for the levers")
    held_out: int = 5
    rank: int = 64
    gowalla_ranks: tuple[int, ...] = (64, 128, 256, 512)
    limit: int = flags.option(0, "stop after so many new cells")
    results: str = "out/study_top.jsonl"
    out: str = "out"
    images: str = flags.option("out", "where the picture of the penalty goes; docs/images has it")


def run(config: Config) -> list[dict]:
    """One cell per data set, split and method, the splits outermost."""
    unknown = set(config.parts) - {"picture", "methods", "levers", "gowalla"}
    if unknown:
        raise ValueError(
            f"parts = {unknown.pop()!r}: choose from picture, methods, levers, gowalla"
        )
    cells = results.Cells(config.results, config.limit)
    records = []
    with peers.one_blas_thread():
        if "picture" in config.parts:
            job = _picture_job(config)
            records += cells.run([job], functools.partial(_scores, config))
        if "methods" in config.parts:
            jobs = _jobs(config, config.datasets, _chosen(METHODS, config.methods), config.seeds)
            records += cells.run(jobs, functools.partial(_fit_and_rank, config))
        if "levers" in config.parts:
            table = {OURS: {}, **_chosen(LEVERS, config.levers)}
            jobs = _jobs(config, config.lever_datasets, table, config.lever_seeds)
            records += cells.run(jobs, functools.partial(_fit_and_rank, config))
        if "gowalla" in config.parts:
            records += _gowalla(config, cells)
    return records


def _chosen(table: dict[str, dict], names: tuple[str, ...]) -> dict[str, dict]:
    if names == ("all",):
        return table
    missing = [name for name in names if name not in table]
    if missing:
        raise ValueError(f"no row {missing[0]!r}: choose from {', '.join(table)}")
    return {name: table[name] for name in names}


def _jobs(
    config: Config, datasets: tuple[str, ...], table: dict[str, dict], seeds: int
) -> list[dict]:
    """A row that stands in both tables is one cell."""
    return [
        {
            "kind": "split",
            "dataset": name,
            "method": method,
            "seed": config.first_seed + s,
            "rank": config.rank,
            "held_out": config.held_out,
            "model": setting(change, config.rank, name),
        }
        for name in datasets
        for s in range(seeds if name == "ml-100k" else config.seeds_large)
        for method, change in table.items()
    ]


def setting(change: dict[str, Any], rank: int, dataset: str = "") -> dict[str, Any]:
    """All numbers of a row: of a peer those tuned for the data set, of ours those of its objects."""
    if "peer" in change:
        if dataset not in TUNED:
            raise ValueError(f"no tuned peers for {dataset!r}: choose from {', '.join(TUNED)}")
        which = "warp" if change["peer"] == "warp" else "als"
        return {**change, "tuned": list(TUNED[dataset][which])}
    changed = {name: value for name, value in change.items() if name != "seeds"}
    model = MFAUC(rank=rank).with_params(**changed)
    repeated = {"seeds": change["seeds"]} if "seeds" in change else {}
    return {"rank": model.rank, **results.described(model), **repeated}


@functools.lru_cache(1)
def _load(name: str, data_dir: str) -> Interactions:
    return data.load(name, data_dir)


@functools.lru_cache(1)
def _split(name: str, data_dir: str, seed: int, held_out: int) -> data.Split:
    return data.splits.hold_out(jax.random.key(seed), _load(name, data_dir), per_user=held_out)


def _fit_and_rank(config: Config, job: dict) -> dict[str, float]:
    train, test = _split(job["dataset"], config.data_dir, job["seed"], job["held_out"])
    factors = fitted(job["model"], train, job["rank"])
    found = metrics.evaluate(factors, train, test)
    return {name: found[name] for name in COLUMNS.values()}


def fitted(row: dict[str, Any], train: Interactions, rank: int) -> Factors:
    """The factors of a row as `setting` says it: a peer's at this rank, or ours, of several seeds side by side."""
    if "peer" in row:
        return _peer(row, train, rank)
    fits = [
        results.rebuilt(row, row["rank"], seed).fit(train, progress=False).factors_
        for seed in range(row.get("seeds", 1))
    ]
    U, V = (jnp.concatenate(parts, axis=1) for parts in zip(*fits, strict=True))  # scores add up
    return Factors(U, V)


def _peer(row: dict[str, Any], train: Interactions, rank: int) -> Factors:
    if row["peer"] == "warp":
        own_rank, epochs, *alpha = row["tuned"]
        return peers.LightFM(train, "warp", own_rank, *alpha).go_on(epochs)
    reg, alpha = row["tuned"]
    if row["peer"] == "als":
        return peers.implicit_factors(peers.implicit_als(rank, reg, alpha), train)
    power = row.get("reg_power", 0.0)
    scaled = wrmf.scaled_reg(train, 1.0, power, 1 / alpha)[0].mean()  # mean λ_i stays the tuned λ
    return wrmf.fit(
        jax.random.key(0),
        train,
        rank=rank,
        reg=reg / scaled,
        alpha=alpha - 1,
        sweeps=15,
        cg_steps=3,
        reg_power=power,
        reg_offset=1 / alpha,
    )


def _gowalla(config: Config, cells: results.Cells) -> list[dict]:
    """Every variant on validation positives; the best of them at every rank on test."""
    ranks = config.gowalla_ranks
    tried = [_gowalla_job("gowalla-validation", v, c, ranks[0]) for v, c in GOWALLA.items()]
    found = cells.run(tried, functools.partial(_gowalla_fit, config))
    best = max(found, key=lambda r: r["recall@20"])
    rows = dict.fromkeys([(OURS, ranks[0]), *((best["method"], k) for k in ranks)])
    jobs = [_gowalla_job("gowalla", v, GOWALLA[v], k) for v, k in rows]
    return found + cells.run(jobs, functools.partial(_gowalla_fit, config))


def _gowalla_job(kind: str, method: str, change: dict, rank: int) -> dict:
    row = setting(change, rank)
    return {"kind": kind, "dataset": "gowalla", "method": method, "rank": rank, "model": row}


def _gowalla_fit(config: Config, job: dict) -> dict[str, float]:
    train, test = _published(config.data_dir)
    if job["kind"] == "gowalla-validation":
        train, test = next(data.splits.k_fold(jax.random.key(0), train, 5))
    found = metrics.evaluate(fitted(job["model"], train, job["rank"]), train, test, at=(20,))
    return {name: found[name] for name in ("recall@20", "ndcg@20", "auc")}


@functools.lru_cache(1)
def _published(data_dir: str) -> data.Split:
    return data.load_split("gowalla", data_dir)


def _picture_job(config: Config) -> dict[str, Any]:
    rows = {name: setting(change, config.rank) for name, change in PICTURED.items()}
    job = {"kind": "picture", "dataset": config.datasets[0], "seed": 0, "rank": config.rank}
    return {**job, "model": rows}


def _scores(config: Config, job: dict) -> dict[str, Any]:
    """One user's scores without and with the penalty: the user of median AUC among the active."""
    train, test = _split(job["dataset"], config.data_dir, job["seed"], config.held_out)
    models = {name: fitted(row, train, job["rank"]) for name, row in job["model"].items()}
    auc = metrics.evaluate(models[OURS], train, test, per_user=True)
    lengths = np.diff(np.asarray(train.indptr))[auc["user"]]
    active = np.flatnonzero(lengths >= np.quantile(lengths, 0.5))
    place = active[np.argsort(auc["auc"][active], kind="stable")[len(active) // 2]]
    user = int(auc["user"][place])
    seen, held_out = (
        np.asarray(X.indices)[X.indptr[user] : X.indptr[user + 1]] for X in (train, test)
    )
    negative = np.setdiff1d(np.arange(train.num_items), np.concatenate([seen, held_out]))
    found = {}
    for name, (U, V) in models.items():
        s = np.asarray(V @ U[user], float)
        s = (s - s[negative].mean()) / (s[seen].mean() - s[negative].mean())
        found[name] = {
            k: np.round(s[v], 4).tolist()
            for k, v in (("seen", seen), ("held out", held_out), ("negative", negative))
        }
    return {"user": user, "scores": found}


def main(config: Config) -> int:
    """Run, print the tables, draw; the exit code is 1 if a target is missed."""
    run(config)
    records = results.read(config.results)
    paths = []
    if any(r["kind"] == "split" for r in records):
        paths += frontier.draw(records, config.out)
    if any(r["kind"] == "picture" for r in records):
        paths += frontier.draw_picture(records, config.images)
    page = frontier.write_tables(records, config.out)
    print(page.read_text(), *paths, page, sep="\n")
    wrong = frontier.missed(records)
    print(*(f"MISSED {line}" for line in wrong), sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
