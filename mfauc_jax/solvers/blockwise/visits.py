"""One device's part of a blockwise iteration: its blocks of users meet every block of items in turn."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import sampling
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.solvers import minibatch
from mfauc_jax.solvers.blockwise.placement import AXIS, Items, Users


class Shared(NamedTuple):
    """What every device needs of an iteration."""

    key: Key[Array, ""]
    solver: Any  # the Blockwise
    objective: Objective
    scale: Float[Array, ""]
    items: Items
    item_at: Int[Array, "n"]  # the item of each place, block by block
    place_of: Int[Array, "n"]  # the place of each item


def on_device(ring: int, row_bits: int, tables, users: Users, shared: Shared):
    """One device's part: fetch its blocks of items, d rounds of visits, send them home."""
    d = shared.solver.blocks
    here, me = d // ring, jax.lax.axis_index(AXIS)
    n, u = shared.item_at.shape[0], users.length.shape[1]
    size = n // d

    def mine(places):  # this device's part of a vector over all items
        return jax.lax.dynamic_slice_in_dim(places, me * here * size, here * size)

    (U, V), (user_memory, item_memory), _ = tables
    V, item_memory = _fetch(mine(shared.item_at), (V, item_memory), ring)
    by_block = jax.tree.map(partial(_cut, here), ((U, user_memory), (V, item_memory)))
    entries = jax.lax.map(partial(_partition, d, size, u, shared.place_of), users)
    rows = me * here + jnp.arange(here)

    def round_(r, by_block):
        columns = (rows + r) % d  # design.schedule
        keys = jax.vmap(lambda at: jax.random.fold_in(shared.key, at))(rows * d + columns)
        visited = jax.lax.map(
            lambda args: _visit(row_bits, shared, *args), (keys, columns, by_block, users, entries)
        )
        at_home, travelling = visited
        return at_home, _pass_on(travelling, ring)

    by_block = jax.lax.fori_loop(0, d, round_, by_block)
    (U, user_memory), (V, item_memory) = jax.tree.map(_join, by_block)
    V, item_memory = _fetch(mine(shared.place_of), (V, item_memory), ring)
    return minibatch.Tables(Factors(U, V), (user_memory, item_memory), ())


def _cut(here: int, leaf: Array) -> Array:
    """Rows block by block; a scalar once a block."""
    if not leaf.ndim:
        return jnp.broadcast_to(leaf, (here,))
    return leaf.reshape(here, -1, *leaf.shape[1:])


def _join(leaf: Array) -> Array:
    """The inverse of `_cut`: every visit counted alike, so scalars are equal."""
    return leaf[0] if leaf.ndim == 1 else leaf.reshape(-1, *leaf.shape[2:])


def _fetch(wanted: Int[Array, "rows"], tables: Any, ring: int) -> Any:
    """The rows `wanted` of tables that lie spread over the ring, as their parts pass by.

    Memory stays at two parts of a table; every device receives each other's part once.
    """
    size, me = wanted.shape[0], jax.lax.axis_index(AXIS)

    def hop(h, carry):
        passing, found = carry
        at = wanted - (me + h) % ring * size
        here = (at >= 0) & (at < size)
        at = jnp.clip(at, 0, size - 1)

        def pick(part, kept):
            return jnp.where(here[:, None], part[at], kept) if part.ndim else part

        return _send(passing, ring), jax.tree.map(pick, passing, found)

    if ring == 1:
        return jax.tree.map(lambda part: part[wanted] if part.ndim else part, tables)
    return jax.lax.fori_loop(0, ring, hop, (tables, tables))[1]


def _send(tree: Any, ring: int) -> Any:
    """Everything to the device before, from the device after."""
    back = [(i, (i - 1) % ring) for i in range(ring)]
    return jax.tree.map(lambda a: jax.lax.ppermute(a, AXIS, back), tree)


def _pass_on(blocks_here: Any, ring: int) -> Any:
    """Each row block gets the next column block: all but the last from this device."""
    first = jax.tree.map(lambda a: a[:1], blocks_here)
    arriving = first if ring == 1 else _send(first, ring)
    return jax.tree.map(lambda a, b: jnp.concatenate([a[1:], b]), blocks_here, arriving)


class Entries(NamedTuple):
    """The positives of a row block sorted by column block, then user, then place."""

    start: Int[Array, "d_plus_1"]  # where each column block's begin
    rows: Int[Array, "E"]
    places: Int[Array, "E"]  # within their column block
    g: Float[Array, "E"] | None


