"""`MFAUC()` and `mf.tune` beside tuned peers, on eight data sets: quality, seconds, paired differences.

    python -m experiments.bench_tune --data_dir=DIR [--datasets=ml-100k,…] [--methods=tune,default,…]
        [--table=FILE.md] [--picture=FOLDER]

A data set with a slash is a published split (a folder of DIR with train.tsv.gz and test.tsv.gz), `gowalla` is BARS's
split, and of the others 5 positives per user are held out by the split seed. All methods have k = 64, see the training
positives only, and choose by the same number of fits on the same held-out tenth of them (`experiments/opponents.py`).
`tune 4/5` is the model that `tune` chose, fitted to four fifths of train. `tune as published` is fitted and judged as
the code of IR-Benchmark does it (Tiny-Snow/IR-Benchmark-SLatK: dataset.py, metrics.py): a tenth of each user's training
positives, at least one, does not train, and is not left out of the lists either.
Records are cells: a finished one is read back. Differences are paired by user: the values per user are in the folder
`--values`, and what is missing there is fitted again with the settings of its record. After the search the model that
`tune` chose is fitted from `--starts` starts in all; its record has the means over them.
"""

import dataclasses
import pathlib
import sys
import time

import numpy as np

from experiments import bench_lists, flags, opponents, results, style
from mfauc_jax import MFAUC, data, evaluate, tune, tuning
from mfauc_jax._core import atomic
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import splits
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import significance

