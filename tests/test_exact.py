import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import one_shape, quiet, random_factors, triple_loop

from mfauc_jax.objective import equation, exact, losses, sampling, weightings
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.objective.weights import Weights

BETA, RHO = 2.0, 0.7
LOSSES = (losses.square_hinge, losses.square, losses.Sigmoid(beta=BETA), losses.Logistic(beta=BETA))
WEIGHTINGS = (weightings.identity, weightings.Tanh(rho=RHO))
EXPONENTIAL = losses.Exponential(beta=BETA)
SOFTMAX = ((EXPONENTIAL, weightings.Log()), (EXPONENTIAL, weightings.Log(c=3.0)))
CASES = [(loss, phi) for loss in LOSSES for phi in WEIGHTINGS] + [*SOFTMAX]


def named(part):
    return part.name


PLAIN = {  # the paper's formulas on Python floats, for the triple loop
    "square_hinge": lambda x: 0.5 * max(0.0, 1 - x) ** 2,
    "square": lambda x: 0.5 * (1 - x) ** 2,
    "sigmoid": lambda x: 1 - 1 / (1 + math.exp(-BETA * x)),
    "logistic": lambda x: math.log(1 + math.exp(-BETA * x)),
    "identity": lambda x: x,
    "tanh": lambda x: math.tanh(RHO * x),
    "exponential": lambda x: math.exp(-BETA * x),
}


def plain_weighting(phi):
    """The formula on Python floats; the log's depends on whether it has a c."""
    if not isinstance(phi, weightings.Log):
        return PLAIN[phi.name]
    return math.log if phi.c is None else lambda x: math.log(1 + phi.c * x)


@jax.jit
def by_every_route(objective, at, plan, listed):
    return (
        exact.value_and_grad(objective, at, plan),
        jax.value_and_grad(equation.value, 1)(objective, at, listed),
        exact.value(objective, at, plan),
    )


