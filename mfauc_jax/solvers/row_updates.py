"""Steps of an optax optimiser on the rows of a table that a batch touches; the other rows, and their states, stay."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class ItemSlopes(NamedTuple):
    """The drawn items of a batch, their rows, and the gradient of each draw."""

    items: Int[Array, "draws"]
    rows: Float[Array, "draws k"]
    slope: Float[Array, "draws k"]


def move_items(optimiser, V, memory, drawn: ItemSlopes, place):
    """One step of the optimiser on the drawn items' rows of V; also their memory and `place` after it."""
    items, rows, slope = drawn
    if len(items) >= len(place):  # then one pass over the whole table is cheaper
        sums = jnp.zeros_like(V).at[items].add(slope)
        V, memory = sweep(optimiser, V, memory, items, sums)
    else:
        sums, place = sum_repeats(items, slope, place)
        V, memory = touch(optimiser, V, memory, items, rows, sums)
    return V, memory, place


def sum_repeats(items: Int[Array, "d"], slopes: Float[Array, "d k"], place: Int[Array, "n"]):
    """For each draw, the sum of the slopes of all draws of the same item; and `place` after its use.

    All draws of an item are summed in the row of one of them, the last that wrote its number into `place`. So the
    sums fit into d rows, whatever the number of items.
    """
    place = place.at[items].set(jnp.arange(items.shape[0]))
    owner = place[items]
    return jnp.zeros_like(slopes).at[owner].add(slopes)[owner], place


def touch(optimiser, table, memory, index, rows, gradient, real=None):
    """Apply the optimiser to the rows `index` of `table`, which are `rows`, and to those of its state `memory`."""
    like = table.shape

    def take(leaf):
        return leaf[index] if jnp.shape(leaf) == like else leaf

    def put(leaf, new):
        if jnp.shape(leaf) != like:
            return new
        if real is not None:  # repeated users must not overwrite what the real visit wrote
            return leaf.at[jnp.where(real, index, like[0])].set(new, mode="drop")
        return leaf.at[index].set(new)  # all draws of an item write the same row

    updates, after = optimiser.update(gradient, jax.tree.map(take, memory), rows)
    return put(table, rows + updates), jax.tree.map(put, memory, after)


def sweep(optimiser, table, memory, index, gradient):
    """As `touch`, but with the gradient of the whole table; rows that are not in `index` stay as they are."""
    touched = jnp.zeros(table.shape[0], bool).at[index].set(True)[:, None]

    def put(leaf, new):
        return jnp.where(touched, new, leaf) if jnp.shape(leaf) == table.shape else new

    updates, after = optimiser.update(gradient, memory, table)
    return put(table, table + updates), jax.tree.map(put, memory, after)
