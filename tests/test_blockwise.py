"""Blocks: balance and odds of meeting; the parallel route on 1, 2 and 4 devices."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import quiet, random_factors

import mfauc_jax as mf
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import equation, exact
from mfauc_jax.objective import weights as item_weights
from mfauc_jax.solvers import averaging, base, minibatch
from mfauc_jax.solvers.blockwise import design, placement
from mfauc_jax.solvers.blockwise import solver as blockwise

DENSE = np.random.default_rng(0).random((20, 14)) < 0.35
DENSE[:, 0] |= ~DENSE.any(1)
X = quiet(DENSE)
AT = random_factors(1, X, scale=0.5)
REG = equation.Reg(jnp.linspace(0.1, 0.5, 20), jnp.linspace(0.2, 0.4, 14))


def settings(d, devices=1, optimiser=optax.adagrad, batch=8, num_pos=2, num_neg=3):
    inner = minibatch.Settings(batch, num_pos, num_neg, optimiser)
    return blockwise.Settings(d, placement.mesh(d, devices), inner)


def test_strata_have_four_items_a_block_and_the_last_the_rest():
    counts = np.array([5, 1, 9, 9, 3, 0, 7, 2, 2, 8, 1, 4, 6, 0, 0, 1, 1, 3, 2])
    stratum = design.strata(counts, 2)
    assert np.bincount(stratum).tolist() == [8, 11]
    assert counts[stratum == 0].min() >= counts[stratum == 1].max()


def test_pairs_meet_as_often_as_the_design_says():
    d, n = 3, 27  # strata of 12 and 15
    stratum = design.strata(np.arange(n), d)
    keys = jax.random.split(jax.random.key(0), 20_000)
    block = np.asarray(jax.vmap(lambda k: design.assign(k, jnp.asarray(stratum), d))(keys))
    assert (np.sort(block, 1) == np.repeat(np.arange(d), n // d)).all()
    met = (block[:, :, None] == block[:, None, :]).mean(0)
    same = stratum[:, None] == stratum[None, :]
    weight = d * np.where(same, design.together(stratum, d)[stratum][None, :], 1.0)
    off = ~np.eye(n, dtype=bool)
    np.testing.assert_allclose((met * weight)[off], 1.0, atol=6 * 3 * np.sqrt(0.3 / 20_000))
    assert abs((met * weight)[off & same].mean() - 1) < 0.004


def test_no_row_or_column_is_in_two_blocks_of_a_round():
    for d in (1, 2, 5, 8):
        square = design.schedule(d)
        for rounds in (square, square.T):
            assert (np.sort(rounds, 1) == np.arange(d)).all()
        assert {(a, c) for r in square for a, c in enumerate(r)} == set(
            itertools.product(range(d), repeat=2)
        )


def test_users_are_dealt_evenly():
    counts = np.random.default_rng(0).zipf(1.5, 1003).clip(max=200)
    order = design.deal(jax.random.key(1), counts, 8)
    assert (np.sort(order) == np.arange(1003)).all()
    parts = np.split(order, np.cumsum(design.sizes(1003, 8))[:-1])
    loads = [counts[part].sum() for part in parts]
    assert max(loads) / np.mean(loads) < 1.1


def moved(solver, weights, at=AT, draws=1, seed=0):
    """(start − end)/α of one iteration for many keys: what a tiny step sees of the gradient."""
    data, state = solver.prepare(X, weights), solver.init(at)
    keys = jax.random.split(jax.random.key(seed), draws)
    after = jax.jit(jax.lax.map, static_argnums=0)(
        lambda key: solver.step(key, state, data)[0].factors, keys
    )
    return [np.asarray(F) for F in after], state


@pytest.mark.parametrize(("d", "tau"), [(3, 0.0), (2, 0.7)])
def test_the_mean_over_assignments_is_the_full_gradient(d, tau):
    """For φ = identity: λ, spread, user weights and any g included."""
    weights = item_weights.make(X, tau=tau, user_power=0.5)
    objective = equation.make("logistic", reg=REG, spread=0.7)
    rate, draws = 1e-6, 6000
    solver = blockwise.make(objective, rate, settings=settings(d, optimiser=optax.sgd))
    after, state = moved(solver, weights, draws=draws)
    _, grads = exact.value_and_grad(objective, AT, exact.plan(objective, X, weights))
    for found, start, truth, rows in zip(after, state.factors, grads, X.shape, strict=True):
        step = (np.asarray(start)[None] - found) / rate
        held = np.abs(step).max((0, 2)) > 0  # padding never moves
        assert held.sum() == rows
        mean, error = step.mean(0)[held], step.std(0)[held] / np.sqrt(draws)
        z = (mean - rows * np.asarray(truth)) / error
        assert 0.75 < np.sqrt((z**2).mean()) < 1.25


def test_one_block_is_no_block():
    weights = item_weights.make(X, user_power=0.5)
    objective = equation.make("square_hinge", reg=equation.Reg(0.3, 0.0), spread=0.5)
    whole = minibatch.make(objective, 0.1, settings=settings(1).inner)
    cut = blockwise.make(objective, 0.1, settings=settings(1))
    data, state = cut.prepare(X, weights), cut.init(AT)
    key = jax.random.key(3)
    visit = jax.random.fold_in(jax.random.split(key)[1], 0)  # the one visit's
    ours, _ = jax.jit(cut.step)(key, state, data)
    theirs, _ = jax.jit(whole.step)(visit, whole.init(AT), whole.prepare(X, weights))
    for a, b in zip(cut.read(ours, AT), theirs.factors, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_the_number_of_devices_does_not_matter():
    weights = item_weights.make(X)
    objective = equation.make("square_hinge", "tanh", reg=REG, rho=1.5)
    found = []
    for devices in (1, 2, 4):
        solver = blockwise.make(
            objective, 0.1, averaging.Averaging(1), settings(4, devices, optax.adam)
        )
        data, state = solver.prepare(X, weights), solver.init(AT)
        for _ in range(3):
            state, info = base.run(solver.step, jax.random.key(0), state, data)
        assert float(info.step_size) > 0
        found.append(solver.read(state, AT))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_it_comes_near_the_minimum():
    weights = item_weights.make(X)
    objective = equation.make("square_hinge", reg=0.3)
    inner = dict(batch=5, num_pos=5, num_neg=8)
    solver = blockwise.make(objective, 0.2, averaging.Averaging(100), settings(2, 2, **inner))
    data, state = solver.prepare(X, weights), solver.init(AT)
    for _ in range(300):
        state, _ = base.run(solver.step, jax.random.key(0), state, data)
    theta = partial(_theta, objective, exact.plan(objective, X, weights))
    whole = minibatch.make(objective, 0.2, averaging.Averaging(100), settings(1, **inner).inner)
    data, plain = whole.prepare(X, weights), whole.init(AT)
    for _ in range(300):
        plain, _ = base.run(whole.step, jax.random.key(0), plain, data)
    ours = float(theta(solver.read(state, AT)))
    assert ours < 1.02 * float(theta(Factors(*plain.average)))


def _theta(objective, plan, factors):
    return exact.value(objective, factors, plan)


@pytest.mark.parametrize(
    ("d", "devices", "words"),
    [(3, 2, "blocks = 3 must be a multiple of the 2 devices"), (8, 8, "1 … 4"), (4, 0, "1 … 4")],
)
def test_devices_must_divide_the_blocks(d, devices, words):
    with pytest.raises(ValueError, match=words):
        placement.mesh(d, devices)


def test_more_blocks_than_items_is_refused():
    solver = blockwise.make(equation.make(), settings=settings(16, 1))
    with pytest.raises(ValueError, match="blocks = 16 needs more than 16 items; there are 14"):
        solver.prepare(X, item_weights.make(X))


def test_the_model_gives_users_back_in_their_order():
    i, j = np.indices((50, 50))
    board = quiet(((i + j) % 2 == 0) & (i != j))
    seen = []
    model = mf.MFAUC(
        rank=3,
        loss="square_hinge",
        solver="blockwise",
        blocks=4,
        reg=1e-3,
        spread=0.0,
        user_power=0.0,
        iterations=100,
        learning_rate=0.3,
        start_scale=0.5,
        average_start=50,
    )
    model.fit(board, callbacks=[lambda s, found, record: seen.append(found)])
    items, _ = model.recommend(range(50), n=1)
    assert (items[:, 0] == np.arange(50)).all()  # the held-out diagonal
    np.testing.assert_array_equal(seen[-1].U, model.user_factors_)


@pytest.mark.parametrize("size", ["batch", "num_pos", "num_neg"])
def test_sizes_of_nothing_are_refused(size):
    with pytest.raises(ValueError, match=f"{size} = 0 must be ≥ 1"):
        mf.MFAUC(solver="blockwise", **{size: 0}).fit(X)
