"""The parallel route on one device and on two: seconds per iteration, bytes moved, bytes kept.

    python -m experiments.bench_parallel [--data_dir=DIR]

MovieLens-1M with --data_dir, else a random matrix of its shape; d = 4 blocks, k = 64, square hinge,
Adagrad. Both runs draw the same numbers, so they must end with the same factors. The exit code says
whether two devices are at least 1.7 times as fast as one.
"""

import dataclasses
import sys
import time
from typing import Any

import jax
import numpy as np

from experiments import flags, results
from mfauc_jax import Blockwise, Fixed, Gaussian, Problem, Weights, data
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.solvers import base

TARGET = 1.7
SAME = 1e-4  # float32 factors of 1 and 2 devices, relative to the largest


@dataclasses.dataclass(frozen=True)
class Config:
    """The defaults are the issue's."""

    data_dir: str = ""
    blocks: int = 4
    devices: tuple[int, ...] = (1, 2)
    rank: int = 64
    draws: int = flags.option(30, "κ of each user, a third positives")
    iterations: int = flags.option(5, "timed, after one that compiles")
    rounds: int = flags.option(3, "of which the fastest counts")
    results: str = "results/bench_parallel.jsonl"


def matrix(data_dir: str) -> Interactions:
    """MovieLens-1M, or as many positives spread over as many users and items at random."""
    if data_dir:
        return data.load("ml-1m", data_dir)
    return data.synthetic.power_law(jax.random.key(0), 5950, 3380, 574_000)


def run(config: Config) -> list[dict]:
    """One record per number of devices."""
    X = matrix(config.data_dir)
    ready = {devices: prepare(config, X, devices) for devices in config.devices}
    for _ in range(config.rounds):
        for one in ready.values():  # in turn, so that a busy moment hits all
            one["seconds"] = min(one["seconds"], one["time"]())
    reference = ready[config.devices[0]]["factors"]()
    records = []
    for devices, one in ready.items():
        found = one["factors"]()
        difference = max(
            float(np.abs(a - b).max() / np.abs(a).max())
            for a, b in zip(reference, found, strict=True)
        )
        told = ("seconds", "compile", "moved", "kept")
        records.append(
            {
                "devices": devices,
                "blocks": config.blocks,
                "difference": difference,
                **{name: one[name] for name in told},
            }
        )
    return records


def prepare(config: Config, X: Interactions, devices: int) -> dict[str, Any]:
    """Compiled and started on some devices; `time` runs the timed iterations."""
    solver = Blockwise(
        blocks=config.blocks,
        devices=devices,
        num_pos=config.draws // 3,
        num_neg=config.draws - config.draws // 3,
    )
    order = solver.order(X, seed=0)
    assert order is not None  # there is one process
    dealt = X.take(order)
    problem = Problem.of(dealt, "square_hinge", "identity", Weights.paper(), Fixed(reg=0.01))
    at = solver.start(Gaussian(), jax.random.key(1), dealt, config.rank)
    seen, inputs = solver.seen_by_step(problem), solver.prepare(problem)
    state, key = solver.init(problem, at), jax.random.key(0)
    begun = time.perf_counter()
    compiled = base.run.lower(solver, seen, key, state, inputs).compile()
    compile_seconds = time.perf_counter() - begun
    runs = {"state": compiled(solver, seen, key, state, inputs)[0]}

    def timed() -> float:
        now = runs["state"]
        begun = time.perf_counter()
        for _ in range(config.iterations):
            now, _ = compiled(solver, seen, key, now, inputs)
        jax.block_until_ready(now)
        runs["state"] = now
        return (time.perf_counter() - begun) / config.iterations

    return {
        "time": timed,
        "seconds": np.inf,
        "compile": compile_seconds,
        "factors": lambda: [np.asarray(F) for F in solver.read(runs["state"], at)],
        "moved": moved(state, devices),
        "kept": kept((state, inputs)),
    }


def moved(state: base.State, devices: int) -> int:
    """Bytes that each device sends in one iteration: V and its optimiser's rows, three times round the ring.

    Once to gather the blocks, once for the d rounds, once to bring them home.
    """
    rows = (state.factors.V, state.extra[1])
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(rows) if leaf.ndim)
    return 3 * size if devices > 1 else 0


def kept(tree: Any) -> int:
    """Bytes of state and data on the first device."""
    first, total = jax.devices()[0], 0
    for leaf in jax.tree.leaves(tree):
        for shard in getattr(leaf, "addressable_shards", []):
            total += shard.data.nbytes if shard.device == first else 0
    return total


def draw(records: list[dict]) -> None:
    """The table."""
    slowest = records[0]["seconds"]
    print(
        f"{'devices':>8}{'s/iteration':>13}{'speed-up':>10}{'compile s':>11}{'MB sent':>9}{'MB kept':>9}{'differ':>9}"
    )
    for r in records:
        print(
            f"{r['devices']:8}{r['seconds']:13.3f}{slowest / r['seconds']:10.2f}{r['compile']:11.1f}"
            f"{r['moved'] / 1e6:9.2f}{r['kept'] / 1e6:9.1f}{r['difference']:9.1e}"
        )


def main(config: Config) -> int:
    jax.config.update("jax_num_cpu_devices", max(config.devices))
    records = run(config)
    results.write(config.results, config, records)
    draw(records)
    ratio = records[0]["seconds"] / records[-1]["seconds"]
    print(f"{records[-1]['devices']} devices are {ratio:.2f}× one (target ≥ {TARGET:g})")
    return 0 if ratio >= TARGET and all(r["difference"] <= SAME for r in records) else 1


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
