"""The start at the minimum of the square loss."""

import jax
import numpy as np
from toys import quiet

import mfauc_jax as mf
from mfauc_jax.objective import exact
from mfauc_jax.objective.losses import Exponential
from mfauc_jax.objective.weightings import Log

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(40, 3)) @ RNG.normal(size=(3, 30)) + 0.3 * RNG.normal(size=(40, 30))
X = quiet(np.quantile(TASTE, 0.7, axis=1, keepdims=True) < TASTE)
KEY = jax.random.key(3)
SOFTMAX = mf.MFAUC(3, Exponential(beta=5.0), Log(), penalty=mf.UnitRows(), start=mf.LeastSquares())


def test_it_is_the_default_model_but_for_a_per_cent_of_noise():
    """Kills: no sweep, one sweep, another objective, noise of another size."""
    model, drawn = mf.MFAUC(rank=3).fit(X), mf.LeastSquares().draw(KEY, X, 3)
    for name in ("U", "V"):
        found, truth = (np.asarray(getattr(f, name)) for f in (drawn, model.factors_))
        # both spectral starts span the same directions; their signs and order depend on the key
        turn, _, back = np.linalg.svd(found.T @ truth)
        off = np.linalg.norm(found @ (turn @ back) - truth) / np.linalg.norm(truth)
        assert 0.003 < off < 0.03, (name, off)


def test_no_row_and_no_direction_of_it_is_zero():
    """Kills: no noise. A user who has everything has u_i = 0, and random data collapse under the default's penalty."""
    full = X.to_scipy().toarray().astype(bool)
    full[0] = True
    for matrix in (full, RNG.random((40, 30)) < 0.1, np.eye(40, 30, dtype=bool)):
        U, V = map(np.asarray, mf.LeastSquares().draw(KEY, quiet(matrix), 6))
        assert (np.abs(U).max(1) > 0).all() and (np.abs(V).max(1) > 0).all()
        assert np.linalg.matrix_rank(U, tol=1e-12) == np.linalg.matrix_rank(V, tol=1e-12) == 6


def test_softmax_is_lower_after_two_iterations_from_it_than_from_gaussian_rows():
    problem = SOFTMAX.problem(X)
    plan = exact.plan(problem.objective, X, problem.weights)

    def after(start):
        fitted = SOFTMAX.with_params(start=start, solver=mf.Dense(2)).fit(X)
        return float(exact.value(problem.objective, fitted.factors_, plan))

    assert after("least_squares") < after("gaussian") - 0.01


def test_dislikes_are_negatives_of_the_start_too():
    disliked = np.argwhere(X.to_scipy().toarray() == 0)[::5]
    model = SOFTMAX.with_params(weights__dislikes=3.0).fit(X, dislikes=tuple(disliked.T))
    assert np.isfinite(model.user_factors_).all()
