"""The outer loop: iterations, records, stopping, progress, checkpoints. Plain Python on purpose."""

import functools
import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Key
from tqdm import tqdm

from mfauc_jax._core.factors import Factors
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import base
from mfauc_jax.training.checkpoints import States
from mfauc_jax.training.watch import Watcher


class Fitted(NamedTuple):
    """What a fit returns, however it ended."""

    factors: Factors
    history: list[dict[str, float]]  # one record per iteration: iteration, seconds, step_size, …
    stopped: str  # "iterations", "converged", "patience", "callback" or "interrupted"


class DivergedError(ArithmeticError):
    """A record was not finite; `fitted` holds the last finite factors."""

    def __init__(self, message: str, fitted: Fitted):
        super().__init__(message)
        self.fitted = fitted


def fit(
    key: Key[Array, ""],
    solver: base.Solver,
    problem: Problem,
    factors: Factors,
    *,
    iterations: int | None = None,
    watcher: Watcher | None = None,
    states: States | None = None,
    callbacks: Iterable[Callable[[int, Factors, dict], Any]] = (),
    progress: bool | None = None,
    restored: Callable[[Factors], Factors] = lambda factors: factors,
) -> Fitted:
    """Run a solver from `factors`.

    Paper (Algorithm 1): stops on |θ′_s − θ′_{s−1}| of two noisy subsamples, and may never start;
    here: at least one iteration, and windows of exact records (theory/README.md, E12–E14).

    Args:
        key: the random stream; iteration s uses `fold_in(key, s)`, so a resumed fit repeats it.
        solver: what takes the steps.
        problem: what is minimised.
        factors: the start.
        iterations: T; the solver's own unless given.
        watcher: what is recorded besides, which factors are kept, and early stops.
        states: where states are kept; a state found there is resumed from.
        callbacks: called with (iteration, averaged factors, record); a true answer stops the fit.
        progress: a bar; None shows it on a terminal only.
        restored: puts the rows of what the solver found where the caller wants them.
    """
    iterations = solver.iterations if iterations is None else iterations
    stages = [solver.seen_by_step(objective) for objective in solver.stages(problem.objective)]
    state, history = solver.init(problem, factors), []
    found = states.latest(state) if states else None
    if found:
        state, history = found
    data = solver.prepare(problem)
    run = base.runner(solver, data)

    def read(state: base.State) -> Factors:
        return restored(solver.read(state, factors))

    hide = not sys.stderr.isatty() if progress is None else not progress
    hide = hide or jax.process_index() > 0
    bar = tqdm(
        total=iterations, initial=int(state.iteration), disable=hide, desc="fit", leave=False
    )
    stopped, last, begun = "iterations", state, time.perf_counter()
    spent = history[-1]["seconds"] if history else 0.0
    try:
        for s in range(int(state.iteration), iterations):
            objective = stages[base.stage(s, iterations, len(stages))]
            state, info = run(solver, objective, key, state, data)
            seen = functools.cache(functools.partial(read, state))
            record = {"iteration": s + 1, "step_size": float(info.step_size)}
            record |= watcher.record(seen, s + 1, iterations) if watcher else {}
            record["seconds"] = spent + time.perf_counter() - begun
            if not all(math.isfinite(v) for v in record.values()):
                raise DivergedError(
                    _diverged(solver, record), Fitted(read(last), history, "diverged")
                )
            last = state
            history.append(record)
            if watcher:
                watcher.see(record, seen)
            bar.update()
            bar.set_postfix(
                {k: f"{v:.4g}" for k, v in record.items() if k not in ("iteration", "seconds")}
            )
            if states and ((s + 1) % states.every == 0 or s + 1 == iterations):
                states.save(state, history)
            if any([callback(s + 1, seen(), record) for callback in callbacks]):
                stopped = "callback"
                break
            verdict = watcher.verdict(history) if watcher else None
            if verdict:
                stopped = verdict
                break
    except KeyboardInterrupt:
        stopped = "interrupted"  # what we have is what you get
    finally:
        bar.close()
    kept = watcher.best if watcher and watcher.best is not None else read(last)
    return Fitted(jax.block_until_ready(kept), history, stopped)


def _diverged(solver: base.Solver, record: dict[str, float]) -> str:
    bad = next(k for k, v in record.items() if not math.isfinite(v))
    s = int(record["iteration"])
    said = f"{bad} is {record[bad]} at iteration {s}; the factors of iteration {s - 1} are kept. "
    rate = getattr(getattr(solver, "inner", solver), "learning_rate", None)
    remedy = "try a stronger penalty"
    return said + (
        remedy if rate is None else f"learning_rate is {rate}: try a tenth of it, or {remedy[4:]}"
    )


def continued(history: list[dict], later: list[dict]) -> list[dict]:
    """Both histories, iterations and seconds counted on."""
    last = history[-1] if history else {"iteration": 0, "seconds": 0.0}

    def shifted(record: dict) -> dict:
        counted = ("iteration", "seconds")
        return {k: v + last.get(k, 0) if k in counted else v for k, v in record.items()}

    return history + [shifted(record) for record in later]
