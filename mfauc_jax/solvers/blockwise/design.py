"""Random blocks with about equally many positives: shuffle within strata, then deal like cards.

Items (or users), sorted by their number of positives, are cut into strata of 4d. Each stratum is shuffled and dealt to
the d blocks in turn, so every block gets an equal share of the popular and of the rare. On MovieLens-1M the fullest of
16 × 16 blocks holds at most 1.15 times the mean; without strata it holds 1.33 times the mean.

Two items are in the same one of the d blocks with a probability that follows from the design:

    different strata              1/d
    one stratum of s = 4d items   (s/d − 1)/(s − 1) = 3/(4d − 1)

So a pair in one block has the weight d, or d (s − 1)/(s − d), and the mean over assignments is the sum over all pairs
(Horvitz and Thompson; docs/derivations.md#blocks).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from mfauc_jax._core import draws, host, programs

PER_BLOCK = 4  # number of items of a stratum per block


def stratum_size(blocks: int) -> int:
    """s = 4d; one block needs no strata."""
    return PER_BLOCK * blocks if blocks > 1 else 1


def padded(count: int, blocks: int) -> int:
    """The number of rows that are dealt: `count` and padding, so that all strata are full."""
    size = stratum_size(blocks)
    return -(-count // size) * size


def ranked(counts: np.ndarray, blocks: int) -> Int[np.ndarray, "padded"]:
    """The rows by falling number of positives, padding last: the strata are runs of `stratum_size`.

    Args:
        counts: number of positives of each item (or user), [n].
        blocks: d ≥ 1.
    """
    counts = np.asarray(counts)
    full = np.full(padded(len(counts), blocks), -1, np.int64)
    full[: len(counts)] = counts
    return np.argsort(-full, kind="stable").astype(np.int32)


def dealt(key: Key[Array, ""], ranked: Int[Array, "n"], blocks: int) -> Int[Array, "d n_over_d"]:
    """The rows of each block, from the most to the least popular: a shuffle within every stratum, another per key."""
    strata = ranked.reshape(-1, stratum_size(blocks))
    order = jnp.argsort(draws.words(key, strata.shape), axis=1)
    return jnp.take_along_axis(strata, order, 1).reshape(-1, blocks).T


def together(blocks: int) -> float:
    """(s − 1)/(s − d): the weight of a pair within a stratum relative to a pair from two strata."""
    size = stratum_size(blocks)
    return (size - 1) / (size - blocks) if blocks > 1 else 1.0


def deal(key: Key[Array, ""], counts: np.ndarray, blocks: int) -> np.ndarray:
    """The users block by block, [m]: first the `sizes(m, d)[0]` users of block 0, in ascending order, and so on."""
    by_block = np.asarray(_dealt(key, host.ints(ranked(counts, blocks)), blocks=blocks))
    order = by_block.T.reshape(-1)
    order = order[order < len(counts)]  # without padding, dealt in turn again
    return np.concatenate([np.sort(order[block::blocks]) for block in range(blocks)])


_dealt = programs.jit(dealt, static_argnames="blocks")


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


def to_every_block(blocks: int) -> int:
    """Users go to all d row blocks."""
    return blocks


def stay_at_home(blocks: int) -> int:
    """Users stay in their home block."""
    del blocks
    return 1


# by the name of what is reassigned: into how many parts a home block deals its users
REASSIGN: dict[str, Callable[[int], int]] = {"both": to_every_block, "columns": stay_at_home}
