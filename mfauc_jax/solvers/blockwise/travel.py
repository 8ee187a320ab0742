"""How rows travel between devices: item blocks round the ring, users to the blocks of an iteration and home again."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from mfauc_jax.solvers.mesh import AXIS


class Leaves(NamedTuple):
    """The leaves of an optimiser's state: those with a row per row of the table, and numbers such as a count."""

    rows: list[Array]
    scalars: list[Array]


def rows_and_scalars(memory: Any) -> tuple[Leaves, Callable[[Any, Any], Any]]:
    """The leaves of an optimiser's state, and the function of both that puts them together again."""
    leaves, tree = jax.tree.flatten(memory)
    is_row = [leaf.ndim > 0 for leaf in leaves]

    def joined(rows, scalars):
        rows, scalars = iter(rows), iter(scalars)
        return jax.tree.unflatten(tree, [next(rows if row else scalars) for row in is_row])

    split = Leaves([a for a in leaves if a.ndim], [a for a in leaves if not a.ndim])
    return split, joined


def cut(here: int, leaf: Array) -> Array:
    """An array cut into blocks of rows; a scalar repeated once per block."""
    if not leaf.ndim:
        return jnp.broadcast_to(leaf, (here,))
    return leaf.reshape(here, -1, *leaf.shape[1:])


def join(leaf: Array) -> Array:
    """The inverse of `cut`; an optimiser's scalars are equal in all blocks, which were visited equally often."""
    return leaf[0] if leaf.ndim == 1 else leaf.reshape(-1, *leaf.shape[2:])


def scatter_users(at_home: Any, leaving: Int[Array, "here d part"], ring: int) -> Any:
    """The users of this device's row blocks: each home block sends one of its d equal parts to each row block.

    Args:
        at_home: leaves [here, u, …], the users of this device's home blocks.
        leaving: the users that each home block sends to each row block.
        ring: number of devices.

    Returns:
        Leaves [here, u, …]: the first of each home block, then the second of each, and so on.
    """

    def one(leaf):
        parts = _swap(jax.vmap(lambda rows, at: rows[at])(leaf, leaving), ring)
        return jnp.swapaxes(parts, 1, 2).reshape(leaf.shape)

    return jax.tree.map(one, at_home)


def gather_users(visited: Any, leaving: Int[Array, "here d part"], ring: int) -> Any:
    """The inverse of `scatter_users`."""
    here, d, part = leaving.shape

    def one(leaf):
        parts = jnp.swapaxes(leaf.reshape(here, part, d, *leaf.shape[2:]), 1, 2)
        put = jax.vmap(lambda rows, at: jnp.zeros_like(rows).at[at].set(rows, unique_indices=True))
        back = _swap(parts, ring).reshape(leaf.shape)
        return put(back, leaving.reshape(here, -1))

    return jax.tree.map(one, visited)


def _swap(parts: Array, ring: int) -> Array:
    """Part b of block a becomes part a of block b, for all d × d pairs; [here, d, …] on every device of the ring."""
    if parts.shape[0] * ring != parts.shape[1]:  # users stay in their home blocks
        return parts
    if ring > 1:
        parts = jax.lax.all_to_all(parts, AXIS, 1, 0, tiled=True)
    return jnp.swapaxes(parts, 0, 1)


def fetch(wanted: Int[Array, "rows"], tables: Any, ring: int) -> Any:
    """The rows `wanted` of tables that are spread over the ring, picked while the parts pass by.

    A device keeps no more than two parts of a table, and receives the part of every other device once.
    """
    size, me = wanted.shape[0], jax.lax.axis_index(AXIS)

    def hop(h, carry):
        passing, picked = carry
        place = wanted - (me + h) % ring * size
        is_here = (place >= 0) & (place < size)
        place = jnp.clip(place, 0, size - 1)

        def pick(part, kept):
            return jnp.where(is_here[:, None], part[place], kept) if part.ndim else part

        return _send(passing, ring), jax.tree.map(pick, passing, picked)

    if ring == 1:
        return jax.tree.map(lambda part: part[wanted] if part.ndim else part, tables)
    return jax.lax.fori_loop(0, ring, hop, (tables, tables))[1]


def pass_on(blocks_here: Any, ring: int) -> Any:
    """Give each row block the next column block: only that of the last row block comes from another device."""
    first = jax.tree.map(lambda a: a[:1], blocks_here)
    arriving = first if ring == 1 else _send(first, ring)
    return jax.tree.map(lambda a, b: jnp.concatenate([a[1:], b]), blocks_here, arriving)


def _send(tree: Any, ring: int) -> Any:
    """Send every leaf to the previous device of the ring, and receive that of the next."""
    back = [(i, (i - 1) % ring) for i in range(ring)]
    return jax.tree.map(lambda a: jax.lax.ppermute(a, AXIS, back), tree)
