import jax
import numpy as np
import pytest
from toys import quiet, random_factors

from mfauc_jax.objective import equation, losses, sampling, weightings
from mfauc_jax.objective.weights import Weights
from theory import closed_form
from theory.function_class import paper_losses

RNG = np.random.default_rng(3)
X = quiet(RNG.random((7, 9)) < 0.4)
AT = random_factors(3, X)
PHIS = {"identity": weightings.identity, "tanh": weightings.Tanh(rho=0.7)}


def both(loss, phi, tau, form=closed_form.CORRECTED, spread=0.0):
    objective = equation.make(paper_losses(2.0)[loss], PHIS[phi], reg=0.3, spread=spread)
    weights = Weights(tau=tau, tau_neg=None, user_power=0.5)
    sample = sampling.everything(X, weights.of(X))
    auto = jax.grad(equation.value, 1)(objective, AT, sample)
    return auto, closed_form.gradients(objective, AT, sample, form), objective


@pytest.mark.parametrize("tau", [0.0, 0.7])
@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("loss", losses.PAPER_LOSSES)
def test_autodiff_is_the_corrected_closed_form(loss, phi, tau):
    auto, closed, _ = both(loss, phi, tau, spread=1.5)
    for a, b in zip(auto, closed, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("loss", ["logistic", "sigmoid"])
def test_the_printed_logistic_and_sigmoid_gradients_are_wrong_each_in_its_own_way(loss):
    auto, _, objective = both(loss, "identity", 0.0)
    forms = closed_form.misprints(objective) | {"printed": closed_form.printed(objective)}
    assert set(forms) == {"E1", "E2", "printed"} | ({"E3"} if loss == "sigmoid" else set())
    for name, form in forms.items():
        _, closed, _ = both(loss, "identity", 0.0, form)
        apart = max(float(abs(a - b).max()) for a, b in zip(auto, closed, strict=True))
        assert apart > 1e-3, name


def test_the_printed_logistic_data_gradient_points_uphill():
    objective = equation.make(losses.Logistic(beta=2.0))
    sample = sampling.everything(X, Weights.paper().of(X))
    auto = jax.grad(equation.value, 1)(objective, AT, sample)
    printed = closed_form.gradients(objective, AT, sample, closed_form.printed(objective))
    np.testing.assert_allclose(auto.U, -printed.U, atol=1e-12)  # E1


def test_short_square_forms_need_the_masses():
    sample = sampling.everything(X, Weights.paper().of(X))
    objective = equation.make("square", reg=0.3)
    for scale in (1.0, 3.0):
        scaled = sample._replace(g_pos=scale * sample.g_pos)
        auto = jax.grad(equation.value, 1)(objective, AT, scaled)
        right = closed_form.square_short_form(AT, scaled, 0.3)
        printed = closed_form.square_short_form(AT, scaled, 0.3, masses=False)
        np.testing.assert_allclose(auto.U, right.U, atol=1e-12)
        np.testing.assert_allclose(auto.V, right.V, atol=1e-12)
        assert np.allclose(auto.U, printed.U) == (scale == 1.0)  # E5


def test_every_loss_of_the_paper_has_its_derivative():
    further = {"exponential": losses.Exponential(beta=2.0)}
    known = {type(loss) for loss in further.values()} | set(losses.PAPER_LOSSES.values())
    assert closed_form.SLOPES.keys() == known
    for name, loss in (paper_losses(2.0) | further).items():
        x = np.linspace(-3.0, 0.9, 7)
        slopes = jax.vmap(jax.grad(loss))(x)
        np.testing.assert_allclose(closed_form.SLOPES[type(loss)](loss, x), -slopes, err_msg=name)


def test_a_loss_of_ones_own_has_no_closed_form():
    objective = equation.make(lambda x: jax.nn.relu(1 - x))
    sample = sampling.everything(X, Weights.paper().of(X))
    with pytest.raises(ValueError, match="choose from square_hinge, square, logistic, sigmoid"):
        closed_form.gradients(objective, AT, sample)
