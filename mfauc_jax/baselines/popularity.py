"""Popularity: every user gets the items that most users have. It is deterministic and tests the evaluation."""

import jax.numpy as jnp
from jaxtyping import Array, Key

from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions


def fit(key: Key[Array, ""], X: Interactions) -> Factors:
    """s_ij = p̂_j, the share of users who have item j. `key` is not used."""
    del key
    counts = jnp.bincount(X.indices, length=X.num_items)
    return Factors(jnp.ones((X.num_users, 1)), counts[:, None] / X.num_users)
