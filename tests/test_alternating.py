import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from toys import matrices, quiet, random_factors

from mfauc_jax import MFAUC, Alternating, Problem
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import ragged
from mfauc_jax.objective import equation, exact, weightings
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import alternating, base, sweeps

RNG = np.random.default_rng(0)
DENSE = RNG.random((12, 15)) < 0.35
DENSE[0], DENSE[1], DENSE[2] = False, True, False  # no positive, no negative, one positive
DENSE[2, 3] = True
X = quiet(DENSE)
REG = Reg(jnp.asarray(RNG.random(12)), jnp.asarray(RNG.random(15)))
SPREAD = jnp.asarray(RNG.random(12))
AT = random_factors(0, X)


def problem(phi="identity", tau=0.0):
    """The objective, the data of a step and the plan of the exact objective."""
    weights = Weights(tau, None, user_power=0.5).of(X)
    objective = equation.make("square", phi, reg=REG, spread=SPREAD)
    data = Alternating().prepare(Problem(X, weights, objective))
    return objective, data, exact.plan(objective, X, weights)


def about(objective):
    return Problem.of(X).minimising(objective)


def run(solver, objective, data, iterations, at=AT):
    """The factors after each iteration."""
    state, seen = solver.init(Problem.of(X), at), solver.seen_by_step(about(objective))
    for _ in range(iterations):
        state, _ = base.run(solver, seen, jax.random.key(0), state, data)
        yield solver.read(state, at)


compiled = jax.jit(sweeps.sweep)


def sweep(objective, at, data, *steps):
    """`sweeps.sweep` of padded rows, without the padding."""
    solver = Alternating()
    padded = solver.init(Problem.of(X), at).factors
    after = compiled(solver.seen_by_step(about(objective)), padded, data, *steps)
    for F, rows in zip(after, at, strict=True):
        assert len(F) > len(rows) and not np.asarray(F)[len(rows) :].any()  # padding stays 0
    return solver.read(base.begin(after), at)


def minimise_over_items(objective, data):
    U, V = sweep(objective, AT, data, 0, 200)
    np.testing.assert_array_equal(U, AT.U.at[:2].set(0))  # users without a pair have no say
    return V


@pytest.mark.parametrize("tau", [0.0, 0.7])
def test_the_gradient_is_zero_after_each_half_step(tau):
    objective, data, plan = problem(tau=tau)
    U, V = sweep(objective, AT, data, 12, 0)
    np.testing.assert_array_equal(V, AT.V)
    after = exact.value_and_grad(objective, Factors(U, AT.V), plan)[1]
    np.testing.assert_allclose(after.U, 0, atol=1e-12)
    assert (np.asarray(U)[:2] == 0).all()  # users without a pair
    V = minimise_over_items(objective, data)
    np.testing.assert_allclose(
        exact.value_and_grad(objective, Factors(AT.U, V), plan)[1].V, 0, atol=1e-12
    )


def test_the_v_step_is_a_dense_solve():
    objective, data, plan = problem()

    def theta(flat):
        return exact.value(objective, Factors(AT.U, flat.reshape(AT.V.shape)), plan)

    zero = jnp.zeros(AT.V.size)
    solved = -jnp.linalg.solve(jax.hessian(theta)(zero), jax.grad(theta)(zero))
    found = minimise_over_items(objective, data)
    np.testing.assert_allclose(found.ravel(), solved, atol=1e-9)


@pytest.mark.parametrize(
    "phi", [weightings.identity, weightings.Tanh(rho=0.5), weightings.Tanh(rho=3.0)]
)
def test_the_objective_never_rises(phi):
    objective, data, plan = problem(phi)
    found = run(Alternating(user_steps=8, item_steps=3), objective, data, 12)
    values = [float(exact.value(objective, at, plan)) for at in (AT, *found)]
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(values))
    assert values[-1] < 0.5 * values[0]


def test_tanh_by_reweighting_ends_at_a_stationary_point_of_the_weighted_objective():
    objective, data, plan = problem(weightings.Tanh(rho=0.7))
    *_, last = run(Alternating(user_steps=10, item_steps=10), objective, data, 400)
    grads = exact.value_and_grad(objective, last, plan)[1]
    assert max(float(jnp.abs(g).max()) for g in grads) < 1e-5


def test_only_the_square_loss():
    with pytest.raises(ValueError, match="square loss, not logistic.*minibatch"):
        Alternating().check(equation.make("logistic"))
    Alternating().check(equation.make("square", "tanh"))


@settings(max_examples=15)
@given(matrices(max_users=9, max_items=40))
def test_tiles_hold_every_positive_once_and_whole_rows(dense):
    X = quiet(dense)
    for budget in (8, 64, 4096):
        tiles = ragged.tiles(X, ragged.tiling(X, budget), np.ones(X.nnz), np.arange(X.nnz))
        items, ones, slots = (
            np.asarray(a).reshape(*tiles.local.shape, -1) for a in (tiles.items, *tiles.values)
        )
        real = ones > 0
        assert sorted(slots[real]) == list(range(X.nnz)) and (slots[~real] == 0).all()
        chunk = np.arange(len(real))[:, None]
        rows = np.asarray(tiles.rows)[chunk, np.asarray(tiles.local)]
        owners = np.broadcast_to(rows[:, :, None], real.shape)[real]
        pairs = sorted(zip(owners, items[real], strict=True))
        assert pairs == sorted(zip(*np.nonzero(dense), strict=True))
        used = [r for r in np.asarray(tiles.rows).ravel() if r < X.num_users]
        assert sorted(used) == list(np.flatnonzero(dense.any(1)))  # a row lives in one chunk
        assert (np.diff(np.asarray(tiles.local), axis=1) >= 0).all()


def test_float32_goes_where_float64_goes():
    objective, data, plan = problem()

    def single(tree):
        return jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype == float else a, tree)

    ends, solver = [], Alternating(user_steps=8, item_steps=3)
    for cast in (lambda tree: tree, single):
        *_, last = run(solver, cast(objective), cast(data), 8, cast(AT))
        assert last.U.dtype == cast(AT).U.dtype
        ends.append(float(exact.value(cast(objective), last, cast(plan))))
    assert ends[1] == pytest.approx(ends[0], rel=1e-4)


def test_idle_cores_are_mentioned_once_and_not_where_the_user_chose(monkeypatch, caplog):
    """Kills: silence, a line per fit of a search, advice to somebody who set the devices."""
    monkeypatch.setattr(alternating, "PER_DEVICE", 1)
    monkeypatch.setattr(alternating.cores, "count", lambda: 1000)
    alternating._say_idle.cache_clear()
    with caplog.at_level("INFO", "mfauc_jax"):
        MFAUC(rank=2, solver=Alternating(1, devices=1)).fit(X, progress=False)
        assert "cores" not in caplog.text
        for seed in range(2):
            MFAUC(rank=2, seed=seed).fit(X, progress=False)
    assert caplog.text.count("call mfauc_jax.use_cores()") == 1
