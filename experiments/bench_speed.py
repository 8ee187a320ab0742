"""Time to quality: exact AUC and p@5 against seconds, our routes beside implicit and lightfm-next.

    python -m experiments.bench_speed --data_dir=DIR [--datasets=ml-100k,ml-1m,gowalla,synthetic]

One split, one run, two cores. Every method stops its clock while it is evaluated, after each sweep or
epoch (from the tenth iteration on after every tenth, implicit's BPR every fifth), and ends after
`--seconds` of its own. The time to compile is kept apart, cold and from JAX's cache on disk, which the
command line keeps. Peers have PEERS.md's tuned settings and one BLAS thread, as implicit's documentation
asks. Gowalla has its published split; `synthetic` is a power-law matrix of `--users` × `--items` with
`--positives`; both are evaluated on 10⁴ users. The last table is nanoseconds an item row: of an iteration
of the minibatch and of the blockwise route, and of implicit's BPR.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import threadpoolctl
from jax.experimental.compilation_cache import compilation_cache

from experiments import flags, results, style, variants
from mfauc_jax import data
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics
from mfauc_jax.model import MFAUC

TUNED_ON = {"gowalla": "book-crossing", "synthetic": "book-crossing"}  # as sparse
TITLES = {
    "ml-100k": "MovieLens 100K",
    "ml-1m": "MovieLens 1M",
    "gowalla": "Gowalla",
    "synthetic": "power-law matrix",
}
AUC_TO_REACH = {"ml-100k": 0.92, "ml-1m": 0.939}
HINGE = {"loss": "square_hinge", "num_pos": 20, "num_neg": 20, "iterations": 120}
ROUTES: dict[str, dict[str, Any]] = {
    "MFAUC": {},  # the alternating route
    "minibatch hinge": HINGE | {"solver": "minibatch"},
    "minibatch logistic": HINGE | {"solver": "minibatch", "loss": "logistic"},
    "blockwise hinge": HINGE | {"solver": "blockwise", "blocks": 2},
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data and methods."""

    data_dir: str = "data"
    datasets: tuple[str, ...] = ("ml-100k", "ml-1m", "gowalla", "synthetic")
    methods: tuple[str, ...] = (
        *ROUTES,
        "implicit ALS",
        "implicit BPR",
        "lightfm WARP",
        "lightfm BPR",
    )
    rank: int = 64
    evaluated: int = dataclasses.field(default=10_000, metadata={"help": "users, at most"})
    seconds: float = dataclasses.field(default=60.0, metadata={"help": "of a method, at most"})
    users: int = 1_000_000
    items: int = 100_000
    positives: int = 20_000_000
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
    model = MFAUC(**{"rank": config.rank, "progress": False, **ROUTES[name]})
    cold, cached = compile_seconds(model, train)
    at = curve()
    model.fit(train, callbacks=[lambda s, f, r: (s <= 10 or s % 10 == 0) and at.see(f.U, f.V)])
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
        begun = time.perf_counter()
        dataclasses.replace(model, iterations=1).fit(train)
        return time.perf_counter() - begun

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


def peers(dataset: str) -> dict[str, tuple]:
    """What was tuned for the peers."""
    return variants.PEERS[TUNED_ON.get(dataset, dataset)]


