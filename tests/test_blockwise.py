"""Blocks: balance and odds of meeting; the parallel route on 1, 2 and 4 devices."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet, random_factors

import mfauc_jax as mf
from mfauc_jax import Averaging, Blockwise, Minibatch, Problem
from mfauc_jax.objective import equation, exact, weightings
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import base
from mfauc_jax.solvers.blockwise import design, placement

DENSE = np.random.default_rng(0).random((20, 14)) < 0.35
DENSE[:, 0] |= ~DENSE.any(1)
X = quiet(DENSE)
AT = random_factors(1, X, scale=0.5)
REG = Reg(jnp.linspace(0.1, 0.5, 20), jnp.linspace(0.2, 0.4, 14))
DRAWS = {"batch": 8, "num_pos": 2, "num_neg": 3}


def run(solver, problem, iterations):
    data, state = solver.prepare(problem), solver.init(problem, AT)
    seen, key = solver.seen_by_step(problem), jax.random.key(0)
    for _ in range(iterations):
        state, info = base.run(solver, seen, key, state, data)
    assert float(info.step_size) > 0
    return solver.read(state, AT)


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


@pytest.mark.parametrize(("d", "tau"), [(3, 0.0), (2, 0.7)])
def test_the_mean_over_assignments_is_the_full_gradient(d, tau):
    """For φ = identity: λ, spread, user weights and any g included."""
    weights = Weights(tau, None, user_power=0.5).of(X)
    objective = equation.make("logistic", reg=REG, spread=0.7)
    rate, draws = 1e-6, 6000
    solver = Blockwise(learning_rate=rate, optimiser="sgd", blocks=d, devices=1, **DRAWS)
    problem = Problem(X, weights, objective)
    data, state = solver.prepare(problem), solver.init(problem, AT)
    seen, keys = solver.seen_by_step(problem), jax.random.split(jax.random.key(0), draws)
    after = jax.jit(jax.lax.map, static_argnums=0)(
        lambda key: solver.step(seen, key, state, data)[0].factors, keys
    )
    _, grads = exact.value_and_grad(objective, AT, exact.plan(objective, X, weights))
    for found, start, truth, rows in zip(after, state.factors, grads, X.shape, strict=True):
        step = (np.asarray(start)[None] - np.asarray(found)) / rate
        real = np.abs(step).max((0, 2)) > 0  # padding never moves
        assert real.sum() == rows
        mean, error = step.mean(0)[real], step.std(0)[real] / np.sqrt(draws)
        z = (mean - rows * np.asarray(truth)) / error
        assert 0.75 < np.sqrt((z**2).mean()) < 1.25


def test_one_block_is_no_block():
    weights = Weights(0.0, None, user_power=0.5).of(X)
    objective = equation.make("square_hinge", reg=Reg(0.3, 0.0), spread=0.5)
    problem = Problem(X, weights, objective)
    whole = Minibatch(learning_rate=0.1, **DRAWS)
    cut = Blockwise(learning_rate=0.1, blocks=1, **DRAWS)
    key = jax.random.key(3)
    visit = jax.random.fold_in(jax.random.split(key)[1], 0)  # the one visit's
    ours, theirs = (
        jax.jit(solver.step)(
            solver.seen_by_step(problem), k, solver.init(problem, AT), solver.prepare(problem)
        )[0]
        for solver, k in ((cut, key), (whole, visit))
    )
    for a, b in zip(cut.read(ours, AT), theirs.factors, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_the_number_of_devices_does_not_matter():
    objective = equation.make("square_hinge", weightings.Tanh(rho=1.5), reg=REG)
    problem = Problem(X, Weights.paper().of(X), objective)
    solver = Blockwise(optimiser="adam", learning_rate=0.1, average=Averaging(1), **DRAWS)
    found = [run(solver.replace(devices=devices), problem, 3) for devices in (1, 2, 4)]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_it_comes_near_the_minimum():
    problem = Problem(X, Weights.paper().of(X), equation.make("square_hinge", reg=0.3))
    same = {"learning_rate": 0.2, "average": Averaging(100, eta=0.0)}
    same |= {"batch": 5, "num_pos": 5, "num_neg": 8}
    plan = exact.plan(problem.objective, X, problem.weights)
    ours, plain = (
        float(exact.value(problem.objective, run(solver, problem, 300), plan))
        for solver in (Blockwise(blocks=2, devices=2, **same), Minibatch(**same))
    )
    assert ours < 1.02 * plain


@pytest.mark.parametrize(
    ("d", "devices", "words"),
    [(3, 2, "blocks = 3 must be a multiple of the 2 devices"), (8, 8, "1 … 4"), (4, 0, "1 … 4")],
)
def test_devices_must_divide_the_blocks(d, devices, words):
    with pytest.raises(ValueError, match=words):
        placement.mesh(d, devices)


def test_more_blocks_than_items_is_refused():
    with pytest.raises(ValueError, match="blocks = 16 needs more than 16 items; there are 14"):
        Blockwise(blocks=16, devices=1).prepare(Problem.of(X))


def test_the_model_gives_users_back_in_their_order():
    i, j = np.indices((50, 50))
    board = quiet(((i + j) % 2 == 0) & (i != j))
    seen = []
    model = mf.MFAUC(
        rank=3,
        loss="square_hinge",
        weights=Weights(user_power=0.0),
        penalty=mf.Fixed(reg=1e-3),
        solver=Blockwise(100, average=Averaging(50)),
        start=mf.Gaussian(scale=0.5),
    )
    model.fit(board, callbacks=[lambda s, found, record: seen.append(found)])
    items, _ = model.recommend(range(50), n=1)
    assert (items[:, 0] == np.arange(50)).all()  # the held-out diagonal
    np.testing.assert_array_equal(seen[-1].U, model.user_factors_)


@pytest.mark.parametrize("size", ["batch", "num_pos", "num_neg"])
def test_sizes_of_nothing_are_refused(size):
    with pytest.raises(ValueError, match=f"Blockwise: {size} = 0 must be a whole number ≥ 1"):
        Blockwise(**{size: 0})
