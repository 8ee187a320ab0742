"""The rows of X in padded rectangles: buckets of similar lengths, or tiles of one shape."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax._core import host
from mfauc_jax.data.interactions import Interactions


class Bucket(NamedTuple):
    """Users of similar N_i with their positives padded to one length P."""

    users: Int[Array, "b"]
    items: Int[Array, "b P"]  # padding repeats the row's first item
    slots: Int[Array, "b P"]  # place of each positive in `Interactions.indices`
    real: Float[Array, "b P"]  # 1, or 0 for padding


def buckets(X: Interactions, users: np.ndarray | None = None, ratio: int = 4) -> list[Bucket]:
    """The rows of X as padded rectangles, lengths within a factor `ratio` of each other.

    Padding makes rows batchable; few distinct lengths make few compilations.
    """
    indptr, lengths = np.asarray(X.indptr), np.asarray(X.row_lengths)
    indices = np.asarray(X.indices)
    users = np.arange(X.num_users) if users is None else np.asarray(users)
    users = users[lengths[users] > 0]
    longest = int(lengths.max(initial=1))
    result, low, high = [], 0, min(8, longest)
    while len(users) and low < longest:
        chosen = users[(lengths[users] > low) & (lengths[users] <= high)]
        if len(chosen):
            offsets = np.arange(lengths[chosen].max())[None, :]
            real = offsets < lengths[chosen][:, None]
            slots = indptr[chosen][:, None] + np.where(real, offsets, 0)
            users_, items, at = map(host.ints, (chosen, indices[slots], slots))
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
