"""The statistic by which the automatic penalty knows data that hardly stand out of noise."""

import numpy as np
import pytest
from toys import quiet

from mfauc_jax import Auto, Weights
from mfauc_jax.objective import noise

RNG = np.random.default_rng(0)
M, N = 300, 200
ROWS, COLUMNS = RNG.uniform(0.5, 2.0, M), RNG.uniform(0.5, 2.0, N)
FLAT = RNG.random((M, N)) < 0.1  # popularity and nothing else
TASTE = RNG.normal(size=(M, 8)) @ RNG.normal(size=(8, N))
CLEAR = np.quantile(TASTE, 0.9, axis=1, keepdims=True) < TASTE


def dense_ratio(liked: np.ndarray) -> float:
    """ρ by the definition, from full decompositions; the signs are the module's own."""
    X = quiet(liked)
    signed = np.zeros(liked.shape)
    signed[np.nonzero(liked)] = noise._signs(X)
    share = liked.sum(0) / liked.sum()
    centred = liked - liked.sum(1, keepdims=True) * share
    S, R = (ROWS[:, None] * A * COLUMNS for A in (centred, signed))
    return np.linalg.svd(S, compute_uv=False)[3] / np.linalg.svd(R, compute_uv=False)[0]


def weak(strength: float) -> np.ndarray:
    """A pattern so weak that ρ is below one, but not as low as without any."""
    score = strength * TASTE / TASTE.std() + RNG.gumbel(size=TASTE.shape)
    return np.quantile(score, 0.9, axis=1, keepdims=True) < score


@pytest.mark.parametrize("liked", [FLAT, weak(0.2)], ids=["flat", "weak"])
def test_the_power_method_finds_the_ratio_of_the_definition(liked):
    found = noise.standing_out(quiet(liked), ROWS, COLUMNS)
    assert found == pytest.approx(dense_ratio(liked), rel=0.06) and found < 1


def test_a_clear_pattern_stands_out():
    assert dense_ratio(CLEAR) > 1.1
    assert noise.standing_out(quiet(CLEAR), ROWS, COLUMNS) == 1.0


def test_signs_are_fair_and_follow_the_user_and_the_item():
    X = quiet(FLAT)
    signs = noise._signs(X)
    assert set(np.unique(signs)) == {-1.0, 1.0} and abs(signs.mean()) < 4 / np.sqrt(X.nnz)
    order = RNG.permutation(M)
    of_users = np.split(signs, np.asarray(X.indptr)[1:-1])
    shuffled = np.concatenate([of_users[i] for i in order])
    np.testing.assert_array_equal(noise._signs(quiet(FLAT[order])), shuffled)


def test_the_order_of_the_users_does_not_matter():
    order = RNG.permutation(M)
    one = noise.standing_out(quiet(FLAT), ROWS, COLUMNS)
    other = noise.standing_out(quiet(FLAT[order]), ROWS[order], COLUMNS)
    assert one == pytest.approx(other, rel=1e-9)


@pytest.mark.parametrize("shape", [(31, 200), (200, 31)])
def test_small_data_tell_nothing(shape):
    liked = RNG.random(shape) < 0.2
    assert noise.standing_out(quiet(liked), np.ones(shape[0]), np.ones(shape[1])) == 1.0


def test_positives_without_pattern_raise_every_lambda_alike():
    flat, clear = quiet(FLAT), quiet(CLEAR)
    for X, low, high in ((flat, 1.05, 1.4), (clear, 1.0, 1.0)):
        pairs = Weights().of(X)
        own, fixed = (Auto(lift=lift).of(X, pairs).reg for lift in (None, 1.0))
        by_user, by_item = (np.asarray(a) / np.asarray(b) for a, b in zip(own, fixed, strict=True))
        np.testing.assert_allclose(by_user, by_user[0], rtol=1e-12)
        np.testing.assert_allclose(by_item, by_user[0], rtol=1e-12)
        assert low <= by_user[0] <= high + 1e-12


def between(strength: float = 1.05) -> np.ndarray:
    """Users of 8 to 39 positives, some items popular, and a pattern for which the lift is between its ends."""
    rng = np.random.default_rng(1)
    taste = rng.normal(size=(M, 8)) @ rng.normal(size=(8, N))
    score = strength * taste / taste.std() + 0.7 * rng.normal(size=N) + rng.gumbel(size=taste.shape)
    return np.argsort(np.argsort(-score, 1), 1) < rng.integers(8, 40, (M, 1))


def test_the_lift_is_the_statistic_with_the_scales_of_the_default_penalty():
    """Kills: another exponent, slope or σ in the scales."""
    X = quiet(between())
    weights = Weights(tau=0.0).of(X)
    reg = Auto(lift=1.0).of(X, weights).reg
    rows = np.asarray(weights.user) / X.on_host()[2] / np.asarray(reg.user) ** 0.5  # λ_i ∝ w^½
    rho = noise.standing_out(X, rows, np.asarray(reg.item) ** -0.5)
    found = Auto().of(X, weights).constants["lift"]
    assert found == pytest.approx(1 + 6 * (1 - rho), rel=1e-4) and 1.05 < found < 1.39


@pytest.mark.parametrize("weights", [Weights(tau=-0.4), Weights(user_power=0.0, tau_neg=1.0)])
@pytest.mark.parametrize("rule", [Auto(sigma=4.0), Auto(reg_item_power=0.0), Auto(spread=0.0)])
def test_no_setting_moves_the_lift(weights, rule):
    """Else another τ could raise every λ by two fifths at once, as it did on Book Crossing."""
    X = quiet(between())
    own = Auto().of(X, Weights().of(X)).constants["lift"]
    assert 1.05 < own < 1.39 and rule.of(X, weights.of(X)).constants["lift"] == own


def test_a_given_lift_multiplies_the_strength():
    X = quiet(FLAT)
    pairs = Weights().of(X)
    twice, strong = Auto(lift=2.0).of(X, pairs), Auto(strength=0.8, lift=1.0).of(X, pairs)
    np.testing.assert_allclose(twice.reg.user, strong.reg.user, rtol=1e-12)
    np.testing.assert_allclose(twice.reg.item, strong.reg.item, rtol=1e-12)
