"""One device's part of a blockwise iteration: it visits its blocks of users with every block of items in turn."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from mfauc_jax._core import draws
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective.equation import Objective
from mfauc_jax.solvers import minibatch
from mfauc_jax.solvers.blockwise import design, drawing, travel
from mfauc_jax.solvers.blockwise.drawing import Drawn
from mfauc_jax.solvers.blockwise.placement import Users
from mfauc_jax.solvers.blockwise.visits import Facts, Shared, share, visit
from mfauc_jax.solvers.mesh import AXIS


class Group(NamedTuple):
    """The users of a block: their rows of U and of the optimiser's state, their draws, what is known of them."""

    rows: Any  # [U, leaves of the optimiser's state]
    drawn: Drawn
    facts: Facts


class Ready(NamedTuple):
    """All that the rounds of an iteration need on a device."""

    rows: list[Array]  # of U and of the optimiser's state, in batches: [here, steps, b, k]
    scalars: list[Array]  # of the optimiser's state for U
    columns: Any  # the blocks of V and of its optimiser's state
    drawn: Drawn  # [here, d, steps, b, …]
    facts: Facts  # [here, steps, b]


def on_device(ring: int, row_bits: int, tables, users: Users, shared: Shared):
    """One device's part of an iteration: draw, gather the blocks, make d rounds of visits, send the rows home.

    Args:
        ring: number of devices.
        row_bits: X.row_bits over all processes.
        tables: this device's part of the factors and of the optimiser's states.
        users: this device's row blocks.
        shared: the same on every device.
    """
    d, u, (here, blocks) = shared.solver.blocks, users.length.shape[1], _here(shared, ring)
    ready, sent = gathered(ring, row_bits, tables, users, shared)
    _, joined = travel.rows_and_scalars(tables.memory[0])

    def round_(r, carry):
        column = (blocks + r) % d  # design.schedule

        def one(args):
            column, rows, travelling, drawn, facts = args
            drawn = jax.tree.map(lambda leaf: leaf[column], drawn)
            return visit(shared, u, joined, column, rows, carry[1], travelling, drawn, facts)

        blocks_here = (column, carry[0], carry[2], ready.drawn, ready.facts)
        rows, scalars, travelling = jax.lax.map(one, blocks_here)
        scalars = [scalar[0] for scalar in scalars]  # all blocks were visited equally often
        return rows, scalars, travel.pass_on(travelling, ring)

    start = ready.rows, ready.scalars, ready.columns
    rows, scalars, columns = jax.lax.fori_loop(0, d, round_, start)
    rows = [leaf.reshape(here, -1, leaf.shape[-1])[:, :u] for leaf in rows]
    U, *leaves = map(travel.join, travel.gather_users(rows, sent, ring))
    V, item_memory = jax.tree.map(travel.join, columns)
    V, item_memory = travel.fetch(_mine(ring, shared.place_of), (V, item_memory), ring)
    return minibatch.Tables(Factors(U, V), (joined(leaves, scalars), item_memory), ())


def gathered(ring: int, row_bits: int, tables, users: Users, shared: Shared) -> tuple[Ready, Array]:
    """The draws of the iteration, and the rows of the users and items of this device's blocks; see `on_device`.

    Also which users each home block has sent to each row block.
    """
    solver, (here, blocks) = shared.solver, _here(shared, ring)
    (U, V), (user_memory, item_memory), *_ = tables
    items = travel.fetch(_mine(ring, shared.item_at), (V, item_memory), ring)
    leaves, _ = travel.rows_and_scalars(user_memory)
    keys = keys_of(shared.key, blocks)
    at_home = Group(
        [travel.cut(here, leaf) for leaf in (U, *leaves.rows)],
        _draws(row_bits, shared, keys[:, 0], users),
        _facts(shared.objective, users),
    )
    sent = leaving(solver, keys, users.ranked)
    group = travel.scatter_users(at_home, sent, ring)
    u = users.length.shape[1]
    steps, b = batches(solver, u, shared.item_at.shape[0])

    def in_batches(leaf):
        fill = ((0, 0), (0, steps * b - u), *((0, 0) for _ in leaf.shape[2:]))
        filled = jnp.pad(leaf, fill, constant_values=1)  # lengths and masses are divided by
        return filled.reshape(here, steps, b, *leaf.shape[2:])

    group = jax.tree.map(in_batches, group)
    by_column = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 3, 1), group.drawn)
    columns = jax.tree.map(partial(travel.cut, here), items)
    return Ready(group.rows, leaves.scalars, columns, by_column, group.facts), sent


def _here(shared: Shared, ring: int) -> tuple[int, Int[Array, "here"]]:
    """The number of row blocks of this device, and which they are."""
    here = shared.solver.blocks // ring
    return here, jax.lax.axis_index(AXIS) * here + jnp.arange(here)


def _mine(ring: int, places: Int[Array, "n"]) -> Int[Array, "part"]:
    """This device's part of a vector over items."""
    part = len(places) // ring
    return jax.lax.dynamic_slice_in_dim(places, jax.lax.axis_index(AXIS) * part, part)


def keys_of(key: Key[Array, ""], blocks: Int[Array, "here"]) -> Key[Array, "here 3"]:
    """The keys of each home block in this iteration: for the draws, for the deal of its users, for their order."""
    return jax.vmap(lambda block: jax.random.split(jax.random.fold_in(key, block), 3))(blocks)


def leaving(solver, keys: Key[Array, "here 3"], ranked: Int[Array, "here u"]) -> Array:
    """The users that each home block sends to each row block of this iteration, in random order: [here, d, u/d].

    If only columns are reassigned, they all stay, and the answer is [here, 1, u].
    """
    d, (here, u) = solver.blocks, ranked.shape
    parts = design.REASSIGN[solver.reassign](d)

    def one(keys, ranked):
        dealt = design.dealt(keys[1], ranked, parts) if parts > 1 else ranked[None]
        return jnp.take_along_axis(dealt, jnp.argsort(draws.words(keys[2], dealt.shape), axis=1), 1)

    return jax.vmap(one)(keys, ranked).reshape(here, parts, u // parts)


def batches(solver, u: int, n: int) -> tuple[int, int]:
    """The number of batches in a visit, and the users of each."""
    steps = -(-u // min(u, solver.users_per_batch(u * solver.blocks, n)))
    return steps, -(-u // steps)


def _draws(row_bits: int, shared: Shared, keys, users: Users) -> Drawn:
    """The draws of this device's users, in all blocks of items."""
    solver, d = shared.solver, shared.solver.blocks
    one = partial(
        drawing.draw,
        d=d,
        num_pos=share(solver.num_pos, d),
        num_neg=share(solver.num_neg, d, 2),  # the spread needs two negatives
        row_bits=row_bits,
    )
    return jax.lax.map(lambda args: one(args[0], args[1], shared.place_of), (keys, users))


def _facts(objective: Objective, users: Users) -> Facts:
    def per_user(ours, theirs):
        return jnp.broadcast_to(theirs if ours is None else ours, users.weight.shape)

    return Facts(
        users.weight,
        jnp.maximum(users.length, 1).astype(users.weight.dtype),
        users.neg_mass,
        per_user(users.reg, objective.reg.user).astype(users.weight.dtype),
        per_user(users.spread, objective.spread).astype(users.weight.dtype),
    )
