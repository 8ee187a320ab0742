"""The sequential and minibatch routes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import quiet, random_factors

from mfauc_jax import Averaging, FullBatch, Minibatch, Problem, Sequential
from mfauc_jax._core import programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import equation, exact, losses, weightings
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import averaging, base, row_updates, sequential

DENSE = np.random.default_rng(0).random((20, 12)) < 0.35
DENSE[:, 0] |= ~DENSE.any(1)
DENSE[0] = False  # a user with nothing to learn from
X = quiet(DENSE)
WEIGHTS = Weights(0.0, None, user_power=0.5).of(X)
AT = random_factors(1, X, scale=0.5)
REG = Reg(jnp.linspace(0.1, 0.5, 20), jnp.linspace(0.2, 0.4, 12))
PLAIN = equation.make("square_hinge", reg=0.1)


def run(solver, objective, iterations, start=AT, seed=0):
    problem = Problem(X, WEIGHTS, objective)
    data, state = solver.prepare(problem), solver.init(problem, start)
    for _ in range(iterations):
        state, _ = base.run(solver, objective, jax.random.key(seed), state, data)
    return state


@pytest.mark.parametrize("batch", [20, 7])
def test_a_minibatch_iteration_moves_along_the_exact_gradient_on_average(batch):
    """With a tiny step, −Δ/α has mean m₊ ∂θ/∂u_i and n ∂θ/∂v_j: λ, spread and weights included."""
    objective = equation.make("logistic", reg=REG, spread=0.7)
    rate = 1e-6
    solver = Minibatch(learning_rate=rate, optimiser="sgd", batch=batch, num_pos=2, num_neg=3)
    problem = Problem(X, WEIGHTS, objective)
    data, state = solver.prepare(problem), solver.init(problem, AT)

    def moved(key):
        after, _ = solver.step(objective, key, state, data)
        return jax.tree.map(lambda a, b: (b - a) / rate, after.factors, AT)

    draws = jax.jit(jax.vmap(moved))(jax.random.split(jax.random.key(0), 4000))
    plan = exact.plan(objective, X, WEIGHTS)
    _, grads = exact.value_and_grad(objective, AT, plan)
    usable = WEIGHTS.usable.shape[0]
    truth = Factors(usable * grads.U, 12 * grads.V)
    # rows of users nobody visits are left alone; their exact gradient is λ u_i alone
    truth = truth._replace(U=truth.U.at[0].set(0.0))
    for mean, spread, exactly in zip(
        (d.mean(0) for d in draws), (d.std(0) for d in draws), truth, strict=True
    ):
        error = np.asarray(spread) / np.sqrt(4000)
        seen = error > 1e-9
        z = (np.asarray(mean) - np.asarray(exactly))[seen] / error[seen]
        assert 0.75 < np.sqrt((z**2).mean()) < 1.25
        np.testing.assert_allclose(np.asarray(mean)[~seen], np.asarray(exactly)[~seen], atol=1e-5)


def test_rows_a_batch_does_not_touch_keep_their_optimiser_state():
    solver = Minibatch(learning_rate=0.1, optimiser="adam", batch=4, num_pos=1, num_neg=1)
    state = run(solver, PLAIN, 3)
    user_memory, _ = state.extra
    second_moment = user_memory[0].nu
    assert (np.asarray(second_moment)[0] == 0).all()  # the useless user
    assert (np.asarray(second_moment)[1:] > 0).any(1).all()
    assert (np.asarray(state.factors.U)[0] == np.asarray(AT.U)[0]).all()


@pytest.fixture(scope="module")
def lowest():
    """θ where L-BFGS ends, and the data to find others'."""
    plan = exact.plan(PLAIN, X, WEIGHTS)
    return plan, float(exact.value(PLAIN, run(FullBatch(), PLAIN, 80).average, plan))


