"""Item-factor AUC (Weston, Yee, Weiss 2013): a user's vector is the mean of the vectors of their items.

    Σ_i (1/N_i M_i) Σ_p Σ_q max(0, 1 − Z_ip + Z_iq),   Z_ij = (1/N_i) Σ_{p ∈ ω_i} v_p·v_j

Nothing is learnt per user, so a new user is scored from their positives alone.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines import pairwise
from mfauc_jax.baselines.pairwise import Descent, Examples, Picked
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import lookups


@dataclasses.dataclass(frozen=True)
class Uniform:
    """p as drawn, and q exactly uniform on ω̄_i."""

    def __call__(self, key: Key[Array, ""], X: Interactions, examples: Examples) -> Picked:
        """One pair per example, of weight 1, or 0 for a user without negatives."""
        users, pos, u, _ = examples
        num_neg = X.num_items - X.row_lengths[users]
        x = pairwise.below(key, users.shape, jnp.maximum(num_neg, 1))
        neg, _ = lookups.complement(X, None, None, users, x)
        return Picked(pos, jnp.minimum(neg, X.num_items - 1), (num_neg > 0).astype(u.dtype))


DEFAULTS = Descent(epochs=50)


def fit(key: Key[Array, ""], X: Interactions, **changes: Any) -> Factors:
    """Item-factor AUC by stochastic descent; U of the result is the mean of each user's item vectors.

    Args:
        key: for the start and the draws.
        X: the positives.
        changes: new values for fields of `DEFAULTS`, such as rank, per_user or max_norm.
    """
    return pairwise.fit_items(key, X, pairwise.hinge, Uniform(), DEFAULTS.replace(**changes))


def user_vectors(V: Float[Array, "n k"], X: Interactions) -> Float[Array, "m k"]:
    """u_i = (1/N_i) Σ_{p ∈ ω_i} v_p for any users, also those not in training; 0 for a user without positives."""
    total = jnp.zeros((X.num_users, V.shape[1]), V.dtype).at[X.rows].add(V[X.indices])
    return total / jnp.maximum(X.row_lengths, 1)[:, None]
