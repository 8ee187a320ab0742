"""The paper's parallel algorithm (Section 2.2) over a mesh of devices, in one process or many.

Users and items are cut into d blocks each. An iteration visits every one of the d × d blocks once, in d
rounds of d that share no row and no column (`blocks.schedule`); a visit is the minibatch route on the
positives and negatives inside the block. Users stay where they are; blocks of items travel round the
ring of devices. Which items share a block is drawn anew in every iteration.

Paper: rows are reassigned too; here: users are dealt to blocks once a fit, so that a process can hold
its own users only. A user's pairs depend on the *column* block alone, so nothing is lost but the
order of updates.

What makes it the objective of Eq. 3 (SPEC 3.5): item p is in one block of an iteration, and negative q
meets it there with probability about 1/d, so that L(γ_pq) counts for about d (`blocks.together`). Within
a block κ items are drawn uniformly and weighted by how many there are. Over an iteration the gradients
add up to m ∂θ/∂u_i and n ∂θ/∂v_j in expectation for φ = identity, any g, λ and spread. tanh sees an inner
sum over a part of the negatives and is biased, as for every sample (SPEC 3.4).

d blocks run on any number of devices that divides d and end with the same factors.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import sampling
from mfauc_jax.objective.equation import Objective, Reg
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import averaging, base, minibatch
from mfauc_jax.solvers.blockwise import design, placement
from mfauc_jax.solvers.blockwise.placement import AXIS, SPLIT, WHOLE, Data, Items, Users


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Settings:
    """What shapes the program.

    Attributes:
        blocks: d.
        mesh: the devices, whose number divides d.
        inner: batches and optimiser of a visit; the draws of a user in its d visits together.
    """

    blocks: int
    mesh: Mesh
    inner: minibatch.Settings = minibatch.Settings()


def make(
    objective: Objective,
    learning_rate: Any = 0.1,
    average: averaging.Averaging = averaging.Averaging(0),
    settings: Settings | None = None,
) -> base.Solver:
    """Descent on blocks; any loss, φ, g, g′. Users come in the order of `blocks.deal`."""
    settings = settings or Settings(4, placement.mesh(4))
    place = partial(placement.on_mesh, settings.mesh)
    reg = objective.reg if isinstance(objective.reg, Reg) else Reg(objective.reg, objective.reg)
    scalars = Reg(*(0.0 if np.ndim(part) else part for part in reg))
    spread = 0.0 if np.ndim(objective.spread) else objective.spread
    plain = objective._replace(reg=scalars, spread=spread)

    def prepare(X: Interactions, weights: Weights) -> Data:
        return placement.prepare(
            settings.blocks, settings.mesh, objective._replace(reg=reg), X, weights
        )

    def init(at: Factors) -> base.State:
        d, optimiser = settings.blocks, settings.inner.optimiser(learning_rate)
        users = placement.Rows(at.U.shape[0], settings.blocks)
        U = place(users.blocked(np.asarray(at.U)).reshape(-1, at.U.shape[1]), users.all)
        V = np.pad(np.asarray(at.V), ((0, -at.V.shape[0] % d), (0, 0)))
        home = Factors(U, place(V))
        memory = tuple(_like(optimiser.init, F, settings.mesh) for F in home)
        copy = jax.jit(lambda tree: jax.tree.map(lambda a: a + 0, tree))
        return base.State(home, copy(home), place(np.zeros((), int), spec=WHOLE), memory)

    def read(state: base.State, like: Factors) -> Factors:
        users = placement.Rows(like.U.shape[0], settings.blocks)
        shards = sorted(state.average.U.addressable_shards, key=lambda s: s.index[0].start or 0)
        U = np.concatenate([np.asarray(s.data) for s in shards])
        everywhere = NamedSharding(settings.mesh, WHOLE)
        V = jax.jit(lambda a: a, out_shardings=everywhere)(state.average.V)
        whole = np.asarray(V.addressable_data(0))[: like.V.shape[0]]
        return Factors(jnp.asarray(U[users.real()]), jnp.asarray(whole))

    step_ = Partial(step, settings, plain, learning_rate, average)
    return base.Solver(prepare, init, step_, read)


def step(
    settings: Settings,
    objective: Objective,
    learning_rate: Any,
    average: averaging.Averaging,
    key: Key[Array, ""],
    state: base.State,
    data: Data,
) -> tuple[base.State, base.Info]:
    """One iteration: every block once."""
    key_items, key_visits = jax.random.split(key)
    block = design.assign(key_items, data.items.stratum, settings.blocks)
    item_at = jnp.argsort(block, stable=True)  # block by block, in the catalogue's order
    place_of = jnp.zeros_like(item_at).at[item_at].set(jnp.arange(item_at.shape[0]))

    tables = minibatch.Tables(state.factors, state.extra, ())
    sides = jax.tree.map(_spec, tables)
    iteration = jax.shard_map(
        partial(_on_device, settings, data.row_bits),
        mesh=settings.mesh,
        in_specs=(sides, jax.tree.map(lambda _: SPLIT, data.users), WHOLE),
        out_specs=sides,
        check_vma=False,
    )
    shared = Shared(key_visits, objective, learning_rate, data.scale, data.items, item_at, place_of)
    after, memory, _ = iteration(tables, data.users, shared)
    count = state.iteration + 1
    mean = averaging.update(average, state.average, after, count)
    return base.State(after, mean, count, memory), base.change(state.factors, after)


class Shared(NamedTuple):
    """What every device needs of an iteration."""

    key: Key[Array, ""]
    objective: Objective
    learning_rate: Any
    scale: Float[Array, ""]
    items: Items
    item_at: Int[Array, "n"]  # the item of each place, block by block
    place_of: Int[Array, "n"]  # the place of each item


def _spec(leaf: Any) -> PartitionSpec:
    """Rows are dealt out, an optimiser's scalars are everybody's."""
    return SPLIT if leaf.ndim else WHOLE


def _on_device(settings: Settings, row_bits: int, tables, users: Users, shared: Shared):
    """One device's part: fetch its blocks of items, d rounds of visits, send them home."""
    d, ring = settings.blocks, settings.mesh.size
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
            lambda args: _visit(settings, row_bits, shared, *args),
            (keys, columns, by_block, users, entries),
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


