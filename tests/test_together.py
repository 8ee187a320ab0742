"""Several fits as one program find what each finds alone."""

import jax
import numpy as np
import pytest

from experiments import methods, together
from mfauc_jax import Interactions
from mfauc_jax.data import splits


@pytest.fixture(scope="module")
def trains():
    rng = np.random.default_rng(0)
    X = Interactions.from_scipy(rng.random((30, 20)) < 0.5)
    return [splits.hold_out(jax.random.key(seed), X, 3).train for seed in range(2)]


def test_each_finds_what_it_finds_alone(trains):
    models = [
        methods.authors_model(weighting="tanh", rank=2, iterations=4, average_start=1, record_every=2,
                              seed=seed, rho=rho, reg=reg, progress=False)
        for seed, (rho, reg) in enumerate([(1.0, 0.5), (2.0, 0.1)])
    ]  # fmt: skip
    fits = together.fit(models, trains)
    for model, X, fit in zip(models, trains, fits, strict=True):
        alone = model.fit(X)
        np.testing.assert_allclose(fit.factors.U, alone.user_factors_, atol=1e-9)
        np.testing.assert_allclose(fit.factors.V, alone.item_factors_, atol=1e-9)
        assert [fit.half, fit.last] == pytest.approx(
            [r["objective"] for r in alone.history_ if "objective" in r]
        )
