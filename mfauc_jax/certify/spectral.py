"""Norms that the bounds of Section 3 need, without dense m × n matrices (docs/derivations.md#spectral).

Everything runs on the host, with NumPy and SciPy in float64, because a bound must not lose digits. Users with no
positive or no negative have no term in Eq. 3, so every operator here drops their column.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions

if (
    TYPE_CHECKING
):  # scipy.sparse is imported with the first matrix: the command line needs only names
    import scipy.sparse
    import scipy.sparse.linalg


class Rows(NamedTuple):
    """The positives of the users who have both a positive and a negative, as NumPy CSR arrays."""

    users: np.ndarray  # [m], their positions in the full matrix
    indptr: np.ndarray  # [m + 1]
    indices: np.ndarray  # [nnz], sorted within a row
    num_items: int

    @property
    def num_pos(self) -> np.ndarray:
        """N_i = |ω_i| of each user, [m]."""
        return np.diff(self.indptr)

    @property
    def owner(self) -> np.ndarray:
        """The row of every positive, [nnz]."""
        return np.repeat(np.arange(len(self.users)), self.num_pos)


def defined_rows(X: Interactions) -> Rows:
    """The rows of X with 0 < N_i < n."""
    lengths, indices = np.asarray(X.row_lengths, np.int64), np.asarray(X.indices, np.int64)
    keep = (lengths > 0) & (lengths < X.num_items)
    if not keep.any():
        raise ValueError(
            "no user has both a relevant and an irrelevant item, so there is nothing to bound"
        )
    indptr = np.concatenate([[0], np.cumsum(lengths[keep])])
    return Rows(np.flatnonzero(keep), indptr, indices[np.repeat(keep, lengths)], X.num_items)


def mean_difference(X: Interactions) -> "scipy.sparse.linalg.LinearOperator":
    """E − Ē (n × m): column i is the mean positive minus the mean negative indicator of user i.

    E − Ē = Xᵀ diag(d) − 1 (1/b)ᵀ with b_i = n − N_i and d_i = 1/N_i + 1/b_i: O(nnz + m + n) per
    product, where the dense matrix takes O(mn).
    """
    import scipy.sparse
    from scipy.sparse.linalg import LinearOperator

    rows = defined_rows(X)
    m, n = len(rows.users), rows.num_items
    ones = np.ones(len(rows.indices))
    sparse = scipy.sparse.csr_array((ones, rows.indices, rows.indptr), shape=(m, n))
    transposed = sparse.T.tocsr()
    b = (n - rows.num_pos).astype(float)
    d = 1 / rows.num_pos + 1 / b

    def matvec(x):
        x = np.ravel(x)
        return transposed @ (d * x) - (x / b).sum()

    def rmatvec(y):
        y = np.ravel(y)
        return d * (sparse @ y) - y.sum() / b

    return LinearOperator((n, m), matvec=matvec, rmatvec=rmatvec, dtype=np.float64)  # pyright: ignore


def spectral_norm(A: Any, rtol: float = 1e-10) -> float:
    """‖A‖₂ of anything with products A x and Aᵀ y, rounded up by the residual.

    Lanczos on the smaller Gram matrix approaches λ = σ₁² from below. Iterating to `rtol` makes the value tight. An
    eigenvalue lies within the residual ‖AᵀA v − λ v‖ of it, so adding the residual gives an upper value.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    rows, cols = A.shape
    if min(rows, cols) < 3:  # Lanczos needs at least three; a matrix of two lines is done directly
        thin = A @ np.eye(cols) if cols <= rows else (A.T @ np.eye(rows)).T
        return float(np.linalg.norm(thin, 2))
    size = min(rows, cols)
    gram = (lambda x: A.T @ (A @ x)) if cols <= rows else (lambda y: A @ (A.T @ y))
    operator = LinearOperator((size, size), matvec=gram, dtype=np.float64)  # pyright: ignore
    start = np.random.default_rng(0).standard_normal(
        size
    )  # almost surely not orthogonal to the top vector
    value, vector = eigsh(operator, k=1, which="LA", tol=rtol, v0=start)  # pyright: ignore
    residual = np.linalg.norm(gram(vector[:, 0]) - value[0] * vector[:, 0])
    return float(np.sqrt(max(value[0], 0.0) + residual))


def nuclear_norm(factors: Factors) -> float:
    """‖U Vᵀ‖_*: the sum of the singular values of R_U R_Vᵀ, [k, k], after a QR of U and one of V."""
    upper_u, upper_v = (np.linalg.qr(np.asarray(F, np.float64))[1] for F in factors)
    return float(np.linalg.svd(upper_u @ upper_v.T, compute_uv=False).sum())


def margin_range(factors: Factors, chunk: int = 512) -> float:
    """Γ = max_i (max_j s_ij − min_j s_ij), so that every |γ_ipq| ≤ Γ."""
    U, V = (np.asarray(F, np.float64) for F in factors)
    scores = (U[a : a + chunk] @ V.T for a in range(0, len(U), chunk))
    return max(float(np.ptp(s, axis=1).max()) for s in scores)


def one_pair_each(rng: np.random.Generator, rows: Rows) -> "scipy.sparse.csc_array":
    """G = Σ_i (e_p − e_q) e_iᵀ with p uniform on ω_i and q uniform on its complement; E[G] = E − Ē."""
    import scipy.sparse

    m, n, num_pos = len(rows.users), rows.num_items, rows.num_pos
    p = rows.indices[rows.indptr[:-1] + rng.integers(num_pos)]
    q = missing_items(rows, np.arange(m), rng.integers(n - num_pos))
    data = np.tile([1.0, -1.0], m)
    items = np.stack([p, q], axis=1).ravel()
    return scipy.sparse.csc_array((data, items, 2 * np.arange(m + 1)), shape=(n, m))


def signed_pairs(rng: np.random.Generator, rows: Rows) -> "scipy.sparse.csr_array":
    """H = Σ_it (ν_it / N_i)(e_y − e_q) e_iᵀ: one sign and one q ≠ y per positive."""
    import scipy.sparse

    n, owner, y = rows.num_items, rows.owner, rows.indices
    q = rng.integers(n - 1, size=len(y))
    q = q + (q >= y)
    data = rng.choice([-1.0, 1.0], size=len(y)) / rows.num_pos[owner]
    triples = np.concatenate([data, -data]), (np.concatenate([y, q]), np.tile(owner, 2))
    return scipy.sparse.coo_array(triples, shape=(n, len(rows.users))).tocsr()


def missing_items(rows: Rows, i: np.ndarray, r: np.ndarray) -> np.ndarray:
    """The r-th item (from 0) that is not in row i: r + #{t : indices[t] − t ≤ r}, by bisection."""
    within = np.arange(len(rows.indices)) - rows.indptr[rows.owner]
    stride = rows.num_items + 1
    keys = rows.owner * stride + rows.indices - within  # non-decreasing over the whole matrix
    return r + np.searchsorted(keys, i * stride + r, side="right") - rows.indptr[i]


def sampled_norms(
    key: Key[Array, ""],
    X: Interactions,
    sampler: Callable[[np.random.Generator, Rows], Any],
    draws: int,
) -> np.ndarray:
    """‖·‖₂ of `draws` independent matrices from `one_pair_each` or `signed_pairs`."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    rows = defined_rows(X)
    return np.array([spectral_norm(sampler(rng, rows)) for _ in range(draws)])
