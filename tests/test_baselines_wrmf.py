import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import threadpoolctl
from implicit.als import AlternatingLeastSquares

from mfauc_jax import Factors, Interactions
from mfauc_jax.baselines import wrmf
from mfauc_jax.data import ragged
from mfauc_jax.solvers import base

KEY = jax.random.key(0)
pytestmark = pytest.mark.filterwarnings("ignore:interactions")  # an empty row is on purpose


def planted(seed=0, m=40, n=30, confidence=False):
    """A noisy low-rank 0/1 matrix, with one empty row and one full column otherwise."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(m, 3)) @ rng.normal(size=(3, n)) + 0.5 * rng.normal(size=(m, n))
    X = (Z > 1.2).astype(float)
    X[:, 0], X[3] = 1.0, 0.0
    values = X * rng.uniform(0.5, 3.0, X.shape) if confidence else X
    return values, Interactions.from_scipy(scipy.sparse.csr_array(values), confidence=confidence)


def dense_half(X, C, V, reg):
    """The normal equations of every user, one by one."""
    rows = []
    for x, c, lam in zip(X, C, reg, strict=True):
        A = V.T @ (c[:, None] * V) + lam * np.eye(V.shape[1])
        rows.append(np.linalg.solve(A, V.T @ (c * x)))
    return np.array(rows)


@pytest.mark.parametrize("confidence", [False, True])
@pytest.mark.parametrize("power", [0.0, 0.7])
def test_one_sweep_solves_the_dense_normal_equations(confidence, power):
    values, X = planted(confidence=confidence)
    relevant, C = (values > 0).astype(float), 1 + 2.5 * values
    result = wrmf.fit(KEY, X, rank=4, reg=0.3, alpha=2.5, sweeps=1, reg_power=power, reg_offset=0.1)
    V = np.asarray(base.gaussian(KEY, *X.shape, 4, 0.1).V)
    lam_users = 0.3 * (relevant.sum(1) + 0.1 * 30) ** power
    lam_items = 0.3 * (relevant.sum(0) + 0.1 * 40) ** power
    U = dense_half(relevant, C, V, lam_users)
    np.testing.assert_allclose(result.U, U, atol=1e-8)
    np.testing.assert_allclose(result.V, dense_half(relevant.T, C.T, U, lam_items), atol=1e-8)


def test_k_conjugate_gradient_steps_are_the_exact_solution():
    _, X = planted(1)
    exact = wrmf.fit(KEY, X, rank=5, reg=0.5, sweeps=2)
    by_cg = wrmf.fit(KEY, X, rank=5, reg=0.5, sweeps=2, cg_steps=8)
    np.testing.assert_allclose(by_cg.U, exact.U, atol=1e-6)
    np.testing.assert_allclose(by_cg.V, exact.V, atol=1e-6)


@pytest.mark.parametrize("confidence", [False, True])
def test_objective_is_the_double_sum(confidence):
    values, X = planted(2, confidence=confidence)
    f = base.gaussian(KEY, *X.shape, 3, 0.5)
    U, V = np.asarray(f.U), np.asarray(f.V)
    total = 0.0
    for i in range(40):
        for j in range(30):
            total += (1 + 1.7 * values[i, j]) * ((values[i, j] > 0) - U[i] @ V[j]) ** 2
    total += 0.4 * ((U**2).sum() + (V**2).sum())
    np.testing.assert_allclose(wrmf.objective(f, X, reg=0.4, alpha=1.7), total, rtol=1e-12)


def test_every_sweep_lowers_the_objective():
    _, X = planted(3)
    values = [
        float(wrmf.objective(wrmf.fit(KEY, X, rank=4, reg=0.5, sweeps=s), X, reg=0.5))
        for s in range(8)
    ]
    assert (np.diff(values) < 1e-9).all()


def test_rows_longer_than_a_step_and_chunks_that_do_not_divide():
    rng = np.random.default_rng(4)
    dense = (rng.random((150, 300)) < rng.beta(0.5, 3, 150)[:, None]).astype(float)
    dense[0], dense[:, 5] = 1.0, 1.0
    X = Interactions.from_scipy(dense)
    lengths = np.asarray(X.row_lengths)
    steps = ragged.walk(X).offsets.shape[0]
    assert lengths.max() > 4 * steps and ragged.walk(X).chunks.shape[0] > 1
    U, V = base.gaussian(KEY, 150, 300, 3, 0.1)
    result = wrmf.half_sweep(U, V, ragged.walk(X), jnp.full(150, 0.2), 1.0)
    expected = dense_half(dense, 1 + dense, np.asarray(V), np.full(150, 0.2))
    np.testing.assert_allclose(result, expected, atol=1e-8)


def test_fixed_point_is_not_above_implicits():
    """implicit's confidence is α X where ours is 1 + α X."""
    values, X = planted(5, 60, 40)
    ours = wrmf.fit(KEY, X, rank=4, reg=1.0, alpha=2.0, sweeps=300)
    with threadpoolctl.threadpool_limits(1, "blas"):
        peer = AlternatingLeastSquares(
            4,
            regularization=1.0,
            alpha=3.0,
            iterations=300,
            use_cg=False,
            random_state=0,
            dtype=np.float64,
            num_threads=1,
        )
        peer.fit(scipy.sparse.csr_matrix(values), show_progress=False)
    theirs = Factors(jnp.asarray(peer.user_factors), jnp.asarray(peer.item_factors))
    at_ours, at_theirs = (float(wrmf.objective(f, X, reg=1.0, alpha=2.0)) for f in (ours, theirs))
    assert at_ours <= at_theirs * (1 + 1e-3)
    again = wrmf.fit(KEY, X, rank=4, reg=1.0, alpha=2.0, sweeps=301)
    assert abs(at_ours - float(wrmf.objective(again, X, reg=1.0, alpha=2.0))) < 1e-6 * at_ours


def test_sweeping_the_hyper_parameters_compiles_once():
    _, X = planted(6)
    wrmf.fit(KEY, X, rank=3)
    before = wrmf._alternate.made
    for reg, alpha, sweeps in ((0.1, 2.0, 3), (1.0, 0.5, 7)):
        wrmf.fit(KEY, X, rank=3, reg=reg, alpha=alpha, sweeps=sweeps, reg_power=0.5)
    assert wrmf._alternate.made == before
