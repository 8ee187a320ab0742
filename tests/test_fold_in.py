import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.optimize
from toys import quiet, random_factors

import mfauc_jax as mf
from mfauc_jax import Alternating, Auto, Problem
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import equation, exact, losses
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.objective.weights import Weights
from mfauc_jax.serving import fold_in
from mfauc_jax.solvers import sweeps
from mfauc_jax.training.loop import Fitted

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 30)) + 0.3 * RNG.normal(size=(60, 30))
DENSE = np.quantile(TASTE, 0.75, axis=1, keepdims=True) < TASTE
DENSE[1] = np.arange(30) < 20  # a longer row: another block
DENSE[2] = np.arange(30) == 4
X = quiet(DENSE)
V = random_factors(0, X, 4, 0.7).V


@jax.jit
def own(objective, weights, u, i):
    """f_i(u) from the atom of Eq. 3, and its gradient."""
    positive = jnp.asarray(DENSE, float)[i]
    g, b = positive / positive.sum(), weights.b * (1 - positive)

    def f(u):
        risk = equation.user_risk(objective, u, V, V, g, b / b.sum(), objective.spread)
        return risk + 0.5 * objective.reg / weights.user[i] * (u @ u)

    return jax.value_and_grad(f)(u)


@pytest.mark.parametrize(
    "loss",
    [losses.square, losses.square_hinge, losses.Logistic(beta=2.0)],
    ids=lambda loss: loss.name,
)
def test_fold_in_is_scipys_minimum_and_the_gap_covers_what_is_missed(loss):
    objective = equation.make(loss, reg=0.3, spread=0.5)
    weights = Weights(0.0, None, user_power=0.5).of(X)
    U, gap = fold_in.fold_in(objective, V, X, weights, tolerance=1e-8)
    early, wide = fold_in.fold_in(objective, V, X, weights, steps=1)
    assert gap.max() <= 1e-8
    for i in (0, 1, 2):

        def f(u, i=i):
            return own(objective, weights, jnp.asarray(u), i)

        best = scipy.optimize.minimize(f, np.zeros(4), jac=True, method="BFGS", tol=1e-10)
        assert -1e-9 <= float(f(U[i])[0]) - best.fun <= gap[i] + 1e-9
        assert -1e-9 <= float(f(early[i])[0]) - best.fun <= wide[i] + 1e-9
        np.testing.assert_allclose(U[i], best.x, atol=2e-4)


def test_fold_in_of_the_training_users_is_the_alternating_solve():
    problem = Problem.of(X, weights=Weights(0.0))
    solver, start = Alternating(), Factors(jnp.zeros((60, 4)), V)
    data = solver.prepare(problem)
    padded, seen = solver.init(problem, start), solver.seen_by_step(problem)
    swept = sweeps.sweep(seen, padded.factors, data, 20, 0)
    exactly = solver.read(padded._replace(average=swept), start).U
    U, _ = fold_in.fold_in(problem.objective, V, X, problem.weights, tolerance=1e-14)
    np.testing.assert_allclose(U, exactly, atol=1e-9)


def test_without_convexity_it_warns_descends_and_promises_nothing():
    objective = equation.make(losses.Sigmoid(beta=2.0), "tanh", reg=0.05)
    weights = Weights.paper().of(X)
    with pytest.warns(UserWarning, match="sigmoid with tanh is not convex"):
        U, gap = fold_in.fold_in(objective, V, X, weights)
    assert np.isnan(gap).all()
    for i in (0, 1, 2):
        value, gradient = own(objective, weights, jnp.asarray(U[i]), i)
        assert value < own(objective, weights, jnp.zeros(4), i)[0]
        assert jnp.abs(gradient).max() < 1e-3


def test_new_users_weigh_what_they_would_have_weighed():
    for power in (0.0, 0.75):
        weights = Weights(-0.5, 0.5, power)
        whole, again = weights.of(X), weights.of(quiet(DENSE[40:]), train=X)
        np.testing.assert_allclose(again.user, whole.user[40:])
        np.testing.assert_allclose(again.b, whole.b)
        np.testing.assert_allclose(again.neg_mass, whole.neg_mass[40:])
        np.testing.assert_allclose(again.g, whole.g[int(X.indptr[40]) :])
        rule = Auto().of(X, whole)
        new = Auto().of(X, whole, new=(quiet(DENSE[40:]), again))
        np.testing.assert_allclose(new.reg.user, rule.reg.user[40:])
        np.testing.assert_allclose(new.reg.item, rule.reg.item)
        np.testing.assert_allclose(new.spread, rule.spread[40:])


