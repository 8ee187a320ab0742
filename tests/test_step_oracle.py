"""One iteration of Algorithm 1 against NumPy: the drawn samples are the library's, the steps are not."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet, random_factors, triple_loop

from mfauc_jax import Problem, Sequential
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import equation, losses, sampling, weightings
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import sequential

RATE, RHO, BETA, SPREAD = 0.07, 0.8, 1.5, 0.6


def toy(m, n, empty=()):
    dense = np.random.default_rng(m).random((m, n)) < 0.4
    dense[:, 0], dense[:, 1] = True, False
    for user in empty:
        dense[user] = False  # a user with nothing to learn from
    return quiet(dense)


TALL, WIDE = toy(7, 5, empty=[2]), toy(4, 9)
SLOPES = {  # L′ and φ′, written out
    "hinge": lambda x: -np.maximum(0.0, 1.0 - x),
    "logistic": lambda x: -BETA / (1.0 + np.exp(BETA * x)),
}
VALUES = {
    "hinge": lambda x: 0.5 * np.maximum(0.0, 1.0 - x) ** 2,
    "logistic": lambda x: np.logaddexp(0.0, -BETA * x),
}


def objective_of(name, phi, m, n):
    loss = losses.square_hinge if name == "hinge" else losses.Logistic(beta=BETA)
    weighting = weightings.Tanh(rho=RHO) if phi == "tanh" else weightings.identity
    reg = Reg(jnp.linspace(0.1, 0.5, m), jnp.linspace(0.9, 0.2, n))
    return equation.make(loss, weighting, reg=reg, spread=SPREAD)


def score_slopes(name, phi, s_pos, s_neg, g_pos, g_neg, scale):
    """∂/∂s of Σ_p g φ(Σ_q g′ L(s_p − s_q)) + ½ (σ − 1) Var_g′(s), of positives and of negatives."""
    gap = s_pos[:, None] - s_neg[None, :]
    inner = VALUES[name](gap) @ g_neg
    outer = RHO / np.cosh(RHO * inner) ** 2 if phi == "tanh" else np.ones(len(inner))
    pairs = (g_pos * outer)[:, None] * SLOPES[name](gap) * g_neg[None, :]
    # Var = Σ g′ (s − μ)² with μ = Σ g′ s; g′ need not sum to one in the sample of an item
    off = s_neg - g_neg @ s_neg
    variance = 2 * g_neg * off - 2 * g_neg * (g_neg @ off)
    return pairs.sum(1), -pairs.sum(0) + 0.5 * SPREAD * scale * variance


def numpy_iteration(solver, name, phi, U, V, orders, for_users, for_items, reg):
    """Algorithm 1: every step in turn, from the samples that were drawn for it."""
    U, V = np.array(U), np.array(V)
    m, n = len(U), len(V)

    def moved(row, gradient, rows):
        factor = {"rows": rows, "plain": 1.0, "thousand": 1000.0}.get(solver.step_rule)
        if factor is None:  # "unit"
            factor = 1.0 / max(np.sqrt((gradient**2).sum()), 1e-12)
        row = row - solver.learning_rate * factor * gradient
        length = np.sqrt((row**2).sum())
        too_long = solver.max_norm is not None and length > solver.max_norm
        return row * solver.max_norm / length if too_long else row

    for t, (i, j) in enumerate(zip(*orders, strict=True)):
        pos, neg, g_pos, g_neg = (
            np.asarray(a[t])
            for a in (for_users.pos, for_users.neg, for_users.g_pos, for_users.g_neg)
        )
        scale = for_users.spread_scale
        ds_pos, ds_neg = score_slopes(name, phi, V[pos] @ U[i], V[neg] @ U[i], g_pos, g_neg, scale)
        data = float(for_users.user_weight[t]) * (ds_pos @ V[pos] + ds_neg @ V[neg])
        new_u = moved(U[i], (data + float(reg.user[i]) * U[i]) / m, m)

        seen = U.copy()
        if solver.new_user:
            seen[i] = new_u
        total, kappa = np.zeros(V.shape[1]), for_items.users.shape[1]
        for b in range(kappa):
            user, weight = int(for_items.users[t, b]), float(for_items.user_weight[t, b])
            pos, neg, g_pos, g_neg = (
                np.asarray(a[t, b])
                for a in (for_items.pos, for_items.neg, for_items.g_pos, for_items.g_neg)
            )
            assert pos[0] == neg[0] == j  # the item's own places; one of them has weight 0
            u = seen[user]
            ds_pos, ds_neg = score_slopes(name, phi, V[pos] @ u, V[neg] @ u, g_pos, g_neg, 1.0)
            total += weight * (ds_pos[0] + ds_neg[0]) * u / kappa
        V[j] = moved(V[j], total + float(reg.item[j]) * V[j] / n, n)
        U[i] = new_u
    return U, V


def one_iteration(solver, name, phi, X, scale=0.8, key=jax.random.key(3)):
    """(the library's factors, NumPy's) after one iteration."""
    (m, n), weights = X.shape, Weights(0.3, 0.2, user_power=0.5).of(X)
    objective, at = objective_of(name, phi, m, n), random_factors(1, X, scale=scale)
    problem = Problem(X, weights, objective)
    data, state = solver.prepare(problem), solver.init(problem, at)
    after, _ = jax.jit(solver.step)(objective, key, state, data)

    steps, size = max(m, n), solver.num_items
    keys = jax.random.split(key, 3)
    orders = [np.asarray(o) for o in sequential._orders(solver, keys[0], data, steps)]
    check_orders(solver, orders, np.asarray(weights.usable), n)
    for_users = sampling.uniform(keys[1], X, weights, jnp.asarray(orders[0]), size, size)
    columns = X.transpose() if solver.stratified else None
    for_items = sampling.for_items(
        keys[2], X, weights, jnp.asarray(orders[1]), solver.num_users, size, columns
    )
    ours = numpy_iteration(solver, name, phi, *at, orders, for_users, for_items, objective.reg)
    return after.factors, ours


def check_orders(solver, orders, usable, n):
    """Rounds of permutations: the same one over and over, or fresh ones."""
    for order, rows in zip(orders, (usable, np.arange(n)), strict=True):
        rounds = [order[a : a + len(rows)] for a in range(0, len(order), len(rows))]
        whole = [r for r in rounds if len(r) == len(rows)]
        assert whole and all((np.sort(r) == rows).all() for r in whole)
        if solver.fixed_order:
            assert all((r == rounds[0][: len(r)]).all() for r in rounds)


def assert_same(found):
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-12 * max(1.0, np.abs(ours).max()))


CASES = list(itertools.product(sequential.RULES, (False, True), (False, True), (None, 0.9)))


@pytest.mark.parametrize(("rule", "new_user", "fixed_order", "max_norm"), CASES)
def test_an_iteration_of_algorithm_1_is_that_of_numpy(rule, new_user, fixed_order, max_norm):
    """Kills: λ/n on u or λ/m on v, a factor on either data term, new_user ignored, × 100 for × 1000."""
    tall = fixed_order is new_user  # both shapes, with each of the options
    solver = Sequential(
        learning_rate=RATE / 100 if rule == "thousand" else RATE,
        num_users=3,
        num_items=2,
        step_rule=rule,
        new_user=new_user,
        fixed_order=fixed_order,
        max_norm=max_norm,
    )
    name, phi = ("hinge", "identity") if max_norm else ("logistic", "tanh")
    assert_same(one_iteration(solver, name, phi, TALL if tall else WIDE))


@pytest.mark.parametrize("X", [TALL, WIDE], ids=["tall", "wide"])
def test_the_options_change_the_step(X):
    """An oracle that agrees with both readings would judge neither."""
    base = {"learning_rate": RATE, "num_users": 3, "num_items": 2}
    U, V = one_iteration(Sequential(**base), "logistic", "identity", X)[0]
    for option in (
        {"new_user": True},
        {"fixed_order": True},
        {"max_norm": 0.9},
        {"step_rule": "unit"},
    ):
        other = one_iteration(Sequential(**base, **option), "logistic", "identity", X)[0]
        assert max(np.abs(other.U - U).max(), np.abs(other.V - V).max()) > 1e-3, option


def test_users_drawn_by_strata_move_an_item_as_numpy_says():
    solver = Sequential(learning_rate=RATE, num_users=4, num_items=2, stratified=True)
    assert_same(one_iteration(solver, "logistic", "tanh", toy(6, 6)))


def test_fresh_orders_differ_by_iteration_and_a_fixed_one_does_not():
    weights = Weights.paper().of(WIDE)
    problem = Problem(WIDE, weights, equation.make("square"))
    for fixed in (False, True):
        solver = Sequential(fixed_order=fixed)
        data = solver.prepare(problem)
        orders = [sequential._orders(solver, jax.random.key(t), data, 9) for t in (0, 1)]
        same = all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(*orders, strict=True))
        assert same is fixed
        users = np.asarray(orders[0][0])  # 4 users in 9 steps: three rounds
        assert (users[:4] == users[4:8]).all() == fixed


@pytest.mark.parametrize("stratified", [False, True])
def test_the_mean_step_is_the_gradient_of_the_triple_loop(stratified):
    """As α → 0 each of m users and m items moves once: −Δ/α has mean m ∂θ/∂u_i, n ∂θ/∂v_j, by z-score."""
    X, repeats, rate = toy(6, 6), 6000, 1e-7
    weights = Weights(0.3, None, user_power=0.5).of(X)
    objective = equation.make("logistic", reg=0.4)
    at = random_factors(1, X, scale=0.7)
    solver = Sequential(learning_rate=rate, num_users=3, num_items=2, stratified=stratified)
    problem = Problem(X, weights, objective)
    data, state = solver.prepare(problem), solver.init(problem, at)

    def moved(key):
        after, _ = solver.step(objective, key, state, data)
        return jax.tree.map(lambda before, now: (before - now) / rate, at, after.factors)

    drawn = jax.jit(jax.vmap(moved))(jax.random.split(jax.random.key(0), repeats))
    dense = X.to_scipy().toarray() > 0

    def theta(flat):
        U, V = flat[:18].reshape(6, 3), flat[18:].reshape(6, 3)
        return triple_loop(objective, U, V, dense, tau=0.3, user_power=0.5, reg=0.4)

    flat, h = np.concatenate([np.ravel(F) for F in at]), 1e-5
    slope = [(theta(flat + h * e) - theta(flat - h * e)) / (2 * h) for e in np.eye(36)]
    truth = Factors(*(6 * np.reshape(half, (6, 3)) for half in np.split(np.array(slope), 2)))
    for draws, exactly in zip(drawn, truth, strict=True):
        error = np.asarray(draws.std(0)) / np.sqrt(repeats)
        z = (np.asarray(draws.mean(0)) - exactly) / error
        assert 0.6 < np.sqrt((z**2).mean()) < 1.5
        assert (
            error < 0.05 * np.abs(exactly).mean()
        ).mean() > 0.5  # a z-score of noise shows nothing
