"""Where the nanoseconds go: the stages of a minibatch step and of an alternating sweep.

    python -m experiments.bench_profile [--data_dir=DIR]
    NPROC=1 python -m experiments.bench_profile [--data_dir=DIR]   # one thread of XLA for one device

MovieLens-1M with --data_dir, else a power-law matrix of its shape; k = 64. A minibatch step is timed in
loops of ever more of its stages; the cost of a stage is what it adds. Beside them what the machine itself
takes for a row of k floats: read in order, and copied at random by numpy from tables of three sizes.
"""

import dataclasses
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments import bench_parallel, flags, results
from experiments.measure import warm_seconds
from mfauc_jax import MFAUC, Fixed, Gaussian, Problem, Weights
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation, sampling
from mfauc_jax.solvers import minibatch, sweeps


@dataclasses.dataclass(frozen=True)
class Config:
    """The defaults are the default route's."""

    data_dir: str = ""
    rank: int = 64
    batch: int = flags.option(128, "users per minibatch step")
    num_pos: int = 10
    num_neg: int = 20
    repeats: int = 50
    results: str = "results/bench_profile.jsonl"


def machine(rank: int) -> dict[str, float]:
    """Nanoseconds per row of `rank` float32: streamed, and copied at random from L2, L3 and memory."""
    rng, found = np.random.default_rng(0), {}
    table = np.ones((2**21, rank), np.float32)
    target = np.empty_like(table)
    found["streamed copy"] = warm_seconds(lambda: np.copyto(target, table)) / len(table) * 1e9
    for name, rows in (("from .5 MB", 2**11), ("from 8 MB", 2**15), ("from 512 MB", 2**21)):
        at = rng.integers(0, rows, 2**16)
        out = np.empty((len(at), rank), np.float32)
        seconds = warm_seconds(lambda at=at, out=out: np.take(table, at, 0, out=out, mode="clip"))
        found[f"random copy {name}"] = seconds / len(at) * 1e9
    return found


def step(config: Config, X: Interactions) -> dict[str, float]:
    """Nanoseconds per item row of a minibatch step of the square hinge, stage after stage."""
    problem = Problem.of(X, "square_hinge", "identity", Weights.paper(), Fixed(reg=0.01))
    target, weights = problem.objective, problem.weights
    F = Gaussian().draw(jax.random.key(0), X, config.rank)
    P, Q = config.num_pos, config.num_neg
    users = jnp.asarray(
        np.random.default_rng(0).permutation(X.num_users)[: config.batch], jnp.int32
    )
    optimiser, b = optax.adagrad(0.3), users.shape[0]
    fresh, pulls = jnp.ones(b, bool), (jnp.full(b, 0.01), jnp.full((b, P + Q), 0.01))
    memory = (optimiser.init(F.U), optimiser.init(F.V))
    tables = minibatch.Tables(F, memory, jnp.zeros(X.num_items, int))

    def drawn(i):
        return sampling.uniform(jax.random.fold_in(jax.random.key(1), i), X, weights, users, P, Q)

    def gathered(F, sample):
        return F.U[users], F.V[sample.pos], F.V[sample.neg]

    def total(tree):
        return sum(leaf.astype(float).sum() for leaf in jax.tree.leaves(tree))

    def sample_only(i, c):
        return c + total(drawn(i)[1:5])

    def gather(i, c):
        return c + total(gathered(F, drawn(i)))

    def gradient(i, c):
        sample = drawn(i)

        def risk(rows):
            u, v_pos, v_neg = rows
            return equation.risk_of_rows(target, u, v_pos, v_neg, sample)

        return c + total(jax.grad(risk)(gathered(F, sample)))

    def everything(i, tables):
        return minibatch.descend(optimiser, target, tables, drawn(i), fresh, pulls, 1.0)

    stages = {
        "draw": (sample_only, jnp.zeros(())),
        "+ gather": (gather, jnp.zeros(())),
        "+ gradient": (gradient, jnp.zeros(())),
        "+ update": (everything, tables),
    }
    found, rows = {}, b * (P + Q) * config.repeats
    for name, (work, begin) in stages.items():
        loop = jax.jit(lambda c, work=work: jax.lax.fori_loop(0, config.repeats, work, c))
        found[name] = warm_seconds(lambda loop=loop, begin=begin: loop(begin)) / rows * 1e9
    return found


def sweep(config: Config, X: Interactions) -> dict[str, float]:
    """Milliseconds of the parts of an alternating sweep."""
    model, problem = MFAUC(), MFAUC().problem(X)
    solver = model.chosen_solver
    start = model.start.draw(jax.random.key(0), X, config.rank)
    layout, F = solver.prepare(problem), solver.init(problem, start).factors
    seen = solver.seen_by_step(problem)
    sweep = jax.jit(sweeps.sweep)
    found = {
        "weights, once per fit": warm_seconds(lambda: model.weights.of(X), 2),
        "tiles, once per fit": warm_seconds(lambda: solver.prepare(problem), 2),
    }
    steps = {
        name: warm_seconds(lambda of=of: sweep(seen, F, layout, *of))
        for name, of in (("none", (0, 0)), ("U", (4, 0)), ("V", (0, 2)), ("all", (4, 2)))
    }
    found["the first pass: systems, V's gradient"] = steps["none"]
    found["U: a conjugate-gradient step"] = (steps["U"] - steps["none"]) / 4
    found["V: a conjugate-gradient step"] = (steps["V"] - steps["none"]) / 2
    found["together, 4 and 2 steps"] = steps["all"]
    return {name: seconds * 1e3 for name, seconds in found.items()}


def table(records: list[dict], begins: str, threads: tuple[str, ...] = ("1",)) -> str:
    """The costs of one table, cheapest first, a column per number of threads that XLA had, as Markdown."""
    found = {r["threads"]: r for r in records if r["table"].startswith(begins)}
    heads = ["`NPROC=1`" if count == "1" else f"{count} threads" for count in threads]
    rows = [f"| {' | '.join([found['1']['table'], *heads])} |", "| --- " * (len(heads) + 1) + "|"]
    one = found["1"]["costs"]
    for name in sorted(one, key=one.__getitem__):
        costs = [f"{found[count]['costs'][name]:.1f}" for count in threads]
        rows.append(f"| {' | '.join([name, *costs])} |")
    return "\n".join(rows) + "\n"


def main(config: Config) -> int:
    X = bench_parallel.matrix(bench_parallel.Config(data_dir=config.data_dir))
    tables = {
        "machine, ns per row": machine(config.rank),
        f"minibatch step of {config.batch} users, ns per item row": step(config, X),
        f"alternating sweep of {X.nnz} positives, ms": sweep(config, X),
    }
    threads = os.environ.get("NPROC", "all")  # XLA reads it once
    records = [{"table": t, "threads": threads, "costs": c} for t, c in tables.items()]
    results.write(config.results, config, records)
    for title, costs in tables.items():
        print(title)
        for name, cost in costs.items():
            print(f"  {name:42}{cost:9.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