def implicit(
    name: str, dataset: str, config: Config, train: Interactions, curve: Callable[[], Curve]
) -> dict:
    """implicit's ALS or BPR, a point an iteration."""
    import implicit.cpu.als
    import implicit.cpu.bpr

    threads = os.cpu_count() or 1
    matrix = scipy.sparse.csr_matrix(train.to_scipy(), copy=True)
    if name == "implicit ALS":
        reg, alpha = peers(dataset)["als"]
        model: Any = implicit.cpu.als.AlternatingLeastSquares(
            config.rank,
            regularization=reg,
            alpha=alpha,
            iterations=15,
            random_state=0,
            num_threads=threads,
        )
        every = 1
    else:
        model = implicit.cpu.bpr.BayesianPersonalizedRanking(
            config.rank, iterations=100, random_state=0, num_threads=threads, learning_rate=0.05
        )
        every = 5
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
    """lightfm-next, a point an epoch; item biases become a column."""
    from lightfm import LightFM

    loss = {"lightfm WARP": "warp", "lightfm BPR": "bpr"}[name]
    rank, _, *alpha = peers(dataset)["warp"] if loss == "warp" else (config.rank, 0)
    alphas = {"item_alpha": alpha[0], "user_alpha": alpha[0]} if alpha else {}
    model: Any = LightFM(rank, loss=loss, random_state=0, **alphas)
    matrix = scipy.sparse.coo_matrix(train.to_scipy(), copy=True)
    at = curve()
    for _ in range(30):
        model.fit_partial(matrix, epochs=1, num_threads=os.cpu_count() or 1)
        U = np.pad(model.user_embeddings, ((0, 0), (0, 1)), constant_values=1.0)
        V = np.concatenate([model.item_embeddings, model.item_biases[:, None]], 1)
        if at.see(U, V):
            break
    return {"points": at.points, "compile": 0.0, "cached": 0.0}


METHODS = dict.fromkeys(ROUTES, mfauc) | {
    "implicit ALS": implicit,
    "implicit BPR": implicit,
    "lightfm WARP": lightfm,
    "lightfm BPR": lightfm,
}


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


def run(config: Config) -> list[dict]:
    """A record a data set and method, its curve; on MovieLens 1M also the times of rows."""
    import implicit.cpu.als  # noqa: F401  # its BLAS must be there to be limited

    records = []
    with threadpoolctl.threadpool_limits(1, "blas"):
        for dataset in config.datasets:
            train, test = load(dataset, config)
            for name in config.methods:
                print(f"{dataset} {name}", file=sys.stderr, flush=True)
                curve = functools.partial(Curve, train, test, config)
                found = METHODS[name](name, dataset, config, train, curve)
                records.append({"dataset": dataset, "method": name, **found})
            if dataset == "ml-1m":
                records += [{"dataset": dataset, "rows": rows(config, train)}]
    return records


def rows(config: Config, train: Interactions) -> dict[str, float]:
    """Nanoseconds an item row, the best of three iterations (ours: of six)."""
    found = {}
    for name in ("minibatch hinge", "blockwise hinge"):
        for batch in (128, 512):
            settings = ROUTES[name] | {"iterations": 7, "batch": batch}
            model = MFAUC(**{"rank": config.rank, "progress": False, **settings}).fit(train)
            at = [record["seconds"] for record in model.history_]
            items = train.num_users * (model.num_pos + model.num_neg)
            found[f"{name}, {batch} users a batch"] = min(np.diff(at)) / items * 1e9
    import implicit.cpu.bpr

    bpr: Any = implicit.cpu.bpr.BayesianPersonalizedRanking(
        config.rank, iterations=4, random_state=0, num_threads=os.cpu_count() or 1
    )
    at = []
    matrix = scipy.sparse.csr_matrix(train.to_scipy(), copy=True)
    bpr.fit(matrix, show_progress=False, callback=lambda *_: at.append(time.perf_counter()))
    found["implicit BPR"] = min(np.diff(at)) / (2 * train.nnz) * 1e9
    return found


def time_to(record: dict, auc: float, top: float = 0.0) -> float | None:
    """Seconds until both are reached at one point of the curve."""
    reached = [t for t, a, p in record["points"] if a >= auc and p >= top]
    return reached[0] if reached else None


