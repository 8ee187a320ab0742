"""Blocks: balance and odds of meeting; the parallel route on 1, 2 and 4 devices."""

import itertools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet, random_factors

import mfauc_jax as mf
from mfauc_jax import Averaging, Blockwise, Minibatch, Problem
from mfauc_jax._core import draws
from mfauc_jax.objective import equation, exact, sampling, weightings
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import base, minibatch
from mfauc_jax.solvers.blockwise import design, drawing, placement, rounds, travel
from mfauc_jax.solvers.mesh import SPLIT

DENSE = np.random.default_rng(0).random((20, 14)) < 0.35
DENSE[:, 0] |= ~DENSE.any(1)
X = quiet(DENSE)
AT = random_factors(1, X, scale=0.5)
REG = Reg(jnp.linspace(0.1, 0.5, 20), jnp.linspace(0.2, 0.4, 14))
DRAWS: dict[str, Any] = {"batch": 7, "num_pos": 2, "num_neg": 3}


def run(solver, problem, iterations):
    data, state = solver.prepare(problem), solver.init(problem, AT)
    seen, key = solver.seen_by_step(problem), jax.random.key(0)
    for _ in range(iterations):
        state, info = base.run(solver, seen, key, state, data)
    assert float(info.step_size) > 0
    return solver.read(state, AT)


def test_strata_have_four_items_per_block_and_are_full():
    """Kills: strata by item instead of by popularity, padding anywhere but last."""
    counts = np.array([5, 1, 9, 9, 3, 0, 7, 2, 2, 8, 1, 4, 6, 0, 0, 1, 1, 3, 2])
    ranked = design.ranked(counts, 2)
    assert len(ranked) == design.padded(19, 2) == 24
    assert (np.diff(counts[ranked[:19]]) <= 0).all() and (ranked[19:] == np.arange(19, 24)).all()
    assert design.padded(19, 1) == 19  # one block needs none


