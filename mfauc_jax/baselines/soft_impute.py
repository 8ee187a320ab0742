"""Soft Impute (Mazumder, Hastie, Tibshirani 2010): complete X by iterated soft-thresholded SVDs.

    Z ← S_λ(P_Ω(X) + P_Ω̄(Z)),   S_λ(P diag(d) Qᵀ) = P diag(max(d − λ, 0)) Qᵀ,

which minimises ½ ‖P_Ω(X − Z)‖² + λ ‖Z‖_*. P_Ω(X) + P_Ω̄(Z) = P_Ω(X − Z) + Z is sparse plus low rank, so no dense matrix
is formed.

The role of the zeros (theory/README.md, E49): as in the paper, Ω = ω, so only the positives are in the cost and the
zeros are missing values. All observed values are then 1, and the all-ones matrix fits them exactly. It ranks items only
because λ, and a few iterations from Z = 0, stop short of that matrix. `svd` is the other reading, in which Ω is every
cell and zeros are observed.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from mfauc_jax._core import programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import ragged
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.ragged import Walk

RHOS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)  # λ/σ₁ along the authors' path


class Svd(NamedTuple):
    """P diag(d) Qᵀ: P and Q have orthonormal columns, and d never rises."""

    P: Float[Array, "m w"]
    d: Float[Array, "w"]
    Q: Float[Array, "n w"]


def fit(key: Key[Array, ""], X: Interactions, **options: Any) -> Factors:
    """Soft Impute: the last point of `path`, whose options it takes."""
    points = path(key, X, **options)
    return Factors(points.U[-1], points.V[-1])


def path(
    key: Key[Array, ""],
    X: Interactions,
    *,
    rank: int = 32,
    rhos: tuple[float, ...] = RHOS,
    iterations: int = 10,
    power: int = 2,
    oversample: int = 10,
) -> Factors:
    """Soft Impute for each λ = ρ σ₁(X) with warm starts, as stacked Factors: U [r, m, k], V [r, n, k].

    Args:
        key: for the sketch.
        X: the positives; the zeros are missing.
        rank: k, the largest number of singular values that are kept.
        rhos: the values of λ/σ₁(X), descending.
        iterations: number of iterations per ρ.
        power: products with A Aᵀ per randomised SVD, which starts from the vectors of the last one.
        oversample: columns of the sketch beyond k.
    """
    by_user, by_item = ragged.walk(X), ragged.walk(X.transpose())
    sketch = _sketch(key, X, rank, oversample)
    sizes = (rank, iterations, power)
    return _path(by_user, by_item, sketch, jnp.asarray(rhos, float), sizes)


def svd(
    key: Key[Array, ""],
    X: Interactions,
    *,
    rank: int = 32,
    rho: float = 0.0,
    power: int = 6,
    oversample: int = 10,
) -> Factors:
    """S_λ(X) with λ = ρ σ₁(X): the fixed point of Soft Impute if every zero is observed. ρ = 0 is PureSVD."""
    by_user, by_item = ragged.walk(X), ragged.walk(X.transpose())
    sketch = _sketch(key, X, rank, oversample)
    return _observed(by_user, by_item, sketch, jnp.asarray(rho, float), (rank, power))


def _sketch(key, X, rank, oversample) -> Float[Array, "n w"]:
    if rank < 1:
        raise ValueError(f"rank = {rank} must be ≥ 1: it is the number of columns of U and V")
    return jax.random.normal(key, (X.num_items, min(rank + oversample, *X.shape)))


@partial(programs.jit, static_argnames="sizes")
def _path(by_user, by_item, sketch, rhos, sizes) -> Factors:
    rank, iterations, power = sizes
    top = subspace_svd(by_user, by_item, _zero(by_user, sketch), sketch, power + 4)

    def at_rho(state, rho):
        def iterate(_, state):
            Z, Q = state
            A = subspace_svd(by_user, by_item, Z, Q, power)
            return threshold(A, rho * top.d[0], rank), A.Q

        Z, Q = jax.lax.fori_loop(0, iterations, iterate, state)
        return (Z, Q), _factors(Z, rank)

    return jax.lax.scan(at_rho, (_zero(by_user, sketch), top.Q), rhos)[1]


@partial(programs.jit, static_argnames="sizes")
def _observed(by_user, by_item, sketch, rho, sizes) -> Factors:
    rank, power = sizes
    A = subspace_svd(by_user, by_item, _zero(by_user, sketch), sketch, power)
    return _factors(threshold(A, rho * A.d[0], rank), rank)


def threshold(A: Svd, lam: Float[Array, ""], rank: int) -> Svd:
    """S_λ of A, with at most `rank` non-zero values."""
    kept = jnp.arange(A.d.shape[0]) < rank
    return A._replace(d=jnp.where(kept, jnp.maximum(A.d - lam, 0.0), 0.0))


def subspace_svd(by_user: Walk, by_item: Walk, Z: Svd, Q: Float[Array, "n w"], power: int) -> Svd:
    """The top singular vectors of A = P_Ω(X − Z) + Z by subspace iteration from Q."""
    to_users = partial(product, by_user, Z.P * Z.d[None, :], Z.Q)
    to_items = partial(product, by_item, Z.Q * Z.d[None, :], Z.P)

    def again(_, Q):
        return orthonormal(to_items(orthonormal(to_users(Q))[0]))[0]

    Q = jax.lax.fori_loop(0, power, again, orthonormal(Q)[0])
    left, upper = orthonormal(to_users(Q))  # A Q = left · upper
    small_p, d, small_q = jnp.linalg.svd(upper, full_matrices=False)
    return Svd(left @ small_p, d, Q @ small_q.T)


def orthonormal(Y: Float[Array, "r w"]) -> tuple[Float[Array, "r w"], Float[Array, "w w"]]:
    """Y = Q R by Cholesky of YᵀY, twice: matrix products and w × w factors only.

    LAPACK's QR of tall matrices starts threads of its own, which compete with XLA's. The shift keeps the factor
    defined if Y lacks full rank; Q R = Y holds all the same.
    """

    def once(Y):
        gram = Y.T @ Y
        shift = 10 * jnp.finfo(Y.dtype).eps * jnp.trace(gram) + jnp.finfo(Y.dtype).tiny
        eye = jnp.eye(Y.shape[1], dtype=Y.dtype)
        R = jnp.linalg.cholesky(gram + shift * eye).T
        return Y @ jax.scipy.linalg.solve_triangular(R, eye), R

    Q, R = once(Y)
    Q, again = once(Q)
    return Q, again @ R


def product(
    by_user: Walk, U: Float[Array, "m w"], V: Float[Array, "n w"], B: Float[Array, "n c"]
) -> Float[Array, "m c"]:
    """(P_Ω(X − U Vᵀ) + U Vᵀ) B, in O(nnz (w + c) + (m + n) w c)."""
    X = by_user.X

    def solve(rows):
        u = U.at[rows].get(mode="clip")

        def add(total, slots, real):
            items = X.indices[slots]
            residual = 1.0 - jnp.einsum("bk,bwk->bw", u, V[items])
            return total + jnp.einsum("bw,bwk->bk", jnp.where(real, residual, 0.0), B[items])

        return ragged.fold(by_user, rows, add, jnp.zeros((rows.shape[0], B.shape[1]), B.dtype))

    return ragged.map_rows(by_user, solve) + U @ (V.T @ B)


def _zero(by_user, sketch) -> Svd:
    """Z = 0."""
    n, width = sketch.shape
    zeros = (jnp.zeros((rows, width), sketch.dtype) for rows in (by_user.X.num_users, n))
    return Svd(next(zeros), jnp.zeros(width, sketch.dtype), next(zeros))


def _factors(Z: Svd, rank: int) -> Factors:
    """U = P √d and V = Q √d, padded with zero columns if there are fewer than k values."""
    root = jnp.sqrt(Z.d)[None, :rank]
    lacking = max(rank - Z.d.shape[0], 0)
    U, V = (jnp.pad(F[:, :rank] * root, ((0, 0), (0, lacking))) for F in (Z.P, Z.Q))
    return Factors(U, V)