@pytest.mark.parametrize(("loss", "phi"), CASES, ids=named)
@settings(max_examples=15)
@given(one_shape(), st.integers(0, 5), st.sampled_from([0.0, 0.7]), st.sampled_from([0.0, 0.5]))
def test_exact_is_the_triple_loop(loss, phi, dense, seed, tau, user_power):
    """Kills, among others: weights that refuse usable rows, which an early return on ValueError let pass.

    The row of zeros makes every p̂ < 1, so that six rows are usable in every example.
    """
    objective = equation.make(loss, phi, reg=0.3, spread=1.5)
    plain = SimpleNamespace(loss=PLAIN[loss.name], weighting=plain_weighting(phi))
    X = quiet(dense)
    weights = Weights(tau, None, user_power).of(X)
    assert weights.usable.shape == (6,)
    at = random_factors(seed, X)
    truth = triple_loop(plain, at.U, at.V, dense, tau, user_power, 0.3, 1.5)
    listed = sampling.everything(X, weights)
    untabled = weights._replace(pos_table=None, neg_table=None, row_table=None)  # one shape
    plan = exact.plan(objective, X, untabled, block=20)
    (fast, grads), (slow, slow_grads), alone = by_every_route(objective, at, plan, listed)
    for value in (fast, slow, alone):
        assert float(value) == pytest.approx(truth, abs=1e-10)
    for ours, theirs in zip(grads, slow_grads, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


@pytest.mark.parametrize("phi", [weightings.identity, weightings.Tanh(rho=0.5)], ids=named)
def test_ties_and_kinks_are_exact(phi):
    rng = np.random.default_rng(0)
    X = quiet(rng.random((6, 9)) < 0.5)
    at = random_factors(0, X)._replace(
        U=jnp.asarray(rng.integers(-1, 2, (6, 2)), float),
        V=jnp.asarray(rng.integers(-1, 2, (9, 2)), float),
    )  # integer scores: margins of exactly 1 and many ties
    objective = equation.make("square_hinge", phi)
    weights = Weights.paper().of(X)
    listed = sampling.everything(X, weights)
    plan = exact.plan(objective, X, weights)
    (value, grads), (slow, slow_grads), _ = by_every_route(objective, at, plan, listed)
    assert float(value) == pytest.approx(float(slow), abs=1e-12)
    for ours, theirs in zip(grads, slow_grads, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def single(tree):
    return jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype == float else a, tree)


@pytest.mark.parametrize("loss", ["square", "square_hinge"])
def test_float32_keeps_its_digits_far_from_zero(loss):
    """Scores shifted by 100 for every item: margins are the same, and so is θ (docs/derivations.md#centring)."""
    rng = np.random.default_rng(0)
    X = quiet(rng.random((20, 50)) < 0.3)
    objective = equation.make(loss, "tanh")
    weights = Weights.paper().of(X)
    at = random_factors(0, X, scale=0.7)
    at = at._replace(U=at.U.at[:, 0].set(1.0), V=at.V.at[:, 0].add(100.0))
    plan = exact.plan(objective, X, weights)
    truth = exact.value_and_grad(objective, at, plan)

    value, grads = exact.value_and_grad(objective, single(at), single(plan))
    assert value.dtype == jnp.float32
    assert float(value) == pytest.approx(float(truth[0]), rel=1e-4)
    for fast, slow in zip(grads, truth[1], strict=True):
        np.testing.assert_allclose(fast, slow, atol=2e-3 * float(jnp.abs(slow).max()))


def test_spread_and_reg_may_differ_by_row():
    rng = np.random.default_rng(0)
    X = quiet(rng.random((6, 9)) < 0.4)
    weights = Weights.paper().of(X)
    at = random_factors(0, X)
    spread, by_user, by_item = (jnp.asarray(rng.random(size)) for size in (6, 6, 9))
    for loss in LOSSES:
        objective = equation.make(loss, reg=Reg(by_user, by_item), spread=spread)
        plan, listed = exact.plan(objective, X, weights), sampling.everything(X, weights)
        (value, grads), (slow, slow_grads), _ = by_every_route(objective, at, plan, listed)
        assert float(value) == pytest.approx(float(slow), abs=1e-12)
        for a, b in zip(grads, slow_grads, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)


def test_a_sweep_compiles_once():
    X = quiet(np.random.default_rng(0).random((6, 9)) < 0.4)
    weights, at = Weights.paper().of(X), random_factors(0, X)
    before = exact.value_and_grad.made
    for beta, rho, reg in ((1.0, 0.5, 0.1), (2.0, 1.0, 0.2), (3.0, 2.0, 0.0)):
        formulas = losses.Logistic(beta=beta), weightings.Tanh(rho=rho)
        objective = equation.make(*formulas, reg=reg)
        exact.value_and_grad(objective, at, exact.plan(objective, X, weights))
    assert exact.value_and_grad.made == before + 1


def test_softmax_is_finite_in_float32_where_the_exponential_overflows():
    """Kills: exp before the log. Margins reach 40 at β = 10, and exp(400) is inf in float32."""
    rng = np.random.default_rng(1)
    X = quiet(rng.random((5, 30)) < 0.3)
    weights, at = single((Weights.paper().of(X), random_factors(0, X, scale=4.0)))
    for phi in (weightings.Log(), weightings.Log(c=30.0)):
        objective = equation.make(losses.Exponential(beta=10.0), phi)
        plan = single(exact.plan(objective, X, weights))
        value, grads = exact.value_and_grad(objective, at, plan)
        slow = jax.grad(equation.value, 1)(objective, at, sampling.everything(X, weights))
        assert np.isfinite(value) and value > 1  # most users have a negative above a positive
        for ours, theirs in zip(grads, slow, strict=True):
            assert np.isfinite(ours).all()
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def test_one_log_sum_exp_per_user():
    """Cost: no array of positives × items is made. Kills: evaluating softmax by blocks of pairs."""
    X = quiet(np.random.default_rng(0).random((4, 512)) < 0.5)
    weights, at = Weights.paper().of(X), random_factors(0, X)
    objective = equation.make(EXPONENTIAL, weightings.Log(c=2.0))
    plan = exact.plan(objective, X, weights)
    program = str(jax.make_jaxpr(exact.value_and_grad)(objective, at, plan))
    longest = max(block[1].shape[-1] for block in plan.blocks)
    assert longest > 200 and f"{longest},512]" not in program and f"512,{longest}]" not in program
    assert "while" not in program and "argsort" not in program