PUBLISHED = "tune as published"
OURS = ("tune", "default", "tune 4/5", PUBLISHED)
METHODS = (*OURS, *opponents.NAMES)
DATASETS = (
    "ml-100k",
    "ml-1m",
    "epinions",
    "book-crossing",
    "ir-benchmark/amazon2014-electronic",
    "ir-benchmark/amazon2014-movie",
    "ir-benchmark/gowalla",
    "gowalla",
)
AGAIN = 0.02  # a fit with a record's settings may differ by this share: WARP's threads race
KEPT = ("recall@20", "ndcg@20", "precision@5", "auc")


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data and methods."""

    data_dir: str = flags.option("data", "folder of the data sets")
    datasets: tuple[str, ...] = flags.option(DATASETS, "names, or folders of data_dir")
    methods: tuple[str, ...] = flags.option(METHODS, "rows of the table")
    budget: int = flags.option(tuning.BUDGET, "fits that each method may compare")
    rank: int = 64
    split_seed: int = flags.option(300, "of data sets without a published split")
    seed: int = flags.option(0, "of the search and the first start")
    starts: int = flags.option(3, "fits of the model that tune chose")
    pairs: bool = flags.option(False, "only pair the latest records of the data sets with tune")
    table: str = flags.option("", "write the records to this Markdown file, and fit nothing")
    picture: str = flags.option("", "draw the records into this folder, and fit nothing")
    values: str = flags.option("out/bench_tune", "folder for the metrics of each user")
    results: str = "out/bench_tune.jsonl"


def run(config: Config) -> list[dict]:
    """One record per data set and method; EASE is left out where the items are too many."""
    unknown = set(config.methods) - set(METHODS)
    if unknown:
        raise ValueError(f"--methods={','.join(unknown)}: known are {', '.join(METHODS)}")
    jobs = []
    for name in config.datasets:
        published = "/" in name or name == "gowalla"
        large = name in ("epinions", "book-crossing", "ir-benchmark/gowalla", "gowalla")
        for method in config.methods:
            if method == "EASE" and large:
                continue
            if method in ("tune 4/5", PUBLISHED) and "/" not in name:
                continue
            job = {"dataset": name, "method": method, "budget": config.budget, "rank": config.rank}
            job |= {"seed": config.seed} | ({} if published else {"split": config.split_seed})
            jobs.append(job | ({"starts": config.starts} if method.startswith("tune") else {}))
    return results.Cells(config.results).run(jobs, lambda job: judge(config, job))


def split_of(config: Config, name: str) -> data.Split:
    """The published split, or 5 positives per user held out."""
    if "/" in name or name == "gowalla":
        return bench_lists.split(bench_lists.Config(data_dir=config.data_dir, test=True), name)
    return splits.hold_out(config.split_seed, data.load(name, config.data_dir), per_user=5)


def judge(config: Config, job: dict) -> dict:
    """Tune, fit, and judge on test; the values per user go to a file of their own."""
    train, test = split_of(config, job["dataset"])
    method, seed, begun, seen = job["method"], job["seed"], time.perf_counter(), train
    kept: dict = {}
    if method in OURS:
        if method == "tune":
            model = tune(train, job["budget"], rank=job["rank"], seed=seed, progress=False)
            found = vars(model)["tuning_"]
            chosen, searched = found.chosen, found.seconds
            kept = {"member": chosen.member, "fits": len(found.trials)}
            kept["chosen"] = chosen.params | {"iterations": chosen.iterations}
            kept["held_out"] = [chosen.metric, found.best.metric, *found.difference[:3]]
        elif method == "default":
            model, searched = MFAUC(rank=job["rank"], seed=seed).fit(train), 0.0
        else:
            if method == PUBLISHED:
                part = seen = tenth_and_one(seed, train).train
            else:
                part = next(splits.k_fold(seed, train, 5)).train
            model, searched = _chosen(config, job).fit(part, progress=False), 0.0
            kept = {"positives": part.nnz}
        seconds = searched, time.perf_counter() - begun - searched
        values = [of_user(model.factors_, None, seen, test)]
        again = (
            model.with_params(seed=seed + s).fit(model.train_, progress=False)
            for s in range(1, job.get("starts", 1))
        )
        values += [of_user(one.factors_, None, seen, test) for one in again]
        kept |= {"ndcg@20 by start": [float(np.nanmean(v["ndcg@20"])) for v in values]}
        values = {name: np.mean([one[name] for one in values], 0) for name in KEPT}
    else:
        fitted = opponents.tuned(method, train, job["budget"], job["rank"], seed, "ndcg@20")
        kept, seconds = {"chosen": fitted.settings}, fitted.seconds
        values = of_user(fitted.factors, fitted.weights, train, test)
    _keep(_path(config, job), values)
    means = {name: float(np.nanmean(values[name])) for name in KEPT}
    print(job["dataset"], method, means, seconds, file=sys.stderr, flush=True)
    return means | kept | {"tune_seconds": seconds[0], "fit_seconds": seconds[1]}


def tenth_and_one(seed: int, X: Interactions) -> data.Split:
    """max(1, ⌊N_i/10⌋) random positives of every user held out, but never all: what IR-Benchmark chooses on."""
    lengths = X.on_host()[2]
    order = np.argsort(
        np.repeat(np.arange(X.num_users), lengths) + splits.generator(seed).random(X.nnz)
    )
    place = np.empty(X.nnz, int)
    place[order] = np.arange(X.nnz) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    many = np.minimum(np.maximum(lengths // 10, 1), np.maximum(lengths - 1, 0))
    held_out = place < np.repeat(many, lengths)
    return data.Split(splits.select(X, ~held_out), splits.select(X, held_out))


def of_user(
    factors: Factors | None, weights: np.ndarray | None, train: Interactions, test: Interactions
) -> dict[str, np.ndarray]:
    """The metrics of each user by factors or, of EASE, by B."""
    if weights is not None:
        found = opponents.of_item_weights(weights, train, test, (5, 20))
    else:
        assert factors is not None
        found = evaluate(factors, train, test, (5, 20), per_user=True)
    return {name: np.asarray(found[name], np.float32) for name in KEPT}


def _keep(path: pathlib.Path, values: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.beside(path) as new, new.open("wb") as file:
        np.savez(file, **values)  # pyright: ignore


def of_record(config: Config, r: dict) -> dict[str, np.ndarray]:
    """The metrics of each user of a record: from the folder of values, or by a fit with the record's settings."""
    path = _path(config, r)
    if path.exists():
        with np.load(path) as file:
            values = dict(file)
        if _agree(values, r):
            return values
    if r["method"].startswith("tune"):
        raise LookupError(f"{path} is not of the record of {r['method']}: run it again")
    train, test = split_of(config, r["dataset"])
    if r["method"] == "default":
        found = MFAUC(rank=r["rank"], seed=r["seed"]).fit(train).factors_, None
    else:
        found = opponents.fitted(r["method"], train, r["rank"], r["seed"], r["chosen"])
    values = of_user(*found, train, test)
    print("fitted again", r["dataset"], r["method"], file=sys.stderr, flush=True)
    if not _agree(values, r):
        again, then = float(np.nanmean(values["ndcg@20"])), r["ndcg@20"]
        raise ValueError(
            f"{r['method']} on {r['dataset']} has NDCG@20 {again:.4f}, its record {then:.4f}: tune it again"
        )
    _keep(path, values)
    return values


def _agree(values: dict[str, np.ndarray], r: dict) -> bool:
    """Whether the values of users have the means of a record, within `AGAIN`."""
    return all(abs(float(np.nanmean(values[name])) - r[name]) <= AGAIN * r[name] for name in KEPT)


def _path(config: Config, job: dict) -> pathlib.Path:
    return pathlib.Path(config.values, f"{job['dataset']}/{job['method']}.npz".replace(" ", "_"))


def _chosen(config: Config, job: dict) -> MFAUC:
    """The model that `tune` chose for the data set, from its record."""
    wanted = {"dataset": job["dataset"], "method": "tune", "seed": job["seed"]}
    record = results.the(results.read(config.results), wanted)
    (member,) = [m for m in tuning.members(job["rank"], job["seed"]) if m.name == record["member"]]
    params = dict(record["chosen"])
    iterations = params.pop("iterations")
    return member.model.with_params(**params, solver__iterations=iterations)


