"""Problem: the one assembly of data, weights and objective that fits, selections and benchmarks start from."""

import dataclasses
from typing import Any

from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.losses import Loss
from mfauc_jax.objective.penalties import Auto, Penalty
from mfauc_jax.objective.weightings import Identity, Weighting
from mfauc_jax.objective.weights import PairWeights, Weights


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is minimised, on which data.

    Attributes:
        X: the positives.
        weights: g, g′ and w of X's pairs.
        objective: Eq. 3 with its λ and σ.
        rules: what made the weights, and λ and σ; needed for users outside X.
    """

    X: Interactions
    weights: PairWeights
    objective: Objective
    rules: tuple[Weights, Penalty] | None = None

    @classmethod
    def of(
        cls,
        X: Any,
        loss: Any = "square",
        weighting: Any = "identity",
        weights: Weights = Weights(),
        penalty: Penalty = Auto(),
        pairs: PairWeights | None = None,
    ) -> "Problem":
        """From data and the objects (or names) of `MFAUC`.

        Args:
            X: whatever `Interactions.of` reads.
            loss: L.
            weighting: φ.
            weights: how pairs and users are weighed.
            penalty: where λ and σ come from.
            pairs: what `weights` gives for X, if that is known already.
        """
        X = Interactions.of(X)
        pairs = weights.of(X) if pairs is None else pairs
        strengths = penalty.of(X, pairs)
        loss = loss if isinstance(loss, Loss) else Loss.member(loss)
        weighting = weighting if isinstance(weighting, Weighting) else Weighting.member(weighting)
        objective = Objective(loss, weighting, *strengths)
        if not isinstance(objective.weighting, Identity):
            equation.check_pair(objective.loss, objective.weighting)
        return cls(X, pairs, objective, (weights, penalty))

    def of_users(self, new: Interactions) -> "Problem":
        """The problem of users outside X, over the same items, with X's constants."""
        if self.rules is None:
            raise ValueError("this Problem was put together by hand: Problem.of knows its rules")
        weights, penalty = self.rules
        own = weights.of(new, train=self.X)
        reg, spread = penalty.of(self.X, self.weights, new=(new, own))
        return Problem(new, own, self.objective._replace(reg=reg, spread=spread), self.rules)

    @property
    def usable_share(self) -> float:
        """Users with a usable pair over all: λ is divided by m, the risk by their number."""
        return self.weights.usable.shape[0] / self.X.num_users
