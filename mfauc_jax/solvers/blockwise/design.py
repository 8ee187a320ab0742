"""Random blocks with about equally many positives: shuffle within strata, then deal like cards.

Items (or users), sorted by their number of positives, are cut into strata of at least 4d. Each stratum is shuffled and
dealt to the d blocks in turn, so every block gets an equal share of the popular and of the rare. On MovieLens-1M the
fullest of 16 × 16 blocks holds at most 1.15 times the mean; without strata it holds 1.33 times the mean.

Two items are in the same one of the d blocks with a probability that follows from the design:

    different strata        1/d
    one stratum of s items  (s/d − 1)/(s − 1)

So a pair in one block has the weight d, or d (s − 1)/(s − d), and the mean over assignments is the sum over all pairs
(Horvitz and Thompson; docs/derivations.md#blocks).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core import draws, host, programs

PER_BLOCK = 4  # least number of items of a stratum per block, except in tiny catalogues


def strata(counts: np.ndarray, blocks: int) -> np.ndarray:
    """The stratum of each item, the most popular items in stratum 0; each has 4d items, the last also the rest.

    Args:
        counts: number of positives of each item (or user), [n].
        blocks: d ≥ 1.
    """
    size = PER_BLOCK * blocks
    rank = np.empty(len(counts), np.int64)
    rank[np.argsort(-np.asarray(counts), kind="stable")] = np.arange(len(counts))
    return np.minimum(rank // size, max(len(counts) // size - 1, 0)).astype(np.int32)


def assign(key: Key[Array, ""], stratum: Int[Array, "n"], blocks: int) -> Int[Array, "n"]:
    """The block of each item, in range(d): a shuffle within every stratum, another one per key."""
    n = stratum.shape[0]
    order = jnp.lexsort((draws.words(key, (n,)), stratum))
    return jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32) % blocks)


def together(stratum: np.ndarray, blocks: int) -> Float[np.ndarray, "S"]:
    """(s − 1)/(s − d) per stratum: the weight of a pair within it relative to a pair from two strata.

    The sizes s of the strata must be multiples of d.
    """
    size = np.bincount(stratum).astype(np.float64)
    return (size - 1) / (size - blocks) if blocks > 1 else np.ones_like(size)


def deal(key: Key[Array, ""], counts: np.ndarray, blocks: int) -> np.ndarray:
    """The users block by block, [m]: first the `sizes(m, d)[0]` users of block 0, in ascending order, and so on."""
    block = _assign(key, host.ints(strata(counts, blocks)), blocks=blocks)
    return np.argsort(np.asarray(block), kind="stable")


_assign = programs.jit(assign, static_argnames="blocks")


def sizes(count: int, blocks: int) -> np.ndarray:
    """How many of `count` rows each block gets, [d]: ⌈count/d⌉ for the first blocks, ⌊count/d⌋ for the others."""
    return count // blocks + (np.arange(blocks) < count % blocks)


def schedule(blocks: int) -> np.ndarray:
    """The Latin square of an iteration, [d, d]: in round r, row block a is visited with column block (a + r) mod d."""
    return (np.arange(blocks)[:, None] + np.arange(blocks)[None, :]) % blocks


def check(blocks: int, num_users: int, num_items: int) -> None:
    """Raise ValueError unless there are more users and more items than blocks."""
    if blocks < 1:
        raise ValueError(f"blocks = {blocks} must be ≥ 1")
    for kind, size in (("users", num_users), ("items", num_items)):
        if blocks > 1 and size <= blocks:
            raise ValueError(f"blocks = {blocks} needs more than {blocks} {kind}; there are {size}")


def deal_key(seed: int) -> jax.Array:
    """The key that deals users to blocks, the same in every process."""
    return jax.random.fold_in(jax.random.key(seed), 0xDEA1)
