import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from toys import matrices, quiet, random_factors

from mfauc_jax._core.factors import Factors
from mfauc_jax.data import ragged
from mfauc_jax.objective import equation, exact
from mfauc_jax.objective import weights as item_weights
from mfauc_jax.solvers import alternating, base

RNG = np.random.default_rng(0)
DENSE = RNG.random((12, 15)) < 0.35
DENSE[0], DENSE[1], DENSE[2] = False, True, False  # no positive, no negative, one positive
DENSE[2, 3] = True
X = quiet(DENSE)
REG = equation.Reg(jnp.asarray(RNG.random(12)), jnp.asarray(RNG.random(15)))
SPREAD = jnp.asarray(RNG.random(12))
AT = random_factors(0, X)


def problem(phi="identity", tau=0.0, rho=0.5):
    weights = item_weights.make(X, tau, user_power=0.5)
    objective = equation.make("square", phi, rho=rho, reg=REG, spread=SPREAD)
    return objective, weights, alternating.prepare(X, weights), exact.plan(objective, X, weights)


def minimise_over_items(objective, data):
    U, V = alternating.sweep(objective, AT, data, 0, 200)
    np.testing.assert_array_equal(U, AT.U.at[:2].set(0))  # users without a pair have no say
    return V


@pytest.mark.parametrize("tau", [0.0, 0.7])
def test_the_gradient_is_zero_after_each_half_step(tau):
    objective, _, data, plan = problem(tau=tau)
    U, V = alternating.sweep(objective, AT, data, 12, 0)
    np.testing.assert_array_equal(V, AT.V)
    after = exact.value_and_grad(objective, Factors(U, AT.V), plan)[1]
    np.testing.assert_allclose(after.U, 0, atol=1e-12)
    assert (np.asarray(U)[:2] == 0).all()  # users without a pair
    V = minimise_over_items(objective, data)
    np.testing.assert_allclose(
        exact.value_and_grad(objective, Factors(AT.U, V), plan)[1].V, 0, atol=1e-12
    )


def test_the_v_step_is_a_dense_solve():
    objective, _, data, plan = problem()

    def theta(flat):
        return exact.value(objective, Factors(AT.U, flat.reshape(AT.V.shape)), plan)

    zero = jnp.zeros(AT.V.size)
    solved = -jnp.linalg.solve(jax.hessian(theta)(zero), jax.grad(theta)(zero))
    found = minimise_over_items(objective, data)
    np.testing.assert_allclose(found.ravel(), solved, atol=1e-9)


@pytest.mark.parametrize(("phi", "rho"), [("identity", 1.0), ("tanh", 0.5), ("tanh", 3.0)])
def test_the_objective_never_rises(phi, rho):
    objective, _, data, plan = problem(phi, rho=rho)
    solver = alternating.make(objective, 8, 3)
    state, values = solver.init(AT), [float(exact.value(objective, AT, plan))]
    for _ in range(12):
        state, _ = base.run(solver.step, jax.random.key(0), state, data)
        values.append(float(exact.value(objective, state.factors, plan)))
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(values))
    assert values[-1] < 0.5 * values[0]


def test_tanh_by_reweighting_ends_at_a_stationary_point_of_the_weighted_objective():
    objective, _, data, plan = problem("tanh", rho=0.7)
    solver = alternating.make(objective, 10, 10)
    state = solver.init(AT)
    for _ in range(400):
        state, _ = base.run(solver.step, jax.random.key(0), state, data)
    grads = exact.value_and_grad(objective, state.factors, plan)[1]
    assert max(float(jnp.abs(g).max()) for g in grads) < 1e-5


def test_only_the_square_loss():
    with pytest.raises(ValueError, match="square loss, not logistic.*minibatch"):
        alternating.make(equation.make("logistic"))


@settings(max_examples=15)
@given(matrices(max_users=9, max_items=40))
def test_tiles_hold_every_positive_once_and_whole_rows(dense):
    X = quiet(dense)
    for budget in (8, 64, 4096):
        tiles = ragged.tiles(X, budget, np.ones(X.nnz), np.arange(X.nnz))
        real, slots = np.asarray(tiles.values[0]) > 0, np.asarray(tiles.values[1])
        assert sorted(slots[real]) == list(range(X.nnz)) and (slots[~real] == 0).all()
        chunk = np.arange(len(real))[:, None]
        rows = np.asarray(tiles.rows)[chunk, np.asarray(tiles.local)]
        owners = np.broadcast_to(rows[:, :, None], real.shape)[real]
        pairs = sorted(zip(owners, np.asarray(tiles.items)[real], strict=True))
        assert pairs == sorted(zip(*np.nonzero(dense), strict=True))
        used = [r for r in np.asarray(tiles.rows).ravel() if r < X.num_users]
        assert sorted(used) == list(np.flatnonzero(dense.any(1)))  # a row lives in one chunk
        assert (np.diff(np.asarray(tiles.local), axis=1) >= 0).all()


def test_float32_goes_where_float64_goes():
    objective, _, data, plan = problem()

    def single(tree):
        return jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype == float else a, tree)

    ends = []
    for cast in (lambda tree: tree, single):
        solver = alternating.make(cast(objective), 8, 3)
        state = solver.init(cast(AT))
        for _ in range(8):
            state, _ = base.run(solver.step, jax.random.key(0), state, cast(data))
        ends.append(float(exact.value(cast(objective), state.factors, cast(plan))))
    assert ends[1] == pytest.approx(ends[0], rel=1e-4)


def test_small_data_are_compiled_quickly_to_the_same_factors(monkeypatch):
    objective, _, data, _ = problem()
    solver = alternating.make(objective, 4, 2)
    quick, state = base.runner(solver, data), solver.init(AT)
    assert quick is not base.run
    ends = [
        run(solver.step, jax.random.key(0), state, data)[0].factors for run in (base.run, quick)
    ]
    for slow, fast in zip(*ends, strict=True):
        np.testing.assert_allclose(fast, slow, atol=1e-12)
    assert base.runner(solver._replace(quick=False), data) is base.run
    monkeypatch.setattr(base, "SMALL", 0)
    assert base.runner(solver, data) is base.run


def test_a_jaxlib_without_the_quick_option_compiles_as_ever(monkeypatch):
    monkeypatch.setattr(base, "OLDER_EMITTERS", {"xla_cpu_no_such_option": False})
    assert base._quick.__wrapped__() is base.run
