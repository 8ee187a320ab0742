"""Time to quality: exact AUC and p@5 against seconds, our routes beside implicit and lightfm-next.

    python -m experiments.bench_speed --data_dir=DIR [--datasets=ml-100k,ml-1m,synthetic]

One split, one run, two cores. Every method stops its clock while it is evaluated after each sweep or
epoch; the time to compile is kept apart, and the second table has it in. Peers have PEERS.md's tuned
settings and one BLAS thread, as implicit's documentation asks. `synthetic` is a power-law matrix of
`--users` × `--items` with `--positives`, evaluated on 10⁴ users.
"""

import dataclasses
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import threadpoolctl

from experiments import flags, results, style
from mfauc_jax import data, metrics
from mfauc_jax.factors import Factors
from mfauc_jax.interactions import Interactions
from mfauc_jax.model import MFAUC

ALS = {"ml-100k": (30.0, 4.0), "ml-1m": (60.0, 4.0)}  # reg and α of PEERS.md, at k = 64
AUC_TO_REACH = {"ml-100k": 0.92, "ml-1m": 0.939}


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data and methods."""

    data_dir: str = "data"
    datasets: tuple[str, ...] = ("ml-100k", "ml-1m")
    methods: tuple[str, ...] = ("MFAUC", "minibatch", "implicit ALS", "implicit BPR",
                                "lightfm WARP", "lightfm BPR")  # fmt: skip
    rank: int = 64
    evaluated: int = dataclasses.field(default=10_000, metadata={"help": "users, at most"})
    users: int = 1_000_000
    items: int = 100_000
    positives: int = 20_000_000
    results: str = "results/bench_speed.jsonl"
    out: str = "results"


class Curve:
    """A clock that stands still while factors are evaluated."""

    def __init__(self, train: Interactions, test: Interactions, users: int):
        chosen = np.random.default_rng(0).permutation(train.num_users)[:users]
        self.chosen, self.train, self.test = chosen, train.take(chosen), test.take(chosen)
        self.spent, self.points, self.begun = 0.0, [], time.perf_counter()

    def see(self, U: Any, V: Any) -> None:
        """A point: the seconds so far, and how good the factors are."""
        jax.block_until_ready((U, V))
        self.spent += time.perf_counter() - self.begun
        factors = Factors(jnp.asarray(np.asarray(U)[self.chosen]), jnp.asarray(np.asarray(V)))
        found = metrics.evaluate(factors, self.train, self.test, (5,))
        self.points.append((self.spent, float(found["auc"]), float(found["precision@5"])))
        self.begun = time.perf_counter()


def mfauc(
    name: str, dataset: str, config: Config, train: Interactions, curve: Callable[[], Curve]
) -> dict:
    """One of our routes, on any data; what its first iteration takes longer in a first fit is compilation."""
    changes: dict[str, Any] = {"rank": config.rank, "progress": False}
    if name == "minibatch":
        changes |= {"loss": "square_hinge", "solver": "minibatch", "iterations": 30, "reg": 0.01,
                    "spread": 0.0, "average_start": 10, "learning_rate": 0.3}  # fmt: skip
    begun = time.perf_counter()
    MFAUC(**changes).set_params(iterations=1).fit(train)
    cold = time.perf_counter() - begun
    at = curve()
    MFAUC(**changes).fit(train, callbacks=[lambda s, f, r: at.see(f.U, f.V)])
    return {"points": at.points, "compile": max(cold - at.points[0][0], 0.0)}


def implicit(
    name: str, dataset: str, config: Config, train: Interactions, curve: Callable[[], Curve]
) -> dict:
    """implicit's ALS or BPR, a point an iteration."""
    import implicit.cpu.als
    import implicit.cpu.bpr

    threads = os.cpu_count() or 1
    matrix = scipy.sparse.csr_matrix(train.to_scipy())
    if name == "implicit ALS":
        reg, alpha = ALS.get(dataset, ALS["ml-1m"])
        model = implicit.cpu.als.AlternatingLeastSquares(
            config.rank, regularization=reg, alpha=alpha, iterations=15, random_state=0, num_threads=threads
        )  # fmt: skip
        at = curve()
        told = {"callback": lambda *_: at.see(model.user_factors, model.item_factors)}
        model.fit(matrix, show_progress=False, **told)
        return {"points": at.points, "compile": 0.0}
    model = implicit.cpu.bpr.BayesianPersonalizedRanking(
        config.rank, iterations=100, random_state=0, num_threads=threads, learning_rate=0.05
    )
    at = curve()
    every = iter(range(10**6))
    told = {"callback": lambda *_: at.see(model.user_factors, model.item_factors)
            if next(every) % 10 == 9 else None}  # fmt: skip
    model.fit(matrix, show_progress=False, **told)
    return {"points": at.points, "compile": 0.0}


