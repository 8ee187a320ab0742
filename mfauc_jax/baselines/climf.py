"""CLiMF (Shi et al. 2012): a lower bound on the smoothed reciprocal rank, to be maximised.

    F = Σ_ij X_ij [ln σ(s_ij) + Σ_k ln(1 − X_ik σ(s_ik − s_ij))] − (λ/2)(‖U‖² + ‖V‖²)

Only positives enter, so it costs Σ N_i², and no negatives are drawn. At its maximum all positives of a user have the
same score, and the other items have no say. So, for users with many positives, start small and stop early.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from mfauc_jax._core import draws, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines.pairwise import Table, descend
from mfauc_jax.data import ragged
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.ragged import Bucket
from mfauc_jax.solvers import base

PAIRS = 2**20  # most (j, k) pairs per step


def user_bound(
    u: Float[Array, "k"], V_pos: Float[Array, "P k"], real: Float[Array, "P"]
) -> Float[Array, ""]:
    """Σ_j [ln σ(s_j) + Σ_k ln(1 − σ(s_k − s_j))] over one user's positives.

    ln σ(x) = −softplus(−x) and ln(1 − σ(x)) = −softplus(x), which do not underflow.
    """
    s = V_pos @ u
    pairs = jax.nn.softplus(s[None, :] - s[:, None])  # [j, k]
    return -(real @ jax.nn.softplus(-s)) - real @ pairs @ real


def objective(factors: Factors, X: Interactions, *, reg: ArrayLike = 0.0) -> Float[Array, ""]:
    """F over all users, to be maximised."""
    U, V = factors
    bound = sum(
        jax.vmap(user_bound)(U[users], V[items], real).sum()
        for users, items, _, real in ragged.buckets(X)
    )
    return jnp.asarray(bound - 0.5 * reg * ((U * U).sum() + (V * V).sum()))


def fit(
    key: Key[Array, ""],
    X: Interactions,
    *,
    rank: int = 32,
    learning_rate: ArrayLike = 0.01,
    reg: ArrayLike = 0.001,
    epochs: ArrayLike = 20,
    users_per_step: int = 32,
) -> Factors:
    """CLiMF by stochastic ascent with Adagrad per row; an epoch visits every user once.

    λ v_j is divided among the n_j users who have item j, so that an epoch applies it once.

    Args:
        key: for the start and the order.
        X: the positives.
        rank: k ≥ 1.
        learning_rate: α > 0.
        reg: λ ≥ 0.
        epochs: passes over the users.
        users_per_step: most users per step; there are fewer where users have many positives.
    """
    begin = base.gaussian(key, *X.shape, rank, 0.001)
    chunks = [chunked(bucket, users_per_step) for bucket in ragged.buckets(X)]
    counts = jnp.maximum(jnp.bincount(X.indices, length=X.num_items), 1)
    return _ascend(key, chunks, 1.0 / counts, begin, learning_rate, reg, epochs)


def chunked(bucket: Bucket, users_per_step: int) -> Bucket:
    """The bucket with its users in chunks, [c, b]; padding has `real` = 0 everywhere."""
    count, P = len(bucket.users), int(np.asarray(bucket.real).sum(1).max())
    b = max(1, min(count, users_per_step, PAIRS // P**2))
    return Bucket(*(ragged.cut(a, b) for a in bucket))


@programs.jit
def _ascend(key, chunks, share, begin, learning_rate, reg, epochs) -> Factors:
    def loss(u, V_pos, real, shared):
        penalty = ((u * u).sum(1) * real[:, 0]).sum() + ((V_pos**2).sum(2) * real * shared).sum()
        return 0.5 * reg * penalty - jax.vmap(user_bound)(u, V_pos, real).sum()

    def step(tables, chunk):
        users, items, _, real = chunk
        by_user, by_item = tables
        rows = by_user.rows[users], by_item.rows[items]
        du, dv = jax.grad(loss, (0, 1))(*rows, real, share[items])
        by_user = descend(by_user, users, du, learning_rate, True)
        dv = dv.reshape(-1, dv.shape[-1])
        return (by_user, descend(by_item, items.ravel(), dv, learning_rate, True)), None

    def epoch(s, tables):
        for place, bucket in enumerate(chunks):
            key_order = jax.random.fold_in(jax.random.fold_in(key, s), place)
            order = draws.shuffled(key_order, jnp.arange(bucket.users.shape[0]))
            tables, _ = jax.lax.scan(step, tables, jax.tree.map(lambda a, o=order: a[o], bucket))
        return tables

    tables = tuple(Table(F, jnp.ones_like(F)) for F in begin)
    return Factors(*(t.rows for t in jax.lax.fori_loop(0, epochs, epoch, tables)))
