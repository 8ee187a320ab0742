import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from toys import matrices, quiet

from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.penalties import Auto
from mfauc_jax.objective.weights import Weights


@given(matrices(), st.sampled_from([0.0, 0.7, -0.5]), st.sampled_from([0.0, 0.7, 2.0]))
def test_g_and_g_prime_are_the_papers_distributions(dense, tau, tau_neg):
    X, frequency = quiet(dense), dense.mean(0)
    b = (1 - frequency) ** tau_neg
    usable = [i for i in range(len(dense)) if dense[i].any() and b[~dense[i]].sum() > 0]
    if not usable:
        with pytest.raises(ValueError, match="no user has both"):
            Weights(tau, tau_neg, 0.0).of(X)
        return
    weights = Weights(tau, tau_neg, 0.0).of(X)
    assert np.asarray(weights.usable).tolist() == usable
    g = np.zeros(dense.shape)
    g[dense] = np.asarray(weights.g)
    for i in range(len(dense)):
        if i in usable:
            a = np.where(dense[i], np.where(frequency > 0, frequency, 1) ** tau, 0)
            np.testing.assert_allclose(g[i], a / a.sum(), atol=1e-12)
            mass = b[~dense[i]].sum()
            assert float(weights.neg_mass[i]) == pytest.approx(mass, abs=1e-9)
        else:
            assert (g[i] == 0).all() and float(weights.user[i]) == 0


def test_tau_prefers_popular_positives_and_unpopular_negatives():
    dense = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0]], bool)
    weights = Weights.paper(tau=1.0).of(quiet(dense))
    assert float(weights.g[0]) == pytest.approx(3 * float(weights.g[1]))  # E6
    assert float(weights.b[3]) > float(weights.b[1]) > float(weights.b[0]) == 0


def test_user_weights_follow_activity_and_have_mean_one():
    dense = np.array([[1, 1, 1, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]], bool)
    weights = Weights(0.0, 0.0, user_power=0.5).of(quiet(dense))
    np.testing.assert_allclose(np.asarray(weights.user), [4 / 3, 2 / 3, 0])


def test_confidence_enters_g():
    X = Interactions.of(sp.csr_array([[3.0, 1.0, 0], [0, 1, 0]]), confidence=True)
    np.testing.assert_allclose(np.asarray(Weights.paper().of(X).g), [0.75, 0.25, 1])


def test_the_papers_weights_are_uniform_and_tau_neg_follows_tau_unless_given():
    X = quiet(np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0]], bool))
    paper = Weights.paper().of(X)
    np.testing.assert_allclose(paper.g, [0.5, 0.5, 0.5, 0.5, 1])
    assert (np.asarray(paper.user) == 1).all() and (np.asarray(paper.b) == 1).all()
    assert paper.pos_table is None and paper.neg_table is None
    follows, given_ = Weights(0.7, None, 0.0).of(X), Weights(0.7, 0.7, 0.0).of(X)
    np.testing.assert_array_equal(follows.b, given_.b)
    assert Weights.paper(0.7) == Weights(0.7, None, 0.0) != Weights(0.7, 0.7, 0.0)


def test_bad_exponents_and_hopeless_data_are_named():
    with pytest.raises(ValueError, match="Weights: tau = nan must be a finite number"):
        Weights(tau=float("nan"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        full = Interactions.of(np.ones((2, 2)))
    with pytest.raises(ValueError, match="no user has both"):
        Weights.paper().of(full)


def test_auto_is_the_formula_of_its_docstring():
    """λ_i, λ_j and σ_i by plain loops over users and items, with every exponent away from its default."""
    m, n = 11, 7
    dense = np.random.default_rng(3).random((m, n)) < 0.45
    dense[:, 0], dense[:, 1] = True, False
    X = quiet(dense)
    weights = Weights(tau=-0.3, tau_neg=0.4, user_power=0.6).of(X)
    powers = {"sigma_power": 0.4, "noise_power": 0.3, "reg_user_power": 0.7, "reg_item_power": 0.6}
    reg, spread, _ = Auto(strength=0.9, sigma=1.3, **powers).of(X, weights)

    N, frequency = dense.sum(1), dense.mean(0)
    a, b = np.maximum(frequency, 1 / m) ** -0.3, (1 - frequency) ** 0.4
    w = N**0.6 / (N**0.6).mean()
    sigma = np.maximum(1, 1.3 * ((n - N) / N) ** 0.4)
    noise = 0.9 * sigma.mean() ** 0.3 * (1 + np.sqrt(n / m)) * np.sqrt((w**2 / N).mean())
    h = np.zeros(n)
    for i in range(m):
        for j in range(n):
            if dense[i, j]:
                h[j] += w[i] * a[j] / a[dense[i]].sum()
            else:
                h[j] += w[i] * sigma[i] * b[j] / b[~dense[i]].sum()
    by_user = noise * w**0.7 / (w**0.7).mean()
    by_item = noise * (m / n) * h**0.6 / (h**0.6).mean()
    np.testing.assert_allclose(reg.user, by_user, rtol=1e-10)  # λ_i/m = l_i/m
    np.testing.assert_allclose(np.asarray(reg.item) / n, by_item / m, rtol=1e-10)
    np.testing.assert_allclose(spread, sigma - 1, rtol=1e-10)