def paired(config: Config, records: list[dict]) -> list[dict]:
    """The differences of `tune` from each method over the users, with 95 % intervals, where `tune` was run here."""
    latest = {(r["dataset"], r["method"]): r for r in records}
    jobs = []
    for (dataset, method), r in latest.items():
        tuned = latest.get((dataset, "tune"))
        if not method.startswith("tune") and tuned and _path(config, tuned).exists():
            told = {name: r[name] for name in ("dataset", "method", "budget", "rank", "seed")}
            jobs.append({"kind": "paired", "of": r["commit"], "tune": tuned["commit"], **told})

    def difference(job: dict) -> dict:
        a, b = (of_record(config, latest[job["dataset"], m]) for m in ("tune", job["method"]))
        gaps = {name: significance.paired(a[name], b[name])[:3] for name in KEPT}
        return {"tune_minus": {name: list(gap) for name, gap in gaps.items()}}

    return results.Cells(config.results).run(jobs, difference)


def table(records: list[dict]) -> str:
    """The records as Markdown, with the paired difference of `tune` from each."""
    rows = [
        "| data | method | Recall@20 | NDCG@20 | p@5 | AUC | NDCG@20: tune − it | tuning s | fit s | chosen |",
        "| --- " * 10 + "|",
    ]
    gaps = {
        (r["dataset"], r["method"], r["seed"]): r["tune_minus"]
        for r in records
        if r.get("kind") == "paired"
    }

    def place(r: dict) -> tuple[int, int]:
        return DATASETS.index(r["dataset"]), METHODS.index(r["method"])

    for r in sorted(fits(records), key=place):
        means = [f"{r[name]:.4f}".lstrip("0") for name in KEPT]
        gap = gaps.get((r["dataset"], r["method"], r["seed"]), {}).get("ndcg@20")
        shown = f"{gap[0]:+.4f} [{gap[1]:+.4f}, {gap[2]:+.4f}]" if gap else ""
        chosen = {k.split("__")[-1]: v for k, v in r.get("chosen", {}).items()}
        words = ", ".join(f"{k} {v:.3g}" for k, v in chosen.items())
        words = f"{r['member']}: {words}" if "member" in r else words
        seconds = [f"{r['tune_seconds']:.0f}", f"{r['fit_seconds']:.1f}"]
        rows.append(
            f"| {' | '.join([r['dataset'], r['method'], *means, shown, *seconds, words])} |"
        )
    return "\n".join(rows) + "\n"


def fits(records: list[dict]) -> list[dict]:
    """The latest record of each fit."""
    plain = [r for r in records if r.get("kind") != "paired"]
    return results.latest(plain, ("dataset", "method", "seed"))


def draw(records: list[dict], out: str) -> list[pathlib.Path]:
    """NDCG@20 of every method as a share of the best, one group per data set."""
    known = fits(records)
    datasets = [name for name in DATASETS if any(r["dataset"] == name for r in known)]
    parts = ("tune 4/5", PUBLISHED)
    methods = [m for m in METHODS if m not in parts and any(r["method"] == m for r in known)]
    figure, axes = style.panels(1, width=9.0, height=3.4)
    ax = axes[0][0]
    for place, method in enumerate(methods):
        for x, dataset in enumerate(datasets):
            found = {r["method"]: r["ndcg@20"] for r in known if r["dataset"] == dataset}
            if method in found:
                share = found[method] / max(v for k, v in found.items() if k in methods)
                ax.plot(
                    x + 0.09 * (place - len(methods) / 2),
                    share,
                    style.MARKERS[place % len(style.MARKERS)],
                    color=style.COLOURS[place % len(style.COLOURS)],
                    ms=6,
                    label=method if x == 0 else None,
                )
    ax.set_xticks(range(len(datasets)), [name.split("/")[-1] for name in datasets], rotation=15)
    ax.set_ylabel("NDCG@20, share of the best")
    ax.grid(axis="y", alpha=0.3)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return style.save(figure, out, "bench_tune")


def main(config: Config) -> int:
    """Run, print, and judge: 1 if `tune` is below the default or iALS by a paired interval."""
    if config.table or config.picture:
        records = results.read(config.results)
        if config.table:
            atomic.write_text(config.table, table(records))
        if config.picture:
            print(*draw(records, config.picture))
        return 0
    if config.pairs:
        known = fits(results.read(config.results))
        records = [r for r in known if r["dataset"] in config.datasets]
    else:
        records = run(config)
    gaps = paired(config, records)
    print(table(records + gaps))
    below = [
        f"MISSED {r['dataset']}: tune is below {r['method']}: {r['tune_minus']['ndcg@20']}"
        for r in gaps
        if r["method"] in ("default", "irspack iALS") and r["tune_minus"]["ndcg@20"][2] < 0
    ]
    print(*below, sep="\n")
    return int(bool(below))


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
