"""The PAC-Bayes certificate: its ratio of densities, its inequality, and its coverage where V overfits."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from experiments import certify_posterior
from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds, pac_bayes
from mfauc_jax.certify.held_out import held_out_ranks
from mfauc_jax.data.interactions import Interactions


def test_the_log_ratio_is_that_of_two_gaussians_at_the_draw():
    rng = np.random.default_rng(0)
    prior = Factors(jnp.asarray(rng.normal(size=(9, 3))), jnp.asarray(rng.normal(size=(5, 3))))
    V = prior.V + jnp.asarray(0.3 * rng.normal(size=(5, 3)))
    drawn = pac_bayes.draw(jax.random.key(1), prior, V, 0.4)
    U = np.asarray(prior.U)
    covariance = 0.4**2 * np.linalg.inv(U.T @ U / 9)
    density = scipy.stats.multivariate_normal(np.zeros(3), covariance)  # pyright: ignore
    at = np.asarray(drawn.V)
    expected = density.logpdf(at - np.asarray(V)) - density.logpdf(at - np.asarray(prior.V))
    assert drawn.log_ratio == pytest.approx(expected.sum(), rel=1e-9)
    scores = np.asarray(V - prior.V) @ U.T
    assert drawn.divergence == pytest.approx((scores**2).mean(1).sum() / (2 * 0.4**2))
    keys = jax.random.split(jax.random.key(2), 100)
    many = [pac_bayes.draw(key, prior, V, 0.4).log_ratio for key in keys]
    error = np.std(many) / np.sqrt(len(many))
    assert abs(np.mean(many) - drawn.divergence) < 4 * error  # KL is the mean of the log ratio


def test_without_a_move_the_ratio_is_one():
    prior = Factors(jnp.eye(4)[:, :2] + 1, jnp.ones((3, 2)))
    drawn = pac_bayes.draw(jax.random.key(0), prior, prior.V, 0.1)
    assert drawn.log_ratio == drawn.divergence == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma": 0.0}, "sigma = 0.0 must be > 0"),
        ({"V": jnp.ones((2, 2))}, r"\(2, 2\), the prior's \(3, 2\)"),
        ({"prior": Factors(jnp.ones((4, 2)), jnp.ones((3, 2)))}, "dependent columns"),
    ],
)
def test_what_has_no_density_is_refused(change, message):
    prior = Factors(jnp.eye(4)[:, :2] + 1, jnp.ones((3, 2)))
    given = {"prior": prior, "V": prior.V, "sigma": 1.0} | change
    with pytest.raises(ValueError, match=message):
        pac_bayes.draw(jax.random.key(0), **given)


# --- The inequality ---------------------------------------------------------------------------


@given(p=st.floats(0, 1), c=st.sampled_from([0.0, 1e-9, 1e-3, 0.1, 1.0, 50.0]))
def test_the_inverse_of_kl_is_its_largest_argument(p, c):
    q = bounds.kl_inverse(p, c)
    assert p <= q <= 1
    assert bounds.kl(p, q) >= c or q == 1  # rounded up, never down
    assert bounds.kl(p, max(p, q - 1e-9)) <= c + 1e-12


def test_kl_is_scipys():
    p, q = 0.2, 0.7
    expected = scipy.stats.entropy([p, 1 - p], [q, 1 - q])
    assert bounds.kl(p, q) == pytest.approx(expected)
    assert bounds.kl(0.0, 0.0) == bounds.kl(1.0, 1.0) == 0
    assert bounds.kl(0.5, 1.0) == bounds.kl(0.5, 0.0) == float("inf")


@given(chances=st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_coins_that_differ_keep_the_moment_below_two_roots(chances):
    """E exp(K kl(X̄ ‖ p̄)) ≤ 2 √K for independent coins of any chances, by listing all outcomes."""
    K, mean = len(chances), float(np.mean(chances))
    total = 0.0
    for outcome in itertools.product([0, 1], repeat=K):
        chance = np.prod([p if x else 1 - p for x, p in zip(outcome, chances, strict=True)])
        if chance > 1e-14:
            total += chance * np.exp(K * bounds.kl(float(np.mean(outcome)), mean))
    assert total <= 2 * np.sqrt(K) * (1 + 1e-6)


def test_the_bound_is_the_formula():
    ranks = np.array([1.0, 0.5, 0.9, 0.8] * 50)
    made = pac_bayes.from_ranks(ranks, 7.0, 0.1, num_sigmas=3, divergence=6.5)
    complexity = (7 + np.log(2 * np.sqrt(200) * 3 / 0.1)) / 200
    assert made.terms["complexity"] == pytest.approx(complexity)
    assert bounds.kl(0.2, 1 - made.bound) == pytest.approx(complexity)
    assert not made.vacuous and "second half" in str(made)
    assert pac_bayes.from_ranks(ranks, 500.0, 0.1).vacuous


def test_the_budget_is_where_the_two_certificates_meet():
    size, delta = 20_000, 0.05
    budget = pac_bayes.budget(0.10, 0.13, size, delta)
    prior = 1 - bounds.kl_inverse(0.13, np.log(1 / delta) / size)
    ranks = np.full(size, 0.90)
    assert pac_bayes.from_ranks(ranks, budget, delta).bound == pytest.approx(prior)
    assert budget > 100
    assert pac_bayes.budget(0.2, 0.13, size, delta) == 0


# --- Coverage ---------------------------------------------------------------------------------


def overfitted(rng, m=40, n=60, t=3, sigma=0.3):
    """A world in which V runs after the second half: (its certificate, without the ratio, the true AUC)."""
    U, V = rng.normal(size=(m, 3)), rng.normal(size=(n, 3))
    first = Interactions.from_pairs(np.arange(m), rng.integers(n, size=m), shape=(m, n))
    D = np.exp(0.2 * U @ V.T)
    D[np.arange(m), np.asarray(first.indices)] = 0
    D /= D.sum(1, keepdims=True)
    items = np.array([rng.choice(n, t, p=row) for row in D])  # independent draws, with repeats
    pull = np.zeros((n, 3))
    np.add.at(pull, items.ravel(), np.repeat(U, t, axis=0))
    prior = Factors(jnp.asarray(U), jnp.asarray(V))
    key = jax.random.key(int(rng.integers(2**31)))
    drawn = pac_bayes.draw(key, prior, jnp.asarray(V + pull), sigma)
    everything = Interactions.from_scipy((D > 0).astype(float))
    ranks, users = held_out_ranks(Factors(prior.U, drawn.V), first, everything)
    F = np.zeros((m, n))
    F[users, np.asarray(everything.indices)] = ranks
    seen = F[np.arange(m)[:, None], items].ravel()
    honest = pac_bayes.from_ranks(seen, drawn.log_ratio, 0.1).bound
    naive = pac_bayes.from_ranks(seen, 0.0, 0.1).bound
    return honest, naive, float((D * F).sum(1).mean())


@pytest.mark.filterwarnings("ignore:.*contribute nothing")
def test_the_certificate_covers_a_model_that_ran_after_its_sample():
    rng = np.random.default_rng(3)
    runs = np.array([overfitted(rng) for _ in range(100)])
    honest, naive, truth = runs.T
    assert (honest > truth).mean() <= 0.1
    assert (naive > truth).mean() > 0.3  # without the ratio of densities the claim is false


@pytest.mark.filterwarnings("ignore:.*contribute nothing")
def test_the_experiment_records_what_it_certifies():
    rng = np.random.default_rng(0)
    taste = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 40)) + rng.gumbel(size=(80, 40))
    order = np.argsort(-taste, axis=1)[:, :14]
    rows = np.repeat(np.arange(80), 14)
    chosen = rng.permuted(order, axis=1)

    def part(a, b):
        own = np.repeat(np.arange(80), b - a)
        return Interactions.from_pairs(own, chosen[:, a:b].ravel(), shape=(80, 40))

    config = certify_posterior.Config(sigmas=(0.05, 0.2), iterations=2)
    seen = Interactions.from_pairs(
        rows.reshape(80, 14)[:, :12].ravel(), chosen[:, :12].ravel(), shape=(80, 40)
    )
    found = certify_posterior.certified(
        jax.random.key(0), config, 2, part(0, 6), part(6, 12), (seen, part(12, 14))
    )
    assert [r["sigma"] for r in found] == [0.05, 0.2]
    assert all(0 <= r["certified"] <= r["second_half_auc"] for r in found)
    assert found[0]["divergence"] == pytest.approx(16 * found[1]["divergence"])
    for r in found:
        r |= {"dataset": "toy", "rank": 2}
    assert len(certify_posterior.draw(found).splitlines()) == 3
