"""What one draw can change (Thms 3.3 and 3.4): formula, enumeration, sets and multisets."""

import itertools

import numpy as np
import pytest

from mfauc_jax.certify import bounds
from theory import mcdiarmid

SMALL = [(n, size) for n in (3, 4, 5) for size in range(1, n)]


@pytest.mark.parametrize(("n", "size"), [*SMALL, (6, 3)])
def test_multisets_attain_the_printed_constant_and_never_pass_it(n, size):
    found = mcdiarmid.enumerated_difference(n, size)
    assert found == pytest.approx(mcdiarmid.average_difference(size, n))
    assert mcdiarmid.new_item_difference(n, size) == pytest.approx(found)


def test_sets_pass_the_printed_constant():
    assert mcdiarmid.enumerated_difference(6, 3, "set") > mcdiarmid.average_difference(3, 6)
    assert mcdiarmid.set_difference(200, 25) == pytest.approx(0.5)
    assert mcdiarmid.average_difference(25, 200) == pytest.approx(0.0455, abs=1e-4)


def test_the_change_is_a_supremum_over_tables_of_zeros_and_ones():
    before, after = (mcdiarmid.coefficients(d, 3) for d in ([0, 1], [0, 2]))
    tables = (np.reshape(t, (3, 3)) for t in itertools.product([0, 1], repeat=9))
    best = max(abs(((before - after) * Q).sum()) for Q in tables)
    assert mcdiarmid.largest_change(before, after) == pytest.approx(best)


def test_coefficients_are_the_average_over_pairs():
    Q = np.random.default_rng(0).random((5, 5))
    draws = [0, 0, 3]
    average = np.mean([Q[p, q] for p in draws for q in (1, 2, 4)])
    assert (mcdiarmid.coefficients(draws, 5) * Q).sum() == pytest.approx(average)
    average = np.mean([Q[p, q] for p in (0, 3) for q in (1, 2, 4)])
    assert (mcdiarmid.coefficients(draws, 5, "set") * Q).sum() == pytest.approx(average)


@pytest.mark.parametrize(("n", "size"), [(5, 2), (5, 3), (8, 3), (9, 6)])
def test_repeating_an_item_changes_less(n, size):
    multiset = mcdiarmid.repeated_item_difference(n, size)
    assert multiset == pytest.approx((n - 1) / (size * (n - size + 1)))
    assert multiset < mcdiarmid.average_difference(size, n)
    as_set = mcdiarmid.repeated_item_difference(n, size, "set")
    assert as_set == pytest.approx(max(1 / size, 1 / (n - size + 1)))


def test_the_rademacher_average_attains_twice_the_constant():
    assert mcdiarmid.rademacher_change(8, 3) == pytest.approx(0.9333, abs=1e-4)
    assert mcdiarmid.rademacher_difference(3, 8) == pytest.approx(0.9333, abs=1e-4)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.05, 0.2])
def test_mcdiarmid_bounds_an_exact_tail(p, epsilon):
    for size in (4, 30, 200):
        exact = mcdiarmid.binomial_tail(size, p, epsilon)
        assert exact <= mcdiarmid.tail(epsilon, np.full(size, 1 / size))
    coins = np.random.default_rng(0).random((20_000, 30)) < p
    assert mcdiarmid.binomial_tail(30, p, epsilon) == pytest.approx(
        (coins.mean(1) - p >= epsilon - 1e-12).mean(), abs=0.015
    )


def test_the_lower_tail_is_the_upper_tail_of_the_other_side():
    for size, p, epsilon in ((5, 0.3, 0.1), (20, 0.7, 0.2), (7, 0.5, 0.07)):
        lower = mcdiarmid.binomial_lower_tail(size, p, epsilon)
        assert lower == pytest.approx(mcdiarmid.binomial_tail(size, 1 - p, epsilon))
    assert mcdiarmid.binomial_lower_tail(2, 0.5, 0.5) == pytest.approx(0.25)


def test_theorem_3_4_is_twice_lemma_3_2():
    num_pos = np.array([1, 4, 7])
    assert mcdiarmid.theorem_3_4(num_pos, 12, 0.2) == pytest.approx(
        2 * bounds.mcdiarmid(num_pos, 12, 0.2)
    )


def test_deviation_solves_mcdiarmids_inequality_for_epsilon():
    num_pos, n = np.array([2, 5, 3]), 9
    c = [mcdiarmid.average_difference(k, n, 3) for k in num_pos for _ in range(k)]
    epsilon = bounds.mcdiarmid(num_pos, n, 0.07)
    assert mcdiarmid.tail(epsilon, np.array(c)) == pytest.approx(0.07)


@pytest.mark.parametrize("name", ["|ω| fixed", "|ω| = n/2", "|ω̄| fixed"])
def test_regimes_have_the_printed_rates(name):
    ratios = [mcdiarmid.regime_ratio(name, m, n) for m in (100, 10_000) for n in (5000, 50_000)]
    assert np.ptp(ratios) <= 0.01 * np.mean(ratios)


def test_theta_n_positives_alone_do_not_give_the_second_regime():
    small, large = (mcdiarmid.regime("|ω| = n − 1", 1000, n) for n in (100, 10_000))
    assert large > 9 * small
