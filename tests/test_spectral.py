"""Operators without dense matrices agree with dense ones; norms are tight and on the safe side."""

import time
import tracemalloc

import jax
import numpy as np
import pytest

from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import spectral
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.solvers.base import gaussian


def random_X(seed=0, m=12, n=9):
    rng = np.random.default_rng(seed)
    dense = (rng.random((m, n)) < rng.uniform(0.2, 0.8, (m, 1))).astype(float)
    dense[:, 0], dense[:, 1] = 1, 0
    return Interactions.from_scipy(dense), dense


def dense_difference(dense):
    """E − Ē by the paper's formulas, dense."""
    E = (dense / dense.sum(1, keepdims=True)).T
    other = 1 - dense
    return E - (other / other.sum(1, keepdims=True)).T


@pytest.mark.parametrize("shape", [(12, 9), (5, 30), (2, 7), (8, 3)])
def test_the_operator_is_the_dense_matrix(shape):
    X, dense = random_X(1, *shape)
    A, operator = dense_difference(dense), spectral.mean_difference(X)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=A.shape[1]), rng.normal(size=A.shape[0])
    np.testing.assert_allclose(operator.matvec(x), A @ x, atol=1e-14)
    np.testing.assert_allclose(operator.rmatvec(y), A.T @ y, atol=1e-14)
    norm = spectral.spectral_norm(operator)
    np.testing.assert_allclose(norm, np.linalg.norm(A, 2), rtol=1e-9)
    assert norm >= np.linalg.norm(A, 2) * (1 - 1e-13)  # lifted by its residual: not from below


def test_users_without_a_pair_have_no_column():
    _, dense = random_X()
    padded = np.vstack([dense, np.zeros(9), np.ones(9)])
    with pytest.warns(UserWarning, match="contribute nothing"):
        X = Interactions.from_scipy(padded)
    np.testing.assert_array_equal(spectral.defined_rows(X).users, np.arange(12))
    np.testing.assert_allclose(
        spectral.spectral_norm(spectral.mean_difference(X)),
        np.linalg.norm(dense_difference(dense), 2),
    )


def test_nothing_to_bound_says_so():
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="both a relevant and an irr"):
        spectral.defined_rows(Interactions.from_scipy(np.ones((3, 2))))


def test_a_close_second_singular_value_does_not_hide_the_first():
    diagonal = np.ones(60)
    diagonal[-1] = 1.0001
    assert spectral.spectral_norm(np.diag(diagonal)) == pytest.approx(1.0001, rel=1e-9)


def test_missing_items_are_the_complement_in_order():
    X, dense = random_X(3)
    rows = spectral.defined_rows(X)
    for i, row in enumerate(dense):
        absent = np.flatnonzero(row == 0)
        found = spectral.missing_items(rows, np.full(len(absent), i), np.arange(len(absent)))
        np.testing.assert_array_equal(found, absent)


def test_the_mean_of_G_is_the_mean_difference():
    X, dense = random_X(2, 6, 5)
    rows, rng = spectral.defined_rows(X), np.random.default_rng(0)
    draws = [spectral.one_pair_each(rng, rows).toarray() for _ in range(4000)]
    np.testing.assert_allclose(np.mean(draws, axis=0), dense_difference(dense), atol=0.05)
    columns = np.array(draws).transpose(0, 2, 1).reshape(-1, 5)
    assert (columns.max(1) == 1).all() and (columns.min(1) == -1).all()
    assert np.abs(np.concatenate(draws)).sum(0).mean() == pytest.approx(2 * 4000)


def test_H_has_mean_zero_and_its_stated_range():
    X, dense = random_X(2, 6, 5)
    rows, rng = spectral.defined_rows(X), np.random.default_rng(0)
    draws = np.array([spectral.signed_pairs(rng, rows).toarray() for _ in range(4000)])
    np.testing.assert_allclose(draws.mean(0), 0, atol=0.05)
    np.testing.assert_allclose(draws.sum(1), 0, atol=1e-12)  # every column is Σ ±(e_y − e_q)/N
    largest = np.sqrt(((1 + 1 / np.sqrt(dense.sum(1))) ** 2).sum())
    assert np.linalg.norm(draws, 2, axis=(1, 2)).max() <= largest


def test_nuclear_norm_and_margins_equal_dense():
    factors = gaussian(jax.random.key(0), 13, 7, 3)
    S = np.asarray(factors.U @ factors.V.T)
    assert spectral.nuclear_norm(factors) == pytest.approx(np.linalg.norm(S, "nuc"))
    assert spectral.margin_range(factors, chunk=4) == pytest.approx(np.ptp(S, axis=1).max())
    flat = Factors(factors.U, 0 * factors.V)
    assert spectral.nuclear_norm(flat) == spectral.margin_range(flat) == 0


def test_book_crossings_shape_takes_seconds_and_megabytes():
    m, n, nnz = 9571, 68_517, 640_430
    rng = np.random.default_rng(0)
    popular = rng.zipf(1.3, nnz) % n
    users = np.concatenate([np.arange(m), rng.integers(0, m, nnz - m)])
    with pytest.warns(UserWarning, match="merged"):
        X = Interactions.from_pairs(users, popular, shape=(m, n))
    tracemalloc.start()
    started = time.process_time()
    norm = spectral.spectral_norm(spectral.mean_difference(X))
    seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert norm > 1
    assert seconds < 2, seconds
    assert peak < 200e6, peak
