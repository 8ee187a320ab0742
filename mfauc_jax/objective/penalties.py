"""λ and σ: the strengths of the penalties of Eq. 3, given or computed from the shape of the data."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import number
from mfauc_jax._core.host import total
from mfauc_jax._core.settings import Settings
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import noise
from mfauc_jax.objective.weights import PairWeights

PENALTIES: dict[str, Any] = {}


class Reg(NamedTuple):
    """λ by user and by item: the penalty is ½(Σ λ_i |u_i|²/m + Σ λ_j |v_j|²/n)."""

    user: Any  # a number, or [m]
    item: Any  # a number, or [n]


class Sphere(NamedTuple):
    """Takes the place of λ where every row of U has length one, and row j of V the length ℓ_j."""

    item: Any = 1.0  # ℓ: a number, or [n]


def unit_rows(F: Any) -> Any:
    """The rows divided by their lengths; a row of zeros stays as it is."""
    squares = (F**2).sum(1, keepdims=True)
    return F / jnp.sqrt(jnp.where(squares > 0, squares, 1.0))


def scored_rows(reg: Any, factors: Factors, items: Any = None) -> Factors:
    """The rows whose products are the scores: u/|u| and ℓ_j v_j/|v_j| on a Sphere, else the factors.

    Args:
        reg: λ, or a Sphere.
        factors: free rows.
        items: the items that the rows of V belong to; None: all.
    """
    if not isinstance(reg, Sphere):
        return factors
    length = reg.item if items is None or not jnp.ndim(reg.item) else reg.item[items]
    U, V = map(unit_rows, factors)
    return Factors(U, jnp.asarray(length, V.dtype).reshape(-1, 1) * V)


def by_row(reg: Any, num_users: int, num_items: int) -> Reg:
    """λ as a Reg of arrays, [m] and [n]; zeros for a Sphere."""
    reg = 0.0 if isinstance(reg, Sphere) else reg
    reg = reg if isinstance(reg, Reg) else Reg(reg, reg)
    return Reg(jnp.broadcast_to(reg.user, (num_users,)), jnp.broadcast_to(reg.item, (num_items,)))


class Strengths(NamedTuple):
    """The strengths of both penalties, as an Objective takes them."""

    reg: Any  # λ: a number, a Reg or a Sphere
    spread: Any  # σ − 1: a number or [m]
    constants: dict[str, float] | None = (
        None  # of the training set, as `of_users` takes them; None: it has no rule
    )


class Penalty(Settings, registry=PENALTIES):
    """The family of penalties: rules that give λ and the strength of the spread penalty."""

    sphere: ClassVar[bool] = False  # whether the rows of U and V have length one

    def of(
        self,
        X: Interactions,
        weights: PairWeights,
        new: tuple[Interactions, PairWeights] | None = None,
    ) -> Strengths:
        """The strengths for the training set X; with `new`, those of new users with X's constants.

        Args:
            X: the training set.
            weights: the weights of X's pairs.
            new: positives and weights of users outside X, over the same items.
        """
        raise TypeError(f"{type(self).__name__} has no rule: write of(self, X, weights, new=None)")

    def of_users(
        self, constants: dict[str, float], new: Interactions, weights: PairWeights
    ) -> Strengths:
        """`of` with `new`, from its `constants` alone; the λ of items is left out (0)."""
        raise TypeError(f"{type(self).__name__} has constants, but no rule: write of_users")

    def settled(self, constants: dict[str, float]) -> "Penalty":
        """This rule, with what is costly to estimate taken from the constants of an earlier training set."""
        del constants
        return self


class Fixed(Penalty):
    """The same λ and the same σ − 1 for all rows; the paper's objective has spread = 0."""

    reg: float = number(0.1, least=0, help="λ")
    spread: float = number(
        0.0, least=0, help="σ − 1, weight on the negatives' variance; the paper has 0"
    )

    def of(self, X, weights, new=None) -> Strengths:
        """The given λ and σ − 1, whatever the data."""
        del X, weights, new
        return Strengths(self.reg, self.spread, {})

    def of_users(self, constants, new, weights) -> Strengths:
        """The given λ and σ − 1."""
        return self.of(new, weights)