def _partition(d: int, size: int, u: int, place_of: Int[Array, "n"], users: Users) -> Entries:
    """The row block's positives by today's column blocks; a stable sort keeps rows in order."""
    place = place_of.at[users.items].get(mode="fill", fill_value=d * size)  # padding goes last
    order = jnp.argsort(place // size, stable=True)
    sorted_place = place[order]
    start = jnp.searchsorted(sorted_place // size, jnp.arange(d + 1))
    g = None if users.g is None else users.g[order]
    return Entries(start.astype(jnp.int32), users.rows[order], sorted_place % size, g)


def _visit(row_bits: int, shared: Shared, key, column, tables, users: Users, entries: Entries):
    """The minibatch route on one block: every usable user once, in random batches."""
    (U, user_memory), (V, item_memory), solver = *tables, shared.solver
    d, count, size = solver.blocks, U.shape[0], V.shape[0]
    P, Q = _share(solver.num_pos, d), _share(solver.num_neg, d, 2)  # two negatives have a spread
    optimiser, objective = solver.make_optimiser(), shared.objective
    X = Interactions(
        _row_starts(entries, column, count), entries.places, None, size, row_bits
    )  # the block as a matrix of its own
    usable = users.weight > 0
    dtype = users.weight.dtype
    drawn_from = PairWeights(
        users.neg_mass,
        users.neg_mass,
        users.neg_mass,
        users.weight,
        jnp.arange(count),
        None,
        None,
        None,
    )
    items = jax.lax.dynamic_slice_in_dim(shared.item_at, column * size, size)
    b, stratum = shared.items.b[items], shared.items.stratum[items]
    together = shared.items.together[stratum]
    reg_item = objective.reg.item if shared.items.reg is None else shared.items.reg[items]
    reg_item = jnp.broadcast_to(reg_item, (size,)) / (d * jnp.maximum(usable.sum(), 1))
    reg_user = objective.reg.user if users.reg is None else users.reg
    spread = objective.spread if users.spread is None else users.spread
    within = objective._replace(spread=jnp.broadcast_to(spread, (count,)))
    length = jnp.maximum(users.length, 1)
    pull_user = jnp.broadcast_to(reg_user, (count,)) / length

    def one(tables, drawn):
        key, at, fresh = drawn
        sample = sampling.uniform(key, X, drawn_from, at, P, Q)
        inside = X.row_lengths[at].astype(dtype)  # N_iC, 0 is fine: then only λ and the spread act
        others = size - inside
        if entries.g is None:
            g_pos = jnp.broadcast_to((inside / length[at])[:, None], sample.pos.shape)
        else:
            repeated = jnp.broadcast_to(at[:, None], sample.pos.shape)
            _, slot = sampling.contains(X, repeated, sample.pos)
            g_pos = inside[:, None] * entries.g[slot]
        g_neg = d * b[sample.neg] * (others / users.neg_mass[at])[:, None]
        sample = sample._replace(g_pos=g_pos / P, g_neg=g_neg / Q)
        if d > 1:
            sample = sample._replace(pairs=_pairs(d, stratum, together, sample))
        # λ_j: each usable user of the block pulls by an equal share, over the odds of being drawn
        pull_pos = reg_item[sample.pos] * inside[:, None] / P
        pull_neg = reg_item[sample.neg] * others[:, None] / Q
        pulls = pull_user[at] * inside, jnp.concatenate([pull_pos, pull_neg], 1)
        fresh = fresh & usable[at]
        after = minibatch.descend(optimiser, within, tables, sample, fresh, pulls, shared.scale)
        return after, None

    per_batch = solver.replace(num_pos=P, num_neg=Q).users_per_batch(count, size)
    batches = minibatch.batches(key, jnp.arange(count), per_batch)
    tables = minibatch.Tables(Factors(U, V), (user_memory, item_memory), jnp.zeros(size, int))
    (after, memory, _), _ = jax.lax.scan(one, tables, batches)
    return (after.U, memory[0]), (after.V, memory[1])


def _share(draws: int, d: int, least: int = 1) -> int:
    """What one of d visits draws, so that an iteration costs the same for any d."""
    return draws if d == 1 else max(-(-draws // d), least)


def _row_starts(entries: Entries, column, count: int) -> Int[Array, "u_plus_1"]:
    """Where each user's positives within the column block begin."""
    users = jnp.arange(count + 1)
    low, high = entries.start[column], entries.start[column + 1]
    bits = entries.rows.shape[0].bit_length()
    low, high = jnp.broadcast_to(low, users.shape), jnp.broadcast_to(high, users.shape)
    return sampling.first(bits, low, high, lambda t: entries.rows[t] >= users)


def _pairs(d: int, stratum, together, sample: sampling.Sample) -> sampling.Pairs:
    """1, or more for two items of a stratum, which meet less often (`design.together`)."""

    def against(items):
        same = stratum[items][:, :, None] == stratum[sample.neg][:, None, :]
        return jnp.where(same, together[sample.neg][:, None, :], 1.0)

    return sampling.Pairs(against(sample.pos), against(sample.neg) / d)
