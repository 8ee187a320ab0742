"""The routes on one device and on two: seconds, bytes moved and kept.

    python -m experiments.bench_parallel [--data_dir=DIR]
    python -m experiments.bench_parallel --routes=alternating --users=1000000 --items=100000 --positives=20000000

MovieLens-1M with --data_dir, else a power-law matrix; k = 64, the library's own weights and penalties. "alternating" is
a sweep of the default route, the square loss over all positives. "minibatch" is on one device only; "blockwise" is the
paper's parallel route with d = 2 blocks; both minimise the square hinge by Adagrad. Their row updates are drawn items'
rows that are gathered, differentiated and written: num_pos + num_neg per user and iteration. The runs take turns. All
blockwise runs draw the same numbers, so they must end with the same factors. The exit code says whether two devices are
at least 1.7 times as fast as one, and blockwise 1.6 times as fast as the minibatch route on one.
"""

import dataclasses
import sys
import time
from typing import Any

import jax
import numpy as np

from experiments import flags, results
from mfauc_jax import MFAUC, Alternating, Blockwise, Gaussian, Minibatch, data
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.solvers import base

TARGET = 1.7  # times the route's own one device
OVER_MINIBATCH = 1.6  # times the minibatch route on one device
SAME = 1e-4  # float32 factors of 1 and 2 devices, relative to the largest


@dataclasses.dataclass(frozen=True)
class Config:
    """The defaults are the issue's."""

    data_dir: str = ""
    blocks: int = 2
    reassign: str = flags.option(
        "both", "both: users and items are dealt anew in each iteration; columns: items only"
    )
    routes: tuple[str, ...] = ("alternating", "minibatch", "blockwise")
    devices: tuple[int, ...] = (1, 2)
    users: int = flags.option(5950, "of the power-law matrix, as the next two")
    items: int = flags.option(3380, "items of the power-law matrix")
    positives: int = 574_000
    rank: int = 64
    num_pos: int = 20
    num_neg: int = 20
    iterations: int = flags.option(5, "timed, after one that compiles")
    rounds: int = flags.option(7, "of which the fastest counts")
    results: str = "results/bench_parallel.jsonl"


def matrix(config: Config) -> Interactions:
    """MovieLens-1M, or a power-law matrix."""
    if config.data_dir:
        return data.load("ml-1m", config.data_dir)
    shape = config.users, config.items, config.positives
    return data.synthetic.power_law(jax.random.key(0), *shape)


def solvers(config: Config) -> dict[tuple[str, int], base.Solver]:
    """The solver of each route and number of devices."""
    drawn: dict[str, Any] = {"num_pos": config.num_pos, "num_neg": config.num_neg}
    blocks: dict[str, Any] = {"blocks": config.blocks, "reassign": config.reassign}
    made: dict[tuple[str, int], base.Solver] = {}
    for route in config.routes:
        for devices in config.devices if route != "minibatch" else (1,):
            made[route, devices] = {
                "alternating": lambda devices=devices: Alternating(devices=devices),
                "minibatch": lambda: Minibatch(**drawn),
                "blockwise": lambda devices=devices: Blockwise(**drawn, **blocks, devices=devices),
            }[route]()
    return made


def run(config: Config) -> list[dict]:
    """One record per route and number of devices."""
    X = matrix(config)
    ready = {route: prepare(config, X, solver) for route, solver in solvers(config).items()}
    for _ in range(config.rounds):
        for one in ready.values():  # in turn, so that a busy moment hits all
            for name, found in one["time"]().items():
                one[name] = min(one[name], found)
    records = []
    for (route, devices), one in ready.items():
        difference, drawn = None, X.num_users * (config.num_pos + config.num_neg)
        if route != "minibatch":
            reference = ready[route, config.devices[0]]["factors"]()
            pairs = zip(reference, one["factors"](), strict=True)
            difference = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)
        told = ("seconds", "cpu_seconds", "compile", "moved", "kept")
        updates = X.nnz if route == "alternating" else drawn
        about = {"route": route, "devices": devices, "blocks": config.blocks, "updates": updates}
        records.append(about | {"difference": difference} | {name: one[name] for name in told})
    return records