@pytest.mark.parametrize("optimiser", ["adagrad", "adam", optax.rmsprop])
def test_minibatch_comes_near_the_minimum_with_any_optimiser(optimiser, lowest):
    solver = Minibatch(
        learning_rate=0.2 if optimiser == "adagrad" else 0.02,
        optimiser=optimiser,
        batch=8,
        num_pos=8,
        num_neg=12,
        average=Averaging(100, eta=0.0),
    )
    plan, best = lowest
    state = run(solver, PLAIN, 200)
    assert float(exact.value(PLAIN, state.average, plan)) < 1.03 * best


def test_a_known_optimiser_is_the_one_of_its_name():
    by_name, by_function = Minibatch(optimiser="adam"), Minibatch(optimiser=optax.adam)
    assert by_name == by_function and by_function.optimiser == "adam"

    def mine(learning_rate):
        return optax.chain(optax.clip(1.0), optax.sgd(learning_rate))

    assert Minibatch(optimiser=mine).optimiser is mine
    assert np.isfinite(np.asarray(run(Minibatch(optimiser=mine), PLAIN, 1).factors.U)).all()


def test_full_batch_ends_where_the_gradient_is_zero():
    for loss, phi in (("square_hinge", "identity"), ("logistic", "tanh")):
        objective = equation.make(loss, phi, reg=0.1)
        plan = exact.plan(objective, X, WEIGHTS)
        state = run(FullBatch(), objective, 120)
        value, grads = exact.value_and_grad(objective, state.average, plan)
        assert max(float(jnp.abs(g).max()) for g in grads) < 1e-5
        assert float(value) < float(exact.value(objective, AT, plan))


def test_as_printed_algorithm_1_does_not_learn_and_scaled_it_does(lowest):
    """E21: with the literal 1/m and α = .05 the objective barely moves."""
    start = random_factors(1, X, scale=0.1)
    plan, best = lowest
    begun = float(exact.value(PLAIN, start, plan))
    ends = {}
    for rule in ("plain", "rows", "unit"):
        solver = Sequential(step_rule=rule, average=Averaging(150, eta=0.0))
        state = run(solver, PLAIN, 250, start)
        ends[rule] = float(exact.value(PLAIN, state.average, plan))
    gain = {rule: (begun - end) / (begun - best) for rule, end in ends.items()}
    assert gain["plain"] < 0.3
    assert gain["rows"] > 0.8 and gain["unit"] > 0.8


AUTHORS = {"fixed_order": True, "new_user": True, "average": Averaging(20, 5.0, 0)}


@pytest.mark.parametrize(
    "solver",
    [
        Sequential(step_rule="unit", **AUTHORS),
        Sequential(step_rule="thousand", learning_rate=0.002, max_norm=10.0, **AUTHORS),
        Sequential(stratified=True, average=Averaging(20, 5.0, 0)),
    ],
    ids=["authors' figures", "authors' tables", "stratified"],
)
def test_every_preset_learns(solver):
    plan = exact.plan(PLAIN, X, WEIGHTS)
    state = run(solver, PLAIN, 80)
    assert float(exact.value(PLAIN, state.average, plan)) < 0.75 * float(
        exact.value(PLAIN, AT, plan)
    )
    if solver.max_norm:
        assert float(jnp.linalg.norm(state.factors.U, axis=1).max()) <= solver.max_norm + 1e-9


def test_every_row_is_moved_and_counts_equalise():
    data = Sequential().prepare(Problem(X, WEIGHTS, PLAIN))
    orders = jax.jit(sequential._orders, static_argnums=(0, 3))
    counts = np.zeros(12)
    for t in range(30):
        users, items = orders(Sequential(), jax.random.key(t), data, 20)
        assert sorted(np.asarray(users)[:19]) == list(range(1, 20))
        assert set(np.asarray(items)) == set(range(12))
        counts += np.bincount(np.asarray(items), minlength=12)
    assert counts.max() / counts.min() < 1.5  # E19: with one order some get 2 and others 1 for ever
    fixed = [orders(Sequential(fixed_order=True), jax.random.key(t), data, 20)[1] for t in range(2)]
    assert (fixed[0] == fixed[1]).all()