class UnitRows(Penalty):
    """Every row of U has length one, and so has every row of V or, with c ≠ 0, its length is a power of popularity.

        |v_j| = ℓ_j = p_j^c Σp / Σp^(1 + c)

    with p_j ≥ 1 the number of users who have item j: over the positives, the mean of ℓ_j is 1. So scores are cosines
    times ℓ_j; no λ, no spread penalty. On long-tail data c = 0 takes popularity out of the lengths of the items, and c
    near .1 puts some of it back (docs/derivations.md#unit-rows). On the sphere a ridge is a constant. Meant for losses
    with a β, which sets the range of the margins β(s_p − s_q).
    """

    sphere = True
    popularity: float = number(
        0.0,
        least=-10,
        most=10,
        swept=False,
        help="c, the power of an item's popularity that the length of its row is; 0: length one",
    )

    def of(self, X, weights, new=None) -> Strengths:
        """The sphere, with the lengths of the items of X."""
        del weights, new
        p = np.maximum(total(np.bincount(X.on_host()[1], minlength=X.num_items)), 1.0)
        length = p**self.popularity
        return Strengths(Sphere(host.floats(length / np.average(length, weights=p))), 0.0, {})

    def of_users(self, constants, new, weights) -> Strengths:
        """The sphere of U: the rows of V are known."""
        del constants, new, weights
        return Strengths(Sphere(), 0.0, {})