def _visit(settings, row_bits, shared: Shared, key, column, tables, users: Users, entries: Entries):
    """The minibatch route on one block: every usable user once, in random batches."""
    ((U, user_memory), (V, item_memory)), chosen = tables, settings.inner
    d, count, size = settings.blocks, U.shape[0], V.shape[0]
    P, Q = _share(chosen.num_pos, d), _share(chosen.num_neg, d, 2)  # two negatives have a spread
    optimiser, objective = chosen.optimiser(shared.learning_rate), shared.objective
    X = Interactions(
        _row_starts(entries, column, count), entries.places, None, size, row_bits
    )  # the block as a matrix of its own
    usable = users.weight > 0
    dtype = users.weight.dtype
    drawn_from = Weights(
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

    drawn = dataclasses.replace(chosen, num_pos=P, num_neg=Q)
    batches = minibatch.batches(key, jnp.arange(count), minibatch.batch_size(drawn, count, size))
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
    """1, or more for two items of a stratum, which meet less often (`blocks.together`)."""

    def against(items):
        same = stratum[items][:, :, None] == stratum[sample.neg][:, None, :]
        return jnp.where(same, together[sample.neg][:, None, :], 1.0)

    return sampling.Pairs(against(sample.pos), against(sample.neg) / d)


def _like(init: Any, table: Array, mesh: Mesh) -> Any:
    """An optimiser's state with its rows where the table's rows are."""
    specs = jax.tree.map(_spec, jax.eval_shape(init, table))
    return jax.jit(init, out_shardings=jax.tree.map(partial(NamedSharding, mesh), specs))(table)