def test_pairs_meet_as_often_as_the_design_says():
    d, n = 3, 36  # three strata
    ranked = jnp.asarray(design.ranked(np.arange(n), d))
    keys = jax.random.split(jax.random.key(0), 20_000)
    dealt = np.asarray(jax.vmap(lambda k: design.dealt(k, ranked, d))(keys))
    block = np.empty((len(keys), n), int)
    np.put_along_axis(block, dealt.reshape(len(keys), -1), np.repeat(np.arange(d), n // d)[None], 1)
    assert (np.sort(dealt.reshape(len(keys), -1), 1) == np.arange(n)).all()
    met = (block[:, :, None] == block[:, None, :]).mean(0)
    stratum = (n - 1 - np.arange(n)) // 12
    same = stratum[:, None] == stratum[None, :]
    weight = d * np.where(same, design.together(d), 1.0)
    off = ~np.eye(n, dtype=bool)
    np.testing.assert_allclose((met * weight)[off], 1.0, atol=6 * 3 * np.sqrt(0.3 / 20_000))
    assert abs((met * weight)[off & same].mean() - 1) < 0.004


def test_no_row_or_column_is_in_two_blocks_of_a_round():
    for d in (1, 2, 5, 8):
        square = design.schedule(d)
        for side in (square, square.T):
            assert (np.sort(side, 1) == np.arange(d)).all()
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
        assert 0.6 < np.sqrt((z**2).mean()) < 1.25


def test_one_block_is_no_block():
    """The minibatch solver on the same draws and batches gives the same factors: τ, λ and the spread included."""
    weights = Weights(0.7, None, user_power=0.5).of(X)
    objective = equation.make("square_hinge", reg=Reg(0.3, 0.0), spread=0.5)
    problem = Problem(X, weights, objective)
    solver = Blockwise(learning_rate=0.1, blocks=1, **DRAWS)
    data, state, key = solver.prepare(problem), solver.init(problem, AT), jax.random.key(3)
    after, _ = jax.jit(solver.step)(solver.seen_by_step(problem), key, state, data)
    keys = jax.random.split(jax.random.fold_in(jax.random.split(key)[1], 0), 3)
    users = jax.tree.map(lambda a: a[0], data.users)
    sizes = {"d": 1, "num_pos": 2, "num_neg": 3, "row_bits": data.row_bits}
    drawn = drawing.draw(keys[0], users, jnp.arange(14), **sizes)
    order = users.ranked[jnp.argsort(draws.words(keys[2], (20,)))]
    optimiser = solver.make_optimiser()
    memory = optimiser.init(AT.U), optimiser.init(AT.V)
    tables = minibatch.Tables(AT, memory, jnp.zeros(14, int))
    descend = jax.jit(minibatch.descend, static_argnums=0)
    for batch in np.split(np.asarray(order), [7, 14]):
        real, members = np.arange(7) < len(batch), np.resize(batch, 7)
        places, N = np.asarray(drawn.places)[members, 0], DENSE[members].sum(1)[:, None]
        pos, neg = places[:, :2], places[:, 2:]
        for i, p, q in zip(members, pos, neg, strict=True):
            assert DENSE[i, p].all() and not DENSE[i, q].any()
        slots = [
            np.searchsorted(np.flatnonzero(DENSE.reshape(-1)), i * 14 + p)
            for i, p in zip(members, pos, strict=True)
        ]
        g, b, mass, user = map(np.asarray, (weights.g, weights.b, weights.neg_mass, weights.user))
        g_neg = b[neg] / mass[members][:, None] * (14 - N) / 3
        arrays: Any = map(jnp.asarray, (members, pos, neg, g[slots] * N / 2, g_neg, user[members]))
        sample = sampling.Sample(*arrays, spread_scale=3 / 2)
        ridge = jnp.full(7, 0.3), jnp.zeros((7, 5))
        tables = descend(optimiser, objective, tables, sample, jnp.asarray(real), ridge, 14 / 20)
    for a, c in zip(solver.read(after, AT), tables.factors, strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
def test_positives_are_sorted_by_block_then_user_then_place(d):
    """Kills: an unstable sort, bits in another order, padding among the entries, g that stays behind."""
    rng = np.random.default_rng(d)
    dense = rng.random((6, 16 * d)) < 0.3
    rows, items = np.nonzero(dense)
    place_of = rng.permutation(16 * d)
    place_of = np.concatenate(
        [np.sort(part) for part in place_of.reshape(d, 16)]
    )  # item at each place
    item_at, place_of = place_of, np.argsort(place_of)
    pad = (0, 5)
    users = placement.Users(
        jnp.asarray(np.pad(items, pad, constant_values=16 * d)),
        jnp.asarray(np.pad(rows, pad, constant_values=6)),
        jnp.asarray(np.pad(items + 100.0 * rows, pad)),
        *(jnp.asarray(dense.sum(1)),) * 2,
        *(None,) * 4,
    )
    start, within, g = map(np.asarray, drawing.partition(users, jnp.asarray(place_of), d))
    for c, i in itertools.product(range(d), range(6)):
        row = slice(*start[c * 6 + i : c * 6 + i + 2])
        mine = np.sort(place_of[np.flatnonzero(dense[i])])
        np.testing.assert_array_equal(within[row], mine[mine // 16 == c] % 16)
        np.testing.assert_array_equal(g[row], item_at[c * 16 + within[row]] + 100.0 * i)


def test_a_running_count_is_a_cumulative_sum():
    bits = np.random.default_rng(0).integers(0, 2, 1000)
    for count in (1, 31, 32, 33, 1000):
        found = drawing.running_count(jnp.asarray(bits[:count]))
        np.testing.assert_array_equal(found, np.cumsum(bits[:count]))


@pytest.mark.parametrize("reassign", ["both", "columns"])
def test_the_number_of_devices_does_not_matter(reassign):
    objective = equation.make("square_hinge", weightings.Tanh(rho=1.5), reg=REG)
    problem = Problem(X, Weights.paper().of(X), objective)
    solver = Blockwise(optimiser="adam", learning_rate=0.1, average=Averaging(1), **DRAWS)
    solver = solver.replace(reassign=reassign)
    found = [run(solver.replace(devices=devices), problem, 3) for devices in (1, 2, 4)]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_each_home_block_sends_equal_random_parts_to_every_row_block():
    """Kills: rows that are not reassigned, the same reassignment in every iteration, users that only shift together."""
    d, u = 2, 16
    ranked = jnp.stack([jnp.arange(u), jnp.arange(u)[::-1]])
    solver = Blockwise(blocks=d)
    keys = jax.vmap(lambda key: jax.random.split(key, (d, 3)))(
        jax.random.split(jax.random.key(0), 4000)
    )
    parts = np.asarray(jax.vmap(lambda k: rounds.leaving(solver, k, ranked))(keys))
    assert parts.shape == (4000, d, d, u // d)
    assert (np.sort(parts.reshape(4000, d, u), 2) == np.arange(u)).all()
    goes = np.empty((4000, d, u), int)
    np.put_along_axis(goes, parts.reshape(4000, d, u), np.repeat([0, 1], u // d)[None, None], 2)
    assert (np.abs(goes.mean(0) - 1 / d) < 0.05).all()  # every user to every block
    met = (goes[:, 0, :, None] == goes[:, 0, None, :]).mean(0)
    strata = np.arange(u) // 8
    truth = np.where(strata[:, None] == strata[None, :], 3 / 7, 1 / 2)  # design.together
    assert np.abs(met - truth)[~np.eye(u, dtype=bool)].max() < 0.05
    first = parts[:, 0, 0, 0]  # the order within a part is random, too
    assert np.bincount(first, minlength=u).min() > 150


def test_only_columns_are_reassigned_if_asked():
    solver = Blockwise(blocks=2, reassign="columns")
    keys = jax.random.split(jax.random.key(0), (2, 3))
    parts = rounds.leaving(solver, keys, jnp.stack([jnp.arange(8), jnp.arange(8)]))
    assert parts.shape == (2, 1, 8) and (np.sort(parts, 2) == np.arange(8)).all()


@pytest.mark.parametrize(
    ("ring", "reassign"), [(1, "both"), (2, "both"), (4, "both"), (2, "columns")]
)
def test_users_go_to_their_row_blocks_and_come_home(ring, reassign):
    """Kills: rows that stay, a swap that is not its own inverse, home blocks or parts in another order."""
    d, u, mesh = 4, 16, placement.mesh(4, ring)
    solver, keys = (
        Blockwise(blocks=d, reassign=reassign),
        jax.random.split(jax.random.key(1), (d, 3)),
    )
    leaving = rounds.leaving(solver, keys, jnp.tile(jnp.arange(u), (d, 1)))
    rows = jnp.arange(d * u * 3.0).reshape(d, u, 3)

    def both_ways(rows, leaving):
        visited = travel.scatter_users(rows, leaving, ring)
        return visited, travel.gather_users(visited, leaving, ring)

    spec = (SPLIT, SPLIT)
    visited, home = jax.shard_map(both_ways, mesh=mesh, in_specs=spec, out_specs=spec)(
        rows, leaving
    )
    np.testing.assert_array_equal(home, rows)
    for block in range(d):
        if reassign == "both":  # the first user of each home block, then the second of each, …
            wanted = [rows[a, leaving[a, block, j]] for j in range(u // d) for a in range(d)]
        else:
            wanted = list(rows[block][leaving[block, 0]])
        np.testing.assert_array_equal(visited[block], np.stack(wanted))


@pytest.mark.parametrize("reassign", ["both", "columns"])
def test_a_step_visits_the_blocks_that_assigned_says(reassign, monkeypatch):
    """Kills: a step that leaves rows where they are, `assigned` that tells another story than `step`."""
    problem = Problem(X, Weights.paper().of(X), equation.make("square_hinge", reg=REG))
    solver = Blockwise(blocks=2, devices=1, reassign=reassign, **DRAWS)
    data, state, key = solver.prepare(problem), solver.init(problem, AT), jax.random.key(5)
    seen, plain = [], travel.scatter_users

    def kept(at_home, sent, ring):
        u = data.users.length.shape[1]
        user = jnp.arange(2 * u).reshape(2, u)
        jax.debug.callback(lambda at: seen.append(np.asarray(at)), plain(user, sent, ring))
        return plain(at_home, sent, ring)

    monkeypatch.setattr(travel, "scatter_users", kept)
    jax.block_until_ready(solver.step(solver.seen_by_step(problem), key, state, data))
    jax.effects_barrier()
    row, column = map(np.asarray, solver.assigned(key, data))
    for block, users in enumerate(seen[0]):
        assert (row.reshape(-1)[users] == block).all()
    home = np.arange(row.size).reshape(row.shape) // row.shape[1]
    moved = (row != home).sum(1)
    assert (moved == (row.shape[1] // 2 if reassign == "both" else 0)).all()
    assert (np.bincount(column) == len(column) // 2).all()


def test_it_comes_near_the_minimum():
    problem = Problem(X, Weights.paper().of(X), equation.make("square_hinge", reg=0.3))
    same: dict[str, Any] = {"learning_rate": 0.2, "average": Averaging(100, eta=0.0)}
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
        Blockwise(**cast(Any, {size: 0}))
