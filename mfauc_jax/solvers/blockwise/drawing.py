"""All draws of an iteration, made where the users' positives are: a user's places in every block of items.

The positives are sorted by the blocks of items once per iteration, and every user draws its positives and negatives
for all d visits in one go. What a visit needs of a user then has a fixed size, so users can be visited on another
device than the one that holds their positives.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core import draws
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import lookups
from mfauc_jax.solvers.blockwise.placement import Users


class Drawn(NamedTuple):
    """The draws of u users in each of the d blocks of items."""

    places: Int[Array, "u d PQ"]  # within the block: P positives, then Q negatives
    count: Float[
        Array, "u d"
    ]  # N_iC, positives of the user in the block; where 0, the drawn ones are not its own
    g: Float[Array, "u d P"] | None  # of the drawn positives; None: 1/N_i


def draw(
    key: Key[Array, ""],
    users: Users,
    place_of: Int[Array, "n"],
    *,
    d: int,
    num_pos: int,
    num_neg: int,
    row_bits: int,
) -> Drawn:
    """`num_pos` positives and `num_neg` negatives of every user of a row block in every block of items, uniformly.

    Args:
        key: of this row block in this iteration.
        users: the row block.
        place_of: the place of each item; block c has the places c n/d, …, (c + 1) n/d − 1.
        d: number of blocks.
        num_pos: P per visit.
        num_neg: Q per visit.
        row_bits: X.row_bits over all processes.
    """
    size, u = place_of.shape[0] // d, users.length.shape[0]
    start, places, g = partition(users, place_of, d)
    X = Interactions(start, places, None, size, row_bits)  # row c u + i: user i in block c
    rows = jnp.arange(d * u)[:, None]
    count = start[1:] - start[:-1]
    words = draws.words(key, (d * u, num_pos + num_neg))
    slot = start[:-1, None] + draws.below(words[:, :num_pos], count[:, None])
    x = draws.below(words[:, num_pos:], size - count[:, None])
    neg, _ = lookups.complement(X, None, None, jnp.broadcast_to(rows, x.shape), x)

    def by_user(drawn):
        return jnp.moveaxis(drawn.reshape(d, u, *drawn.shape[1:]), 0, 1)

    return Drawn(
        by_user(jnp.concatenate([places[slot], jnp.minimum(neg, size - 1)], 1)),
        by_user(count.astype(users.weight.dtype)),
        None if g is None else by_user(g[slot]),
    )


def partition(
    users: Users, place_of: Int[Array, "n"], d: int
) -> tuple[Int[Array, "du_plus_1"], Int[Array, "E"], Float[Array, "E"] | None]:
    """The positives of a row block by block of items, then by user, then by place: a CSR matrix of d u rows.

    A binary radix sort by block, one pass per bit of d: each entry's new place is a running count. Within a block the
    places are in the order of the items, so the rows stay sorted.

    Returns:
        Where the row c u + i of user i in block c begins; the places within their block; g.
    """
    size, u = place_of.shape[0] // d, users.length.shape[0]
    # padding is last, and a stable sort leaves it there
    place = jnp.append(place_of, d * size - 1)  # by item; that of padding is not read
    block, within = (table[users.items] for table in (place // size, place % size))
    row = jnp.where(users.rows < u, block * u + users.rows, d * u)
    lengths = jnp.zeros(d * u, jnp.int32).at[row].add(1, mode="drop")
    start = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(lengths, dtype=jnp.int32)])
    g = users.g
    for bit in range((d - 1).bit_length()):
        goes = _split((block >> bit) & 1)
        block, within = _sent(goes, block), _sent(goes, within)
        g = None if g is None else _sent(goes, g)
    return start, within, g


def _split(bit: Int[Array, "E"]) -> Int[Array, "E"]:
    """The new place of each entry when those with bit 0 come first, in their order."""
    ones, place = running_count(bit), jnp.arange(bit.shape[0], dtype=bit.dtype)
    return jnp.where(bit == 1, bit.shape[0] - ones[-1] + ones - 1, place - ones)


def running_count(bit: Int[Array, "E"]) -> Int[Array, "E"]:
    """The cumulative sum of zeros and ones: they are packed into words, whose bits a processor counts at once.

    A seventh of the time of `jnp.cumsum` on a CPU.
    """
    count = bit.shape[0]
    digit = jnp.arange(32, dtype=jnp.uint32)[None, :]
    words = jnp.pad(bit, (0, -count % 32)).reshape(-1, 32).astype(jnp.uint32)
    words = (words << digit).sum(1, dtype=jnp.uint32)
    ones = jax.lax.population_count(words).astype(bit.dtype)
    before = jnp.cumsum(ones) - ones
    up_to = words[:, None] & ((jnp.uint32(2) << digit) - jnp.uint32(1))
    within = jax.lax.population_count(up_to).astype(bit.dtype)
    return (within + before[:, None]).reshape(-1)[:count]


def _sent(goes: Int[Array, "E"], values: Array) -> Array:
    return jnp.zeros_like(values).at[goes].set(values, unique_indices=True)
