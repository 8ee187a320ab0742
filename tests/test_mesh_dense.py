"""The dense and the full-batch solver on 1, 2 and 4 devices: the same factors."""

import dataclasses

import jax
import numpy as np
import pytest
from toys import quiet

import mfauc_jax as mf
from mfauc_jax import MFAUC, Checkpoints, Dense, FullBatch, Watch
from mfauc_jax.objective import losses, weightings

RNG = np.random.default_rng(5)
DENSE = RNG.random((46, 30)) < np.linspace(0.5, 0.06, 46)[:, None]
DENSE[3], DENSE[20] = False, True  # users without a usable pair
X = quiet(DENSE)
DISLIKED = quiet((RNG.random(DENSE.shape) < 0.1) & ~DENSE)
SOFTMAX = {"loss": losses.Exponential(beta=2.0), "weighting": weightings.Log()}
ROUTES = {
    "softmax": ({**SOFTMAX, "weighting": weightings.Log(c=9.0)}, Dense(3, batch=7)),
    "softmax, unit rows, sampled items": (
        {**SOFTMAX, "penalty": mf.UnitRows(popularity=0.3)},
        Dense(3, batch=7, num_items=11),
    ),
    "drawn positives": ({"loss": "logistic"}, Dense(3, batch=7, num_pos=3)),
    "drawn positives, sampled items": (
        {"loss": "logistic"},
        Dense(3, batch=7, num_pos=3, num_items=11),
    ),
    "full batch, square": ({"weighting": "tanh"}, FullBatch(6)),
    "full batch, hinge": ({"loss": "square_hinge"}, FullBatch(5)),
    "full batch, unit rows": ({**SOFTMAX, "penalty": mf.UnitRows()}, FullBatch(5)),
}


def given(route):
    """The data of a route, in some with dislikes."""
    return dataclasses.replace(X, dislikes=DISLIKED) if route in DISLIKING else X


DISLIKING = ("softmax", "full batch, square", "full batch, hinge")


def close(found, wanted, tolerance=1e-9):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(np.asarray(b)).max())


@pytest.mark.parametrize("route", ROUTES)
def test_a_fit_is_the_same_on_any_number_of_devices(route):
    """Kills: ∂V of one device, draws or batches of another user, rows of U that only one device moves, lost padding."""
    parts, solver = ROUTES[route]
    fits = {
        d: MFAUC(3, solver=solver.replace(devices=d), **parts).fit(given(route)) for d in (1, 2, 4)
    }
    for devices in (2, 4):
        close(fits[devices].factors_, fits[1].factors_)
        assert len(fits[devices].factors_.U.devices()) == 1  # as serving wants it
    usual = MFAUC(3, solver=solver, **parts).fit(given(route))
    for a, b in zip(usual.factors_, fits[1].factors_, strict=True):
        np.testing.assert_array_equal(a, b)  # on CPU the default is one device


@pytest.mark.parametrize("route", ["softmax", "full batch, hinge"])
def test_a_state_goes_on_on_another_number_of_devices(route, tmp_path):
    parts, solver = ROUTES[route]

    def model(devices, iterations):
        changed = solver.replace(devices=devices, iterations=iterations)
        return MFAUC(3, solver=changed, **parts)

    model(2, 2).fit(X, checkpoints=Checkpoints(str(tmp_path), every=1))
    resumed = model(1, 4).fit(X, checkpoints=Checkpoints(str(tmp_path), every=4))
    close(resumed.factors_, model(1, 4).fit(X).factors_)
    again = model(4, 5).fit(X, checkpoints=Checkpoints(str(tmp_path), every=4))
    straight = model(1, 5).fit(X, watch=Watch(record_every=1))
    close(again.factors_, straight.factors_)
    assert jax.device_count() == 4
