"""Layouts of the rows of X, which differ in length, with shapes that can be compiled.

Buckets are rectangles of rows of similar length. Tiles are pieces of one length, in chunks that hold whole rows. A walk
is a list of chunks of rows that are read a few positives at a time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mfauc_jax._core import host, programs
from mfauc_jax.data.interactions import Interactions

T = TypeVar("T")
CHUNKS = 8  # the least number of chunks of tiles, and the step in which it grows
CELLS = 2048  # positives that a walk reads per step: their rows of V stay in the cache


class Bucket(NamedTuple):
    """Users of similar N_i with their positives padded to one length P."""

    users: Int[Array, "b"]
    items: Int[Array, "b P"]  # padding repeats the row's first item
    slots: Int[Array, "b P"]  # the place of each positive in `Interactions.indices`
    real: Float[Array, "b P"]  # 1, or 0 for padding


def padded(
    X: Interactions, rows: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The items of some rows, their places in `X.indices`, and whether they are real; each [rows, width].

    Padding is not real and repeats the first item of its row.
    """
    indptr = np.asarray(X.indptr)
    start, lengths = indptr[rows][:, None], np.diff(indptr)[rows][:, None]
    offsets = np.arange(width)[None, :]
    real = offsets < lengths
    slots = start + np.where(real, offsets, 0)
    return np.asarray(X.indices)[slots], slots, real


