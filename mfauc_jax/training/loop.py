"""The loop over iterations: records, early stops, progress, checkpoints. It is plain Python on purpose."""

import functools
import logging
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key
from tqdm.auto import tqdm

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.evaluation import formulas
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import base
from mfauc_jax.training import agreement
from mfauc_jax.training.checkpoints import Kept, States
from mfauc_jax.training.interrupts import Interrupts
from mfauc_jax.training.watch import Watcher

LOG = logging.getLogger("mfauc_jax")
EVERY = 10.0  # seconds between two lines of progress where there is no terminal
COLLAPSED = 1e-6  # scores below this are zero in all but name


class Fitted(NamedTuple):
    """The result of a fit, however it ended."""

    factors: Factors
    history: list[dict[str, float]]  # one record per iteration: iteration, seconds, step_size, …
    stopped: (
        str  # why: "iterations", "converged", "patience", "callback", "interrupted", "diverged"
    )


class DivergedError(ArithmeticError):
    """A fit diverged: a record was not finite. `fitted` holds the last finite factors."""

    def __init__(self, message: str, fitted: Fitted):
        super().__init__(message)
        self.fitted = fitted


class Progress:
    """The progress of a fit: a bar on a terminal; elsewhere a record of the log every ten seconds."""

    def __init__(self, total: int, done: int, show: bool | None, first: str):
        """Begin.

        Args:
            total: number of iterations.
            done: how many of them are done already.
            show: whether to show a bar; None: on a terminal, and otherwise lines in the log.
            first: name of the record that is told first, such as the metric that decides.
        """
        alone, terminal = jax.process_index() == 0, sys.stderr.isatty()
        hide = not (alone and (terminal if show is None else show))
        self._lines = alone and show is None and not terminal
        self._bar = tqdm(total=total, initial=done, disable=hide, desc="fit", leave=False)
        self._total, self._first, self._told = total, first, time.monotonic()

    def update(self, record: dict[str, float]) -> None:
        """Tell of one more iteration."""
        names = dict.fromkeys((self._first, "objective", "step_size"))
        values = [f"{name} {record[name]:.4g}" for name in names if name in record]
        self._bar.set_description(f"fit, {values[0]}", refresh=False)
        self._bar.set_postfix_str(", ".join(values[1:]), refresh=False)
        self._bar.update()
        if self._lines and time.monotonic() - self._told >= EVERY:
            self._told = time.monotonic()
            place = f"iteration {record['iteration']} of {self._total}, {record['seconds']:.0f} s"
            LOG.info("fit: %s, %s", values[0], place)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()


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
    order: np.ndarray | None = None,
) -> Fitted:
    """Run a solver on a problem, starting from `factors`.

    Paper (Algorithm 1): stops on |θ′_s − θ′_{s−1}| of two noisy subsamples, and may stop before the first iteration;
    here: at least one iteration runs, and windows of exact objectives are compared (theory/README.md, E12–E14).

    Args:
        key: iteration s uses `fold_in(key, s)`, so a resumed fit has the same random stream.
        solver: takes the steps.
        problem: the data and the objective.
        factors: the start.
        iterations: T; None: the solver's own.
        watcher: records more, keeps the best factors, and may stop the fit early.
        states: the folder of checkpoints; the fit resumes from a state in it.
        callbacks: called with (iteration, averaged factors, record); if one returns a true value, the fit stops, in
            every process. A fit that is resumed where a callback stopped it asks the callbacks about that iteration
            again.
        progress: whether to show a progress bar; None: on a terminal only.
        order: the caller's row of each user of the problem, [m]; None: the same order.
    """

    def restored(factors: Factors) -> Factors:  # the users in the caller's order
        return factors if order is None else factors._replace(U=factors.U[np.argsort(order)])

    def ordered(factors: Factors) -> Factors:  # its inverse
        return factors if order is None else factors._replace(U=factors.U[order])

    agreement.check_items(factors.V)
    iterations = solver.iterations if iterations is None else iterations
    stages = [
        solver.seen_by_step(problem.minimising(objective))
        for objective in solver.stages(problem.objective)
    ]
    kept = Kept(solver.init(problem, factors), [], watcher.seen if watcher else None)
    found = None
    if states:
        like = solver.portable(problem, kept.state)
        found = states.latest(like, iterations, base.portable_rows(factors))
    resumed = found is not None
    if found is not None:
        kept = found._replace(state=solver.placed(problem, found.state))
        if watcher and found.seen is not None:
            best = found.seen.best and restored(base.placed_rows(found.seen.best, len(factors.U)))
            watcher.seen = found.seen._replace(best=best)
            kept = kept._replace(seen=watcher.seen)
    callbacks = list(callbacks)
    called = agreement.anyone(bool(callbacks))
    data = solver.prepare(problem)

    def read(state: base.State) -> Factors:
        return restored(solver.read(state, factors))

    def portable(stopped: str | None) -> Kept:
        seen = kept.seen
        if seen is not None and seen.best is not None:
            seen = seen._replace(best=base.portable_rows(ordered(seen.best)))
        return Kept(solver.portable(problem, kept.state), kept.history, seen, stopped)

    def verdict(averaged: Callable[[], Factors], call: bool) -> str | None:
        """Why the fit ends here, in any process, or None."""
        s, history = int(kept.state.iteration), kept.history
        if call and called:
            now = averaged()  # all processes take part, whichever of them has callbacks
            if any([callback(s, now, history[-1]) for callback in callbacks]):
                return "callback"
        found = watcher.verdict(history) if watcher else None
        return found or ("interrupted" if interrupts.noted else None)

    done = written = int(kept.state.iteration)
    first = formulas.name_of(watcher.watch.metric) if watcher else "objective"
    bar = Progress(iterations, done, progress, first)
    stopped, started = None, time.perf_counter()
    seconds_before = kept.history[-1]["seconds"] if kept.history else 0.0
    try:
        with Interrupts() as interrupts:
            if resumed and kept.history:  # a callback that stopped the fit here is asked again
                averaged = functools.partial(read, kept.state)
                call = kept.stopped == "callback"
                stopped = agreement.reason(functools.partial(verdict, averaged, call))
            for s in range(done, iterations if stopped is None else done):
                objective = stages[base.stage(s, iterations, len(stages))]
                state, info = base.run(solver, objective, key, kept.state, data)
                averaged = functools.cache(functools.partial(read, state))
                record = {"iteration": s + 1, "step_size": float(info.step_size)}
                record |= watcher.record(averaged, s + 1, iterations) if watcher else {}
                record["seconds"] = seconds_before + time.perf_counter() - started
                if not all(math.isfinite(v) for v in record.values()):
                    fitted = Fitted(read(kept.state), kept.history, "diverged")
                    raise DivergedError(_diverged(solver, record), fitted)
                if watcher:
                    watcher.see(record, averaged)
                kept = Kept(state, [*kept.history, record], watcher.seen if watcher else None)
                bar.update(record)
                stopped = agreement.reason(functools.partial(verdict, averaged, True))
                due = stopped is not None or s + 1 == iterations
                if states and (due or (s + 1) % states.every == 0):
                    written = -1  # while a state is being written
                    states.save(portable(stopped))
                    written = s + 1
                if stopped is not None:
                    break
    except KeyboardInterrupt:  # from a callback, or a second Ctrl-C
        if jax.process_count() > 1:  # the others are in the middle of an iteration
            raise
        stopped = "interrupted"  # return the factors so far
        if states and written not in (-1, int(kept.state.iteration)):
            states.save(portable(stopped))
    finally:
        bar.close()
    best = kept.seen.best if kept.seen else None
    result = jax.block_until_ready(read(kept.state) if best is None else best)
    _warn_if_collapsed(result, problem)
    return Fitted(result, kept.history, stopped or "iterations")


