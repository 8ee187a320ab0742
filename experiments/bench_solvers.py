"""How good and how fast each route is.

    python -m experiments.bench_solvers [--data_dir=DIR] [--out=DIR]

1. Exact θ of the square loss on Synthetic1 (k = 8, λ = .1) against seconds, for all four routes.
2. Algorithm 1 as the authors' figures ran it (hinge, T = 300, α = .05, λ = .1) on draws of Synthetic1:
   exact θ over the full-batch minimum, exact test AUC, milliseconds per iteration.
3. With --data_dir: `MFAUC()` on MovieLens-100K, a cold process for each split seed; and the peak
   memory of a fit on Book Crossing.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
import time
from typing import NamedTuple

import jax
import numpy as np

import mfauc_jax as mf
from experiments import flags, measure, results
from mfauc_jax._core import atomic
from mfauc_jax.data import splits, synthetic
from mfauc_jax.objective import exact
from mfauc_jax.solvers import base


@dataclasses.dataclass(frozen=True)
class Config:
    data_dir: str = flags.option("", "folder of the real data sets")
    out: str = flags.option("out", "where records and figure go")
    draws: int = flags.option(5, "Synthetic1 matrices for part 2")
    iterations: int = flags.option(300, "T of part 2")
    seeds: int = flags.option(5, "split seeds for part 3")
    first_seed: int = flags.option(100, "first split seed of part 3")


class Trace(NamedTuple):
    """What the iterations of a solver found."""

    average: mf.Factors
    seconds: list[float]  # of the iterations alone, added up
    theta: list[float]  # exact θ of the averages after each iteration, if they were wanted
    compile_s: float


def trace(
    solver: base.Solver, problem: mf.Problem, start: mf.Factors, seed: int, theta: bool = True
) -> Trace:
    """All iterations of a solver, with exact θ or, in less time, without."""
    objective, key = problem.objective, jax.random.key(seed)
    plan = exact.plan(objective, problem.X, problem.weights)
    seen, data = solver.seen_by_step(problem), solver.prepare(problem)
    state = solver.init(problem, start)
    compiled, _ = measure.timed(lambda: base.run(solver, seen, key, state, data), 1)
    seconds, values = [0.0], [float(exact.value(objective, start, plan))]
    for _ in range(solver.iterations):
        begun = time.perf_counter()
        state, _ = jax.block_until_ready(base.run(solver, seen, key, state, data))
        seconds.append(seconds[-1] + time.perf_counter() - begun)
        if theta:
            values.append(float(exact.value(objective, solver.read(state, start), plan)))
    average = solver.read(state, start)
    if not theta:
        values.append(float(exact.value(objective, average, plan)))
    return Trace(average, seconds, values, compiled)


def routes() -> list[dict]:
    """Part 1."""
    X = synthetic.synthetic1(jax.random.key(0))
    model = mf.MFAUC.paper("square")
    problem, start = model.problem(X), model.start.draw(jax.random.key(2), X, model.rank)
    later = mf.Averaging(start=100, eta=0.0)
    rate = {"learning_rate": 0.3, "num_pos": 20, "num_neg": 40}
    solvers = {
        "full_batch": mf.FullBatch(150),
        "alternating": mf.Alternating(60),
        "minibatch": mf.Minibatch(400, batch=64, **rate, average=later),
        "sequential": mf.Sequential(400, learning_rate=0.05, average=later),
        "sequential, authors": mf.MFAUC.authors(solver__iterations=400).solver,
    }
    found = []
    for name, solver in solvers.items():
        traced = trace(solver, problem, start, 1)._asdict()
        found.append({"route": name, **{k: v for k, v in traced.items() if k != "average"}})
    best = min(found[0]["theta"])
    print("\nSquare loss on Synthetic1, k = 8, λ = .1: exact θ over the full-batch minimum")
    for r in found:
        per = 1e3 * r["seconds"][-1] / (len(r["seconds"]) - 1)
        within = next(
            (s for s, v in zip(r["seconds"], r["theta"], strict=True) if v < 1.01 * best), None
        )
        to = "not reached" if within is None else f"{within:.2f} s"
        r |= {
            "part": "routes",
            "ratio": r["theta"][-1] / best,
            "ms": per,
            "to_one_percent_s": within,
        }
        print(
            f"  {r['route']:22} ratio {r['ratio']:.4f}   {per:7.2f} ms per iteration   within 1 %: {to:12}"
            f" compile {r['compile_s']:.1f} s"
        )
    return found


def algorithm_1(config: Config) -> list[dict]:
    """Part 2."""
    model = mf.MFAUC.authors(solver__iterations=config.iterations)
    found = []
    for draw in range(config.draws):
        X = synthetic.synthetic1(jax.random.key(10 + draw))
        split = splits.hold_out(jax.random.key(draw), X, 5)
        problem = model.problem(split.train)
        start = model.start.draw(jax.random.key(draw), X, model.rank)
        best = min(trace(mf.FullBatch(80), problem, start, 1).theta)
        ours = trace(model.solver, problem, start, draw, theta=False)
        times = np.diff(ours.seconds)
        scores = mf.evaluate(ours.average, split.train, split.test, at=(1, 3, 5))
        found.append(
            {
                "part": "algorithm 1",
                "draw": draw,
                "ratio": ours.theta[-1] / best,
                "auc": float(scores["auc"]),
                "p@5": float(scores["precision@5"]),
                "ms": 1e3 * float(np.median(times[1:])),
            }
        )
        print(
            "  draw {draw}: θ / minimum {ratio:.4f}   AUC {auc:.4f}   p@5 {p@5:.3f}   {ms:.2f} ms".format(
                **found[-1]
            )
        )
    mean = {k: float(np.mean([r[k] for r in found])) for k in ("ratio", "auc", "p@5", "ms")}
    print(
        f"  mean: θ / minimum {mean['ratio']:.4f} (≤ 1.05)   AUC {mean['auc']:.4f} (≥ .875)   "
        f"{mean['ms']:.2f} ms per iteration (≤ 14; the authors' code .83 s)"
    )
    return found


COLD = """
import sys, time
import jax, mfauc_jax as mf
from experiments import measure
from mfauc_jax.data import splits
X = mf.data.load(sys.argv[1], sys.argv[2])
split = splits.hold_out(jax.random.key(int(sys.argv[3])), X, 5)
begun = time.perf_counter()
model = mf.MFAUC().fit(split.train)
seconds = time.perf_counter() - begun
peak = measure.peak_resident() / 1e3
scores = mf.evaluate(model, split.train, split.test, at=(1, 3, 5))
import json
print(json.dumps({"seconds": seconds, "peak_gb": peak, **{k: float(v) for k, v in scores.items()}}))
"""


def cold(config: Config, name: str, seed: int) -> dict:
    """`MFAUC()` in a process of its own: compilation is in the seconds."""
    command = [sys.executable, "-c", COLD, name, config.data_dir, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"part": "defaults", "data": name, "seed": seed} | json.loads(
        done.stdout.splitlines()[-1]
    )


def defaults(config: Config) -> list[dict]:
    """Part 3."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    found = [cold(config, "ml-100k", s) for s in seeds]
    columns = ("precision@1", "precision@3", "precision@5", "auc", "seconds", "peak_gb")
    mean = {k: float(np.mean([r[k] for r in found])) for k in columns}
    print(
        "\nMFAUC() on MovieLens-100K, 5 held out per user, mean over split seeds "
        f"{seeds[0]}–{seeds[-1]}:\n  p@1/3/5 {mean['precision@1']:.4f} {mean['precision@3']:.4f} "
        f"{mean['precision@5']:.4f} (≥ .176)   AUC {mean['auc']:.4f} (≥ .924)   "
        f"{mean['seconds']:.1f} s cold (≤ 10)"
    )
    crossing = cold(config, "book-crossing", seeds[0])
    print(
        "MFAUC() on Book Crossing: p@5 {precision@5:.4f}   AUC {auc:.4f}   {seconds:.1f} s cold   "
        "peak {peak_gb:.2f} GB resident (≤ 1.5)".format(**crossing)
    )
    return [*found, crossing]


