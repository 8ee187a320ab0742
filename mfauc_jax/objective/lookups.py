"""Searches in the sorted rows of X: membership, and the x-th item outside a row, without rejection.

The r-th item that is not in a sorted row is a binary search on `indices[t] − t`; with weights, on running sums of
integer masses (docs/derivations.md#sampling-design).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from mfauc_jax.data.interactions import Interactions


def contains(
    X: Interactions, users: Int[Array, "..."], items: Int[Array, "..."]
) -> tuple[Bool[Array, "..."], Int[Array, "..."]]:
    """Whether j ∈ ω_i, and the first slot of row i whose item is ≥ j."""
    start, end = X.indptr[users], X.indptr[users + 1]
    slot = first(X.row_bits, start, end, lambda t: X.indices[t] >= items)
    return (slot < end) & (X.indices[jnp.minimum(slot, X.nnz - 1)] == items), slot


def complement(X, neg_table, row_table, users, x):
    """The item of ω̄_i at which the running mass first exceeds x, and that item's own mass.

    With unit masses (both tables None) this is the x-th item that is not in the row, counted from 0.

    Args:
        X: the positives, in sorted rows.
        neg_table: integer mass of the items before each item, [n + 1]; None for unit masses.
        row_table: running mass of each row's positives, [nnz]; None for unit masses.
        users: rows of X.
        x: integers in [0, mass of ω̄_i), of the shape of `users`.
    """
    start, end = X.indptr[users], X.indptr[users + 1]

    def positive_mass(t):  # of the row's positives up to slot t, included
        return t - start + 1 if row_table is None else row_table[t]

    def passed(t):  # whether the mass of the complement before the positive at slot t exceeds x
        return mass_before(neg_table, X.indices[t] + 1) - positive_mass(t) > x

    slot = first(X.row_bits, start, end, passed)
    y = x + jnp.where(slot > start, positive_mass(jnp.maximum(slot - 1, 0)), 0)
    if neg_table is None:
        return y, jnp.ones_like(y)
    item = jnp.searchsorted(neg_table, y, side="right").astype(y.dtype) - 1
    return item, neg_table[item + 1] - neg_table[item]


def negative_mass(X, weights, users):
    """The mass of each user's complement ω̄_i; without tables, the number of its items."""
    if weights.neg_table is None:
        return X.num_items - (X.indptr[users + 1] - X.indptr[users])
    end = X.indptr[users + 1]
    return weights.neg_table[-1] - jnp.where(end > X.indptr[users], weights.row_table[end - 1], 0)


def mass_before(neg_table, item):
    """The mass of the items before `item`."""
    return item if neg_table is None else neg_table[item]


def row_mass_before(X, weights, users, slot):
    """The mass of a row's positives before `slot`."""
    start = X.indptr[users]
    if weights.row_table is None:
        return slot - start
    return jnp.where(slot > start, weights.row_table[jnp.maximum(slot - 1, 0)], 0)


def first(bits: int, low, high, holds):
    """The first t in [low, high) where `holds(t)` is true, or high; `holds` is monotone in t.

    A binary search of `bits` steps, with high − low < 2^bits, by leaps of falling powers of two over places where
    `holds` is false: only the array t is carried from step to step.
    """

    def leap(step, t):
        ahead = t + (1 << (bits - 1 - step))
        return jnp.where((ahead <= high) & ~holds(ahead - 1), ahead, t)

    return jax.lax.fori_loop(0, bits, leap, low)