def test_averages_start_as_copies_and_then_are_means():
    rule, average = Averaging(3, eta=0.0), AT
    seen = []
    for s in range(1, 8):
        now = jax.tree.map(lambda a, s=s: a + s, AT)
        average = averaging.update(rule, average, now, jnp.asarray(s))
        seen.append(float((average.U - AT.U).mean()))
    np.testing.assert_allclose(seen, [1, 2, 3, 4, 4.5, 5, 5.5])  # E16, E17
    authors = averaging.update(
        Averaging(3, 5.0, 0), AT, jax.tree.map(lambda a: a + 1, AT), jnp.asarray(10)
    )
    assert float((authors.U - AT.U).mean()) == pytest.approx(6 / 16)  # (1 + η)/(s + η + 1)


def test_algorithm_1_draws_the_same_in_chunks_of_any_length(monkeypatch):
    """Kills: draws that begin anew in each chunk, padding of the last chunk that moves a row."""
    found = {}
    for length in (1024, 7, 1):
        monkeypatch.setattr(sequential, "CHUNK", length)
        programs.forget()
        found[length] = run(Sequential(stratified=True), PLAIN, 2).factors
    for length in (7, 1):
        for a, b in zip(found[length], found[1024], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("solver", [Sequential(), Minibatch()])
def test_sweeps_compile_each_step_once(solver):
    before = base.run.made
    for value in np.linspace(0.1, 1.0, 10):
        formulas = losses.Logistic(beta=value), weightings.Tanh(rho=value)
        average = Averaging(start=int(10 * value), eta=value)
        changed = solver.replace(learning_rate=value, iterations=int(10 * value), average=average)
        run(changed, equation.make(*formulas, reg=value), 1)
    assert base.run.made == before + 1


def test_a_batch_draws_about_every_item_once_if_many_batches_are_left():
    drawn = Minibatch(num_pos=10, num_neg=20)
    assert drawn.users_per_batch(6_000, 3_000) == 128  # few users
    assert drawn.users_per_batch(1_000_000, 300) == 128  # few items
    assert drawn.users_per_batch(1_000_000, 90_000) == 3000
    assert drawn.users_per_batch(64_000, 90_000) == 1000
    assert Minibatch(batch=7).users_per_batch(1_000_000, 90_000) == 7


def test_repeats_add_up_whatever_the_scratch_holds():
    items, slopes = jnp.array([3, 1, 3, 0, 3]), jnp.asarray(np.random.default_rng(0).random((5, 2)))
    sums, place = row_updates.sum_repeats(items, slopes, jnp.full(9, 4))
    same = np.asarray(items)[:, None] == np.asarray(items)[None, :]
    np.testing.assert_allclose(sums, same @ np.asarray(slopes), atol=1e-15)
    assert (np.asarray(place)[4:] == 4).all()


def test_averages_that_count_from_after_their_start_are_finite():
    """Kills: (1 + η)/(c + η) with c ≤ 0, which overshoots and then divides by zero."""
    rule = averaging.Averaging(start=0, eta=0.0, since=4)
    mean = Factors(jnp.zeros((2, 1)), jnp.zeros((3, 1)))
    seen = []
    for s in range(1, 9):
        now = Factors(jnp.full((2, 1), float(s)), jnp.full((3, 1), float(s)))
        mean = averaging.update(rule, mean, now, jnp.asarray(s))
        seen.append(float(mean.U[0, 0]))
    assert seen[:4] == [1.0, 2.0, 3.0, 4.0]  # copies until `since`
    assert seen[4:] == pytest.approx([np.mean([4, *range(5, s + 1)]) for s in range(5, 9)])
