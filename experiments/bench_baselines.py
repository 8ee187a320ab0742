"""Our WRMF, WARP and BPR beside implicit's and lightfm-next's: seconds, p@1/3/5 and AUC.

    python -m experiments.bench_baselines --data_dir=DIR

One run, one split (five positives per user held out), equal settings, the mean over `seeds` starts and
the least of their times; our compilation is timed separately. The peers are those of `peers`, their settings those
of docs/derivations.md#peers. implicit's confidence is α X where ours is 1 + α X; LightFM has item biases, takes
Φ(x) ≈ ln x, and draws BPR's negatives by popularity, so ours do too.

The exit code says whether every metric is at most .01 below the peer's, WRMF takes at
most twice implicit's time and WARP at most LightFM's.
"""

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import flags, measure, peers, results
from mfauc_jax import data
from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines import bpr, warp, wrmf
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics

REPORTED = ("precision@1", "precision@3", "precision@5", "auc")
TOLERANCE = 0.01
SLOWER = {"WRMF": 2.0, "WARP": 1.0}  # ours over the peer's time, at most


class Setting(NamedTuple):
    """One data set's (docs/derivations.md#peers)."""

    als_rank: int
    als_reg: float
    als_alpha: float  # implicit's
    rank: int
    epochs: int


SETTINGS = {"ml-100k": Setting(64, 30.0, 4.0, 32, 20), "ml-1m": Setting(64, 60.0, 4.0, 64, 10)}


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data and methods, how often."""

    data_dir: str = "data"
    datasets: tuple[str, ...] = tuple(SETTINGS)
    methods: tuple[str, ...] = ("WRMF", "WARP", "BPR")
    held_out: int = 5
    sweeps: int = flags.option(15, "sweeps of WRMF")
    seeds: int = 3
    results: str = "results/bench_baselines.jsonl"


def run(config: Config) -> list[dict]:
    """One record per data set and method."""
    records = []
    with peers.one_blas_thread():
        for name in config.datasets:
            if name not in SETTINGS:
                raise ValueError(f"no setting for {name!r}: choose from {', '.join(SETTINGS)}")
            X = data.load(name, config.data_dir)
            train, test = data.splits.hold_out(jax.random.key(0), X, per_user=config.held_out)
            for method in config.methods:
                ours, peer = PAIRS[method](SETTINGS[name], config.sweeps)
                compiled, _ = measure.timed(partial(ours, 0, train, 0), 1)
                record: dict[str, Any] = {"dataset": name, "method": method, "compile": compiled}
                for who, fit in (("ours", ours), ("peer", peer)):
                    record[who] = quality(fit, train, test, config.seeds)
                records.append(record)
    return records


def quality(
    fit: Callable[[int, Interactions], Factors], train: Interactions, test: Interactions, seeds: int
) -> dict[str, float]:
    """The mean of each metric over the seeds, and the least time."""
    times, found = [], []
    for seed in range(seeds):
        seconds, factors = measure.timed(partial(fit, seed, train), 1)
        times.append(seconds)
        found.append(metrics.evaluate(factors, train, test))
    means = {name: float(np.mean([f[name] for f in found])) for name in REPORTED}
    return {"seconds": min(times), **means}


def wrmf_pair(setting: Setting, sweeps: int) -> tuple[Callable, Callable]:
    """ALS with three conjugate-gradient steps, implicit's default."""

    def ours(seed, X, sweeps=sweeps):
        return wrmf.fit(
            jax.random.key(seed),
            X,
            rank=setting.als_rank,
            reg=setting.als_reg,
            alpha=setting.als_alpha - 1,
            sweeps=sweeps,
            cg_steps=3,
        )

    def peer(seed, X):
        model = peers.implicit_als(
            setting.als_rank, setting.als_reg, setting.als_alpha, sweeps, seed
        )
        return peers.implicit_factors(model, X)

    return ours, peer


def warp_pair(setting: Setting, sweeps: int) -> tuple[Callable, Callable]:
    """WARP with item biases."""
    del sweeps

    def ours(seed, X, epochs=setting.epochs):
        return warp.fit(jax.random.key(seed), X, rank=setting.rank, epochs=epochs, bias=True)

    return ours, lightfm("warp", setting)


def bpr_pair(setting: Setting, sweeps: int) -> tuple[Callable, Callable]:
    """BPR with item biases and popular negatives."""
    del sweeps

    def ours(seed, X, epochs=setting.epochs):
        return bpr.fit(
            jax.random.key(seed),
            X,
            rank=setting.rank,
            epochs=epochs,
            reg=0.0,
            bias=True,
            tries=4,
            popular=True,
        )

    return ours, lightfm("bpr", setting)


def lightfm(loss: str, setting: Setting) -> Callable[[int, Interactions], Factors]:
    """lightfm-next's loss."""
    return lambda seed, X: peers.LightFM(X, loss, setting.rank, seed=seed).go_on(setting.epochs)


PAIRS = {"WRMF": wrmf_pair, "WARP": warp_pair, "BPR": bpr_pair}
LIBRARY = {"WRMF": "implicit", "WARP": "lightfm", "BPR": "lightfm"}


def draw(records: list[dict]) -> str:
    """The table as text, from the records alone."""
    lines = [f"{'data':<9}{'method':<15}{'p@1':>7}{'p@3':>7}{'p@5':>7}{'AUC':>7}{'s':>9}"]
    for r in records:
        for who, label in (("ours", r["method"]), ("peer", f"  {LIBRARY[r['method']]}")):
            found = "".join(f"{r[who][name]:7.3f}" for name in REPORTED)
            compiled = f"  + {r['compile']:.1f} s to compile" if who == "ours" else ""
            lines.append(f"{r['dataset']:<9}{label:<15}{found}{r[who]['seconds']:9.2f}{compiled}")
        lines.append(f"{'':<9}{'  targets':<15}{'met' if met(r) else 'MISSED':>7}")
    return "\n".join(lines)


def met(r: dict) -> bool:
    """Not worse by more than the tolerance, and fast enough."""
    level = all(r["peer"][name] - r["ours"][name] <= TOLERANCE for name in REPORTED)
    return level and r["ours"]["seconds"] <= SLOWER.get(r["method"], np.inf) * r["peer"]["seconds"]


def main(config: Config) -> int:
    """Run, record and print; the exit code is 1 if a target is missed."""
    records = run(config)
    results.write(config.results, config, records)
    sys.stdout.write(draw(results.read(config.results)) + "\n")
    return int(not all(met(r) for r in records))


if __name__ == "__main__":
    flags.run(Config, main)