@pytest.fixture(scope="module")
def model():
    return mf.MFAUC(rank=4, solver=Alternating(30)).fit(quiet(DENSE[:40, :27]))


def frame(dense, first=0):
    users, items = np.nonzero(dense)
    return pd.DataFrame(
        {"user": [f"u{i + first}" for i in users], "item": [f"i{j}" for j in items]}
    )


@pytest.fixture(scope="module")
def named():
    return mf.MFAUC(rank=4, solver=Alternating(30)).fit(frame(DENSE[:40, :27]))


def test_a_folded_model_answers_for_the_new_users(model):
    new = DENSE[40:, :27]
    folded = model.fold_in(quiet(new))
    assert folded.user_factors_.shape == (20, 4) and folded.fold_in_gap_.max() <= 1e-6
    assert (folded.item_factors_ == model.item_factors_).all()
    rows = np.arange(20)
    items, _ = folded.recommend(rows, n=5)
    assert not new[rows[:, None], items].any()
    taste = np.where(new, -np.inf, TASTE[40:, :27])
    rank = (taste[rows[:, None], items][:, :, None] < taste[:, None, :]).sum(2)
    assert np.median(rank) < 5  # what is shown is what they like best of the rest
    twice = folded.fold_in(quiet(new))
    np.testing.assert_allclose(twice.user_factors_, folded.user_factors_)
    for refused in (lambda: folded.save("never"), lambda: folded.partial_fit(quiet(new))):
        with pytest.raises(ValueError, match="were folded in"):
            refused()


@pytest.mark.filterwarnings("ignore:interactions")
def test_external_ids_of_the_new_users(model, named):
    few = frame(DENSE[40:43, :27], 40)
    folded = named.fold_in(few)
    assert list(folded.train_.user_ids) == ["u40", "u41", "u42"]
    items, _ = folded.recommend("u41", n=4)
    assert not set(items) & set(few[few.user == "u41"].item)
    with pytest.raises(ValueError, match="unknown item 'i99'"):
        named.fold_in((["x", "x"], ["i1", "i99"]), unknown="raise")
    with pytest.raises(ValueError, match="31 columns"):
        model.fold_in(np.eye(31))
    with pytest.raises(ValueError, match="item 27 is outside range"):
        model.fold_in((["x", "x"], [3, 27]), unknown="raise")
    assert len(model.fold_in((["x", "x"], [3, 4])).recommend("x", n=3)[0]) == 3


def test_lambda_by_user_is_unknown_for_new_ones():
    objective = equation.make("square", reg=Reg(jnp.ones(7), 0.1))
    with pytest.raises(ValueError, match="reg was given by user"):
        fold_in.fold_in(objective, V, X, Weights.paper().of(X))


def theta(model):
    problem = model.problem(model.train_)
    plan = exact.plan(problem.objective, problem.X, problem.weights)
    return exact.value(problem.objective, model.factors_, plan)


def test_partial_fit_adds_users_items_and_positives(named):
    grown = dataclasses.replace(named)._keep(
        named.train_, Fitted(named.factors_, named.history_, "")
    )
    grown.partial_fit(frame(DENSE))
    X = grown.train_
    assert list(X.user_ids[:40]) == list(named.train_.user_ids) and X.shape == (60, 30)
    places = [[int(name[1:]) for name in ids] for ids in (X.user_ids, X.item_ids)]
    assert (X.to_scipy().toarray() == DENSE[np.ix_(*places)]).all()
    assert [r["iteration"] for r in grown.history_] == list(range(1, 32))
    scratch = mf.MFAUC(rank=4).fit(frame(DENSE))
    nothing = mf.MFAUC()._keep(X, Fitted(jax.tree.map(jnp.zeros_like, grown.factors_), [], ""))
    assert theta(grown) < theta(scratch) + 0.02 * (theta(nothing) - theta(scratch))


@pytest.mark.filterwarnings("ignore:interactions")
def test_partial_fit_by_position_and_from_nothing():
    model = mf.MFAUC(rank=4, solver=Alternating(2)).partial_fit(quiet(DENSE[:40, :27]))
    assert len(model.history_) == 2
    model.partial_fit(X)
    assert model.train_.shape == (60, 30) and np.isfinite(model.user_factors_).all()
    with pytest.raises(TypeError, match="fit was given no ids"):
        model.partial_fit((["ann"], ["tea"]))
