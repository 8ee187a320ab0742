"""Features in the minibatch and dense routes: their slopes, their minimum, and cold items for any loss."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.sparse
from feature_toys import K, M, N, P, Q, problem_of, shop, theta, world
from hypothesis import given, settings
from hypothesis import strategies as st

import mfauc_jax as mf
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import splits, synthetic
from mfauc_jax.objective import equation, exact, sampling
from mfauc_jax.objective.sides import Side
from mfauc_jax.solvers import base, minibatch, sampled_features
from mfauc_jax.solvers.sampled_features import Learning, Rows

SOFTMAX = {"loss": "exponential", "weighting": mf.weightings.Log(c=1000.0)}


def side_of(F: np.ndarray) -> Side:
    return Side.of("item", scipy.sparse.csr_array(F), np.ones(len(F)), np.ones(len(F), bool))


@settings(max_examples=20)
@given(
    st.integers(0, 2**16),
    st.sampled_from([1, 9]),
    st.sampled_from([1, 3]),
    st.sampled_from([0, 0.2, 1]),
)
def test_rows_of_features_and_their_slopes_are_those_of_the_dense_matrix(seed, n, p, density):
    """Kills: a slot beyond a row's end, the next row's entry, λ or the count left out; by slots and by the table."""
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(n, p)) * (rng.random((n, p)) < density)
    rows = Rows.of(side_of(F))
    A = jnp.asarray(rng.normal(size=(p, K)))
    for index in (None, np.array([n - 1]), rng.integers(n, size=(3, 20))):
        picked = F if index is None else F[index]
        slope = jnp.asarray(rng.normal(size=(*picked.shape[:-1], K)))
        place = None if index is None else jnp.asarray(index)
        assert np.allclose(rows.parts(A, place), picked @ A)
        expected = picked.reshape(-1, p).T @ np.asarray(slope).reshape(-1, K)
        expected = expected + 0.5 * np.asarray(rows.placed.reg[:, None] * A)
        expected = expected / np.maximum((F != 0).sum(0), 1)[:, None]
        assert np.allclose(rows.gradient(A, place, slope, 0.5), expected)


def test_units_of_the_optimiser_change_neither_rows_nor_penalty():
    problem = problem_of(mf.MFAUC(rank=K), items=True, users=True)
    assert problem.sides is not None
    for side, size in zip(problem.sides, (N, M), strict=True):
        assert side is not None
        V, scaled = np.random.default_rng(3).normal(size=(size, K)), side.in_own_units()
        A, own = side.coefficients(V), scaled.coefficients(V)
        assert np.allclose(side.matrix @ A, scaled.matrix @ own, atol=1e-9)
        assert np.isclose(side.penalty(V, A), scaled.penalty(V, own))
        assert np.isclose((scaled.matrix.toarray() ** 2).sum() / size, 1, rtol=0.2)


@pytest.mark.parametrize(
    ("loss", "weighting"), [("logistic", "identity"), ("square_hinge", "tanh")]
)
def test_a_minibatch_step_moves_along_the_slopes_of_the_joint_sampled_objective(loss, weighting):
    """Central differences of θ′ over a fixed sample in each of e, d, A and B, with every λ."""
    problem = problem_of(mf.MFAUC(rank=K, loss=loss, weighting=weighting), items=True, users=True)
    assert problem.sides is not None
    sides: Any = sampled_features.placed(problem.sides)
    rng = np.random.default_rng(1)
    users = jnp.asarray([3, 7, 11, 3])
    real = jnp.asarray([True, True, True, False])
    sample = sampling.uniform(jax.random.key(0), problem.X, problem.weights, users, 2, 3)
    items, ridge = jnp.concatenate([sample.pos, sample.neg], 1), jnp.asarray([0.2, 0.3, 0.4, 0.2])
    by_draw = jnp.asarray(rng.random(items.shape))
    E, D, A, B = (jnp.asarray(rng.normal(size=(r, K))) for r in (M, N, P, Q))
    F, G = (
        jnp.asarray(side.in_own_units().matrix.toarray())
        for side in problem.sides
        if side is not None
    )
    counted = sample._replace(user_weight=sample.user_weight * real)

    def data(E, D, A, B):
        factors = Factors(E + G @ B, D + F @ A)
        return equation.risk(problem.objective, factors, counted) * len(users)

    def whole(name, E, D, A, B):
        """θ′ as the step on `name` scales it."""
        if name == "E":
            pull = (ridge * real * (E[users] ** 2).sum(1)).sum()
            return data(E, D, A, B) + 0.5 * pull
        if name == "D":
            pull = (by_draw * real[:, None] * (D[items] ** 2).sum(2)).sum()
            return 1.5 * data(E, D, A, B) + 0.5 * pull
        C, rows, scale, share = (
            (A, sides.items, 1.5, 0.25) if name == "A" else (B, sides.users, 1.0, 0.125)
        )
        return scale * data(E, D, A, B) + 0.5 * share * (rows.placed.reg[:, None] * C**2).sum()

    optimiser = optax.sgd(1.0)
    learning = Learning(A, B, (optimiser.init(A), optimiser.init(B)))
    memory = optimiser.init(E), optimiser.init(D)
    tables = minibatch.Tables(Factors(E, D), memory, jnp.zeros(N, int), learning)
    args = problem.objective, tables, sample, real, (ridge, by_draw), 1.5, (sides, 0.25, 0.125)
    after = minibatch.descend(optimiser, *args)
    moved = {
        "E": E - after.factors.U,
        "D": D - after.factors.V,
        "A": (A - after.learning.items) / sides.items.inverse[:, None],
        "B": (B - after.learning.users) / sides.users.inverse[:, None],
    }
    values, step = {"E": E, "D": D, "A": A, "B": B}, 1e-5
    for name, slope in moved.items():
        direction = jnp.asarray(rng.normal(size=slope.shape))
        ahead, behind = (
            whole(name, **(values | {name: values[name] + sign * step * direction}))
            for sign in (1, -1)
        )
        assert np.isclose((slope * direction).sum(), (ahead - behind) / (2 * step), rtol=1e-6), name


@pytest.mark.parametrize(
    ("model", "num_items"),
    [(SOFTMAX, None), ({"loss": "logistic", "penalty": mf.Fixed(0.3)}, N - 4)],
    ids=["all pairs", "drawn"],
)
def test_a_dense_step_of_all_users_moves_along_the_slope_of_the_joint_objective(model, num_items):
    """n ∂θ/∂(d, A) and m ∂θ/∂B by autodiff of θ: softmax takes all pairs; with draws, on average."""
    problem = problem_of(mf.MFAUC(rank=K, **model), items=True, users=True)
    solver = mf.Dense(optimiser="sgd", learning_rate=1e-3, batch=M, num_items=num_items)
    factors = base.gaussian(jax.random.key(0), M, N, K, 0.5)
    state, data = solver.init(problem, factors), solver.prepare(problem)
    learning = state.extra[-1]
    sides: Any = data.sides
    known: Any = problem.sides
    own = sides.own(factors, learning)

    def joint(E, D, A, B):
        U, V = sides.whole(Factors(E, D), Learning(A, B, ((), ())))
        plan = exact.plan(problem.objective, problem.X, problem.weights)
        total = exact.value(problem.objective._replace(reg=0.0), Factors(U, V), plan)
        for own, C, rows, side in ((D, A, sides.items, 0), (E, B, sides.users, 1)):
            reg = jnp.asarray(known[side].row_reg)
            squares = (reg[:, None] * own**2).sum()
            total = total + 0.5 * (squares + (rows.placed.reg[:, None] * C**2).sum()) / len(reg)
        return total

    A, B = learning[:2]
    full = theta(
        problem, *factors, known.items.coefficients(factors.V), known.users.coefficients(factors.U)
    )
    assert np.isclose(joint(own.U, own.V, A, B), full)
    slopes = jax.grad(joint, (1, 2, 3))(own.U, own.V, A, B)
    inverse = sides.items.inverse[:, None], sides.users.inverse[:, None]
    expected = N * slopes[0], N * inverse[0] * slopes[1], M * inverse[1] * slopes[2]
    found = []
    run = jax.jit(solver.step)
    for seed in range(1 if num_items is None else 400):
        after = run(problem.objective, jax.random.key(seed), state, data)[0]
        learned = after.extra[-1]
        moved = sides.own(after.factors, learned).V - own.V, learned.items - A, learned.users - B
        found.append([-np.asarray(m) / 1e-3 for m in moved])
    for each, theirs in zip(zip(*found, strict=True), expected, strict=True):
        error = 5 * np.std(each, 0) / len(each) ** 0.5  # five standard errors; 0 without draws
        assert (np.abs(np.mean(each, 0) - theirs) <= error + 1e-9).all()


@pytest.mark.parametrize(
    "solver",
    [
        mf.Minibatch(iterations=400, num_pos=5, num_neg=10, batch=10),
        mf.Dense(iterations=300, batch=10),
    ],
    ids=["minibatch", "dense"],
)
def test_the_square_loss_comes_near_the_minimum_of_the_alternating_route(solver):
    """Within 1 % of the joint θ that 300 sweeps of the alternating route reach."""
    problem = problem_of(mf.MFAUC(rank=K), items=True, users=True)
    plan = exact.plan(problem.objective, problem.X, problem.weights)
    assert problem.sides is not None
    found = []
    for each, iterations in ((mf.Alternating(user_steps=6, item_steps=20), 300), (solver, None)):
        factors = base.gaussian(jax.random.key(0), M, N, K)
        state, data = each.init(problem, factors), each.prepare(problem)
        seen = each.seen_by_step(problem)
        for _ in range(iterations or each.iterations):
            state, _ = base.run(each, seen, jax.random.key(1), state, data)
        found.append(problem.sides.value(problem.objective, each.read(state, factors), plan))
    exact_value, ours = found
    assert exact_value - 1e-9 < ours < 1.01 * exact_value


@pytest.mark.parametrize("model", [{"loss": "logistic"}, SOFTMAX], ids=["minibatch", "dense"])
def test_a_fit_does_not_depend_on_the_units_of_a_feature(model):
    _, cold, F, G = world()
    one, other = (
        mf.MFAUC(rank=K, **model).fit(
            cold.astype(float),
            item_features=scipy.sparse.csr_array(F.toarray() * scale),
            user_features=G,
        )
        for scale in (np.ones(P), np.array([1e3, 1.0, 1e-3, 7.0]))
    )
    assert np.allclose(one.item_factors_, other.item_factors_, atol=1e-6)
    assert np.allclose(one.user_factors_, other.user_factors_, atol=1e-6)


@pytest.mark.parametrize("model", [{"loss": "logistic"}, SOFTMAX], ids=["minibatch", "dense"])
def test_cold_items_are_ranked_by_their_features(model):
    made = synthetic.with_features(jax.random.key(7), 300, 200, informative=0.9)
    F = mf.Features.of(made.item_features).matrix
    train, test = splits.hold_out_items(0, made.X)
    fitted = mf.MFAUC(rank=8, **model).fit(train, item_features=F)
    cold = np.unique(np.asarray(test.indices))
    learned = fitted.item_features_
    assert learned is not None
    assert np.allclose(fitted.item_factors_[cold], F[cold] @ learned.factors)
    scores = fitted.user_factors_ @ fitted.item_factors_[cold].T
    wanted, values = test.to_scipy()[:, cold].toarray() > 0, []
    for own, has in zip(scores, wanted, strict=True):
        if has.any() and not has.all():
            values.append((own[has][:, None] > own[~has][None, :]).mean())
    assert np.mean(values) > 0.6


@pytest.mark.parametrize("model", [{"loss": "logistic"}, SOFTMAX], ids=["minibatch", "dense"])
def test_a_killed_fit_is_resumed_to_the_same_bits(model, tmp_path):
    _, cold, F, G = world()
    fit = partial(mf.MFAUC(rank=K, **model).with_params, solver=mf.MFAUC(**model).chosen_solver)
    give = {"item_features": F, "user_features": G}
    whole = fit(solver__iterations=6).fit(cold.astype(float), **give)
    part, states = fit(), mf.Checkpoints(str(tmp_path), every=1)
    for T in (3, 6):
        part = fit(solver__iterations=T).fit(cold.astype(float), checkpoints=states, **give)
    assert (part.item_factors_ == whole.item_factors_).all()
    assert (part.user_factors_ == whole.user_factors_).all()


def test_a_continuation_passes_features_on():
    solver = mf.Continuation(mf.Minibatch(iterations=6), betas=(1.0, 2.0))
    model = shop(loss="logistic", solver=solver)
    items, _ = model.recommend("u1", n=8)
    assert {"new", "newer"} <= set(items)


def test_unit_rows_with_features_are_refused_with_what_to_do():
    X, _, F, _ = world()
    model = mf.MFAUC(rank=K, loss="exponential", weighting="log", penalty=mf.UnitRows())
    with pytest.raises(ValueError, match=r"UnitRows\(\) has no rule for features: use Auto\(\)"):
        model.fit(X.astype(float), item_features=F)
