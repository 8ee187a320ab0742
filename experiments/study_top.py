"""The top of the list and the AUC: our default beside tuned peers, and every lever one at a time.

    python -m experiments.study_top --data_dir=DIR [--parts=methods,levers,gowalla,picture]

Five positives a user are held out. Everything was chosen on the split seeds 0–4; what is reported are
the split seeds from `first_seed` on, the same splits for all. implicit's ALS has the settings that were
tuned for these data (the best found at k = 64), lightfm-next's WARP likewise; `MFAUC()` has none. Differences
are paired: one a split seed, Student's interval over the seeds. Gowalla has its published split; what
was tried there was tried on a fifth of each user's training positives (`gowalla-validation`), and only the
best of it by Recall@20 sees the test positives, beside the default.
"""

import dataclasses
import functools
import os
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import threadpoolctl

from experiments import bench_baselines, flags, frontier, results
from experiments.frontier import COLUMNS
from experiments.variants import GOWALLA, LEVERS, METHODS, OURS, PEERS, PICTURED, TITLES
from mfauc_jax import MFAUC, data
from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines import wrmf
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics
from mfauc_jax.objective import penalties
from mfauc_jax.objective import weights as item_weights


def _help(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data and parts, on how many splits."""

    data_dir: str = "data"
    parts: tuple[str, ...] = _help(
        ("picture", "methods", "levers", "gowalla"), "which of these to run"
    )
    datasets: tuple[str, ...] = tuple(TITLES)
    lever_datasets: tuple[str, ...] = ("ml-100k",)
    methods: tuple[str, ...] = _help(("all",), "rows of METHODS, or all")
    levers: tuple[str, ...] = _help(("all",), "rows of LEVERS, or all")
    first_seed: int = _help(100, "the first split seed; 0–4 were for choosing")
    seeds: int = _help(10, "splits of MovieLens 100K")
    seeds_large: int = _help(5, "splits of the larger data sets")
    lever_seeds: int = _help(5, "splits for the levers")
    held_out: int = 5
    rank: int = 64
    gowalla_ranks: tuple[int, ...] = (64, 128, 256, 512)
    limit: int = _help(0, "stop after so many new cells")
    results: str = "out/study_top.jsonl"
    out: str = "out"
    images: str = _help("out", "where the picture of the penalty goes; docs/images has it")


def run(config: Config) -> list[dict]:
    """A cell a data set, split and method, the splits outermost."""
    unknown = set(config.parts) - {"picture", "methods", "levers", "gowalla"}
    if unknown:
        raise ValueError(
            f"parts = {unknown.pop()!r}: choose from picture, methods, levers, gowalla"
        )
    cells = results.Cells(config.results, config.limit)
    records = []
    with threadpoolctl.threadpool_limits(1, "blas"):
        if "picture" in config.parts:
            job = {"kind": "picture", "dataset": config.datasets[0], "seed": 0, "rank": config.rank}
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
            "change": _settings(name, change),
        }
        for name in datasets
        for s in range(seeds if name == "ml-100k" else config.seeds_large)
        for method, change in table.items()
    ]


def _settings(dataset: str, change: dict[str, Any]) -> dict[str, Any]:
    """The change with the peers' tuned numbers in it, so that the cell says them."""
    if "peer" not in change:
        return change
    if dataset not in PEERS:
        raise ValueError(f"no tuned peers for {dataset!r}: choose from {', '.join(PEERS)}")
    which = "warp" if change["peer"] == "warp" else "als"
    return {**change, "tuned": list(PEERS[dataset][which])}


@functools.lru_cache(1)
def _load(name: str, data_dir: str) -> Interactions:
    return data.load(name, data_dir)


@functools.lru_cache(1)
def _split(name: str, data_dir: str, seed: int, held_out: int) -> data.Split:
    return data.splits.hold_out(jax.random.key(seed), _load(name, data_dir), per_user=held_out)


def _fit_and_rank(config: Config, job: dict) -> dict[str, float]:
    train, test = _split(job["dataset"], config.data_dir, job["seed"], job["held_out"])
    factors = fitted(job["change"], train, job["rank"])
    found = metrics.evaluate(factors, train, test)
    return {name: found[name] for name in COLUMNS.values()}


def fitted(change: dict[str, Any], train: Interactions, rank: int) -> Factors:
    """A peer's factors, or those of `MFAUC` with fields, constants of its rule, or seeds changed."""
    if "peer" in change:
        return _peer(change, train, rank)
    rule = {k.removeprefix("rule."): v for k, v in change.items() if k.startswith("rule.")}
    fields = {k: v for k, v in change.items() if not k.startswith("rule.") and k != "seeds"}
    model = MFAUC(**{"rank": rank, "progress": False, **fields})
    if rule:
        weights = item_weights.make(train, model.tau, model.tau_neg, model.user_power)
        scale = penalties.rule(train, weights, **{"strength": model.strength, **rule})
        model.set_params(reg=scale.reg, spread=scale.spread)
    fits = [
        dataclasses.replace(model, seed=s).fit(train).factors_
        for s in range(change.get("seeds", 1))
    ]
    U, V = (jnp.concatenate(parts, axis=1) for parts in zip(*fits, strict=True))  # scores add up
    return Factors(U, V)


def _peer(change: dict[str, Any], train: Interactions, rank: int) -> Factors:
    if change["peer"] == "warp":
        return _warp(train, *change["tuned"])
    reg, alpha = change["tuned"]
    if change["peer"] == "als":
        setting = bench_baselines.Setting(rank, reg, alpha, rank, 0)
        return bench_baselines.wrmf_pair(setting, 15)[1](0, train)
    power = change.get("reg_power", 0.0)
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


def _warp(train: Interactions, rank: int, epochs: int, alpha: float = 0.0) -> Factors:
    """lightfm-next's WARP; its item biases become a last column."""
    from lightfm import LightFM

    model: Any = LightFM(rank, loss="warp", item_alpha=alpha, user_alpha=alpha, random_state=0)
    writable = scipy.sparse.coo_matrix(train.to_scipy(), copy=True)
    model.fit(writable, epochs=epochs, num_threads=os.cpu_count() or 1)
    U = np.pad(model.user_embeddings, ((0, 0), (0, 1)), constant_values=1.0)
    V = np.concatenate([model.item_embeddings, model.item_biases[:, None]], 1)
    return Factors(jnp.asarray(U), jnp.asarray(V))


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
    return {"kind": kind, "dataset": "gowalla", "method": method, "rank": rank, "change": change}


def _gowalla_fit(config: Config, job: dict) -> dict[str, float]:
    train, test = _published(config.data_dir)
    if job["kind"] == "gowalla-validation":
        train, test = next(data.splits.k_fold(jax.random.key(0), train, 5))
    found = metrics.evaluate(fitted(job["change"], train, job["rank"]), train, test, at=(20,))
    return {name: found[name] for name in ("recall@20", "ndcg@20", "auc")}


@functools.lru_cache(1)
def _published(data_dir: str) -> data.Split:
    return data.load_split("gowalla", data_dir)


def _scores(config: Config, job: dict) -> dict[str, Any]:
    """One user's scores without and with the penalty: the user of median AUC among the active."""
    train, test = _split(job["dataset"], config.data_dir, job["seed"], config.held_out)
    models = {p: fitted(c, train, job["rank"]) for p, c in PICTURED.items()}
    auc = metrics.evaluate(models[OURS], train, test, per_user=True)
    lengths = np.diff(np.asarray(train.indptr))[auc["user"]]
    active = np.flatnonzero(lengths >= np.quantile(lengths, 0.5))
    place = active[np.argsort(auc["auc"][active], kind="stable")[len(active) // 2]]
    user = int(auc["user"][place])
    seen, held = (np.asarray(X.indices)[X.indptr[user] : X.indptr[user + 1]] for X in (train, test))
    negative = np.setdiff1d(np.arange(train.num_items), np.concatenate([seen, held]))
    found = {}
    for name, (U, V) in models.items():
        s = np.asarray(V @ U[user], float)
        s = (s - s[negative].mean()) / (s[seen].mean() - s[negative].mean())
        found[name] = {
            k: np.round(s[v], 4).tolist()
            for k, v in (("seen", seen), ("held out", held), ("negative", negative))
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