def prepare(config: Config, X: Interactions, solver: base.Solver) -> dict[str, Any]:
    """Compiled and started; `time` runs the timed iterations."""
    order = solver.order(X, seed=0)
    dealt = X if order is None else X.take(order)
    loss = "square" if isinstance(solver, Alternating) else "square_hinge"
    problem = MFAUC(config.rank, loss=loss, solver=solver).problem(dealt)
    at = solver.start(Gaussian(), jax.random.key(1), dealt, config.rank)
    seen, inputs = solver.seen_by_step(problem), solver.prepare(problem)
    state, key = solver.init(problem, at), jax.random.key(0)
    begun = time.perf_counter()
    compiled = base.run.lower(solver, seen, key, state, inputs).compile()
    compile_seconds = time.perf_counter() - begun
    runs = {"state": compiled(solver, seen, key, state, inputs)[0]}

    def timed() -> dict[str, float]:
        now = jax.block_until_ready(runs["state"])
        begun = time.perf_counter(), time.process_time()
        for _ in range(config.iterations):
            now, _ = compiled(solver, seen, key, now, inputs)
        jax.block_until_ready(now)
        ended = time.perf_counter(), time.process_time()
        runs["state"] = now
        wall, cpu = ((b - a) / config.iterations for a, b in zip(begun, ended, strict=True))
        return {"seconds": wall, "cpu_seconds": cpu}

    return {
        "time": timed,
        "seconds": np.inf,
        "cpu_seconds": np.inf,
        "compile": compile_seconds,
        "factors": lambda: [np.asarray(F) for F in solver.read(runs["state"], at)],
        "moved": moved(solver, state),
        "kept": kept((state, inputs)),
    }


def moved(solver: base.Solver, state: base.State) -> int:
    """Bytes that each device sends in one iteration of the blockwise route.

    V and its optimiser's rows go three times round the ring: to their blocks, through d rounds, and home. Of its
    users' rows, a device sends all but a D-th to others and back, and their draws along with them.
    """
    if not isinstance(solver, Blockwise) or solver.mesh().size == 1:
        return 0
    ring = solver.mesh().size
    items, users = (
        sum(leaf.nbytes for leaf in jax.tree.leaves(side) if leaf.ndim)
        for side in zip(state.factors[::-1], state.extra[::-1], strict=True)
    )
    drawn = 4 * len(state.factors.U) * (solver.num_pos + solver.num_neg)
    sent = (2 * users + drawn) * (ring - 1) // ring**2 if solver.reassign == "both" else 0
    return 3 * items + sent


def kept(tree: Any) -> int:
    """Bytes of state and data on the first device."""
    first, total = jax.devices()[0], 0
    for leaf in jax.tree.leaves(tree):
        for shard in getattr(leaf, "addressable_shards", []):
            total += shard.data.nbytes if shard.device == first else 0
    return total


def draw(records: list[dict]) -> None:
    """The table."""
    heads = ("ms/iteration", "ns/row", "CPU ns/row", "compile s", "MB sent", "MB kept", "differ")
    print(f"{'':22}" + "".join(f"{head:>13}" for head in heads))
    for r in records:
        per_row = 1e9 / r["updates"]
        cells = (
            f"{1e3 * r['seconds']:.1f}",
            f"{r['seconds'] * per_row:.0f}",
            f"{r['cpu_seconds'] * per_row:.0f}",
            f"{r['compile']:.1f}",
            f"{r['moved'] / 1e6:.2f}",
            f"{r['kept'] / 1e6:.1f}",
            "" if r["difference"] is None else f"{r['difference']:.1e}",
        )
        print(f"{r['route']:10}{r['devices']:3} devices " + "".join(f"{c:>13}" for c in cells))


def main(config: Config) -> int:
    jax.config.update("jax_num_cpu_devices", max(config.devices))
    records = run(config)
    results.write(config.results, config, records)
    draw(records)
    found, good = {(r["route"], r["devices"]): r["seconds"] for r in records}, True
    least, most = min(config.devices), max(config.devices)
    for route in (route for route in config.routes if route != "minibatch"):
        rivals = [("its own one device", found.get((route, least)), TARGET)]
        if route == "blockwise":
            rivals.append(("minibatch on one", found.get(("minibatch", 1)), OVER_MINIBATCH))
        for name, seconds, target in rivals:
            if seconds is None or least == most:
                continue
            ratio = seconds / found[route, most]
            good = good and ratio >= target
            met = "met" if ratio >= target else "MISSED"
            print(f"{route} on {most} devices: {ratio:.2f} × {name} (target ≥ {target:g}: {met})")
    same = all(r["difference"] <= SAME for r in records if r["difference"] is not None)
    return 0 if good and same else 1


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