def targets(records: list[dict], dataset: str) -> list[tuple[str, float | None, float]]:
    """What is asked for, our ratio, and the largest ratio allowed."""
    by = {r["method"]: r for r in records if r["dataset"] == dataset and "method" in r}
    if dataset not in AUC_TO_REACH or not {"MFAUC", "implicit ALS", "lightfm WARP"} <= set(by):
        return []
    auc = AUC_TO_REACH[dataset]
    warp, ours = time_to(by["lightfm WARP"], auc), time_to(by["MFAUC"], auc)
    als = by["implicit ALS"]["points"]
    rows = [
        (
            f"time to AUC {auc} over lightfm WARP's",
            _ratio(ours, warp),
            0.25 if dataset == "ml-1m" else 0.5,
        )
    ]
    if dataset == "ml-100k" and ours is not None:
        for what in ("compile", "cached"):
            known = {"compile": "cold", "cached": "from the cache"}[what]
            ratio = _ratio(ours + by["MFAUC"][what], warp)
            rows.append((f"the same, compilation counted, {known}", ratio, 2.0))
    if dataset == "ml-1m":
        last = als[-1]
        both = time_to(by["MFAUC"], last[1], last[2])
        rows.append(
            ("time to implicit ALS's last AUC and p@5 over its time", _ratio(both, last[0]), 1.0)
        )
    for found in (r["rows"] for r in records if r["dataset"] == dataset and "rows" in r):
        peer = found["implicit BPR"]
        rows += [
            (f"{name}: {ns:.0f} ns a row, over implicit BPR's {peer:.0f}", ns / peer, 1.0)
            for name, ns in found.items()
            if ns is not peer
        ]
    return rows


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    """None if we do not get there; 0 if they do not."""
    if ours is None:
        return None
    return 0.0 if theirs is None else ours / theirs


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """A figure a data set: AUC and p@5 against seconds."""
    drawn = []
    curves = [r for r in records if "points" in r]
    for dataset in dict.fromkeys(r["dataset"] for r in curves):
        figure, axes = style.panels(2)
        for place, r in enumerate(x for x in curves if x["dataset"] == dataset):
            t, auc, top = np.array(r["points"]).T
            look = style.line(place) if place < 7 else {"color": "#888888", "linestyle": "-"}
            look |= {"marker": (style.MARKERS + "X")[place % 8], "markevery": max(len(t) // 12, 1)}
            for ax, y in zip(axes[0], (auc, top), strict=True):
                ax.plot(t, y, **look, ms=4, lw=1.3, label=r["method"])
                ax.set(xscale="log", xlabel="seconds on 2 cores, compilation apart")
        best = max(
            max(point[1] for point in r["points"]) for r in curves if r["dataset"] == dataset
        )
        title = TITLES[dataset]
        axes[0][0].set(ylabel="exact AUC", title=title, ylim=(best - 0.15, best + 0.01))
        axes[0][1].set(ylabel="p@5", title=title)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        drawn += style.save(figure, out, f"bench_speed_{dataset}")
    return drawn


def main(config: Config) -> int:
    records = run(config)
    results.write(config.results, config, records)
    good = True
    for dataset in config.datasets:
        print(
            f"{dataset:22}{'compile':>9}{'cached':>9}{'last s':>9}{'AUC':>8}{'p@5':>8}{'best AUC':>10}"
        )
        for r in (r for r in records if r["dataset"] == dataset and "points" in r):
            t, auc, top = r["points"][-1]
            best = max(a for _, a, _ in r["points"])
            print(
                f"  {r['method']:20}{r['compile']:9.2f}{r['cached']:9.2f}{t:9.2f}{auc:8.4f}{top:8.4f}{best:10.4f}"
            )
        for what, ratio, most in targets(records, dataset):
            reached = ratio is not None and ratio <= most
            good = good and reached
            shown = "never reached" if ratio is None else f"{ratio:.2f}"
            print(f"  {what}: {shown} (≤ {most:g}) {'met' if reached else 'MISSED'}")
    for path in draw(records, config.out):
        print(path)
    return 0 if good else 1


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)  # for the two blocks
    sys.exit(flags.run(Config, main))
