"""How far the positives stand out of noise: their fourth direction beside the first of random signs.

With row scales a_i, column scales c_j, N_i positives of user i and the share p_j of all positives that item j has, let

    S_ij = a_i (X_ij − N_i p_j) c_j        what popularity alone does not explain,
    R_ij = a_i X_ij ε_ij c_j,  ε_ij = ±1   the same entries without any pattern,

and ρ = s₄(S)/s₁(R). By symmetrisation s₁(R) is the size of the directions that chance alone makes. The signs are a
hash of the item and of the user's whole row, so they do not depend on the order of the users or on their process. The
length of R's longest row plus that of its longest column is, but for a small remainder, above s₁(R) (Bandeira and
van Handel, 2016); where S passes that sum already, R is not made.
"""

from collections.abc import Callable

import numpy as np
import scipy.sparse
from jaxtyping import Float

from mfauc_jax._core import digests
from mfauc_jax._core.host import everyone, total
from mfauc_jax.data.interactions import Interactions

DIRECTION = 4
BLOCK = 8  # vectors that the power method iterates for the directions of S
PASSES = 8
SMALLEST = 32  # fewer users or items tell nothing


def standing_out(
    X: Interactions, row_scale: Float[np.ndarray, " m"], column_scale: Float[np.ndarray, " n"]
) -> float:
    """ρ, or 1 if it is above 1; estimated by a few passes of the power method, from below."""
    m, n = int(total(X.num_users)), X.num_items
    if min(m, n) < SMALLEST:
        return 1.0
    rows, items, lengths = X.on_host()
    counts = total(np.bincount(items, minlength=n))
    x = (row_scale * lengths)[:, None]
    y = (column_scale * counts / counts.sum())[:, None]
    entries = row_scale[rows] * column_scale[items]  # a_i c_j of each positive

    def squared(values: np.ndarray, centred: bool) -> Callable[[np.ndarray], tuple]:
        """Z → SᵀS Z and ZᵀSᵀS Z, over all processes."""
        A = scipy.sparse.csr_matrix((values, items, np.asarray(X.indptr)), X.shape)

        def product(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            SZ = A @ Z - centred * x @ (y.T @ Z)
            return total(A.T @ SZ - centred * y @ (x.T @ SZ)), total(SZ.T @ SZ)

        return product

    by_row = np.bincount(rows, entries**2, minlength=X.num_users)
    by_column = total(np.bincount(items, entries**2, minlength=n))
    ceiling = np.sqrt(everyone(by_row.max(initial=0.0)).max()) + np.sqrt(by_column.max())
    found = 0.0
    for found in _largest(squared(entries, True), n, BLOCK, DIRECTION):
        if found >= ceiling:
            return 1.0
    noise = max(_largest(squared(_signs(X) * entries, False), n, BLOCK // 2))
    return min(1.0, found / noise) if noise > 0 else 1.0


def _largest(product: Callable, n: int, block: int, which: int = 1):
    """The which-th largest singular value after each pass of the power method."""
    Z = np.random.default_rng(0).standard_normal((n, block))
    for _ in range(PASSES):
        values, vectors = np.linalg.eigh(Z.T @ Z)
        Z = Z @ (vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1])))
        Z, gram = product(Z)
        yield float(np.sqrt(max(np.linalg.eigvalsh(gram)[-which], 0.0)))


def _signs(X: Interactions) -> Float[np.ndarray, " nnz"]:
    """One random sign per positive: a hash of the item and of the user's items."""
    rows, items, _ = X.on_host()
    with np.errstate(over="ignore"):
        by_item = digests.mixed(np.arange(1, X.num_items + 1, dtype=np.uint64) * digests.SEEDS[0])
        sums = np.zeros(X.nnz + 1, np.uint64)
        np.cumsum(by_item[items], out=sums[1:])
        by_user = np.diff(sums[np.asarray(X.indptr)])
        hashed = digests.mixed(digests.mixed(by_user)[rows] + by_item[items])
    return np.where(hashed >> np.uint64(63), 1.0, -1.0)