def cut(values: Any, size: int, repeat: bool = False) -> Array:
    """Values cut into blocks along the first axis, [blocks, size, …], on the host, then put on the device.

    The last block is filled up with zeros or, if `repeat`, with the first values again.
    """
    values = np.asarray(values)
    places = np.arange(-(-len(values) // size) * size)
    filled = values[places % len(values)]
    if not repeat:
        filled[len(values) :] = 0
    return jax.device_put(filled.reshape(-1, size, *values.shape[1:]))


def buckets(X: Interactions, users: np.ndarray | None = None, ratio: int = 4) -> list[Bucket]:
    """The non-empty rows of X as padded rectangles; the lengths in one are within a factor `ratio`.

    Padded rows can be batched. P is a power of two, at least 8: few distinct lengths mean few compilations.
    """
    lengths = np.asarray(X.row_lengths)
    users = np.arange(X.num_users) if users is None else np.asarray(users)
    users = users[lengths[users] > 0]
    longest = int(lengths.max(initial=1))
    result, low, high = [], 0, 8
    while len(users) and low < longest:
        chosen = users[(lengths[users] > low) & (lengths[users] <= high)]
        if len(chosen):
            items, slots, real = padded(
                X, chosen, max(8, programs.power(int(lengths[chosen].max())))
            )
            rows, items, slots = map(host.ints, (chosen, items, slots))
            result.append(Bucket(rows, items, slots, host.floats(real)))
        low, high = high, high * ratio
    return result


class Tiles(NamedTuple):
    """The rows of X cut into tiles of one length T, in chunks of c tiles that hold whole rows, r at most.

    Each row of a chunk is a system to solve, with a number of its own in the chunk. All sizes come from a grid, so
    that data of similar size share one program: chunks after the first `count` are empty. The chunks of several
    devices follow one another, and each device counts its rows from 0. The entries of a chunk are on one axis: a TPU
    would pad a last axis of T = 16 to 128.
    """

    count: Int[Array, "devices"]  # chunks that hold rows
    rows: Int[Array, "chunks r"]  # the row of each system; `Tiling.size` where there is none
    local: Int[Array, "chunks c"]  # the system of each tile, never falling
    items: Int[Array, "chunks c_T"]
    values: tuple[Float[Array, "chunks c_T"], ...]  # numbers of the positives; 0 for padding


class Tiling(NamedTuple):
    """How the rows of X are cut into tiles and chunks, and how the chunks are shared by devices."""

    tile: int  # T
    tiles: int  # c
    systems: int  # r
    first: np.ndarray  # the first of the non-empty rows of each chunk, and their number
    chunks: np.ndarray  # chunks of each of this process's devices
    rows: np.ndarray  # rows of each of them, the empty ones included
    most: int  # chunks of each device with padding, from a grid
    size: int  # rows of each device with padding, from a grid


def tiling(X: Interactions, budget: int, devices: int = 1) -> Tiling:
    """How to cut the rows of X; in several processes all of them have the same sizes.

    Args:
        X: the rows of this process.
        budget: c · T, the positives per chunk with their padding; an eighth of it for data that fill fewer than
            `CHUNKS` such chunks per device. One long row may exceed it.
        devices: how many devices this process has.
    """
    lengths = np.asarray(X.row_lengths)
    rows = np.flatnonzero(lengths)
    num_rows, num_positives = host.total(np.array([len(rows), lengths.sum()]))
    T = int(np.clip(2 ** round(np.log2(max(num_positives / num_rows / 3, 1))), 8, 64))
    per_row = -(-lengths[rows] // T)  # number of tiles of each row
    num_tiles, longest = (
        host.total(per_row.sum()),
        host.everyone(np.int32(per_row.max(initial=1))).max(),
    )
    everywhere = devices * jax.process_count()
    small = num_tiles * T < everywhere * (budget // CHUNKS * (CHUNKS - 1))
    c = max(programs.power(int(longest)), (budget // CHUNKS if small else budget) // T)
    r = c >> int(np.log2(num_tiles / num_rows))  # at least as many as a chunk holds on average
    begin = np.concatenate([[0], np.cumsum(per_row)])  # first tile of each row
    first = [0]  # a row that does not fit whole begins the next chunk
    while first[-1] < len(rows):
        fitting = int(np.searchsorted(begin, begin[first[-1]] + c, side="right")) - 1
        first.append(min(fitting, first[-1] + r))
    first = np.asarray(first)
    ends = np.round(np.linspace(0, len(first) - 1, devices + 1)).astype(int)
    row_ends = np.append(rows, X.num_users)[first[ends]]
    row_ends[0], row_ends[-1] = 0, X.num_users  # empty rows at both ends
    sizes = np.diff(ends), np.diff(row_ends)
    most, size = host.everyone(np.array([part.max() for part in sizes], np.int32)).max(0)
    grid = programs.rounded(int(most), CHUNKS), programs.user_rows(int(size))
    return Tiling(T, c, r, first, *sizes, *grid)


def tiles(
    X: Interactions,
    tiling: Tiling,
    *values: np.ndarray,
    put: Callable[[np.ndarray], Array] = jax.device_put,
) -> Tiles:
    """The non-empty rows of X in tiles.

    Args:
        X: the rows.
        tiling: how they are cut.
        values: numbers of the positives, [nnz] each.
        put: places an array of the host, whose first axis is over chunks or devices, on its devices.
    """
    lengths, starts = np.asarray(X.row_lengths), np.asarray(X.indptr)[:-1]
    rows, (T, c, r) = np.flatnonzero(lengths), tiling[:3]
    per_row = -(-lengths[rows] // T)
    begin, first = np.concatenate([[0], np.cumsum(per_row)]), tiling.first
    device_of = np.repeat(np.arange(len(tiling.chunks)), tiling.chunks)  # of each chunk
    place_of = np.arange(len(device_of)) + (  # with each device's padding
        tiling.most * np.arange(len(tiling.chunks)) - (np.cumsum(tiling.chunks) - tiling.chunks)
    ).repeat(tiling.chunks)
    first_row = (np.cumsum(tiling.rows) - tiling.rows)[device_of]  # of each chunk's device
    chunk_of = np.repeat(np.arange(len(first) - 1), np.diff(first))
    owner = np.repeat(np.arange(len(rows)), per_row)  # the row of each tile
    place = np.arange(len(owner)) - begin[first[chunk_of[owner]]]  # of each tile in its chunk
    tile_place = place_of[chunk_of[owner]], place
    chunks = len(tiling.chunks) * tiling.most
    table = np.full((chunks, r), tiling.size, np.int32)
    table[place_of[chunk_of], np.arange(len(rows)) - first[chunk_of]] = rows - first_row[chunk_of]
    local = np.full((chunks, c), r - 1, np.int32)
    local[tile_place] = owner - first[chunk_of[owner]]
    offset = (np.arange(len(owner)) - begin[owner]) * T
    within = offset[:, None] + np.arange(T)[None, :]
    real = within < lengths[rows][owner][:, None]
    slot = starts[rows][owner][:, None] + np.where(real, within, 0)

    def laid_out(values):
        out = np.zeros((chunks, c, T), values.dtype)
        out[tile_place] = values[slot] * real
        return out.reshape(chunks, -1)

    float_ = jax.dtypes.canonicalize_dtype(float)
    numbers = tuple(put(laid_out(np.asarray(v)).astype(float_)) for v in values)
    items = put(laid_out(np.asarray(X.indices)).astype(np.int32))
    return Tiles(put(tiling.chunks.astype(np.int32)), put(table), put(local), items, numbers)


def chunk(tiles: Tiles, t: Any) -> Tiles:
    """Chunk t of the tiles, with items and values as [c, T]."""
    one = jax.tree.map(lambda a: a[t], tiles._replace(count=()))
    items, *values = (a.reshape(one.local.shape[0], -1) for a in (one.items, *one.values))
    return one._replace(items=items, values=tuple(values))


class Walk(NamedTuple):
    """The non-empty rows of X, longest first, in chunks of b rows that are read `width` positives per step.

    The rows of a chunk are about equally long, so there is little padding. (Buckets compile once per length, which
    takes ten times as long on MovieLens.)
    """

    X: Interactions
    chunks: Int[Array, "c b"]  # rows of X; padding is m, which is out of range
    offsets: Int[Array, "width"]  # 0 … width − 1


def walk(X: Interactions) -> Walk:
    """The rows of X as a Walk, with a width near their mean length, between 8 and 32."""
    lengths = np.asarray(X.row_lengths)
    rows = np.argsort(-lengths, kind="stable")[: int((lengths > 0).sum())]
    width = int(2 ** np.clip(np.ceil(np.log2(X.nnz / len(rows))), 3, 5))
    b = min(CELLS // width, len(rows))
    rows = np.pad(rows, (0, -len(rows) % b), constant_values=X.num_users)
    return Walk(X, host.ints(rows.reshape(-1, b)), host.ints(np.arange(width)))


def fold(
    layout: Walk,
    rows: Int[Array, "b"],
    add: Callable[[T, Int[Array, "b width"], Bool[Array, "b width"]], T],
    initial: T,
) -> T:
    """Fold `add(total, slots, real)` over the positives of a chunk's rows.

    Args:
        layout: the walk over X.
        rows: one of its chunks; a padding row has no positives.
        add: `slots` are places in `X.indices`, which are in range even where `real` is False.
        initial: the total before the first step.
    """
    X, width = layout.X, layout.offsets.shape[0]
    start, end = (X.indptr.at[row].get(mode="clip") for row in (rows, rows + 1))

    def step(t, total):
        slots = start[:, None] + t * width + layout.offsets[None, :]
        return add(total, jnp.minimum(slots, X.nnz - 1), slots < end[:, None])

    return jax.lax.fori_loop(0, (jnp.max(end - start) + width - 1) // width, step, initial)


def map_rows(layout: Walk, solve: Callable[[Int[Array, "b"]], jax.Array]) -> jax.Array:
    """`solve(rows)`, [b, k], of every chunk, put together as [m, k]; empty rows of X are 0."""
    solved = jax.lax.map(solve, layout.chunks)
    flat = solved.reshape(-1, solved.shape[-1])
    result = jnp.zeros((layout.X.num_users, solved.shape[-1]), solved.dtype)
    return result.at[layout.chunks.ravel()].set(flat, mode="drop")
