"""Several fits as one program find what each finds alone."""

import jax
import numpy as np
import pytest

from experiments import together
from mfauc_jax import MFAUC, Averaging, Fixed, Interactions, Minibatch, Watch
from mfauc_jax.data import splits


@pytest.fixture(scope="module")
def trains():
    rng = np.random.default_rng(0)
    X = Interactions.from_scipy(rng.random((30, 20)) < 0.5)
    return [splits.hold_out(jax.random.key(seed), X, 3).train for seed in range(2)]


def test_each_finds_what_it_finds_alone(trains):
    models = [
        MFAUC.paper(
            "square",
            rank=2,
            seed=seed,
            penalty=Fixed(reg=reg),
            solver=Minibatch(4, batch=8, average=Averaging(start=1, eta=0.0)),
        )
        for seed, reg in enumerate([0.5, 0.1])
    ]
    fits = together.fit(models, trains)
    for model, X, fit in zip(models, trains, fits, strict=True):
        alone = model.fit(X, watch=Watch(record_every=2))
        np.testing.assert_allclose(fit.factors.U, alone.user_factors_, atol=1e-9)
        np.testing.assert_allclose(fit.factors.V, alone.item_factors_, atol=1e-9)
        assert [fit.half, fit.last] == pytest.approx(
            [r["objective"] for r in alone.history_ if "objective" in r]
        )
