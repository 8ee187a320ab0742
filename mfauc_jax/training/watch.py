"""Watch: what a fit records, and when it stops early."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import choice, number, size
from mfauc_jax._core.settings import Settings
from mfauc_jax.data import ids
from mfauc_jax.data.digest import digest
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import formulas, metrics
from mfauc_jax.objective import exact
from mfauc_jax.problem import Problem
from mfauc_jax.solvers.base import Solver

WINDOW = 5  # the mean of so many objectives is compared with the mean of as many before them


class Watch(Settings):
    """What `fit` records, which factors it keeps, and when it stops before the last iteration."""

    metric: Any = choice(
        "auc",
        formulas.KNOWN,
        probe=formulas.not_a_metric,
        help="validation metric whose best factors are kept: auc, ndcg@10, …, or a function of the counts",
    )
    validate_every: int = size(1, help="iterations between validation metrics")
    patience: int | None = size(
        None, optional=True, help="stop after this many validations without a better metric"
    )
    record_every: int = size(
        0, least=0, help="iterations between exact objectives in history_; 0: none"
    )
    tolerance: float = number(
        0.0,
        least=0,
        help="ε: stop when the mean of 5 objectives changes by less than this; 0: never",
    )

    @property
    def objective_every(self) -> int:
        """Iterations between exact objectives, 0 for none; a tolerance needs one per iteration."""
        return self.record_every or (1 if self.tolerance > 0 else 0)


class Seen(NamedTuple):
    """What a watcher has seen: a checkpoint keeps it, so that a resumed fit decides as an uninterrupted one."""

    best: Factors | None = None  # the factors with the best metric so far
    value: float | None = None  # their metric
    waited: int = 0  # validations since then


class Watcher:
    """Computes the records of a running fit, keeps the best factors, and decides whether to stop."""

    def __init__(
        self,
        watch: Watch,
        objective: Callable[[Factors], float] | None = None,
        metrics: Callable[[Factors], dict[str, float]] | None = None,
        held_out: Interactions | None = None,
    ):
        """Make a watcher.

        Args:
            watch: what to record, and how often.
            objective: the exact θ of factors; None records none.
            metrics: the validation metrics of factors; None records none.
            held_out: the positives that the metrics are about.
        """
        self.watch, self.objective, self.metrics = watch, objective, metrics
        self._held_out = held_out
        self.seen = Seen()

    @classmethod
    def of(
        cls,
        watch: Watch,
        X: Interactions,
        problem: Callable[[], Problem],
        solver: Solver,
        validation: Any = None,
    ) -> "Watcher | None":
        """The watcher of a fit to X, with held-out positives for validation; None if nothing is recorded.

        `problem()` is called only if the exact objective is recorded, which needs it. In several processes X and
        `validation` are of this process's users, and the records are of the users of all processes.
        """
        if watch.patience is not None and validation is None:
            raise ValueError(
                f"patience = {watch.patience} counts validations: pass fit(X, validation=…)"
            )
        if not watch.objective_every and validation is None:
            return None
        theta = measured = held_out = None
        if watch.objective_every:
            assembled = problem()
            objective = solver.stages(assembled.objective)[-1]
            plan = exact.plan(objective, X, assembled.weights)
            theta = partial(exact.value_of_all, objective, data=plan)
            if assembled.sides is not None:
                theta = partial(assembled.sides.value, objective, plan=plan)
        if validation is not None:
            held_out = ids.over(validation, X, unknown="skip")
            measured = partial(_metrics, X, held_out, watch.metric)
        return cls(watch, theta, measured, held_out)

    def identity(self, order: np.ndarray | None = None) -> dict[str, Any]:
        """What a resumed fit must watch alike: the settings, and a digest of the held-out positives.

        `order` is that of the solver's users; with it the digest is the same in any number of processes.
        """
        held_out = self._held_out
        if held_out is not None:
            held_out = digest(held_out if order is None else held_out.take(order))
        return {"watch": self.watch.describe(identity=True), "validation": held_out}

    def record(self, factors: Callable[[], Factors], iteration: int, last: int) -> dict[str, float]:
        """The records that are due after an iteration; `last` is the last iteration, after which all are."""
        watch, values = self.watch, {}
        every = watch.objective_every
        if self.objective and every and (iteration % every == 0 or iteration == last):
            values["objective"] = self.objective(factors())
        if self.metrics and (iteration % watch.validate_every == 0 or iteration == last):
            values |= {k: float(v) for k, v in self.metrics(factors()).items() if np.ndim(v) == 0}
        return values

    def see(self, record: dict[str, float], factors: Callable[[], Factors]) -> None:
        """Keep the factors if the metric in their record is the best so far."""
        value = record.get(formulas.name_of(self.watch.metric))
        if value is None:
            return
        if self.seen.value is None or value > self.seen.value:
            self.seen = Seen(factors(), value)
        else:
            self.seen = self.seen._replace(waited=self.seen.waited + 1)

    def verdict(self, history: list[dict[str, float]]) -> str | None:
        """The reason to stop now, "converged" or "patience", or None."""
        if self._converged([r["objective"] for r in history if "objective" in r]):
            return "converged"
        if self.watch.patience is not None and self.seen.waited >= self.watch.patience:
            return "patience"
        return None

    def _converged(self, records: list[float]) -> bool:
        """Whether the means of two consecutive windows of objectives differ by less than ε."""
        if self.watch.tolerance <= 0 or len(records) < 2 * WINDOW:
            return False
        now, before = records[-WINDOW:], records[-2 * WINDOW : -WINDOW]
        return abs(float(np.mean(now)) - float(np.mean(before))) < self.watch.tolerance


def _metrics(
    X: Interactions, held_out: Interactions, metric: Any, factors: Factors
) -> dict[str, float]:
    scores, name = (
        metrics.scores(factors, X, held_out, metric, usual=(1, 5, 10)),
        formulas.name_of(metric),
    )
    if math.isnan(scores.get(name, math.nan)):
        raise ValueError(f"{name} has no value for any user of validation: watch another metric")
    return scores
