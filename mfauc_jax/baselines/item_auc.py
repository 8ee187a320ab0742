"""Item-factor AUC (Weston, Yee, Weiss 2013): users are the mean of their items' vectors.

    Σ_i (1/N_i M_i) Σ_p Σ_q max(0, 1 − Z_ip + Z_iq),   Z_ij = (1/N_i) Σ_{p ∈ ω_i} v_p·v_j

Nothing is learnt for a user, so a new one is scored from its positives alone.
"""

import dataclasses

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines import pairwise
from mfauc_jax.baselines.pairwise import Examples, Hyper, Picked, Sizes
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import sampling


@dataclasses.dataclass(frozen=True)
class Uniform:
    """p as drawn, and q uniform on ω̄_i, exactly."""

    def __call__(self, key: Key[Array, ""], X: Interactions, examples: Examples) -> Picked:
        """One pair for each example, of weight 1, or 0 for a user without negatives."""
        users, pos, u, _ = examples
        num_neg = X.num_items - X.row_lengths[users]
        x = pairwise.below(key, users.shape, jnp.maximum(num_neg, 1))
        neg, _ = sampling.complement(X, None, None, users, x)
        return Picked(pos, jnp.minimum(neg, X.num_items - 1), (num_neg > 0).astype(u.dtype))


def fit(
    key: Key[Array, ""],
    X: Interactions,
    *,
    rank: int = 32,
    learning_rate: ArrayLike = 0.05,
    reg: ArrayLike = 0.0,
    epochs: ArrayLike = 50,
    per_user: int = 8,
    adaptive: bool = True,
    max_norm: float | None = None,
) -> Factors:
    """Stochastic descent; U of the result is the mean of each user's item vectors.

    Args:
        key: for the start and the draws.
        X: the positives.
        rank: k.
        learning_rate: α.
        reg: λ, per occurrence.
        epochs: of one visit to every user.
        per_user: pairs a visit.
        adaptive: Adagrad rows; False is plain descent.
        max_norm: C of the constraint |v_j| ≤ C, if any.
    """
    sizes = Sizes(rank=rank, per_user=per_user, adaptive=adaptive, max_norm=max_norm)
    hyper = Hyper(learning_rate, reg, epochs)
    return pairwise.fit_items(key, X, pairwise.hinge, Uniform(), hyper, sizes)


def user_vectors(V: Float[Array, "n k"], X: Interactions) -> Float[Array, "m k"]:
    """u_i = (1/N_i) Σ_{p ∈ ω_i} v_p for any users, seen in training or not; 0 without positives."""
    total = jnp.zeros((X.num_users, V.shape[1]), V.dtype).at[X.rows].add(V[X.indices])
    return total / jnp.maximum(X.row_lengths, 1)[:, None]