class Auto(Penalty):
    """λ_i, λ_j and σ_i − 1 for any data, as multiples of the gradient's noise at zero.

        σ_i = max(1, 1.6 (M_i/N_i)^⅓)
        l   = .4 lift mean(σ)^⅙ (1 + √(n/m)) √(mean_i w_i²/N_i)
        l_i = l w_i^½ / mean(w^½)
        l_j = l (m/n) h_j^¾ / mean(h^¾),      h_j = Σ_i w_i (g_ij + σ_i g′_ij)

    in m θ = Σ w_i θ_i + ½ Σ l_i |u_i|² + ½ Σ l_j |v_j|². The lift is 1 unless the data hardly stand out of noise:
    min(1.4, 1 + 6 (1 − ρ)) where ρ < 1 (`noise.standing_out`), which depends on the data and on no setting. The paper
    has no such rule. Its constants were chosen for the square loss with w_i ∝ N_i^¾, on split seeds 0–4 of four data
    sets, and the lift on parts of seven (docs/derivations.md#auto-penalty; `experiments/study_top.py` measures other
    constants).
    """

    strength: float = number(
        0.4,
        above=0,
        swept=False,
        help="multiplies every λ: larger favours the AUC of sparse data, smaller the top of the list",
    )
    lift: float | None = number(
        None,
        above=0,
        optional=True,
        swept=False,
        help="multiplies strength; None: from 1 to 1.4, more where the data hardly stand out of noise",
    )
    spread: float | None = number(
        None,
        least=0,
        optional=True,
        swept=False,
        help="σ − 1 of every user; None: from N_i by sigma and sigma_power",
    )
    sigma: float = number(
        1.6, least=0, swept=False, help="σ_i = max(1, sigma (M_i/N_i)^sigma_power)"
    )
    sigma_power: float = number(1 / 3, least=-10, most=10, swept=False, help="see sigma")
    noise_power: float = number(
        1 / 6, least=-10, most=10, swept=False, help="λ ∝ mean(σ)^noise_power"
    )
    reg_user_power: float = number(
        0.5, least=-10, most=10, swept=False, help="λ_i ∝ w_i^reg_user_power"
    )
    reg_item_power: float = number(
        0.75, least=-10, most=10, swept=False, help="λ_j ∝ h_j^reg_item_power"
    )

    def of(self, X, weights, new=None) -> Strengths:
        """The class's formulas; with `new`, λ_i and σ_i are the new users', while l, h and the means are X's."""
        m, n = total(X.num_users), X.num_items
        item_scale = self._item_scale(X, weights)
        constants = self._constants(X, weights, item_scale)
        by_item = constants["noise"] * (m / n) * item_scale / item_scale.mean()
        users = self.of_users(constants, *((X, weights) if new is None else new))
        reg = Reg(users.reg.user, host.floats(by_item * n / m))
        return Strengths(reg, users.spread, constants)

    def _constants(self, X, weights, item_scale: np.ndarray) -> dict[str, float]:
        """l ("noise"), mean(w^½) ("mean_scale"), the least w of a usable user, and the lift."""
        m, n = total(X.num_users), X.num_items
        lengths = np.maximum(np.diff(np.asarray(X.indptr)), 1)
        w = np.asarray(weights.user, np.float64)
        usable = w > 0
        mean_noise = total((w**2 / lengths)[usable].sum()) / total(usable.sum())
        mean_sigma = total(self._sigmas(n, lengths, w)[usable].sum()) / total(usable.sum())
        shape = mean_sigma**self.noise_power * (1 + np.sqrt(n / m))
        lift = _lift(X) if self.lift is None else self.lift
        level = self.strength * lift * shape * np.sqrt(mean_noise)
        mean_scale = total((w[usable] ** self.reg_user_power).sum()) / total(usable.sum())
        least_weight = host.everyone(w[usable].min(initial=np.inf)).min()
        named = {"noise": level, "mean_scale": mean_scale, "least_weight": least_weight}
        named["lift"] = lift
        return {name: float(value) for name, value in named.items()}

    def of_users(self, constants, new, weights) -> Strengths:
        """λ_i and σ_i of users, from l and the means of the training set."""
        w = np.asarray(weights.user, np.float64)
        lifted = np.where(w > 0, w, constants["least_weight"])  # no λ_i is 0
        scale = lifted**self.reg_user_power / constants["mean_scale"]
        reg = Reg(host.floats(constants["noise"] * scale), 0.0)
        if self.spread is not None:
            return Strengths(reg, self.spread)
        lengths = np.diff(np.asarray(new.indptr))
        return Strengths(reg, host.floats(self._sigmas(new.num_items, lengths, w) - 1))

    def settled(self, constants: dict[str, float]) -> "Auto":
        """The rule with the lift that was found before, which is the costly part of it."""
        return dataclasses.replace(self, lift=constants["lift"]) if "lift" in constants else self

    def _item_scale(self, X: Interactions, weights: PairWeights) -> np.ndarray:
        """h_j^reg_item_power, [n]; g′_ij is b_j / mass_i on the complement, c times as much for a dislike."""
        n = X.num_items
        rows, items, lengths = X.on_host()
        w, b, g = (np.asarray(a, np.float64) for a in (weights.user, weights.b, weights.g))
        mass = np.asarray(weights.neg_mass, np.float64)
        negative_weight = w * self._sigmas(n, np.maximum(lengths, 1), w) / mass
        h = np.bincount(items, w[rows] * g - negative_weight[rows] * b[items], minlength=n)
        if weights.disliked is not None:
            rows, items, _ = weights.disliked.X.on_host()
            extra = (float(weights.disliked.factor) - 1) * b[items]
            h = h + np.bincount(items, negative_weight[rows] * extra, minlength=n)
        return np.maximum(total(h + b * negative_weight.sum()), 1e-12) ** self.reg_item_power

    def _sigmas(self, n: int, lengths: np.ndarray, w: np.ndarray) -> np.ndarray:
        """σ_i = max(1, sigma (M_i/N_i)^sigma_power), [m]; 1 for users without a usable pair."""
        sigma, power = self.sigma, self.sigma_power
        if self.spread is not None:
            sigma, power = 1.0 + self.spread, 0.0
        ratio = np.maximum(n - lengths, 1) / np.maximum(lengths, 1)
        return np.where(w > 0, np.maximum(sigma * ratio**power, 1.0), 1.0)


def _lift(X: Interactions) -> float:
    """min(1.4, 1 + 6 (1 − ρ)), the same for all settings: ρ with the scales of λ_i and λ_j where w = N^¾ and τ = 0.

    Else another τ could raise every λ by two fifths at once.
    """
    n = X.num_items
    rows, items, lengths = X.on_host()
    usable = (lengths > 0) & (lengths < n)
    N, M = np.maximum(lengths, 1).astype(float), np.maximum(n - lengths, 1)
    w = np.where(usable, N**0.75, 0.0)
    by_pair = w * np.maximum(1.6 * (M / N) ** (1 / 3), 1.0) / M  # w σ g′
    h = np.bincount(items, (w / N - by_pair)[rows], minlength=n)
    h = np.maximum(total(h + by_pair.sum()), 1e-12)
    rho = noise.standing_out(X, w**0.75 / N, h ** (-3 / 8))
    return min(1.4, 1 + 6 * (1 - rho))