def lightfm(
    name: str, dataset: str, config: Config, train: Interactions, curve: Callable[[], Curve]
) -> dict:
    """lightfm-next, a point an epoch; item biases become a column."""
    from lightfm import LightFM

    loss = {"lightfm WARP": "warp", "lightfm BPR": "bpr"}[name]
    model: Any = LightFM(no_components=config.rank, loss=loss, random_state=0)
    matrix = scipy.sparse.coo_matrix(train.to_scipy(), copy=True)
    at = curve()
    for _ in range(30):
        model.fit_partial(matrix, epochs=1, num_threads=os.cpu_count() or 1)
        U = np.pad(model.user_embeddings, ((0, 0), (0, 1)), constant_values=1.0)
        V = np.concatenate([model.item_embeddings, model.item_biases[:, None]], 1)
        at.see(U, V)
    return {"points": at.points, "compile": 0.0}


METHODS = {
    "MFAUC": mfauc, "minibatch": mfauc, "implicit ALS": implicit, "implicit BPR": implicit,
    "lightfm WARP": lightfm, "lightfm BPR": lightfm,
}  # fmt: skip


def run(config: Config) -> list[dict]:
    """A record a data set and method: its curve."""
    records = []
    with threadpoolctl.threadpool_limits(1, "blas"):
        for dataset in config.datasets:
            if dataset == "synthetic":
                sizes = (config.users, config.items, config.positives)
                X = data.synthetic.power_law(jax.random.key(0), *sizes)
            else:
                X = data.load(dataset, config.data_dir)
            train, test = data.splits.hold_out(jax.random.key(0), X, per_user=5)
            for name in config.methods:
                print(f"{dataset} {name}", file=sys.stderr, flush=True)
                found = METHODS[name](
                    name,
                    dataset,
                    config,
                    train,
                    lambda: Curve(train, test, config.evaluated),  # noqa: B023
                )
                records.append({"dataset": dataset, "method": name, **found})
    return records


def time_to(record: dict, auc: float, top: float = 0.0) -> float | None:
    """Seconds until both are reached at one point of the curve."""
    reached = [t for t, a, p in record["points"] if a >= auc and p >= top]
    return reached[0] if reached else None


def targets(records: list[dict], dataset: str) -> list[tuple[str, float | None, float]]:
    """What is asked for, our ratio, and the largest ratio allowed."""
    by = {r["method"]: r for r in records if r["dataset"] == dataset}
    if not {"MFAUC", "implicit ALS", "lightfm WARP"} <= set(by):
        return []
    auc = AUC_TO_REACH.get(dataset, 0.0)
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
        cold = ours + by["MFAUC"]["compile"]
        rows.append(("the same, compilation counted", _ratio(cold, warp), 2.0))
    if dataset == "ml-1m":
        last = als[-1]
        both = time_to(by["MFAUC"], last[1], last[2])
        rows.append(
            ("time to implicit ALS's last AUC and p@5 over its time", _ratio(both, last[0]), 1.0)
        )
    return rows


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    """None if we do not get there; 0 if they do not."""
    if ours is None:
        return None
    return 0.0 if theirs is None else ours / theirs


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """A figure a data set: AUC and p@5 against seconds."""
    drawn = []
    for dataset in dict.fromkeys(r["dataset"] for r in records):
        figure, axes = style.panels(2)
        for place, r in enumerate(x for x in records if x["dataset"] == dataset):
            t, auc, top = np.array(r["points"]).T
            look = style.line(place)
            for ax, y in zip(axes[0], (auc, top), strict=True):
                ax.plot(
                    t, y, **look, marker=style.MARKERS[place % 7], ms=3, lw=1.3, label=r["method"]
                )
                ax.set(xscale="log", xlabel="seconds on 2 cores, compilation apart")
        axes[0][0].set(ylabel="exact AUC", title=dataset)
        axes[0][1].set(ylabel="p@5", title=dataset)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        drawn += style.save(figure, out, f"bench_speed_{dataset}")
    return drawn


def main(config: Config) -> int:
    records = run(config)
    results.write(config.results, config, records)
    good = True
    for dataset in config.datasets:
        print(f"{dataset:22}{'compile':>9}{'last s':>9}{'AUC':>8}{'p@5':>8}{'best AUC':>10}")
        for r in (r for r in records if r["dataset"] == dataset):
            t, auc, top = r["points"][-1]
            best = max(a for _, a, _ in r["points"])
            print(f"  {r['method']:20}{r['compile']:9.2f}{t:9.2f}{auc:8.4f}{top:8.4f}{best:10.4f}")
        for what, ratio, most in targets(records, dataset):
            reached = ratio is not None and ratio <= most
            good = good and reached
            shown = "never reached" if ratio is None else f"{ratio:.2f}"
            print(f"  {what}: {shown} (≤ {most:g}) {'met' if reached else 'MISSED'}")
    for path in draw(records, config.out):
        print(path)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
