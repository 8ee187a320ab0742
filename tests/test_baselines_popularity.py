import inspect

import jax
import numpy as np
import pytest

from mfauc_jax import Factors, Interactions, baselines
from mfauc_jax.baselines import popularity

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def X():
    dense = np.random.default_rng(0).random((30, 20)) < 0.3
    dense[:, 0], dense[0, 0] = True, False
    return Interactions.from_scipy(dense)


def test_scores_are_the_share_of_users(X):
    factors = popularity.fit(KEY, X)
    share = X.to_scipy().toarray().mean(0)
    np.testing.assert_allclose(factors.U @ factors.V.T, np.tile(share, (30, 1)), rtol=1e-6)


def test_the_key_does_not_matter(X):
    first, second = (popularity.fit(jax.random.key(seed), X) for seed in (1, 2))
    assert (first.V == second.V).all()


@pytest.mark.parametrize("name", baselines.BASELINES)
def test_every_baseline_gives_finite_factors_of_x(name, X):
    fit = baselines.get(name)
    if name == "popularity":
        factors = fit(KEY, X)
    else:
        takes = inspect.signature(fit).parameters
        factors = fit(KEY, X, rank=3, **{k: 2 for k in ("epochs", "sweeps") if k in takes})
    assert isinstance(factors, Factors)
    assert factors.U.shape[0] == 30 and factors.V.shape[0] == 20
    assert factors.U.shape[1] == factors.V.shape[1]
    assert np.isfinite(factors.U).all() and np.isfinite(factors.V).all()


def test_an_unknown_name_is_told_its_neighbour():
    with pytest.raises(ValueError, match="did you mean 'wrmf'"):
        baselines.get("wrmff")
