"""The outer loop: iterations, records, stopping, progress, checkpoints. Plain Python on purpose."""

import functools
import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key
from tqdm import tqdm

from mfauc_jax._core.factors import Factors
from mfauc_jax.solvers import base
from mfauc_jax.training.checkpoints import Checkpoints


class Fitted(NamedTuple):
    """What a fit returns, however it ended."""

    factors: Factors
    history: list[dict[str, float]]  # a record an iteration: iteration, seconds, step_size, …
    stopped: str  # "iterations", "converged", "patience" or "interrupted"


class DivergedError(ArithmeticError):
    """A record was not finite; `fitted` holds the last finite factors."""

    def __init__(self, message: str, fitted: Fitted):
        super().__init__(message)
        self.fitted = fitted


class Stopping(NamedTuple):
    """When to stop before the last iteration."""

    tolerance: float = 0.0  # ε: the means of two consecutive windows of records differ by less
    window: int = 5
    patience: int | None = None  # records without a better validation metric


class Watch(NamedTuple):
    """What is recorded, and how often."""

    objective: Callable[[Factors], Any] | None = None  # exact θ of the averages
    objective_every: int = 1
    metrics: Callable[[Factors], dict[str, float]] | None = None
    metrics_every: int = 1
    best: str = "auc"  # the metric whose best factors are kept


def fit(
    key: Key[Array, ""],
    solver_at: Callable[[int], base.Solver],
    factors: Factors,
    data: Any,
    iterations: int,
    *,
    watch: Watch = Watch(),
    stopping: Stopping = Stopping(),
    checkpoints: Checkpoints | None = None,
    checkpoint_every: int = 1,
    callbacks: Iterable[Callable[[int, Factors, dict], Any]] = (),
    progress: bool | None = None,
    remedy: str = "",
) -> Fitted:
    """Run a solver from `factors`.

    Paper (Algorithm 1): stops on |θ′_s − θ′_{s−1}| of two noisy subsamples, and may never start;
    here: at least one iteration, and windows of exact records (theory/README.md, E12–E14).

    Args:
        key: the random stream; iteration s uses `fold_in(key, s)`, so a resumed fit repeats it.
        solver_at: the solver of iteration s (the same shapes each time; β may rise with s).
        factors: the start.
        data: what the solver's `prepare` made.
        iterations: T.
        watch: what to record.
        stopping: early stops.
        checkpoints: where states are kept; a state found there is resumed from.
        checkpoint_every: iterations between states.
        callbacks: called with (iteration, averaged factors, record); a true answer stops the fit.
        progress: a bar; None shows it on a terminal only.
        remedy: what to suggest if the fit diverges.
    """
    state, history = solver_at(0).init(factors), []
    found = checkpoints.latest(state) if checkpoints else None
    if found:
        state, history = found
    best, read, run = _Best(watch.best), solver_at(0).read, base.runner(solver_at(0), data)
    hide = not sys.stderr.isatty() if progress is None else not progress
    hide = hide or jax.process_index() > 0
    bar = tqdm(
        total=iterations, initial=int(state.iteration), disable=hide, desc="fit", leave=False
    )
    stopped, last, begun = "iterations", state, time.perf_counter()
    spent = history[-1]["seconds"] if history else 0.0
    try:
        for s in range(int(state.iteration), iterations):
            state, info = run(solver_at(s).step, key, state, data)
            seen = functools.cache(functools.partial(read, state, factors))
            record = {"iteration": s + 1, "step_size": float(info.step_size)}
            record |= _watched(watch, seen, s + 1, iterations)
            record["seconds"] = spent + time.perf_counter() - begun
            if not all(math.isfinite(v) for v in record.values()):
                bad = next(k for k, v in record.items() if not math.isfinite(v))
                raise DivergedError(
                    f"{bad} is {record[bad]} at iteration {s + 1}; the factors of iteration {s} are kept. "
                    f"{remedy}",
                    Fitted(read(last, factors), history, "diverged"),
                )
            last = state
            history.append(record)
            best.see(record, seen)
            bar.update()
            bar.set_postfix(
                {k: f"{v:.4g}" for k, v in record.items() if k not in ("iteration", "seconds")}
            )
            if checkpoints and ((s + 1) % checkpoint_every == 0 or s + 1 == iterations):
                checkpoints.save(state, history)
            if any([callback(s + 1, seen(), record) for callback in callbacks]):
                stopped = "callback"
                break
            if _converged(history, stopping):
                stopped = "converged"
                break
            if stopping.patience is not None and best.waited >= stopping.patience:
                stopped = "patience"
                break
    except KeyboardInterrupt:
        stopped = "interrupted"  # what we have is what you get
    finally:
        bar.close()
    kept = read(last, factors) if best.factors is None else best.factors
    return Fitted(jax.block_until_ready(kept), history, stopped)


class _Best:
    """The factors with the best validation metric so far."""

    def __init__(self, metric: str):
        self.metric, self.value, self.waited = metric, -math.inf, 0
        self.factors: Factors | None = None

    def see(self, record: dict, factors: Callable[[], Factors]) -> None:
        if self.metric not in record:
            return
        if self.factors is None or record[self.metric] > self.value:
            self.value, self.factors, self.waited = record[self.metric], factors(), 0
        else:
            self.waited += 1


def _watched(
    watch: Watch, factors: Callable[[], Factors], iteration: int, last: int
) -> dict[str, float]:
    record = {}
    if watch.objective and (iteration % watch.objective_every == 0 or iteration == last):
        record["objective"] = float(watch.objective(factors()))
    if watch.metrics and (iteration % watch.metrics_every == 0 or iteration == last):
        record |= {k: float(v) for k, v in watch.metrics(factors()).items() if np.ndim(v) == 0}
    return record


def _converged(history: list[dict], stopping: Stopping) -> bool:
    records = [r["objective"] for r in history if "objective" in r]
    if stopping.tolerance <= 0 or len(records) < 2 * stopping.window:
        return False
    now, before = records[-stopping.window :], records[-2 * stopping.window : -stopping.window]
    return abs(float(np.mean(now)) - float(np.mean(before))) < stopping.tolerance
