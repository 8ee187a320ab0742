"""One device's part of a blockwise iteration: it visits its blocks of users with every block of items in turn."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import lookups, sampling
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.solvers import minibatch
from mfauc_jax.solvers.blockwise.placement import Items, Users
from mfauc_jax.solvers.mesh import AXIS


class Shared(NamedTuple):
    """What every device needs to run an iteration."""

    key: Key[Array, ""]
    solver: Any  # the Blockwise, whose module imports this one
    objective: Objective
    scale: Float[Array, ""]  # n over the number of usable users
    items: Items
    item_at: Int[Array, "n"]  # the item of each place, block by block
    place_of: Int[Array, "n"]  # the place of each item


def on_device(ring: int, row_bits: int, tables, users: Users, shared: Shared):
    """One device's part of an iteration: fetch its blocks of items, make d rounds of visits, send the items back.

    Args:
        ring: number of devices.
        row_bits: X.row_bits over all processes.
        tables: this device's part of the factors and of the optimiser's states.
        users: this device's row blocks.
        shared: the same on every device.
    """
    d = shared.solver.blocks
    blocks_here, me = d // ring, jax.lax.axis_index(AXIS)
    n, u = shared.item_at.shape[0], users.length.shape[1]
    size = n // d

    def mine(places):  # this device's part of a vector over items
        return jax.lax.dynamic_slice_in_dim(places, me * blocks_here * size, blocks_here * size)

    (U, V), (user_memory, item_memory), _ = tables
    V, item_memory = _fetch(mine(shared.item_at), (V, item_memory), ring)
    by_block = jax.tree.map(partial(_cut, blocks_here), ((U, user_memory), (V, item_memory)))
    entries = jax.lax.map(partial(_partition, d, size, u, shared.place_of), users)
    rows = me * blocks_here + jnp.arange(blocks_here)

    def round_(r, by_block):
        columns = (rows + r) % d  # design.schedule
        keys = jax.vmap(lambda block: jax.random.fold_in(shared.key, block))(rows * d + columns)
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
    """An array cut into blocks of rows; a scalar repeated once per block."""
    if not leaf.ndim:
        return jnp.broadcast_to(leaf, (here,))
    return leaf.reshape(here, -1, *leaf.shape[1:])


def _join(leaf: Array) -> Array:
    """The inverse of `_cut`; an optimiser's scalars are equal in all blocks, which were visited equally often."""
    return leaf[0] if leaf.ndim == 1 else leaf.reshape(-1, *leaf.shape[2:])


def _fetch(wanted: Int[Array, "rows"], tables: Any, ring: int) -> Any:
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


def _send(tree: Any, ring: int) -> Any:
    """Send every leaf to the previous device of the ring, and receive that of the next."""
    back = [(i, (i - 1) % ring) for i in range(ring)]
    return jax.tree.map(lambda a: jax.lax.ppermute(a, AXIS, back), tree)


def _pass_on(blocks_here: Any, ring: int) -> Any:
    """Give each row block the next column block: only that of the last row block comes from another device."""
    first = jax.tree.map(lambda a: a[:1], blocks_here)
    arriving = first if ring == 1 else _send(first, ring)
    return jax.tree.map(lambda a, b: jnp.concatenate([a[1:], b]), blocks_here, arriving)


class Entries(NamedTuple):
    """The positives of a row block, sorted by column block, then by user, then by place."""

    start: Int[Array, "d_plus_1"]  # where the entries of each column block begin
    rows: Int[Array, "E"]
    places: Int[Array, "E"]  # within their column block
    g: Float[Array, "E"] | None


