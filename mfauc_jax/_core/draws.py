"""Cheap random numbers for inner loops: 32-bit words, integers below a bound, a shuffle."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, UInt32


def words(
    key: Key[Array, ""], shape: tuple[int, ...], first: int | Int[Array, ""] = 0
) -> UInt32[Array, "..."]:
    """Random 32-bit words of the given shape: a counter hashed with the key, for draws in inner loops.

    The hash is Wellons' lowbias32, applied twice, once with each half of the key. Threefry, which makes JAX's
    keys, takes twenty times as long per word and half a second to compile at each use.

    Args:
        key: a key.
        shape: of the words.
        first: the counter of the first word: words can be made in parts, each where the last one ended.
    """
    halves = jax.random.key_data(key)
    counter = jax.lax.iota(jnp.uint32, math.prod(shape))
    if not isinstance(first, int) or first:
        counter = counter + jnp.asarray(first).astype(jnp.uint32)
    counter = counter * jnp.uint32(0x9E3779B9)
    return _hashed(_hashed(counter + halves[0]) ^ halves[-1]).reshape(shape)


def _hashed(x: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def shuffled(key: Key[Array, ""], values: Int[Array, "n"]) -> Int[Array, "n"]:
    """The values in random order."""
    return values[jnp.argsort(words(key, values.shape))]


def below(words: UInt32[Array, "..."], bound) -> Int[Array, "..."]:
    """⌊word · bound / 2³²⌋: uniform on range(bound), with a relative error of at most bound/2³².

    This is the high word of a 32 × 32 bit product, computed in 16-bit pieces: it needs one random word per
    draw and no 64-bit integers.

    Args:
        words: random words, as from `words`.
        bound: the number of possible values, ≥ 1; one number, or an array that broadcasts with `words`.
    """
    bound = jnp.asarray(bound).astype(jnp.uint32)
    high, low = words >> 16, words & 0xFFFF
    bound_high, bound_low = bound >> 16, bound & 0xFFFF
    middle = high * bound_low + ((low * bound_low) >> 16)
    carry = low * bound_high + (middle & 0xFFFF)
    return (high * bound_high + (middle >> 16) + (carry >> 16)).astype(jnp.int32)
