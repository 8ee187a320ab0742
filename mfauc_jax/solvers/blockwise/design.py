"""Random blocks with about as many positives each: shuffle within strata, deal like cards.

Items (or users) sorted by how many positives they have are cut into strata of at least 4d; each
stratum is shuffled and dealt to d blocks in turn, so every block gets as many of the popular as of the
rare. On MovieLens-1M the fullest of 16 × 16 blocks holds at most 1.15 times the mean; without strata it
is 1.33.

Two items meet in one of the d blocks with a probability that the design decides:

    different strata        1/d
    one stratum of s items  (s/d − 1)/(s − 1)

so a pair that met counts for d, or d (s − 1)/(s − d): the mean over assignments is then the sum over
all pairs (Horvitz and Thompson; docs/derivations.md#blocks).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core import draws

PER_BLOCK = 4  # items of a stratum in a block, at least (but for tiny catalogues)


def strata(counts: np.ndarray, blocks: int) -> np.ndarray:
    """The stratum of each item, most popular first; every stratum has ≥ 4d items, the last the rest.

    Args:
        counts: positives of each item (or user).
        blocks: d.
    """
    size = PER_BLOCK * blocks
    rank = np.empty(len(counts), np.int64)
    rank[np.argsort(-np.asarray(counts), kind="stable")] = np.arange(len(counts))
    return np.minimum(rank // size, max(len(counts) // size - 1, 0)).astype(np.int32)


def assign(key: Key[Array, ""], stratum: Int[Array, "n"], blocks: int) -> Int[Array, "n"]:
    """The block of each item: a new shuffle within every stratum for every key."""
    n = stratum.shape[0]
    order = jnp.lexsort((draws.words(key, (n,)), stratum))
    return jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32) % blocks)


def together(stratum: np.ndarray, blocks: int) -> Float[np.ndarray, "S"]:
    """(s − 1)/(s − d) by stratum: how much more a pair within it counts than a pair of two strata.

    Needs strata whose sizes are multiples of d.
    """
    size = np.bincount(stratum).astype(np.float64)
    return (size - 1) / (size - blocks) if blocks > 1 else np.ones_like(size)


def deal(key: Key[Array, ""], counts: np.ndarray, blocks: int) -> np.ndarray:
    """Users block by block: `sizes(m, d)[0]` of the first, and so on. Each block's in their own order."""
    block = assign(key, jnp.asarray(strata(counts, blocks)), blocks)
    return np.argsort(np.asarray(block), kind="stable")


def sizes(count: int, blocks: int) -> np.ndarray:
    """How many of `count` each block gets: ⌈count/d⌉ for the first, ⌊count/d⌋ for the others."""
    return count // blocks + (np.arange(blocks) < count % blocks)


def schedule(blocks: int) -> np.ndarray:
    """The Latin square of an iteration: in round r row block a meets column block (a + r) mod d."""
    return (np.arange(blocks)[:, None] + np.arange(blocks)[None, :]) % blocks


def check(blocks: int, num_users: int, num_items: int) -> None:
    """Refuse blocks that some user or item could not be in."""
    if blocks < 1:
        raise ValueError(f"blocks = {blocks} must be ≥ 1")
    for kind, size in (("users", num_users), ("items", num_items)):
        if blocks > 1 and size <= blocks:
            raise ValueError(f"blocks = {blocks} needs more than {blocks} {kind}; there are {size}")


def deal_key(seed: int) -> jax.Array:
    """The key that deals users to blocks, the same in every process."""
    return jax.random.fold_in(jax.random.key(seed), 0xDEA1)
