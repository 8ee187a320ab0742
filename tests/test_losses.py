from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mfauc_jax.objective import equation, losses, weightings
from theory.function_class import paper_losses

FORMULA = {
    "square_hinge": lambda x, b: 0.5 * max(0.0, 1 - x) ** 2,
    "square": lambda x, b: 0.5 * (1 - x) ** 2,
    "sigmoid": lambda x, b: 1 - 1 / (1 + np.exp(-b * x)),  # the paper's plus one
    "logistic": lambda x, b: -np.log(1 / (1 + np.exp(-b * x))),
}


@pytest.mark.parametrize("name", losses.PAPER_LOSSES)
def test_each_loss_is_the_papers_formula(name):
    for beta in (0.5, 1.0, 3.0):
        loss = paper_losses(beta)[name]
        for x in (-3.0, -0.2, 0.0, 0.9, 1.0, 4.0):
            assert float(loss(x)) == pytest.approx(FORMULA[name](x, beta), abs=1e-12)


@pytest.mark.parametrize("name", losses.PAPER_LOSSES)
def test_value_and_slope_are_finite_in_float32_far_from_zero(name):
    loss = paper_losses()[name]
    x = jnp.array([-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4], jnp.float32)
    value, slope = jax.vmap(jax.value_and_grad(loss))(x)
    assert value.dtype == jnp.float32 and slope.dtype == jnp.float32
    assert jnp.isfinite(value).all() and jnp.isfinite(slope).all()
    assert (value >= 0).all()  # tanh and the theory need it
    exact = np.array([FORMULA[name](np.float64(v), 1.0) for v in (-100.0, -1.0, 0.0, 1.0)])
    np.testing.assert_allclose(value[1:5], exact, rtol=1e-6)


def test_logistic_keeps_its_slope_where_log_sigmoid_would_overflow():
    steep = losses.Logistic(beta=100.0)
    assert float(steep(jnp.float32(-100.0))) == pytest.approx(1e4)
    assert float(jax.grad(steep)(jnp.float32(-100.0))) == pytest.approx(-100.0)


def test_a_sweep_over_beta_compiles_once():
    traces = []

    @jax.jit
    def run(loss):
        traces.append(1)
        return loss(0.3)

    for beta in (0.5, 1.0, 2.0):
        run(losses.Sigmoid(beta=beta))
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: equation.make("sqare"), "did you mean 'square'"),
        (lambda: equation.make("zzz"), "choose from square_hinge, square, sigmoid, logistic"),
        (lambda: losses.Sigmoid(beta=-1.0), "beta = -1.0"),
        (lambda: losses.Logistic(beta=float("nan")), "beta = nan"),
        (lambda: equation.make(weighting="tan"), "did you mean 'tanh'"),
        (lambda: weightings.Tanh(rho=0.0), "rho = 0.0"),
        (lambda: equation.make("square", reg=-0.1), "reg = -0.1"),
        (lambda: equation.make("square", spread=-2.0), "spread = -2.0"),
    ],
)
def test_bad_names_and_numbers_are_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_tanh_refuses_a_loss_that_goes_negative_and_says_why():
    def paper_sigmoid(x):
        return -jax.nn.sigmoid(x)

    with pytest.raises(ValueError, match="never negative, but paper_sigmoid reaches -1"):
        equation.make(paper_sigmoid, "tanh")
    assert equation.make(paper_sigmoid).loss(0.0) == -0.5  # identity takes it


def test_your_own_loss_is_one_function():
    def exponential(x, beta=1.0):
        return jnp.exp(-beta * x)

    loss = equation.make(partial(exponential, beta=2.0)).loss
    assert isinstance(loss, losses.Loss) and float(loss(1.0)) == pytest.approx(np.exp(-2.0))
    assert (loss.name, loss.beta) == ("exponential", 2.0)
    with pytest.raises(TypeError, match=r"3.0 is not a Loss"):
        equation.make(3.0)


def test_the_log_is_the_limit_of_log_one_plus_cx_and_the_identity_the_other():
    x = jnp.array([0.01, 0.3, 2.0])
    large, small = 1e6, 1e-8
    np.testing.assert_allclose(
        weightings.Log(c=large)(x) - np.log(large), weightings.Log()(x), atol=2e-4
    )
    np.testing.assert_allclose(weightings.Log(c=small)(x) / small, x, rtol=1e-6)
    for phi in (weightings.Log(), weightings.Log(c=3.0)):  # of_log(z) = φ(eᶻ)
        np.testing.assert_allclose(phi.of_log(jnp.log(x)), phi(x), rtol=1e-10)


def test_log_mean_exp_leaves_out_items_of_weight_zero_and_survives_none():
    """Kills: 0 · exp(large) = nan, and −inf where every weight is 0."""
    x, g = jnp.array([1.0, 1e5, 2.0]), jnp.array([0.25, 0.0, 0.75])
    value, slope = jax.value_and_grad(equation.log_mean_exp)(x, g)
    truth = np.log(0.25 * np.exp(1.0) + 0.75 * np.exp(2.0))
    assert float(value) == pytest.approx(truth)
    np.testing.assert_allclose(
        slope, [0.25 * np.exp(1 - truth), 0.0, 0.75 * np.exp(2 - truth)], rtol=1e-6
    )
    value, slope = jax.value_and_grad(equation.log_mean_exp)(x, jnp.zeros(3))
    assert np.isfinite(value) and (slope == 0).all()


@pytest.mark.parametrize("rho", [0.5, 3.0])
def test_tanh_is_the_papers_formula(rho):
    x = np.linspace(0.0, 4.0, 9)
    np.testing.assert_allclose(weightings.Tanh(rho=rho)(x), np.tanh(rho * x), rtol=1e-12)
    slope = jax.grad(weightings.Tanh(rho=rho))(0.7)
    assert slope == pytest.approx(rho / np.cosh(rho * 0.7) ** 2)
