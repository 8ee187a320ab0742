"""Problem: data, weights and objective put together; every fit, selection and benchmark starts from one."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.losses import Loss
from mfauc_jax.objective.penalties import Auto, Penalty, Reg, Sphere, by_row
from mfauc_jax.objective.sides import SHARED, Side, Sides
from mfauc_jax.objective.weightings import Identity, Weighting
from mfauc_jax.objective.weights import PairWeights, Totals, Weights


class Constants(NamedTuple):
    """What the problem of users outside the training set needs of it: a few numbers, and one per item."""

    totals: Totals
    usable_share: float  # users with a usable pair over all users
    penalty: dict[str, float]  # as from `Penalty.constants`

    def numbers(self) -> dict[str, Any]:
        """The constants for a file, without the items' counts, which follow from the positives."""
        totals, usable_share, penalty = self
        return {"mean_power": totals.mean_power, "usable_share": usable_share, "penalty": penalty}

    @classmethod
    def of(cls, numbers: dict[str, Any], train: Interactions) -> "Constants":
        """The inverse of `numbers`; `train` holds the positives of all users."""
        counts = np.bincount(np.asarray(train.indices), minlength=train.num_items)
        totals = Totals(counts, float(train.num_users), float(numbers["mean_power"]))
        penalty = {str(name): float(value) for name, value in numbers["penalty"].items()}
        return cls(totals, float(numbers["usable_share"]), penalty)


@dataclasses.dataclass(frozen=True)
class Problem:
    """An optimisation problem: what is minimised, and on which data.

    Attributes:
        X: the positives.
        weights: g, g′ and w of X's pairs.
        objective: Eq. 3 with its L, φ, λ and σ.
        rules: the settings that gave the weights, and λ and σ; needed only for users outside X.
        constants: what `of_users` needs of X, for a model to keep; None if its penalty has no short rule for other
            users.
        sides: the features of items and users, with their λ; None without features.
    """

    X: Interactions
    weights: PairWeights
    objective: Objective
    rules: tuple[Weights, Penalty] | None = None
    constants: Constants | None = None
    sides: Sides | None = None

    @classmethod
    def of(
        cls,
        X: Any,
        loss: Any = "square",
        weighting: Any = "identity",
        weights: Weights = Weights(),
        penalty: Penalty = Auto(),
        pairs: PairWeights | None = None,
        constants: Constants | None = None,
    ) -> "Problem":
        """The problem of data and the parts of an `MFAUC`, given as objects or by name.

        Args:
            X: the positives, in any form that `Interactions.of` reads.
            loss: L: a `Loss`, its name, or a function of the margin.
            weighting: φ: a `Weighting`, its name, or a function of the rank loss.
            weights: gives the weights of pairs and users.
            penalty: gives λ and σ.
            pairs: `weights.of(X)`, if it is known already.
            constants: those of the training set, if X holds users outside it; λ of the items is then left out (0).
        """
        X = Interactions.of(X)
        totals = weights.totals(X) if constants is None else constants.totals
        pairs = weights.of(X, totals) if pairs is None else pairs
        if constants is None:
            strengths = penalty.of(X, pairs)
            if strengths.constants is not None:
                constants = Constants(
                    totals, pairs.usable.shape[0] / X.num_users, strengths.constants
                )
        else:
            strengths = penalty.of_users(constants.penalty, X, pairs)
        loss = loss if isinstance(loss, Loss) else Loss.member(loss)
        weighting = weighting if isinstance(weighting, Weighting) else Weighting.member(weighting)
        objective = Objective(loss, weighting, strengths.reg, strengths.spread)
        if not isinstance(objective.weighting, Identity):
            equation.check_pair(objective.loss, objective.weighting)
        return cls(X, pairs, objective, (weights, penalty), constants)

    def of_users(self, new: Interactions) -> "Problem":
        """The problem of users outside X, over the same items, with the constants of X."""
        if self.rules is None:
            raise ValueError("this Problem has no rules for other users: make it with Problem.of")
        weights, penalty = self.rules
        pairs = weights.of(new, train=self.X)
        reg, spread, _ = penalty.of(self.X, self.weights, new=(new, pairs))
        return Problem(new, pairs, self.objective._replace(reg=reg, spread=spread), self.rules)

    def with_features(self, items: Any = None, users: Any = None) -> "Problem":
        """The same problem with features, scipy matrices with one row per item or user (docs/derivations.md#features).

        Where there are features, λ_j of d_j is twice what it was for v_j, and λ_c = Σ_j f_jc² λ_j with the latter.
        """
        reg, (m, n) = self.objective.reg, self.X.shape
        if isinstance(reg, Sphere):
            raise ValueError(
                "penalty=UnitRows() has no rule for features: use Auto() or Fixed(), with weighting=Log(c=1000.0) for "
                "softmax"
            )
        reg = by_row(reg, m, n)
        usable = np.asarray(self.weights.user) > 0  # the others are B g_i
        item_side = None if items is None else Side.of("item", items, reg.item, np.ones(n, bool))
        user_side = None if users is None else Side.of("user", users, reg.user, usable)
        shared = Reg(
            reg.user if users is None else SHARED * reg.user,
            reg.item if items is None else SHARED * reg.item,
        )
        objective = self.objective._replace(reg=shared)
        return dataclasses.replace(self, objective=objective, sides=Sides(item_side, user_side))

    def minimising(self, objective: Objective) -> "Problem":
        """The same data and weights with another objective, such as a stage of a continuation."""
        return dataclasses.replace(self, objective=objective)

    @property
    def usable_share(self) -> float:
        """The share of users with a usable pair: the risk is divided by their number, the penalty by m."""
        return self.weights.usable.shape[0] / self.X.num_users
