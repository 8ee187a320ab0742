"""Consistency (Def 3.1, Thms 3.1 and 3.2): which surrogate's minimiser orders items by η."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfauc_jax.objective import losses
from theory import consistency
from theory.function_class import paper_losses


def random_world(seed, items=6):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.05, 0.95, items), rng.dirichlet(np.ones(items))


def test_theorem_3_1_covers_square_hinge_and_logistic_only():
    covered = {n for n, f in paper_losses().items() if consistency.conditions(f).sufficient}
    assert covered == {"square_hinge", "logistic"}
    assert covered == {n for n, by in consistency.COVERED_BY.items() if by == "Thm 3.1"}


def test_the_bayes_risk_is_the_least_over_all_orders():
    eta, w = random_world(0, 5)
    least = min(
        consistency.auc_risk(np.array(s, float), eta, w) for s in itertools.permutations(range(5))
    )
    assert consistency.bayes_risk(eta, w) == pytest.approx(least)


def test_risk_equals_its_double_sum():
    eta, w = random_world(1, 4)
    s = np.array([0.3, 0.3, -1.0, 2.0])
    total = sum(
        w[y] * w[z] * eta[y] * (1 - eta[z]) * ((s[y] < s[z]) + 0.5 * (s[y] == s[z]))
        for y, z in itertools.permutations(range(4), 2)
    )
    assert consistency.auc_risk(s, eta, w) == pytest.approx(total)


@pytest.mark.parametrize("name", ["square_hinge", "square", "logistic"])
@pytest.mark.parametrize("seed", range(5))
def test_the_minimiser_orders_items_by_eta(name, seed):
    eta, w = random_world(seed)
    s = consistency.minimiser(paper_losses()[name], eta, w)
    assert consistency.misordered(s, eta) == 0


def test_hinge_ties_what_it_should_separate():
    eta = np.array([0.40, 0.45, 0.60])
    value, s = consistency.hinge_minimum(eta, np.ones(3))
    forced, _ = consistency.hinge_minimum(eta, np.ones(3), at_least=0.05)
    assert value == pytest.approx(1.170)
    np.testing.assert_allclose(s, [0, 0, 1], atol=1e-9)
    assert forced == pytest.approx(1.175)
    s = consistency.minimiser(losses.square_hinge, eta, np.ones(3))
    np.testing.assert_allclose(s, [0, 0.098, 0.388], atol=5e-4)
    s = consistency.minimiser(losses.logistic, eta, np.ones(3))
    np.testing.assert_allclose(s, [0, 0.205, 0.811], atol=5e-4)


@given(st.integers(0, 10_000))
def test_square_minimiser_is_the_mobius_formula(seed):
    eta, w = random_world(seed)
    s = consistency.square_minimiser(eta, w)
    closed = consistency.mobius(s, eta, w)
    np.testing.assert_allclose(closed - closed[0], s, atol=1e-9)
    assert 0 <= consistency.gap(s, eta, w) <= 1
    assert consistency.misordered(s, eta, tol=0.0) == 0


def test_square_minimiser_is_stationary():
    eta, w = random_world(7)
    s = consistency.square_minimiser(eta, w)
    best = consistency.surrogate_risk(losses.square, s, eta, w)
    for bump in 1e-3 * np.eye(6):
        assert consistency.surrogate_risk(losses.square, s + bump, eta, w) > best


@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([1e-2, 1.0, 10.0, 100.0]),
    beta=st.sampled_from([0.5, 1.0, 3.0]),
    ties=st.booleans(),
)
def test_sigmoid_regret_bounds_the_auc_regret(seed, scale, beta, ties):
    eta, w = random_world(seed)
    if ties:
        eta = np.round(eta, 1)
    s = scale * np.random.default_rng(seed + 1).normal(size=6)
    s = np.round(s) if ties else s
    auc, surrogate = consistency.sigmoid_regrets(s, eta, w, beta)
    assert auc >= -1e-12
    assert auc <= 2 * surrogate + 1e-12


def test_sigmoid_infimum_is_reached_in_the_limit_and_misprinted():
    eta = np.array([0.2, 0.5, 0.5, 0.9])
    assert consistency.sigmoid_regrets(1e4 * eta, eta, np.ones(4))[1] == pytest.approx(0, abs=1e-9)
    assert consistency.sigmoid_limit(eta, printed=True) == pytest.approx(-2.42)
    assert consistency.sigmoid_limit(eta, printed=False) == pytest.approx(-2.67)


def test_printed_logistic_has_the_wrong_sign_and_the_right_curvature():
    x, beta = 0.5, 1.0
    logistic = losses.Logistic(beta=beta)
    assert consistency.printed_logistic(x, beta) == pytest.approx(-logistic(x))
    assert consistency.printed_logistic_slope(x, beta) > 0
    h = 1e-4
    around = [float(logistic(jnp.asarray(x + d))) for d in (-h, 0, h)]
    second = (around[0] - 2 * around[1] + around[2]) / h**2
    assert consistency.printed_logistic_curvature(x, beta) == pytest.approx(second, rel=1e-5)


def test_tanh_can_prefer_a_wrong_order():
    eta, w = np.array([0.3049, 0.7214, 0.7920]), np.array([0.0244, 0.1535, 0.8221])
    least, correct, s = consistency.tanh_grid_minimiser(losses.square_hinge, 5.0, eta, w)
    assert least == pytest.approx(0.9173, abs=1e-4)
    assert correct == pytest.approx(0.9594, abs=1e-4)
    np.testing.assert_allclose(s, [0, 2.01, 1.02], atol=0.031)
    _, _, gentle = consistency.tanh_grid_minimiser(losses.square_hinge, 0.5, eta, w, step=0.06)
    assert consistency.misordered(gentle, eta) == 0


def test_tanh_risk_equals_a_loop():
    eta, w = random_world(3, 3)
    s = np.array([0.1, -0.4, 0.7])
    g, g_neg = w * eta / (w @ eta), w * (1 - eta) / (w @ (1 - eta))
    expected = sum(
        g[y] * np.tanh(2 * sum(g_neg[z] * 0.5 * max(0, 1 - s[y] + s[z]) ** 2 for z in range(3)))
        for y in range(3)
    )
    found = consistency.tanh_risk(losses.square_hinge, 2.0, jnp.asarray(s), eta, w)
    assert float(found) == pytest.approx(expected)


def test_the_softmax_minimiser_is_the_log_odds_and_orders_like_eta():
    """Kills: a softmax whose sum runs over g instead of g′, which has no such minimiser."""
    for seed in range(3):
        eta, w = random_world(seed, 5)
        s = consistency.softmax_descent(eta, w, beta=2.0)
        closed = consistency.softmax_minimiser(eta, beta=2.0)
        np.testing.assert_allclose(s, closed - closed.mean(), atol=1e-6)
        assert consistency.auc_risk(s, eta, w) == pytest.approx(consistency.bayes_risk(eta, w))
        bounded = consistency.softmax_descent(eta, w, beta=2.0, c=3.0)
        assert consistency.misordered(bounded, eta) == 0


def list_orders(x, p, **how):
    """Pairs of items that the softmax of lists orders against E[x_j]: what the expected DCG sorts by."""
    s = consistency.softmax_of_lists(x, p, **how)
    return consistency.misordered(s, np.round(consistency.gains(x, p), 9))


def test_softmax_of_lists_sorts_by_relevance_if_items_are_independent_or_positives_stay_in():
    """Kills: users weighted alike when the positives stay in (then e^s ∝ E[x/N], another order)."""
    rng = np.random.default_rng(0)
    wrong = {"left out": 0, "kept": 0, "kept, users alike": 0}
    for _ in range(6):
        x, p = consistency.lists(rng.uniform(0.05, 0.95, 4))
        assert list_orders(x, p / p.sum()) == 0
        p = rng.dirichlet(np.ones(len(x))) + 0.01  # items that depend on each other
        p = p / p.sum()
        wrong["left out"] += list_orders(x, p) > 0
        wrong["kept"] += list_orders(x, p, left_out=False) > 0
        wrong["kept, users alike"] += list_orders(x, p, left_out=False, user_power=0.0) > 0
    assert wrong["kept"] == 0 < wrong["kept, users alike"]
    print(wrong)
