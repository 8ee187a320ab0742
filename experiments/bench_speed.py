"""Time to quality: exact AUC and p@5 against seconds, our routes beside implicit, irspack and lightfm-next.

    python -m experiments.bench_speed --data_dir=DIR [--datasets=ml-100k,ml-1m,book-crossing,gowalla,synthetic]

One split, one run, two cores. Every method stops its clock while it is evaluated, after each sweep or
epoch (from the tenth iteration on after every tenth, implicit's BPR every fifth), and ends after
`--seconds` of its own. The time to compile is kept apart, cold and from JAX's cache on disk, which the
command line keeps. The peers' settings are those of docs/derivations.md#peers. Gowalla has its published split;
`synthetic` is a power-law matrix of `--users` × `--items` with `--positives`; both are evaluated on 10⁴ users. The last
table is nanoseconds per item row: of an iteration of the minibatch and of the blockwise route, and of implicit's BPR.

Whole fits, as a user waits for them, are timed apart: `MFAUC()`, implicit's ALS (15 iterations) and irspack's iALS
(12 epochs) in turn, `--repeats` times after one fit that compiles, both cores for everybody. Records are written as
they are made.
"""

import contextlib
import dataclasses
import functools
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from experiments import flags, measure, peers, results, speed_report, variants
from mfauc_jax import MFAUC, Blockwise, Dense, Minibatch, data, tuning
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics

