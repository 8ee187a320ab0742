import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toys import one_shape, quiet, random_factors

from mfauc_jax.objective import equation, lookups, sampling
from mfauc_jax.objective.weights import Weights

complement, contains = jax.jit(lookups.complement), jax.jit(lookups.contains)
for_items = jax.jit(sampling.for_items, static_argnums=(4, 5))


def triples(dense, tau=0.0):
    X = quiet(dense)
    return X, Weights.paper(tau).of(X)


@given(one_shape())
def test_the_rth_negative_is_the_rth_item_not_in_the_row(dense):
    users, items = np.nonzero(~dense)
    rank = np.concatenate([np.arange((~row).sum()) for row in dense])
    found, _ = complement(quiet(dense), None, None, jnp.asarray(users), jnp.asarray(rank))
    np.testing.assert_array_equal(found, items)


@given(one_shape())
def test_membership_is_found_by_bisection(dense):
    users, items = (jnp.asarray(place) for place in np.indices(dense.shape))
    found, _ = contains(quiet(dense), users, items)
    np.testing.assert_array_equal(found, dense)


@pytest.mark.parametrize("tau", [0.0, 0.7])
def test_draws_follow_g_and_g_prime(tau):
    rng = np.random.default_rng(1)
    dense = rng.random((4, 8)) < 0.4
    dense[:, 0], dense[:, 7] = True, False
    X, weights = triples(dense, tau)
    draws = 20_000
    for i in range(4):
        user = jnp.array([i])
        for draw, exact in (
            (sampling.draw_positives, sampling.everything(X, weights)[1::2]),
            (sampling.draw_negatives, sampling.everything(X, weights)[2::2]),
        ):
            items, share = draw(jax.random.key(i), X, weights, user, draws)
            expected = np.zeros(8)
            np.add.at(expected, np.asarray(exact[0][i]), np.asarray(exact[1][i]))
            seen = np.bincount(np.asarray(items[0]), minlength=8) / draws
            assert (seen[expected == 0] == 0).all()
            np.testing.assert_allclose(seen, expected, atol=4.5 * 0.5 / np.sqrt(draws))
            np.testing.assert_allclose(np.asarray(share), 1 / draws, rtol=1e-5)


def enumerated_gradient(X, weights, factors, sample, i):
    """∂θ/∂u_i of one user in full."""
    only = jax.tree.map(lambda a: a[i : i + 1] if jnp.ndim(a) else a, sample)
    o = equation.make("logistic")
    return jax.grad(lambda U: equation.risk(o, factors._replace(U=U), only))(factors.U)[i]


def test_sampling_uniformly_and_multiplying_by_g_alone_would_be_biased():
    """By enumeration at κ = 1: only draws from g, g′ with plain means are unbiased (docs/derivations.md#estimators)."""
    dense = np.array([[1, 1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 1, 0]], bool)
    X, weights = triples(dense, 0.9)
    factors = random_factors(0, X)
    sample = sampling.everything(X, weights)
    truth = enumerated_gradient(X, weights, factors, sample, 0)
    o = equation.make("logistic")
    V, u = factors.V, factors.U[0]
    pos, neg = sample.pos[0, :3], sample.neg[0, :4]
    g, g_neg = sample.g_pos[0, :3], sample.g_neg[0, :4]

    def term(p, q):
        return jax.grad(lambda u: o.loss(u @ V[p] - u @ V[q]))(u)

    terms = np.array([[term(p, q) for q in neg] for p in pos])
    drawn = np.einsum("p,q,pqk->k", g, g_neg, terms)
    twice = np.einsum("p,q,pqk->k", np.asarray(g) ** 2, np.asarray(g_neg) ** 2, terms)
    np.testing.assert_allclose(drawn, truth, atol=1e-12)
    assert np.linalg.norm(twice - truth) > 0.5 * np.linalg.norm(truth)


def test_halves_share_the_draws():
    dense = np.random.default_rng(0).random((5, 9)) < 0.4
    X, weights = triples(dense)
    sample = sampling.uniform(jax.random.key(0), X, weights, weights.usable, 2, 6)
    first, second = sampling.halves(sample)
    assert (jnp.concatenate([first.neg, second.neg], 1) == sample.neg).all()
    assert float(first.g_neg.sum(1)[0]) == pytest.approx(1.0)


def test_one_user_whose_only_negative_is_the_item_has_no_other_to_draw():
    dense = np.array([[1, 1, 0], [1, 0, 0]], bool)
    X, weights = triples(dense)
    sample = sampling.for_item(jax.random.key(0), X, weights, jnp.array(2), 8, 3)
    alone = np.asarray(sample.users) == 0
    assert alone.any()
    assert (np.asarray(sample.g_neg)[alone, 1:] == 0).all()
    assert (np.asarray(sample.g_neg)[:, 0] == np.where(alone, 1.0, 0.5)).all()


EXTREME = np.arange(5)[None, :] <= np.arange(4)[:, None]  # all have item 0, nobody item 4


@settings(max_examples=15)
@example(EXTREME, 0, 0.0)
@given(one_shape(), st.integers(0, 50), st.sampled_from([0.0, 0.7]))
def test_weights_of_an_item_sample_add_up(dense, seed, tau):
    X, weights = triples(dense, tau)
    everything = jnp.arange(X.num_items)
    columns = dataclasses.replace(X.transpose(), row_bits=X.row_bits)  # one program for all
    drawn = [
        for_items(jax.random.key(seed), X, weights, everything, 4, 2, of) for of in (None, columns)
    ]
    for item in range(X.num_items):
        for samples in drawn:
            sample = jax.tree.map(lambda a: a[item], samples)  # noqa: B023
            counted = np.asarray(sample.user_weight) > 0
            users = np.asarray(sample.users)[counted]
            has = dense[users, item]
            negatives = np.asarray(sample.neg)[counted]
            assert not dense[users[:, None], negatives][np.asarray(sample.g_neg)[counted] > 0].any()
            assert (np.asarray(sample.g_pos)[counted, 0] > 0).tolist() == has.tolist()
            totals = np.asarray(sample.g_neg)[counted].sum(1)
            if tau == 0:
                np.testing.assert_allclose(totals, 1.0, atol=1e-9)