def _warn_if_collapsed(factors: Factors, problem: Problem) -> None:
    """Warn if every score is next to zero, where the losses want margins of one: then no list means anything."""
    U, V = map(np.asarray, factors)
    ends = [max(float(F.max(initial=0)), -float(F.min(initial=0))) for F in (U, V)]
    largest = V.shape[1] * float(host.everyone(np.array(ends)).max(0).prod())  # bounds all scores
    if largest < COLLAPSED:
        cause = "the penalty" if problem.rules is None else repr(problem.rules[1])
        warnings.warn(
            f"every score is about zero (at most {largest:.1g}), so the lists mean nothing: {cause} outweighs these "
            f"{problem.X.nnz} positives; lower its strength, reg or spread, or give more data",
            stacklevel=4,
        )


def _diverged(solver: base.Solver, record: dict[str, float]) -> str:
    bad = next(k for k, v in record.items() if not math.isfinite(v))
    s = int(record["iteration"])
    what = f"{bad} is {record[bad]} at iteration {s}; the factors of iteration {s - 1} are kept. "
    rate = getattr(getattr(solver, "inner", solver), "learning_rate", None)
    remedy = "try a stronger penalty"
    return what + (
        remedy if rate is None else f"learning_rate is {rate}: try a tenth of it, or {remedy[4:]}"
    )


def continued(history: list[dict], later: list[dict]) -> list[dict]:
    """Two histories as one; iterations and seconds of the later one count on from the first."""
    last = history[-1] if history else {"iteration": 0, "seconds": 0.0}

    def shifted(record: dict) -> dict:
        counted = ("iteration", "seconds")
        return {k: v + last.get(k, 0) if k in counted else v for k, v in record.items()}

    return history + [shifted(record) for record in later]