TUNED_ON = {"gowalla": "book-crossing", "synthetic": "book-crossing"}  # as sparse
IRSPACK = {"irspack CG": "CG", "irspack iALS++": "IALSPP"}
DRAWN: dict[str, Any] = {"iterations": 120, "num_pos": 20, "num_neg": 20}
ROUTES = {
    "MFAUC": MFAUC(),  # the alternating route
    "minibatch hinge": MFAUC(loss="square_hinge", solver=Minibatch(**DRAWN)),
    "minibatch logistic": MFAUC(loss="logistic", solver=Minibatch(**DRAWN)),
    "blockwise hinge": MFAUC(loss="square_hinge", solver=Blockwise(**DRAWN, blocks=2)),
    "dense hinge": MFAUC(loss="square_hinge", solver=Dense(iterations=60)),
    "dense logistic": MFAUC(loss="logistic", solver=Dense(iterations=60)),
    "dense softmax": tuning.members()[1].model.with_params(solver__iterations=60),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data and methods."""

    data_dir: str = "data"
    datasets: tuple[str, ...] = ("ml-100k", "ml-1m", "book-crossing", "gowalla", "synthetic")
    methods: tuple[str, ...] = (
        *ROUTES,
        "implicit ALS",
        *IRSPACK,
        "implicit BPR",
        "lightfm WARP",
        "lightfm BPR",
    )
    repeats: int = flags.option(5, "whole fits of each method; 0: none")
    rank: int = 64
    evaluated: int = flags.option(10_000, "users, at most")
    seconds: float = flags.option(60.0, "of a method, at most")
    users: int = flags.option(1_000_000, "users of the synthetic data")
    items: int = flags.option(100_000, "items of the synthetic data")
    positives: int = flags.option(20_000_000, "positives of the synthetic data")
    results: str = "results/bench_speed.jsonl"
    out: str = "results"


class Curve:
    """A clock that stands still while factors are evaluated."""

    def __init__(self, train: Interactions, test: Interactions, config: Config):
        chosen = np.random.default_rng(0).permutation(train.num_users)[: config.evaluated]
        self.chosen, self.train, self.test = chosen, train.take(chosen), test.take(chosen)
        self.most = config.seconds
        self.spent, self.points, self.begun = 0.0, [], time.perf_counter()

    def see(self, U: Any, V: Any) -> bool:
        """A point: the seconds so far, and how good the factors are; whether the time is up."""
        jax.block_until_ready((U, V))
        self.spent += time.perf_counter() - self.begun
        factors = Factors(jnp.asarray(np.asarray(U)[self.chosen]), jnp.asarray(np.asarray(V)))
        found = metrics.evaluate(factors, self.train, self.test, (5,))
        self.points.append((self.spent, float(found["auc"]), float(found["precision@5"])))
        self.begun = time.perf_counter()
        return self.spent > self.most


def mfauc(
    name: str, dataset: str, config: Config, train: Interactions, curve: Callable[[], Curve]
) -> dict:
    """One of our routes, on any data; what its first iteration takes longer when cold is compilation."""
    del dataset
    model = ROUTES[name].with_params(rank=config.rank)
    cold, cached = compile_seconds(model, train)
    at = curve()

    def told(s: int, found: Factors, record: dict) -> bool:
        del record
        return (s <= 10 or s % 10 == 0) and at.see(found.U, found.V)

    model.fit(train, callbacks=[told], progress=False)
    warm = at.points[0][0]
    return {
        "points": at.points,
        "compile": max(cold - warm, 0.0),
        "cached": max(cached - warm, 0.0),
    }


def compile_seconds(model: MFAUC, train: Interactions) -> tuple[float, float]:
    """Seconds of a fit of one iteration when nothing is compiled, and with the cache on disk."""

    def first() -> float:
        jax.clear_caches()
        short = model.with_params(solver__iterations=1)
        return measure.timed(lambda: short.fit(train, progress=False), 1)[0]

    cold = first()
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        compilation_cache.reset_cache()
        first()  # fills it
        cached = first()
        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()
    return cold, cached


def tuned(dataset: str) -> dict[str, tuple]:
    """What was tuned for the peers."""
    return variants.TUNED[TUNED_ON.get(dataset, dataset)]


def implicit(
    name: str, dataset: str, config: Config, train: Interactions, curve: Callable[[], Curve]
) -> dict:
    """implicit's ALS with a point after each iteration, or BPR after each fifth."""
    if name == "implicit ALS":
        model, every = peers.implicit_als(config.rank, *tuned(dataset)["als"]), 1
    else:
        model, every = peers.implicit_bpr(config.rank, 100, learning_rate=0.05), 5
    matrix = peers.rows(train)
    at = curve()

    def told(iteration: int, *_: Any) -> None:
        if iteration % every == every - 1 and at.see(model.user_factors, model.item_factors):
            raise results.Enough

    with contextlib.suppress(results.Enough):
        model.fit(matrix, show_progress=False, callback=told)
    return {"points": at.points, "compile": 0.0, "cached": 0.0}


def lightfm(
    name: str, dataset: str, config: Config, train: Interactions, curve: Callable[[], Curve]
) -> dict:
    """lightfm-next, a point after each epoch."""
    loss = {"lightfm WARP": "warp", "lightfm BPR": "bpr"}[name]
    rank, _, *alpha = tuned(dataset)["warp"] if loss == "warp" else (config.rank, 0)
    model = peers.LightFM(train, loss, rank, *alpha)
    at = curve()
    for _ in range(30):
        if at.see(*model.go_on(1)):
            break
    return {"points": at.points, "compile": 0.0, "cached": 0.0}


def irspack(
    name: str, dataset: str, config: Config, train: Interactions, curve: Callable[[], Curve]
) -> dict:
    """irspack's iALS, a point after each epoch."""
    at = curve()
    model = peers.Irspack(train, config.rank, IRSPACK[name], *tuned(dataset)["irspack"])
    for _ in range(speed_report.EPOCHS[name]):
        if at.see(*model.go_on(1)):
            break
    return {"points": at.points, "compile": 0.0, "cached": 0.0}


METHODS = (
    dict.fromkeys(ROUTES, mfauc)
    | dict.fromkeys(IRSPACK, irspack)
    | {
        "implicit ALS": implicit,
        "implicit BPR": implicit,
        "lightfm WARP": lightfm,
        "lightfm BPR": lightfm,
    }
)


def load(dataset: str, config: Config) -> data.Split:
    """Training and test positives of a data set."""
    if dataset == "gowalla":
        return data.load_split("gowalla", config.data_dir)
    if dataset == "synthetic":
        sizes = (config.users, config.items, config.positives)
        X = data.synthetic.power_law(jax.random.key(0), *sizes)
    else:
        X = data.load(dataset, config.data_dir)
    return data.splits.hold_out(jax.random.key(0), X, per_user=5)


def whole_fits(dataset: str, config: Config, split: data.Split) -> dict[str, dict]:
    """Seconds of whole fits from the matrix to the factors, one method after the other in turn, and their quality."""
    train, test = split
    names = [n for n in ("MFAUC", *speed_report.EPOCHS) if n in config.methods]

    def fitted(name: str) -> Factors:
        if name == "MFAUC":
            return ROUTES[name].with_params(rank=config.rank).fit(train, progress=False).factors_
        if name == "implicit ALS":
            reg, alpha = tuned(dataset)["als"]
            als = peers.implicit_als(config.rank, reg, alpha, speed_report.EPOCHS[name])
            return peers.implicit_factors(als, train)
        setting = tuned(dataset)["irspack"]
        return peers.Irspack(train, config.rank, IRSPACK[name], *setting).go_on(
            speed_report.EPOCHS[name]
        )

    found: dict[str, dict] = {}
    for name in names:
        at = Curve(train, test, config)
        at.see(*fitted(name))  # compiles, where there is something to compile
        found[name] = {"auc": at.points[0][1], "precision@5": at.points[0][2], "seconds": []}
    for _ in range(config.repeats):
        for name in names:
            found[name]["seconds"].append(measure.timed(functools.partial(fitted, name), 1)[0])
    return found


def run(config: Config) -> list[dict]:
    """One record per data set and method, its curve; whole fits; on MovieLens 1M also the times of rows."""
    records: list[dict] = []

    def keep(record: dict) -> None:
        records.append(record)
        results.write(config.results, config, records)

    with peers.one_blas_thread():
        for dataset in config.datasets:
            train, test = load(dataset, config)
            if config.repeats:
                keep(
                    {
                        "dataset": dataset,
                        "whole": whole_fits(dataset, config, data.Split(train, test)),
                    }
                )
            for name in config.methods:
                print(f"{dataset} {name}", file=sys.stderr, flush=True)
                curve = functools.partial(Curve, train, test, config)
                found = METHODS[name](name, dataset, config, train, curve)
                keep({"dataset": dataset, "method": name, **found})
            if dataset == "ml-1m" and {"minibatch hinge", "blockwise hinge"} <= set(config.methods):
                keep({"dataset": dataset, "rows": rows(config, train)})
    return records


def rows(config: Config, train: Interactions) -> dict[str, float]:
    """Nanoseconds per item row, the best of three iterations (ours: of six)."""
    found = {}
    for name in ("minibatch hinge", "blockwise hinge"):
        for batch in (128, 512):
            setting = {"solver__iterations": 7, "solver__batch": batch}
            model = ROUTES[name].with_params(rank=config.rank, **setting)
            at = [record["seconds"] for record in model.fit(train, progress=False).history_]
            items = train.num_users * (model.solver.num_pos + model.solver.num_neg)
            found[f"{name}, {batch} users per batch"] = min(np.diff(at)) / items * 1e9
    bpr, at = peers.implicit_bpr(config.rank, 4), []
    bpr.fit(
        peers.rows(train), show_progress=False, callback=lambda *_: at.append(time.perf_counter())
    )
    found["implicit BPR"] = min(np.diff(at)) / (2 * train.nnz) * 1e9
    return found


def main(config: Config) -> int:
    records = run(config)
    good = True
    for dataset in config.datasets:
        for found in (r["whole"] for r in records if r["dataset"] == dataset and "whole" in r):
            for name, one in found.items():
                told = f"{np.median(one['seconds']):6.2f} s, AUC {one['auc']:.4f}, p@5 {one['precision@5']:.4f}"
                print(f"{dataset} whole fit, {name:16}{told}")
        print(
            f"{dataset:22}{'compile':>9}{'cached':>9}{'last s':>9}{'AUC':>8}{'p@5':>8}{'best AUC':>10}"
        )
        for r in (r for r in records if r["dataset"] == dataset and "points" in r):
            t, auc, top = r["points"][-1]
            best = max(a for _, a, _ in r["points"])
            print(
                f"  {r['method']:20}{r['compile']:9.2f}{r['cached']:9.2f}{t:9.2f}{auc:8.4f}{top:8.4f}{best:10.4f}"
            )
        for what, ratio, most in speed_report.targets(records, dataset):
            reached = ratio is not None and ratio <= most
            good = good and reached
            shown = "never reached" if ratio is None else f"{ratio:.2f}"
            print(f"  {what}: {shown} (≤ {most:g}) {'met' if reached else 'MISSED'}")
    for path in speed_report.draw(records, config.out):
        print(path)
    return 0 if good else 1


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)  # for the two blocks
    sys.exit(flags.run(Config, main))
