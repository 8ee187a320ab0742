"""A fit with features: its objective falls, its minimum is one, and cold items are A f_j among the others."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
import scipy.sparse
from feature_toys import LIKES, K, M, N, P, problem_of, shop, theta, world

import mfauc_jax as mf
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import exact
from mfauc_jax.objective.penalties import by_row
from mfauc_jax.solvers import base


@pytest.mark.parametrize(
    ("weighting", "items", "users"), [("identity", False, True), ("tanh", True, True)]
)
def test_the_joint_objective_falls_with_every_sweep(weighting, items, users):
    model = mf.MFAUC(rank=K, weighting=weighting)
    problem, solver = problem_of(model, items, users), mf.Alternating(item_steps=3)
    assert problem.sides is not None
    factors = base.gaussian(jax.random.key(0), M, N, K)
    state, data = solver.init(problem, factors), solver.prepare(problem)
    seen, values = solver.seen_by_step(problem), []
    for _ in range(12):
        U, V = solver.read(state, factors)
        A, B = state.extra
        values.append(float(theta(problem, U, V, A, B)))
        state, _ = base.run(solver, seen, jax.random.key(0), state, data)
    assert (np.diff(values) < 0).all(), np.diff(values)
    plan = exact.plan(problem.objective, problem.X, problem.weights)
    best = problem.sides.value(problem.objective, solver.read(state, factors), plan)
    assert best <= values[-1]


def test_the_gradient_that_a_sweep_uses_is_that_of_the_joint_objective():
    """m₊ ∂θ/∂(d, A) of `solvers.features`, autodiff of θ and central differences agree."""
    from mfauc_jax.solvers import features

    problem = problem_of(mf.MFAUC(rank=K), items=True, users=False)
    assert problem.sides is not None and problem.sides.items is not None
    side, rng = problem.sides.items, np.random.default_rng(1)
    U, d, A = (jnp.asarray(rng.normal(size=shape)) for shape in ((M, K), (N, K), (P, K)))
    F = jnp.asarray(side.matrix.toarray())

    def joint(x):
        return theta(problem, U, F @ x[N:] + x[:N], x[N:], None)

    x = jnp.concatenate([d, A])
    auto = jax.grad(joint)(x)
    direction = jnp.asarray(rng.normal(size=x.shape))
    step = 1e-5
    difference = (joint(x + step * direction) - joint(x - step * direction)) / (2 * step)
    assert np.isclose((auto * direction).sum(), difference, rtol=1e-7)
    usable = problem.weights.usable.shape[0]
    alone = problem.objective._replace(reg=0.0)
    plan = exact.plan(alone, problem.X, problem.weights)
    data = jax.grad(lambda V: exact.value(alone, Factors(U, V), plan))(F @ A + d)
    placed, per_item = features.Placed.of(side), usable / N
    ours = placed.gradient(usable * data, x, jnp.asarray(side.row_reg) * per_item, per_item)
    assert np.allclose(ours, usable * auto, rtol=1e-9, atol=1e-12)


def test_many_sweeps_end_where_the_joint_gradient_is_zero():
    problem = problem_of(mf.MFAUC(rank=K), items=True, users=True)
    solver = mf.Alternating(user_steps=6, item_steps=20)
    factors = base.gaussian(jax.random.key(0), M, N, K)
    state, data = solver.init(problem, factors), solver.prepare(problem)
    for _ in range(300):
        state, _ = base.run(solver, solver.seen_by_step(problem), jax.random.key(0), state, data)
    U, V = solver.read(state, factors)
    assert problem.sides is not None
    items, users = problem.sides
    assert items is not None and users is not None
    A, B = (jnp.asarray(s.coefficients(F)) for s, F in ((items, V), (users, U)))
    slopes = jax.grad(partial(theta, problem), argnums=(0, 1, 2, 3))(U, V, A, B)
    assert max(float(jnp.abs(slope).max()) for slope in slopes) < 1e-6
    assert np.allclose(A, state.extra[0], atol=1e-4) and np.allclose(B, state.extra[1], atol=1e-4)


def test_coefficients_are_the_ridge_regression():
    problem = problem_of(mf.MFAUC(rank=K), items=True, users=True)
    assert problem.sides is not None
    for side, size in zip(problem.sides, (N, M), strict=True):
        assert side is not None
        F, rows = side.matrix.toarray(), np.random.default_rng(2).normal(size=(size, K))
        system = F.T @ (side.row_reg[:, None] * F) + np.diag(side.reg)
        expected = np.linalg.solve(system, F.T @ (side.row_reg[:, None] * rows))
        assert np.allclose(side.coefficients(rows), expected, rtol=1e-6, atol=1e-9)


def test_features_of_zeros_only_double_the_ridge_of_the_items():
    _, cold, _, _ = world()
    X = cold[:, cold.any(0)].astype(float)
    plain = mf.MFAUC(rank=K).fit(X)
    assert plain.item_features_ is None
    problem = plain.problem(X)
    reg = by_row(problem.objective.reg, *X.shape)
    doubled = problem.objective._replace(reg=reg._replace(item=2 * reg.item))
    zeros = problem.with_features(scipy.sparse.csr_array((X.shape[1], P)))
    solver, factors, found = (
        mf.Alternating(),
        base.gaussian(jax.random.key(0), len(X), X.shape[1], K),
        [],
    )
    for each in (problem.minimising(doubled), zeros):
        state = base.run(
            solver,
            solver.seen_by_step(each),
            jax.random.key(0),
            solver.init(each, factors),
            solver.prepare(each),
        )[0]
        found.append(solver.read(state, factors))
    assert np.allclose(found[0].V, found[1].V, atol=1e-12)


def test_a_cold_item_is_its_features_and_takes_no_part_in_the_fit():
    _, cold, F, G = world()
    model = mf.MFAUC(rank=K).fit(cold.astype(float), item_features=F, user_features=G)
    learned = model.item_features_
    assert learned is not None and model.user_features_ is not None
    assert model.item_factors_.shape == (N, K)
    assert np.allclose(model.item_factors_[:2], F[:2].toarray() @ learned.factors)
    assert not np.allclose(model.item_factors_[2:], F[2:].toarray() @ learned.factors)
    without = mf.MFAUC(rank=K).fit(cold[:, 2:].astype(float), item_features=F[2:], user_features=G)
    assert np.allclose(model.item_factors_[2:], without.item_factors_)
    assert np.allclose(model.user_factors_, without.user_factors_)


def test_a_user_without_a_positive_is_their_features():
    X, _, _, G = world()
    fewer = X.copy()
    fewer[4] = False
    with pytest.warns(UserWarning, match="1 users without a positive"):
        model = mf.MFAUC(rank=K).fit(fewer.astype(float), user_features=G)
    assert model.user_features_ is not None
    assert np.allclose(model.user_factors_[4], G[[4]].toarray() @ model.user_features_.factors)
    assert np.abs(model.user_factors_[4]).max() > 0


def test_a_feature_has_the_ridge_of_its_items_and_the_own_parts_have_twice_theirs():
    X, _, F, G = world()
    problem = mf.MFAUC(rank=K).problem(X.astype(float))
    reg = by_row(problem.objective.reg, M, N)
    both = problem.with_features(F, G)
    assert both.sides is not None
    for side, own in zip(both.sides, reversed(reg), strict=True):
        assert side is not None
        assert np.allclose(side.row_reg, 2 * np.asarray(own))
        expected = (side.matrix.toarray() ** 2 * np.asarray(own)[:, None]).sum(0)
        assert np.allclose(side.reg, expected)
    assert np.allclose(by_row(both.objective.reg, M, N).item, 2 * reg.item)
    one = problem.with_features(users=G).objective.reg
    assert np.allclose(one.item, reg.item) and np.allclose(one.user, 2 * reg.user)
    scaled = problem.with_features(3 * F).sides
    assert scaled is not None and scaled.items is not None and both.sides.items is not None
    assert np.allclose(scaled.items.reg, 9 * both.sides.items.reg)  # so units do not matter
    with pytest.raises(ValueError, match=r"UnitRows\(\) has no rule for features"):
        mf.Problem.of(X.astype(float), "exponential", "log", penalty=mf.UnitRows()).with_features(F)
    with pytest.raises(ValueError, match="3 rows of features for 20 items"):
        problem.with_features(scipy.sparse.csr_array(np.ones((3, 1))))


def test_solvers_that_take_no_features_say_so():
    X, _, F, _ = world()
    for solver in ("full_batch", "sequential", "blockwise"):
        with pytest.raises(
            ValueError, match=rf"{solver} takes no features: use solver='minibatch'"
        ):
            mf.MFAUC(rank=K, loss="logistic", solver=solver).fit(X.astype(float), item_features=F)


def test_validation_is_over_all_items_and_records_the_joint_objective():
    X, cold, F, _ = world()
    held_out = np.zeros_like(X)
    held_out[:, 2:] = X[:, 2:] & ~cold[:, 2:]
    held_out[0, 5] = not cold[0, 5]
    watch = mf.Watch(record_every=1)
    model = mf.MFAUC(rank=K).fit(
        cold.astype(float), held_out.astype(float), item_features=F, watch=watch
    )
    values = [record["objective"] for record in model.history_]
    assert (np.diff(values) < 0).all() and "auc" in model.history_[-1]


def test_a_killed_fit_with_features_is_resumed_to_the_same_bits(tmp_path):
    _, cold, F, G = world()
    fit = partial(mf.MFAUC(rank=K).with_params, solver="alternating")
    give = {"item_features": F, "user_features": G}
    whole = fit().with_params(solver__iterations=6).fit(cold.astype(float), **give)
    part, states = fit(), mf.Checkpoints(str(tmp_path), every=1)
    for T in (3, 6):
        part = fit().with_params(solver__iterations=T)
        part.fit(cold.astype(float), checkpoints=states, **give)
    assert (part.item_factors_ == whole.item_factors_).all()
    other = dataclasses.replace(part)
    with pytest.raises(ValueError, match="features"):
        other.fit(cold.astype(float), checkpoints=states, item_features=2 * F)


def test_items_known_by_features_only_are_recommended_and_have_neighbours():
    model = shop()
    assert model.train_.item_ids is not None
    assert model.train_.item_ids.tolist() == ["a", "b", "c", "d", "e", "f", "new", "newer"]
    for user, mine, other in (("u2", "new", "newer"), ("u1", "newer", "new")):
        items, _ = model.recommend(user, n=8)
        assert items.tolist().index(mine) < items.tolist().index(other)
        assert {mine, other} <= set(items)
    assert set(model.similar_items("new", 3)[0]) == {"a", "b", "c"}
    assert model.item_features_ is not None
    assert model.item_features_.features.names == ("kind=x", "kind=y", "size")


def test_new_items_with_features_join_a_fitted_model():
    model = shop()
    later = pl.DataFrame({"sku": ["late", "a"], "kind": ["y", "y"], "size": [5.0, 9.0]})
    grown = model.fold_in_items(item_features=later)
    items, _ = grown.recommend("u1", n=9)
    assert items.tolist().index("late") < items.tolist().index("new")
    assert "late" not in model.recommend("u1", n=9)[0]
    assert np.allclose(grown.item_factors_[:8], model.item_factors_)  # those of a, too
    liked = grown.fold_in_items((["u2", "u4"], ["late", "latest"]))
    assert liked.item_factors_.shape == (10, 2)
    both = model.fold_in_items((["u2", "u4"], ["late", "latest"]), item_features=later)
    assert np.allclose(both.item_factors_, liked.item_factors_)
    with pytest.raises(ValueError, match="give positives of new items"):
        model.fold_in_items()
    with pytest.raises(ValueError, match="fit was given no item_features"):
        mf.MFAUC(rank=2).fit(tuple(zip(*LIKES, strict=True))).fold_in_items(item_features=later)


def test_partial_fit_keeps_the_features():
    model = shop()
    before = model.item_factors_.copy()
    model.partial_fit((["u2", "u2", "u9"], ["new", "b", "a"]))
    assert model.item_features_ is not None
    assert not np.allclose(model.item_factors_[6], before[6])


def test_a_file_keeps_the_features_their_names_and_a(tmp_path):
    model, path = shop(), tmp_path / "shop.model"
    model.save(path)
    loaded = mf.MFAUC.load(path)
    mine, theirs = model.item_features_, loaded.item_features_
    assert mine is not None and theirs is not None
    assert theirs.features.names == mine.features.names
    assert theirs.features.rules == mine.features.rules
    assert (theirs.factors == mine.factors).all()
    assert (theirs.features.matrix != mine.features.matrix).nnz == 0
    later = pl.DataFrame({"sku": ["late"], "kind": ["y"], "size": [5.0]})
    grown = [m.fold_in_items(item_features=later).recommend("u1")[0] for m in (model, loaded)]
    assert (grown[0] == grown[1]).all()
    assert loaded.user_features_ is None
    loaded.save(tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == path.read_bytes()
