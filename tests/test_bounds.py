"""Constants, deviation terms and the terms of the Rademacher certificates, against plain NumPy."""

import jax
import numpy as np
import pytest

from mfauc_jax.certify import bounds, rademacher, spectral
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import losses
from mfauc_jax.solvers.base import gaussian
from theory.function_class import paper_losses


@pytest.fixture
def design():
    rng = np.random.default_rng(0)
    dense = (rng.random((14, 11)) < 0.4).astype(float)
    dense[:, 0], dense[:, 1] = 1, 0
    return Interactions.from_scipy(dense), dense, gaussian(jax.random.key(1), 14, 11, 3, 1.0)


@pytest.mark.parametrize("name", losses.PAPER_LOSSES)
@pytest.mark.parametrize("gamma", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_constants_bound_the_loss_and_are_attained(name, gamma, beta):
    loss = paper_losses(beta)[name]
    B, w, zero = bounds.constants(loss, gamma)
    x = np.linspace(-gamma, gamma, 4001)
    values = np.asarray(loss(x))
    slopes = np.abs(np.diff(values) / np.diff(x))
    assert slopes.max() <= B + 1e-9
    assert slopes.max() >= 0.99 * B
    assert np.ptp(values) == pytest.approx(w, rel=1e-6)
    assert zero == pytest.approx(float(loss(0.0)))


@pytest.mark.parametrize("reference", ["negatives", "others"])
@pytest.mark.parametrize("name", losses.PAPER_LOSSES)
def test_user_risks_equal_a_triple_loop(name, reference, design):
    X, dense, factors = design
    S, loss = np.asarray(factors.U @ factors.V.T), paper_losses(2.0)[name]
    expected = []
    for s, row in zip(S, dense, strict=True):
        pos = np.flatnonzero(row)
        pairs = [
            s[p] - s[q]
            for p in pos
            for q in range(len(s))
            if (row[q] == 0 if reference == "negatives" else q != p)
        ]
        expected.append(np.mean(np.asarray(loss(np.array(pairs)))))
    np.testing.assert_allclose(bounds.user_risks(loss, factors, X, reference), expected, atol=1e-12)


def test_mcdiarmid_term_by_hand():
    num_pos, n, delta = np.array([2, 3]), 6, 0.1
    spread = (5 / 4) ** 2 / 2 + (5 / 3) ** 2 / 3
    assert bounds.mcdiarmid(num_pos, n, delta) == pytest.approx(
        np.sqrt(np.log(10) / 2 * spread / 4)
    )


def test_bernstein_is_maurer_and_pontil_when_weights_are_equal():
    x, delta = np.random.default_rng(0).random(50), 0.05
    log = np.log(2 / delta)
    expected = np.sqrt(2 * x.var(ddof=1) * log / 50) + 7 * log / (3 * 49)
    equal = np.full(50, 1 / 50)
    assert bounds.bernstein(x, equal, delta) == pytest.approx(expected)
    assert bounds.bernstein(3 * x, equal, delta, width=3.0) == pytest.approx(3 * expected)
    assert bounds.bernstein(x[:1], np.ones(1), delta) == np.inf


@pytest.mark.parametrize("method", ["hoeffding", "bernstein"])
@pytest.mark.parametrize("equal", [True, False])
def test_widths_cover_sums_of_unlike_variables(method, equal):
    """Bernoulli of differing means and weights: the mean is known, misses must be rarer than δ."""
    rng, delta = np.random.default_rng(1), 0.1
    p = rng.uniform(0.7, 1, 60)
    w = np.full(60, 1 / 60) if equal else rng.dirichlet(np.full(60, 3.0))
    misses = 0
    for _ in range(1000):
        x = (rng.random(60) < p).astype(float)
        half = (
            bounds.hoeffding(w, delta)
            if method == "hoeffding"
            else bounds.bernstein(1 - x, w, delta)
        )
        misses += w @ x - half > w @ p
    assert misses <= 100


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.25, 0.2500001, 1.0, 3.7, 512.0, 512.0000001])
def test_peel_is_the_smallest_ceiling(value):
    level, ceiling = bounds.peel(value, 0.25)
    assert ceiling >= value
    assert ceiling == pytest.approx(0.25 * 2 ** (level / 4))
    assert level == 0 or 0.25 * 2 ** ((level - 1) / 4) < value


def test_peeled_levels_use_no_more_than_delta():
    levels = np.arange(100_000.0)
    assert (1 / ((levels + 1) * (levels + 2))).sum() <= 1


@pytest.mark.parametrize("kind", ["rademacher_users", "rademacher_draws"])
def test_terms_are_the_formula(kind, design):
    X, dense, factors = design
    norm = rademacher.expected_norm(jax.random.key(0), X, kind, delta=0.05, draws=60)
    terms = rademacher.bound_terms(norm, factors, X, "logistic")
    m, N = 14, dense.sum(1)
    rho, gamma = terms["nuclear_norm_ceiling"], terms["margin_ceiling"]
    S = np.asarray(factors.U @ factors.V.T)
    assert np.linalg.norm(S, "nuc") <= rho <= 2**0.25 * np.linalg.norm(S, "nuc")
    assert np.ptp(S, axis=1).max() <= gamma <= 2**0.25 * np.ptp(S, axis=1).max()
    B = 1 / (1 + np.exp(-gamma))
    assert terms["complexity"] == pytest.approx(2 * B * rho * terms["expected_norm_bound"] / m)
    l1, l2 = round(4 * np.log2(rho)), round(4 * np.log2(4 * gamma))
    delta = 0.9 * 0.05 / ((l1 + 1) * (l1 + 2) * (l2 + 1) * (l2 + 2))
    spread = (10 / (11 - N)) ** 2 / N if kind == "rademacher_users" else 1 / N
    deviation = 3 * gamma * np.sqrt(np.log(1 / delta) / 2 * spread.sum() / m**2)
    assert terms["deviation"] == pytest.approx(deviation)
    assert terms["expected_norm"] <= terms["expected_norm_bound"]


def test_expected_norm_bound_covers_the_long_run_mean(design):
    X = design[0]
    norm = rademacher.expected_norm(jax.random.key(0), X, delta=0.05, draws=300)
    rng, rows = np.random.default_rng(5), spectral.defined_rows(X)
    long = [np.linalg.norm(spectral.one_pair_each(rng, rows).toarray(), 2) for _ in range(3000)]
    assert np.mean(long) <= norm.bound < np.sqrt(2 * 14)


def test_an_unknown_loss_is_named():
    with pytest.raises(ValueError, match="did you mean 'logistic'"):
        bounds.constants("logistik", 1.0)


def test_a_loss_outside_the_paper_is_refused_with_the_way_out():
    own = losses.Loss.from_function(lambda x: 0.5 * (1 - x) ** 2)
    with pytest.raises(ValueError, match="no known Lipschitz constant.*bounds.CONSTANTS"):
        bounds.constants(own, 1.0)


def test_a_subclass_may_have_another_formula_and_is_not_trusted():
    loss = type("Steeper", (losses.Square,), {}, listed=False)()
    with pytest.raises(ValueError, match="no known Lipschitz constant"):
        bounds.constants(loss, 1.0)
