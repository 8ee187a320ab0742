"""Where a fit starts."""

import jax
import numpy as np
from jaxtyping import Array, Key

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions


def _check_rank(rank: int) -> None:
    if rank < 1:
        raise ValueError(f"rank = {rank} must be ≥ 1: it is the number of columns of U and V")


def gaussian(
    key: Key[Array, ""], num_users: int, num_items: int, rank: int, scale: float = 0.1
) -> Factors:
    """Independent N(0, scale²) entries; .1 is the paper's start for the synthetic figures.

    Drawn on the host: jax.random.normal takes half a second to compile.
    """
    _check_rank(rank)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    drawn = (scale * rng.standard_normal((count, rank)) for count in (num_users, num_items))
    return Factors(*(host.floats(F) for F in drawn))


def randomised_svd(
    key: Key[Array, ""], X: Interactions, rank: int, oversample: int = 10, power: int = 2
) -> Factors:
    """U = P diag(s), V = Q from X ≈ P diag(s) Qᵀ (Halko, Martinsson, Tropp 2011).

    The authors' start for the ranking tables. Only products with the sparse X, on the host;
    columns beyond rank(X) are zero, which is a saddle of Eq. 3, so they get a little noise.
    """
    _check_rank(rank)
    m, n = X.shape
    matrix = X.to_scipy().astype(np.float64)
    width = min(rank + oversample, m, n)
    key_sketch, key_noise = jax.random.split(key)
    basis = matrix @ np.asarray(jax.random.normal(key_sketch, (n, width)), np.float64)
    for _ in range(power):
        basis = np.linalg.qr(basis)[0]
        basis = matrix @ np.linalg.qr(matrix.T @ basis)[0]
    basis = np.linalg.qr(basis)[0]  # [m, width], spans the top of X's range
    left, s, right = np.linalg.svd((matrix.T @ basis).T, full_matrices=False)
    order = np.sign(right[np.arange(len(s)), np.abs(right).argmax(1)])  # one sign on any machine
    U, V = (basis @ left * (s * order))[:, :rank], (right.T * order)[:, :rank]
    if U.shape[1] < rank:
        U, V = (np.pad(F, ((0, 0), (0, rank - F.shape[1]))) for F in (U, V))
        noise = gaussian(key_noise, m, n, rank, 1e-3)
        return Factors(host.floats(U) + noise.U, host.floats(V) + noise.V)
    return Factors(host.floats(U), host.floats(V))
