"""Lemmas 3.2 and 3.3, Corollary 3.1 and Theorem 3.8 on a known distribution; E39, E41–E45."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mfauc_jax.certify import bounds, spectral
from mfauc_jax.objective import losses
from mfauc_jax.solvers.base import gaussian
from theory import function_class, generalisation, mcdiarmid, rademacher

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def known():
    world = generalisation.toy(m=7, n=6, size=3)
    sim = generalisation.simulate(KEY, world, draws=2000)
    return world, sim, lambda delta: bounds.mcdiarmid(np.full(7, 3), 6, delta)


def test_expected_averages_are_long_run_means(known):
    world = known[0]
    rng = np.random.default_rng(0)
    draws = np.stack([rng.choice(6, (20_000, 3), p=D) for D in world.D], axis=1)
    T = generalisation.sample_averages(world, draws)
    np.testing.assert_allclose(T.mean(0), generalisation.expected_averages(world), atol=0.01)


def test_sample_averages_equal_a_loop(known):
    world = known[0]
    draws = np.array([[[0, 0, 4]] * 7])
    expected = [
        [np.mean([Q[i, p, q] for p in (0, 0, 4) for q in (1, 2, 3, 5)]) for i in range(7)]
        for Q in world.Q
    ]
    np.testing.assert_allclose(generalisation.sample_averages(world, draws)[0], expected)


@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_theorems_hold_with_their_probability(known, delta):
    _, sim, eps = known
    R = sim.rhat.mean()
    assert (sim.deviation > sim.deviation.mean() + eps(delta)).mean() <= delta  # Lemma 3.2
    assert (sim.rhat + 2 * eps(delta) < R).mean() <= delta  # Theorem 3.4
    assert (sim.deviation > R + eps(delta)).mean() <= delta  # Theorem 3.8
    assert (sim.deviation > sim.rhat + 3 * eps(delta)).mean() <= delta  # E41


def test_symmetrisation(known):
    _, sim, _ = known
    assert sim.deviation.mean() <= sim.swap.mean() <= sim.rhat.mean()  # Lemma 3.3


def test_a_class_that_is_free_by_user_is_the_class_with_every_choice_listed():
    """R̂'s factor 2 and all three suprema, against listing K^m functions and 2^m signs."""
    small = generalisation.toy(m=3, n=4, size=2, K=4)
    for world in (small, generalisation.every_function(2, 3)):
        free = generalisation.simulate_free(KEY, world, 50)
        every = generalisation.simulate(KEY, generalisation.listed(world), 50)
        for mine, theirs in zip(free, every, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_a_class_that_fits_every_sample_has_r_hat_one():
    """Kills: 2 E sup read as 1.2 E sup. sup Σ ν_i Q_i is the number of ν_i = 1."""
    world = generalisation.listed(generalisation.every_function(2, 4))
    sim = generalisation.simulate(KEY, world, 300)
    np.testing.assert_allclose(sim.rhat, 1.0)
    np.testing.assert_allclose(sim.deviation, 1 - 1 / 4)
    assert sim.swap.mean() == pytest.approx(1 - 1 / 4, abs=0.06)


def test_coins_are_averages_over_the_pairs_of_a_sample():
    world = generalisation.one_coin(m=2, n=8, size=3)
    T = generalisation.sample_averages(world, np.array([[[0, 5, 1], [7, 7, 4]]]))
    np.testing.assert_allclose(T, [[[2 / 3, 0.0]]])
    np.testing.assert_allclose(generalisation.expected_averages(world), 0.5)
    assert (generalisation.simulate_free(KEY, world, 10).rhat == 0).all()  # one function
    rhat = generalisation.coin_rhats(KEY, m=2, size=1, chance=0.3, draws=10)
    np.testing.assert_allclose(rhat, 1.0)  # |2T − 1| of a single coin
    rhat = generalisation.coin_rhats(KEY, m=1, size=2, chance=0.5, draws=4000)
    assert set(rhat) == {0.0, 1.0} and rhat.mean() == pytest.approx(0.5, abs=0.03)


def test_statements_are_sums_of_their_terms(known):
    _, _, eps = known
    num_pos = np.full(7, 3)
    assert generalisation.lemma_3_2(num_pos, 6, 0.1) == eps(0.1)
    assert generalisation.theorem_3_8(0.2, 0.3, num_pos, 6, 0.1) == pytest.approx(0.5 + eps(0.1))
    assert generalisation.single_form(eps, 0.1) < generalisation.union_form(eps, 0.1)


def test_corollary_3_1_needs_the_corrected_norm():
    X = rademacher.half_and_half(0, 2560, 256)
    rho = 6 * np.sqrt(256 * 2560)
    lower = rademacher.two_valued_excess(losses.logistic, X, 12.0)
    assert generalisation.corollary_3_1(X, 1.0, rho, 0.05) < lower
    assert lower < generalisation.corrected_corollary_3_1(KEY, X, 1.0, rho, 0.05)


# --- Function classes -------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "slope"), [(0.5, 0.125), (2.0, 0.5), (8.0, 2.0)])
def test_sigmoid_is_beta_over_4_lipschitz(beta, slope):
    loss = losses.Sigmoid(beta=beta)
    found = function_class.measured_slope(loss, 4.0)
    assert found == pytest.approx(slope) == pytest.approx(bounds.constants(loss, 4.0).lipschitz)


def test_the_printed_radius_leaves_the_unit_interval():
    gamma = function_class.margin_of_rows(function_class.PRINTED_RADIUS)
    assert function_class.measured_range(losses.square_hinge, gamma) == pytest.approx(
        (0.125, 1.125)
    )
    assert function_class.measured_slope(losses.square_hinge, gamma) == pytest.approx(1.5)
    gamma = function_class.margin_of_rows(function_class.unit_radius())
    assert function_class.measured_range(losses.square_hinge, gamma)[1] == pytest.approx(1)
    assert function_class.measured_slope(losses.square_hinge, gamma) == pytest.approx(np.sqrt(2))


def test_rows_of_norm_d_have_margins_within_2d2():
    rng = np.random.default_rng(0)
    U, V = (rng.normal(size=(50, 3)) for _ in range(2))
    U, V = (0.7 * F / np.linalg.norm(F, axis=1, keepdims=True) for F in (U, V))
    S = U @ V.T
    assert np.ptp(S, axis=1).max() <= function_class.margin_of_rows(0.7)
    rate = np.linalg.norm(U) * np.linalg.norm(V) / 50
    assert function_class.norm_rate(0.7, 0.7, 50, 50) == pytest.approx(rate)


def test_the_penalty_is_a_nuclear_norm_in_disguise():
    model = gaussian(KEY, 20, 9, 3)
    best = function_class.balanced(model)
    np.testing.assert_allclose(best.U @ best.V.T, model.U @ model.V.T, atol=1e-12)
    least = function_class.penalty(best, 0.4)
    assert least == pytest.approx(0.4 * spectral.nuclear_norm(model) / np.sqrt(180))
    assert jnp.square(best.U).sum() / 20 == pytest.approx(float(jnp.square(best.V).sum() / 9))
    rng = np.random.default_rng(0)
    for _ in range(20):
        M = rng.normal(size=(3, 3))
        other = type(best)(best.U @ M, best.V @ np.linalg.inv(M).T)
        assert function_class.penalty(other, 0.4) >= least - 1e-12


# --- Scope ------------------------------------------------------------------------------------


def test_popularity_weights_break_the_constant():
    assert generalisation.popularity_change(tau=0.0) <= mcdiarmid.average_difference(2, 8)
    assert generalisation.popularity_change(tau=2.0) > mcdiarmid.average_difference(2, 8)


def test_tanh_is_not_an_average_over_triples():
    outside, inside = generalisation.tanh_is_not_linear()
    assert abs(outside - inside) > 0.1


def test_draws_follow_the_known_distribution():
    D = np.array([[0.0, 0.2, 0.8], [0.5, 0.5, 0.0]])
    F = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 0.0]])
    truth = generalisation.World(F, D)
    rng = np.random.default_rng(0)
    values, owners = generalisation.draw_held_out(rng, truth, np.array([5000, 5000]))
    for i, y in itertools.product(range(2), range(3)):
        if D[i, y]:
            share = (values[owners == i] == F[i, y]).mean()
            assert share == pytest.approx(D[i, y], abs=0.03)
