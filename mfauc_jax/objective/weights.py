"""g, g′ and w_i: the weights of positives, negatives and users."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax._core import host
from mfauc_jax._core.fields import number
from mfauc_jax._core.host import total
from mfauc_jax._core.settings import Settings
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import dislikes
from mfauc_jax.objective.dislikes import Disliked

DISLIKED = 2.0  # c where none is given (docs/derivations.md#dislikes)
MASS = 2**30  # total of a sampling table, an integer: searches are exact in any float type


class PairWeights(NamedTuple):
    """The distributions of Eq. 2, one per user, without a dense matrix.

    g_ip = a_p c_ip / Σ_ω a c and g′_iq = b_q / b(ω̄_i), with a = p̂^τ, b = (1 − p̂)^τ′ and c the
    confidences. Both sum to one per user, which the short forms of the square loss need (E5).
    """

    g: Float[Array, "nnz"]  # 0 for users without a usable pair
    b: Float[Array, "n"]
    neg_mass: Float[Array, "m"]  # b(ω̄_i); 1 for users without a usable pair
    user: Float[Array, "m"]  # w_i: mean 1 over the usable users, 0 for the others
    usable: Int[Array, "usable"]  # users with at least one pair of non-zero weight
    pos_table: Int[Array, "nnz"] | None  # sums of g within a row, in MASS units; None: uniform
    neg_table: Int[Array, "n_plus_1"] | None  # sums of b before an item; None: uniform
    row_table: Int[Array, "nnz"] | None  # sums of b over a row's positives, in neg_table's units
    disliked: Disliked | None = None  # negatives whose b is multiplied by c, which neg_mass counts


class Totals(NamedTuple):
    """What the weights of users outside the training set need of it."""

    item_counts: np.ndarray  # number of users who have each item, [n]
    num_users: float  # m
    mean_power: float  # mean of N_i^user_power over the usable users


class Weights(Settings):
    """The exponents that weigh positives, negatives and users (docs/derivations.md#weights).

    Paper: "τ′ > 0 prefers items for which n_y is small"; here: p̂ is the observed frequency, so
    τ > 0 prefers *popular* positives; use τ < 0 for the long tail (theory/README.md, E6).

    A `user_power` of ½ to 1 gives active users more weight, as iALS and BPR do, which helps the top of the
    list (docs/derivations.md#spread).
    """

    tau: float = number(
        -0.1,
        least=-100,
        most=100,
        help="τ, exponent of an item's frequency in g; the paper has 0, which is uniform",
        swept=False,
    )
    tau_neg: float | None = number(
        0.0, least=-100, most=100, optional=True, help="τ′, the same in g′; None: tau", swept=False
    )
    user_power: float = number(
        0.75,
        least=-100,
        most=100,
        help="a user's weight is N_i to this power; the paper has 0",
        swept=False,
    )

    dislikes: float | None = number(
        None,
        least=1,
        most=1e6,
        optional=True,
        help=f"factor on g′ of the items that a user dislikes; None: {DISLIKED:g}",
        swept=False,
    )

    @classmethod
    def paper(cls, tau: float = 0.0) -> "Weights":
        """The paper's weights: all users alike, one exponent for positives and negatives."""
        return cls(tau=tau, tau_neg=None, user_power=0.0)

    def totals(self, train: Interactions) -> Totals:
        """What the weights of other users need of a training set."""
        counts = np.bincount(np.asarray(train.indices), minlength=train.num_items)
        item_counts, num_users = total(counts), float(total(train.num_users))
        usable = _usable(train, self._negative_weights(item_counts, num_users))
        powers = np.diff(np.asarray(train.indptr))[usable].astype(float) ** self.user_power
        mean = float(total(powers.sum())) / max(float(total(len(powers))), 1.0)
        return Totals(item_counts, num_users, mean)

    def _negative_weights(self, item_counts: np.ndarray, num_users: float) -> np.ndarray:
        """b = (1 − p̂)^τ′, [n]; 0 for an item with p̂ = 1, which is a positive of every user."""
        tau_neg = self.tau if self.tau_neg is None else self.tau_neg
        with np.errstate(divide="ignore"):
            b = (1.0 - item_counts / num_users) ** tau_neg
        return np.where(np.isfinite(b), b, 0.0)

    def of(self, X: Interactions, train: Interactions | Totals | None = None) -> PairWeights:
        """The weights of X's pairs, computed on the host in float64.

        Args:
            X: the positives.
            train: the training set, which p̂ and the mean of N_i^user_power are taken from, or its `totals`. Give it
                if X holds users outside the training set; None means X itself.
        """
        tau, user_power = self.tau, self.user_power
        tau_neg = tau if self.tau_neg is None else self.tau_neg
        m, n = X.shape
        rows, items, lengths = X.on_host()
        train = X if train is None else train
        item_counts, num_users, mean = train if isinstance(train, Totals) else self.totals(train)
        confidence = 1.0 if X.confidence is None else np.asarray(X.confidence, np.float64)
        a = ((np.maximum(item_counts, 1) / num_users) ** tau)[items] * confidence
        b = self._negative_weights(item_counts, num_users)
        usable = _usable(X, b)
        mass = b.sum() - _row_masses(X, b)
        factor = None if X.dislikes is None or not X.dislikes.nnz else self.dislikes or DISLIKED
        if factor is not None:
            mass = mass + dislikes.extra_mass(X, b, factor)
        g = a / np.bincount(rows, a, minlength=m)[rows] * usable[rows]
        w = np.where(usable, lengths.astype(float) ** user_power, 0.0)
        if not total(usable.sum()):
            raise ValueError(
                "no user has both a positive and a negative item, so there is nothing to rank"
            )

        uniform = tau == 0 and X.confidence is None
        longest = int(host.everyone(np.int64(lengths.max())).max())
        pos_table = None if uniform else _row_sums(X, _quantise(g, longest))
        item_mass = _quantise(b / b.sum(), n)
        tables = (None, None)
        if tau_neg != 0:
            mass_before = np.concatenate([[0], np.cumsum(item_mass)])
            tables = host.ints(mass_before), _row_sums(X, item_mass[items])
        disliked = None
        if factor is not None and X.dislikes is not None:
            own = item_mass[np.asarray(X.dislikes.indices)]
            table = None if tau_neg == 0 else _row_sums(X.dislikes, own)
            disliked = dislikes.made(X, b, factor, mass, table, MASS)
        return PairWeights(
            host.floats(g),
            host.floats(b),
            host.floats(np.where(usable, mass, 1.0)),
            host.floats(w / mean),
            host.ints(np.flatnonzero(usable)),
            pos_table,
            *tables,
            disliked,
        )


def _usable(X: Interactions, b: np.ndarray) -> np.ndarray:
    """Which users have a positive and a negative of non-zero weight, [m]."""
    is_weighted = b > 0
    return (np.diff(np.asarray(X.indptr)) > 0) & (is_weighted.sum() > _row_masses(X, is_weighted))


def _row_masses(X: Interactions, masses: np.ndarray) -> np.ndarray:
    """Σ_{p∈ω_i} of the items' masses, [m]; where all are 1 these are the N_i, without a pass over the positives."""
    if (masses == 1).all():
        return np.diff(np.asarray(X.indptr)).astype(float)
    rows, items, _ = X.on_host()
    return np.bincount(rows, masses[items], minlength=X.num_users)


def _quantise(p: np.ndarray, longest: int) -> np.ndarray:
    """Probabilities as integers that sum to less than 2³¹; a positive probability never becomes 0."""
    return np.where(p > 0, np.maximum(np.rint(p * (MASS - longest)), 1), 0).astype(np.int64)


def _row_sums(X: Interactions, values: np.ndarray) -> Int[Array, "nnz"]:
    """Running sums of `values` that start again at each row."""
    sums = np.cumsum(values)
    starts = np.concatenate([[0], sums])[np.asarray(X.indptr)[:-1]]
    return host.ints(sums - starts[X.on_host()[0]])