def _partition(d: int, size: int, u: int, place_of: Int[Array, "n"], users: Users) -> Entries:
    """The positives of a row block by the column blocks of this iteration; a stable sort keeps the rows in order."""
    place = place_of.at[users.items].get(mode="fill", fill_value=d * size)  # padding goes last
    order = jnp.argsort(place // size, stable=True)
    sorted_place = place[order]
    start = jnp.searchsorted(sorted_place // size, jnp.arange(d + 1))
    g = None if users.g is None else users.g[order]
    return Entries(start.astype(jnp.int32), users.rows[order], sorted_place % size, g)


def _visit(row_bits: int, shared: Shared, key, column, tables, users: Users, entries: Entries):
    """The minibatch solver on one block: every usable user once, in random batches."""
    (U, user_memory), (V, item_memory), solver = *tables, shared.solver
    d, count, size = solver.blocks, U.shape[0], V.shape[0]
    P, Q = _share(solver.num_pos, d), _share(solver.num_neg, d, 2)  # the spread needs two negatives
    optimiser, objective = solver.make_optimiser(), shared.objective
    # the block as a matrix of its own
    X = Interactions(_row_starts(entries, column, count), entries.places, None, size, row_bits)
    usable = users.weight > 0
    dtype = users.weight.dtype
    block_weights = PairWeights(
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
    block_objective = objective._replace(spread=jnp.broadcast_to(spread, (count,)))
    length = jnp.maximum(users.length, 1)
    user_ridge = jnp.broadcast_to(reg_user, (count,)) / length

    def one(tables, drawn):
        key, members, real = drawn
        sample = sampling.uniform(key, X, block_weights, members, P, Q)
        num_positives = X.row_lengths[members].astype(
            dtype
        )  # N_iC; where it is 0, only λ and the spread act
        num_negatives = size - num_positives
        if entries.g is None:
            g_pos = jnp.broadcast_to((num_positives / length[members])[:, None], sample.pos.shape)
        else:
            user_of_draw = jnp.broadcast_to(members[:, None], sample.pos.shape)
            _, slot = lookups.contains(X, user_of_draw, sample.pos)
            g_pos = num_positives[:, None] * entries.g[slot]
        g_neg = d * b[sample.neg] * (num_negatives / users.neg_mass[members])[:, None]
        sample = sample._replace(g_pos=g_pos / P, g_neg=g_neg / Q)
        if d > 1:
            sample = sample._replace(pairs=_pairs(d, stratum, together, sample))
        # λ_j: an equal share per usable user of the block, over the expected number of draws
        pos_ridge = reg_item[sample.pos] * num_positives[:, None] / P
        neg_ridge = reg_item[sample.neg] * num_negatives[:, None] / Q
        ridge = user_ridge[members] * num_positives, jnp.concatenate([pos_ridge, neg_ridge], 1)
        real = real & usable[members]
        after = minibatch.descend(
            optimiser, block_objective, tables, sample, real, ridge, shared.scale
        )
        return after, None

    per_batch = solver.replace(num_pos=P, num_neg=Q).users_per_batch(count, size)
    batches = minibatch.batches(key, jnp.arange(count), per_batch)
    tables = minibatch.Tables(Factors(U, V), (user_memory, item_memory), jnp.zeros(size, int))
    (after, memory, _), _ = jax.lax.scan(one, tables, batches)
    return (after.U, memory[0]), (after.V, memory[1])


def _share(draws: int, d: int, least: int = 1) -> int:
    """The number of draws per visit, one d-th of `draws`: an iteration then costs the same for any d."""
    return draws if d == 1 else max(-(-draws // d), least)


def _row_starts(entries: Entries, column, count: int) -> Int[Array, "u_plus_1"]:
    """Where the positives of each user in the column block begin, [u + 1]."""
    users = jnp.arange(count + 1)
    low, high = entries.start[column], entries.start[column + 1]
    bits = entries.rows.shape[0].bit_length()
    low, high = jnp.broadcast_to(low, users.shape), jnp.broadcast_to(high, users.shape)
    return lookups.first(bits, low, high, lambda t: entries.rows[t] >= users)


def _pairs(d: int, stratum, together, sample: sampling.Sample) -> sampling.Pairs:
    """Weights of pairs: 1, or more for two items of one stratum, which share a block less often (`design.together`)."""

    def against(items):
        same = stratum[items][:, :, None] == stratum[sample.neg][:, None, :]
        return jnp.where(same, together[sample.neg][:, None, :], 1.0)

    return sampling.Pairs(against(sample.pos), against(sample.neg) / d)
