import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mfauc_jax import Interactions
from mfauc_jax.baselines import climf
from mfauc_jax.data import ragged
from mfauc_jax.solvers import base

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def dense():
    rng = np.random.default_rng(0)
    dense = (rng.random((12, 20)) < rng.uniform(0.05, 0.8, 12)[:, None]).astype(float)
    dense[:, 0] = 1.0
    return dense


def test_objective_is_the_triple_loop(dense):
    f = base.gaussian(KEY, 12, 20, 3, 1.0)
    U, V = np.asarray(f.U), np.asarray(f.V)

    def sigma(x):
        return 1 / (1 + np.exp(-x))

    total = 0.0
    for i in range(12):
        for j in range(20):
            total += dense[i, j] * np.log(sigma(U[i] @ V[j]))
            for k in range(20):
                inner = 1 - dense[i, k] * sigma(U[i] @ V[k] - U[i] @ V[j])
                total += dense[i, j] * np.log(inner)
    total -= 0.5 * 0.7 * ((U**2).sum() + (V**2).sum())
    X = Interactions.from_scipy(dense)
    np.testing.assert_allclose(climf.objective(f, X, reg=0.7), total, rtol=1e-12)


def test_exact_gradient_steps_rise_monotonically(dense):
    X = Interactions.from_scipy(dense)
    f = base.gaussian(KEY, 12, 20, 3)
    step = jax.value_and_grad(lambda f: climf.objective(f, X, reg=0.01))
    values = []
    for _ in range(25):
        value, gradient = step(f)
        values.append(float(value))
        f = jax.tree.map(lambda x, g: x + 0.02 * g, f, gradient)
    assert (np.diff(values) > 0).all() and values[-1] > values[0] + 1


def test_an_epoch_sums_to_the_full_gradient(dense):
    """With a step too small to matter, one pass moves by α ∇F/√(1 + …) ≈ α ∇F row by row."""
    X = Interactions.from_scipy(dense)
    begin = base.gaussian(KEY, 12, 20, 2, 1e-3)
    gradient = jax.grad(lambda f: climf.objective(f, X, reg=50.0))(begin)
    moved = climf.fit(KEY, X, rank=2, epochs=1, learning_rate=1e-6, reg=50.0, users_per_step=5)
    for after, before, slope in zip(moved, begin, gradient, strict=True):
        np.testing.assert_allclose((after - before) / 1e-6, slope, rtol=1e-2, atol=1e-5)


def test_chunks_hold_every_user_once(dense):
    X = Interactions.from_scipy(dense)
    seen = []
    for bucket in ragged.buckets(X):
        cut = climf.chunked(bucket, 5)
        real = np.asarray(cut.real)[..., 0] > 0
        seen += np.asarray(cut.users)[real].tolist()
    assert sorted(seen) == list(range(12))


def test_fit_raises_the_bound(dense):
    X = Interactions.from_scipy(dense)
    values = [
        float(climf.objective(climf.fit(KEY, X, rank=3, epochs=e, learning_rate=0.1), X, reg=0.001))
        for e in (0, 5, 40)
    ]
    assert values[0] < values[1] < values[2]


def test_large_scores_stay_finite():
    u, V = jnp.full(1, 100.0), jnp.array([[10.0], [-10.0]])
    value, gradient = jax.value_and_grad(climf.user_bound)(u, V, jnp.ones(2))
    np.testing.assert_allclose(value, -(1000 + 2000 + 2 * np.log(2)))
    assert np.isfinite(gradient).all()
