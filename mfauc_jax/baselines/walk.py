"""Sums over the positives of every user, with one shape to compile whatever their numbers."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from mfauc_jax.data.interactions import Interactions

T = TypeVar("T")
CELLS = 2048  # positives looked at in one step: their rows of V stay in the cache


class Walk(NamedTuple):
    """The non-empty rows of X, longest first, in chunks of b that are read `width` items a step.

    Rows of a chunk are about equally long, so little is padded. (Rectangles by length compile
    once for each length: ten times as long on MovieLens.)
    """

    X: Interactions
    chunks: Int[Array, "c b"]  # m, which is out of range, for padding
    offsets: Int[Array, "width"]  # 0 … width − 1


def make(X: Interactions) -> Walk:
    """The width is near the mean length, between 8 and 32."""
    lengths = np.asarray(X.row_lengths)
    rows = np.argsort(-lengths, kind="stable")[: int((lengths > 0).sum())]
    width = int(2 ** np.clip(np.ceil(np.log2(X.nnz / len(rows))), 3, 5))
    b = min(CELLS // width, len(rows))
    rows = np.pad(rows, (0, -len(rows) % b), constant_values=X.num_users)
    return Walk(X, jnp.asarray(rows.reshape(-1, b), jnp.int32), jnp.arange(width, dtype=jnp.int32))


def fold(
    walk: Walk,
    rows: Int[Array, "b"],
    add: Callable[[T, Int[Array, "b width"], Bool[Array, "b width"]], T],
    initial: T,
) -> T:
    """Fold `add(total, slots, real)` over the positives of a chunk's rows.

    Args:
        walk: of X.
        rows: one of `walk.chunks`; a padding row has no positives.
        add: `slots` are places in `X.indices`, in range also where they are not `real`.
        initial: the total before the first step.
    """
    X, width = walk.X, walk.offsets.shape[0]
    start, end = (X.indptr.at[at].get(mode="clip") for at in (rows, rows + 1))

    def step(t, total):
        slots = start[:, None] + t * width + walk.offsets[None, :]
        return add(total, jnp.minimum(slots, X.nnz - 1), slots < end[:, None])

    return jax.lax.fori_loop(0, (jnp.max(end - start) + width - 1) // width, step, initial)


def map_rows(walk: Walk, solve: Callable[[Int[Array, "b"]], jax.Array]) -> jax.Array:
    """`solve(rows) → [b, k]` for every chunk, put together as [m, k]; empty rows are 0."""
    solved = jax.lax.map(solve, walk.chunks)
    flat = solved.reshape(-1, solved.shape[-1])
    result = jnp.zeros((walk.X.num_users, solved.shape[-1]), solved.dtype)
    return result.at[walk.chunks.ravel()].set(flat, mode="drop")
