"""The rows of X, which differ in length, in shapes that can be compiled.

Buckets: rectangles of rows of similar length. Tiles: pieces of one length, whole rows in a chunk. Walk: chunks of rows
that are read a few positives at a time.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mfauc_jax._core import host
from mfauc_jax.data.interactions import Interactions

T = TypeVar("T")
CELLS = 2048  # positives a walk looks at in one step: their rows of V stay in the cache


class Bucket(NamedTuple):
    """Users of similar N_i with their positives padded to one length P."""

    users: Int[Array, "b"]
    items: Int[Array, "b P"]  # padding repeats the row's first item
    slots: Int[Array, "b P"]  # place of each positive in `Interactions.indices`
    real: Float[Array, "b P"]  # 1, or 0 for padding


def padded(
    X: Interactions, rows: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The items of some rows, their places in `X.indices` and whether they are real, [rows, width] each.

    Padding repeats a row's first item.
    """
    indptr = np.asarray(X.indptr)
    start, lengths = indptr[rows][:, None], np.diff(indptr)[rows][:, None]
    offsets = np.arange(width)[None, :]
    real = offsets < lengths
    slots = start + np.where(real, offsets, 0)
    return np.asarray(X.indices)[slots], slots, real


def cut(values: Array, size: int, repeat: bool = False) -> Array:
    """The first axis in blocks of `size`: [blocks, size, …]; the last is filled with zeros, or with repeats."""
    count = values.shape[0]
    if repeat:
        filled = values[np.arange(-(-count // size) * size) % count]
    else:
        filled = jnp.pad(values, [(0, -count % size)] + [(0, 0)] * (values.ndim - 1))
    return filled.reshape(-1, size, *values.shape[1:])


def buckets(X: Interactions, users: np.ndarray | None = None, ratio: int = 4) -> list[Bucket]:
    """The rows of X as padded rectangles, lengths within a factor `ratio` of each other.

    Padding makes rows batchable; few distinct lengths make few compilations.
    """
    lengths = np.asarray(X.row_lengths)
    users = np.arange(X.num_users) if users is None else np.asarray(users)
    users = users[lengths[users] > 0]
    longest = int(lengths.max(initial=1))
    result, low, high = [], 0, min(8, longest)
    while len(users) and low < longest:
        chosen = users[(lengths[users] > low) & (lengths[users] <= high)]
        if len(chosen):
            items, slots, real = padded(X, chosen, int(lengths[chosen].max()))
            users_, items, at = map(host.ints, (chosen, items, slots))
            result.append(Bucket(users_, items, at, host.floats(real)))
        low, high = high, high * ratio
    return result


class Tiles(NamedTuple):
    """The rows of X cut into tiles of one length T, in chunks of c tiles that hold whole rows.

    One shape, so one compilation, whatever the rows' lengths; a chunk's rows are local systems.
    """

    rows: Int[Array, "chunks r"]  # the row of each local system; m where there is none
    local: Int[Array, "chunks c"]  # which local system a tile belongs to; rising
    items: Int[Array, "chunks c T"]
    values: tuple[Float[Array, "chunks c T"], ...]  # what the positives carry; padding 0


def tiles(X: Interactions, budget: int, *values: np.ndarray) -> Tiles:
    """Every non-empty row of X in tiles; `budget` bounds the positives (with padding) of a chunk.

    Args:
        X: the rows.
        budget: c · T at the most, unless one row alone is longer.
        values: what each positive carries, [nnz] each.
    """
    lengths, starts = np.asarray(X.row_lengths), np.asarray(X.indptr)[:-1]
    rows = np.flatnonzero(lengths)
    T = int(np.clip(2 ** round(np.log2(max(lengths[rows].mean() / 3, 1))), 8, 64))
    per_row = -(-lengths[rows] // T)  # tiles of each row
    c = max(1, min(budget // T, int(per_row.sum())), int(per_row.max()))
    begin = np.concatenate([[0], np.cumsum(per_row)])  # first tile of each row
    first = [0]  # row of each chunk; next fit: whole rows only
    while first[-1] < len(rows):
        first.append(int(np.searchsorted(begin, begin[first[-1]] + c, side="right")) - 1)
    first = np.asarray(first)
    chunk_of = np.repeat(np.arange(len(first) - 1), np.diff(first))
    owner = np.repeat(np.arange(len(rows)), per_row)  # row of each tile
    place = np.arange(len(owner)) - begin[first[chunk_of[owner]]]  # of a tile in its chunk
    at = chunk_of[owner], place
    most = int(np.diff(first).max())  # rows of a chunk
    table = np.full((len(first) - 1, most), X.num_users, np.int32)
    table[chunk_of, np.arange(len(rows)) - first[chunk_of]] = rows
    local = np.full((len(first) - 1, c), most - 1, np.int32)
    local[at] = owner - first[chunk_of[owner]]
    offset = (np.arange(len(owner)) - begin[owner]) * T
    within = offset[:, None] + np.arange(T)[None, :]
    exists = within < lengths[rows][owner][:, None]
    slot = starts[rows][owner][:, None] + np.where(exists, within, 0)

    def laid_out(values):
        out = np.zeros((len(first) - 1, c, T), values.dtype)
        out[at] = values[slot] * exists
        return out

    return Tiles(
        host.ints(table),
        host.ints(local),
        host.ints(laid_out(np.asarray(X.indices))),
        tuple(host.floats(laid_out(np.asarray(v))) for v in values),
    )


class Walk(NamedTuple):
    """The non-empty rows of X, longest first, in chunks of b that are read `width` items a step.

    Rows of a chunk are about equally long, so little is padded. (Rectangles by length compile
    once for each length: ten times as long on MovieLens.)
    """

    X: Interactions
    chunks: Int[Array, "c b"]  # m, which is out of range, for padding
    offsets: Int[Array, "width"]  # 0 … width − 1


def walk(X: Interactions) -> Walk:
    """The width is near the mean length, between 8 and 32."""
    lengths = np.asarray(X.row_lengths)
    rows = np.argsort(-lengths, kind="stable")[: int((lengths > 0).sum())]
    width = int(2 ** np.clip(np.ceil(np.log2(X.nnz / len(rows))), 3, 5))
    b = min(CELLS // width, len(rows))
    rows = np.pad(rows, (0, -len(rows) % b), constant_values=X.num_users)
    return Walk(X, jnp.asarray(rows.reshape(-1, b), jnp.int32), jnp.arange(width, dtype=jnp.int32))


def fold(
    layout: Walk,
    rows: Int[Array, "b"],
    add: Callable[[T, Int[Array, "b width"], Bool[Array, "b width"]], T],
    initial: T,
) -> T:
    """Fold `add(total, slots, real)` over the positives of a chunk's rows.

    Args:
        layout: of X.
        rows: one of its chunks; a padding row has no positives.
        add: `slots` are places in `X.indices`, in range also where they are not `real`.
        initial: the total before the first step.
    """
    X, width = layout.X, layout.offsets.shape[0]
    start, end = (X.indptr.at[at].get(mode="clip") for at in (rows, rows + 1))

    def step(t, total):
        slots = start[:, None] + t * width + layout.offsets[None, :]
        return add(total, jnp.minimum(slots, X.nnz - 1), slots < end[:, None])

    return jax.lax.fori_loop(0, (jnp.max(end - start) + width - 1) // width, step, initial)


def map_rows(layout: Walk, solve: Callable[[Int[Array, "b"]], jax.Array]) -> jax.Array:
    """`solve(rows) → [b, k]` for every chunk, put together as [m, k]; empty rows are 0."""
    solved = jax.lax.map(solve, layout.chunks)
    flat = solved.reshape(-1, solved.shape[-1])
    result = jnp.zeros((layout.X.num_users, solved.shape[-1]), solved.dtype)
    return result.at[layout.chunks.ravel()].set(flat, mode="drop")
