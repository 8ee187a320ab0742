"""What is recorded of a fit, and when it stops early."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import Settings, choice, number, size
from mfauc_jax.evaluation import formulas

WINDOW = 5  # records of θ whose mean is compared with that of the five before


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
        None, optional=True, help="stop after so many validations without a better metric"
    )
    record_every: int = size(
        0, least=0, help="iterations between exact objectives in history_; 0: none"
    )
    tolerance: float = number(
        0.0, least=0, help="ε: stop when recent objectives move by less; 0: never"
    )

    @property
    def objective_every(self) -> int:
        """Iterations between exact objectives; a tolerance needs them all."""
        return self.record_every or (1 if self.tolerance > 0 else 0)


class Watcher:
    """What is computed of factors while they are fitted, the best of them, and whether to stop."""

    def __init__(
        self,
        watch: Watch,
        objective: Callable[[Factors], Any] | None = None,
        metrics: Callable[[Factors], dict[str, float]] | None = None,
    ):
        """Args: watch: what and how often. objective: exact θ. metrics: of validation positives."""
        self.watch, self.objective, self.metrics = watch, objective, metrics
        self.best: Factors | None = None
        self._value, self._waited = -math.inf, 0

    def record(self, factors: Callable[[], Factors], iteration: int, last: int) -> dict[str, float]:
        """What is due after an iteration."""
        watch, found = self.watch, {}
        every = watch.objective_every
        if self.objective and every and (iteration % every == 0 or iteration == last):
            found["objective"] = float(self.objective(factors()))
        if self.metrics and (iteration % watch.validate_every == 0 or iteration == last):
            found |= {k: float(v) for k, v in self.metrics(factors()).items() if np.ndim(v) == 0}
        return found

    def see(self, found: dict[str, float], factors: Callable[[], Factors]) -> None:
        """Keep the factors of a record if their metric is the best so far."""
        value = found.get(formulas.name_of(self.watch.metric))
        if value is None:
            return
        if self.best is None or value > self._value:
            self._value, self.best, self._waited = value, factors(), 0
        else:
            self._waited += 1

    def verdict(self, history: list[dict[str, float]]) -> str | None:
        """Why to stop now, or None."""
        if self._converged([r["objective"] for r in history if "objective" in r]):
            return "converged"
        if self.watch.patience is not None and self._waited >= self.watch.patience:
            return "patience"
        return None

    def _converged(self, records: list[float]) -> bool:
        """Whether the means of two consecutive windows of objectives differ by less than ε."""
        if self.watch.tolerance <= 0 or len(records) < 2 * WINDOW:
            return False
        now, before = records[-WINDOW:], records[-2 * WINDOW : -WINDOW]
        return abs(float(np.mean(now)) - float(np.mean(before))) < self.watch.tolerance