def draw(records: list[dict], path: pathlib.Path) -> None:
    """Exact θ against seconds, from the records alone."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    found = [r for r in records if r["part"] == "routes"]
    best = min(min(r["theta"]) for r in found)
    styles = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
    for r, style in zip(found, styles, strict=False):
        gap = np.maximum(np.array(r["theta"][1:]) / best - 1, 1e-6)
        axes.loglog(np.array(r["seconds"][1:]), gap, linestyle=style, label=r["route"])
    axes.axhline(0.01, color="grey", linewidth=0.8)
    axes.annotate(
        "1 %", (axes.get_xlim()[0], 0.01), textcoords="offset points", xytext=(4, 3), color="grey"
    )
    axes.set(
        xlabel="seconds (compilation apart)",
        ylabel="exact θ over the minimum, less 1",
        title="Square loss on Synthetic1, k = 8, λ = .1",
    )
    axes.legend(frameon=False)
    for suffix in (".png", ".pdf"):
        atomic.save_figure(figure, path.with_suffix(suffix), dpi=160)
    plt.close(figure)


def main(config: Config) -> None:
    found = routes()
    print(
        "\nAlgorithm 1 as the authors' figures ran it: Synthetic1 (t = .1), hinge, "
        f"T = {config.iterations}, α = .05, λ = .1"
    )
    found += algorithm_1(config)
    if config.data_dir:
        found += defaults(config)
    else:
        print("\nreal data: give --data_dir to measure MFAUC() on MovieLens-100K and Book Crossing")
    out = pathlib.Path(config.out)
    results.write(out / "bench_solvers.jsonl", config, found)
    draw(results.read(out / "bench_solvers.jsonl"), out / "bench_solvers")
    print(f"\nrecords and figure: {out}/bench_solvers.*")


if __name__ == "__main__":
    flags.run(Config, main)
