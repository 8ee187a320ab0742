"""The cheap random words: uniform, independent across places and keys, fixed by the key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from mfauc_jax._core import draws, host

KEYS = jax.random.split(jax.random.key(0), 64)
WORDS = np.asarray(jax.vmap(lambda key: draws.words(key, (4096,)))(KEYS))


def test_words_are_uniform_in_every_byte():
    for shift in (0, 8, 16, 24):
        counts = np.bincount((WORDS >> shift & 255).ravel(), minlength=256)
        assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_neighbours_and_neighbouring_keys_are_independent():
    high = WORDS >> 28
    for a, b in ((high[:, :-1], high[:, 1:]), (high[:-1], high[1:]), (high, WORDS & 15)):
        counts = np.bincount((a.astype(int) * 16 + b).ravel(), minlength=256)
        assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_every_bit_flips_half_the_time():
    flipped = WORDS[:-1] ^ WORDS[1:]
    share = [(flipped >> bit & 1).mean() for bit in range(32)]
    np.testing.assert_allclose(share, 0.5, atol=5 * 0.5 / np.sqrt(flipped.size))


def test_below_is_uniform_and_stays_below():
    drawn = np.asarray(draws.below(jnp.asarray(WORDS), 7))
    assert scipy.stats.chisquare(np.bincount(drawn.ravel(), minlength=7)).pvalue > 1e-4
    bound = jnp.asarray([1, 2, 3, 2**31 - 1])
    top = draws.below(jnp.full(4, 2**32 - 1, jnp.uint32), bound)
    assert (np.asarray(top) == np.asarray(bound) - 1).all()


def test_shuffles_are_uniform_over_permutations():
    keys = jax.random.split(jax.random.key(1), 6000)
    orders = np.asarray(jax.vmap(lambda key: draws.shuffled(key, jnp.arange(3)))(keys))
    counts = np.bincount(orders @ np.array([9, 3, 1]), minlength=27)
    assert (counts > 0).sum() == 6
    assert scipy.stats.chisquare(counts[counts > 0]).pvalue > 1e-4


def test_a_key_gives_the_same_words():
    assert (draws.words(KEYS[0], (64, 64)).ravel() == WORDS[0]).all()


def test_keys_of_a_seed_are_distinct_and_the_same_each_time():
    first, second = host.keys(7, 2), host.keys(7, 2)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(jax.random.key_data(a), jax.random.key_data(b))
        assert a.dtype == jax.random.key(0).dtype
    words = {tuple(np.asarray(jax.random.key_data(k))) for s in range(50) for k in host.keys(s, 2)}
    assert len(words) == 100
    with pytest.raises(ValueError, match="seed = -1 must be"):
        host.keys(-1, 2)
