import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mfauc_jax import Interactions
from mfauc_jax.baselines import soft_impute
from mfauc_jax.data import ragged

KEY = jax.random.key(0)
RHOS = (0.8, 0.4, 0.1)


@pytest.fixture(scope="module")
def dense():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(25, 2)) @ rng.normal(size=(2, 18))
    X = (Z + 0.3 * rng.normal(size=Z.shape) > 0.5).astype(float)
    X[:, 2] = 1.0
    return X


def dense_soft_impute(X, rank, rhos, iterations):
    """P_Ω(X) + P_Ω̄(Z), a full SVD, the threshold: all on the dense matrix."""
    observed, Z, result = X > 0, np.zeros_like(X), []
    top = np.linalg.norm(X, 2)
    for rho in rhos:
        for _ in range(iterations):
            P, d, Qt = np.linalg.svd(np.where(observed, X, Z), full_matrices=False)
            d = np.maximum(d - rho * top, 0)
            Z = P[:, :rank] * d[:rank] @ Qt[:rank]
        result.append(Z)
    return np.array(result)


@pytest.mark.parametrize("rank", [3, 18])
def test_the_path_is_the_dense_svd_iteration(dense, rank):
    X = Interactions.from_scipy(dense)
    path = soft_impute.path(KEY, X, rank=rank, rhos=RHOS, iterations=3, power=15, oversample=8)
    expected = dense_soft_impute(dense, rank, RHOS, 3)
    np.testing.assert_allclose(jnp.einsum("rmk,rnk->rmn", path.U, path.V), expected, atol=1e-6)
    last = soft_impute.fit(KEY, X, rank=rank, rhos=RHOS, iterations=3, power=15, oversample=8)
    np.testing.assert_allclose(last.U @ last.V.T, expected[-1], atol=1e-6)


def test_at_rho_one_nothing_is_left(dense):
    X = Interactions.from_scipy(dense)
    factors = soft_impute.fit(KEY, X, rank=3, rhos=(1.0,), power=15)
    np.testing.assert_allclose(factors.U @ factors.V.T, 0, atol=1e-6)


def test_missing_zeros_are_filled_with_ones_in_the_end(dense):
    """E49: the cost has no zeros, so with λ → 0 everything becomes relevant."""
    X = Interactions.from_scipy(dense[:, dense.any(0)])  # what nobody has stays at 0
    few, many = (
        soft_impute.fit(KEY, X, rank=1, rhos=(0.0,), iterations=t, power=3) for t in (2, 600)
    )
    np.testing.assert_allclose(many.U @ many.V.T, 1.0, atol=1e-3)
    assert np.ptp(few.U @ few.V.T) > 0.3


def test_observed_zeros_are_one_thresholded_svd(dense):
    X = Interactions.from_scipy(dense)
    factors = soft_impute.svd(KEY, X, rank=4, rho=0.1, power=15)
    P, d, Qt = np.linalg.svd(dense)
    d = np.maximum(d - 0.1 * d[0], 0)[:4]
    np.testing.assert_allclose(factors.U @ factors.V.T, P[:, :4] * d @ Qt[:4], atol=1e-6)


def test_product_is_sparse_plus_low_rank(dense):
    X = Interactions.from_scipy(dense)
    rng = np.random.default_rng(2)
    U, V, B = (jnp.asarray(rng.normal(size=s)) for s in ((25, 3), (18, 3), (18, 5)))
    filled = np.where(dense > 0, dense, U @ V.T)
    np.testing.assert_allclose(soft_impute.product(ragged.walk(X), U, V, B), filled @ B, atol=1e-10)


def test_orthonormal_factors_are_a_qr_also_without_full_rank():
    rng = np.random.default_rng(3)
    Y = jnp.asarray(rng.normal(size=(30, 6)))
    Q, R = soft_impute.orthonormal(Y)
    np.testing.assert_allclose(Q.T @ Q, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(Q @ R, Y, atol=1e-12)
    flat = Y.at[:, 4:].set(Y[:, :2])
    Q, R = soft_impute.orthonormal(flat)
    np.testing.assert_allclose(Q @ R, flat, atol=1e-6)


def test_rank_zero_is_refused(dense):
    with pytest.raises(ValueError, match="rank = 0"):
        soft_impute.fit(KEY, Interactions.from_scipy(dense), rank=0)
