"""One device's part of a blockwise iteration: it visits its blocks of users with every block of items in turn."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from mfauc_jax._core import draws
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import equation, sampling
from mfauc_jax.objective.equation import Objective
from mfauc_jax.solvers import minibatch
from mfauc_jax.solvers.blockwise import design, drawing, travel
from mfauc_jax.solvers.blockwise.drawing import Drawn
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


class Facts(NamedTuple):
    """What a visit needs to know of a user besides its draws; the axes are those of the users."""

    weight: Float[Array, "*u"]  # w_i; 0 for users who are not usable, and for padding
    length: Float[Array, "*u"]  # N_i, at least 1
    neg_mass: Float[Array, "*u"]
    reg: Float[Array, "*u"]  # λ_i
    spread: Float[Array, "*u"]  # σ_i − 1


class Group(NamedTuple):
    """The users of a block: their rows of U and of the optimiser's state, their draws, what is known of them."""

    rows: Any  # [U, leaves of the optimiser's state]
    drawn: Drawn
    facts: Facts


def on_device(ring: int, row_bits: int, tables, users: Users, shared: Shared):
    """One device's part of an iteration: draw, gather the blocks, make d rounds of visits, send the rows home.

    Args:
        ring: number of devices.
        row_bits: X.row_bits over all processes.
        tables: this device's part of the factors and of the optimiser's states.
        users: this device's row blocks.
        shared: the same on every device.
    """
    solver = shared.solver
    d, me = solver.blocks, jax.lax.axis_index(AXIS)
    here, n, u = d // ring, shared.item_at.shape[0], users.length.shape[1]
    blocks = me * here + jnp.arange(here)

    def mine(places):  # this device's part of a vector over items
        return jax.lax.dynamic_slice_in_dim(places, me * here * (n // d), here * (n // d))

    (U, V), (user_memory, item_memory), _ = tables
    V, item_memory = travel.fetch(mine(shared.item_at), (V, item_memory), ring)
    columns = jax.tree.map(partial(travel.cut, here), (V, item_memory))
    leaves, joined = travel.rows_and_scalars(user_memory)
    keys = jax.vmap(lambda block: jax.random.split(jax.random.fold_in(shared.key, block), 3))(
        blocks
    )
    at_home = Group(
        [travel.cut(here, leaf) for leaf in (U, *leaves.rows)],
        _draws(row_bits, shared, keys[:, 0], users),
        _facts(shared.objective, users),
    )
    leaving = _leaving(solver, keys[:, 1:], users.ranked)
    group = travel.scatter_users(at_home, leaving, ring)
    steps, b = _batches(solver, u, n)
    real = (jnp.arange(steps * b) < u).reshape(steps, b)

    def in_batches(leaf):
        fill = ((0, 0), (0, steps * b - u), *((0, 0) for _ in leaf.shape[2:]))
        filled = jnp.pad(leaf, fill, constant_values=1)  # lengths and masses are divided by
        return filled.reshape(here, steps, b, *leaf.shape[2:])

    group = jax.tree.map(in_batches, group)
    by_block = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 3, 1), group.drawn)

    def round_(r, carry):
        rows, scalars, travelling = carry
        column = (blocks + r) % d  # design.schedule

        def one(args):
            column, rows, travelling, drawn, facts = args
            drawn = jax.tree.map(lambda leaf: leaf[column], drawn)
            return _visit(shared, joined, real, column, rows, scalars, travelling, drawn, facts)

        rows, scalars, travelling = jax.lax.map(
            one, (column, rows, travelling, by_block, group.facts)
        )
        scalars = [scalar[0] for scalar in scalars]  # all blocks were visited equally often
        return rows, scalars, travel.pass_on(travelling, ring)

    rows, scalars, columns = jax.lax.fori_loop(0, d, round_, (group.rows, leaves.scalars, columns))
    rows = [leaf.reshape(here, steps * b, -1)[:, :u] for leaf in rows]
    U, *leaves_rows = map(travel.join, travel.gather_users(rows, leaving, ring))
    V, item_memory = jax.tree.map(travel.join, columns)
    V, item_memory = travel.fetch(mine(shared.place_of), (V, item_memory), ring)
    user_memory = joined(leaves_rows, scalars)
    return minibatch.Tables(Factors(U, V), (user_memory, item_memory), ())


def _leaving(solver, keys: Key[Array, "here 2"], ranked: Int[Array, "here u"]):
    """The users that each home block sends to each row block of this iteration, in random order: [here, d, u/d].

    If only columns are reassigned, they all stay, and the answer is [here, 1, u].
    """
    d, (here, u) = solver.blocks, ranked.shape
    parts = d if solver.reassign == "both" else 1

    def one(keys, ranked):
        dealt = design.dealt(keys[0], ranked, parts) if parts > 1 else ranked[None]
        return jnp.take_along_axis(dealt, jnp.argsort(draws.words(keys[1], dealt.shape), axis=1), 1)

    return jax.vmap(one)(keys, ranked).reshape(here, parts, u // parts)


def _batches(solver, u: int, n: int) -> tuple[int, int]:
    """The number of batches in a visit, and the users of each."""
    steps = -(-u // min(u, solver.users_per_batch(u * solver.blocks, n)))
    return steps, -(-u // steps)


def _draws(row_bits: int, shared: Shared, keys, users: Users) -> Drawn:
    """The draws of this device's users, in all blocks of items."""
    solver, d = shared.solver, shared.solver.blocks
    one = partial(
        drawing.draw,
        d=d,
        num_pos=_share(solver.num_pos, d),
        num_neg=_share(solver.num_neg, d, 2),  # the spread needs two negatives
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


class Batch(NamedTuple):
    """What a batch of b users draws in a block; all weights are 0 for users who do not count."""

    places: Int[Array, "*b PQ"]
    g: Float[Array, "*b PQ"]
    ridge: Float[Array, "*b PQ"]  # share of λ_j in each draw
    stratum: Int[Array, "*b PQ"]
    weight: Float[Array, "*b"]  # w_i
    reg: Float[Array, "*b"]  # share of λ_i in this visit
    spread: Float[Array, "*b"]


def _weighed(shared: Shared, size: int, column, real, drawn: Drawn, facts: Facts) -> Batch:
    """The draws of a visit with their weights (docs/derivations.md#blocks), for all batches at once."""
    d, objective = shared.solver.blocks, shared.objective
    P = _share(shared.solver.num_pos, d)
    Q = drawn.places.shape[-1] - P
    items = jax.lax.dynamic_slice_in_dim(shared.item_at, column * size, size)
    b, stratum = shared.items.b[items], shared.items.stratum[items]
    real = real & (facts.weight > 0)
    reg_item = objective.reg.item if shared.items.reg is None else shared.items.reg[items]
    reg_item = jnp.broadcast_to(reg_item, (size,)) / (d * jnp.maximum(real.sum(), 1))
    # the number of positives and of negatives that each draw stands for
    share = real * drawn.count / P, real * (size - drawn.count) / Q
    g_pos = (1 / facts.length)[..., None] if drawn.g is None else drawn.g
    neg = drawn.places[..., P:]
    g_neg = b[neg] * (d / facts.neg_mass)[..., None]
    share = [
        jnp.broadcast_to(s[..., None], (*s.shape, c)) for s, c in zip(share, (P, Q), strict=True)
    ]
    weights = Batch(
        drawn.places,
        jnp.concatenate([share[0] * g_pos, share[1] * g_neg], -1),
        reg_item[drawn.places] * jnp.concatenate(share, -1),
        stratum[drawn.places],
        facts.weight * real,
        real * facts.reg * drawn.count / facts.length,
        facts.spread,
    )
    return jax.lax.optimization_barrier(weights)


def _visit(
    shared: Shared,
    joined,
    real: Bool[Array, "steps b"],
    column,
    rows,
    scalars,
    travelling,
    drawn: Drawn,
    facts: Facts,
):
    """The minibatch solver on one block: every usable user once, batch by batch."""
    (V, item_memory), solver = travelling, shared.solver
    optimiser = solver.make_optimiser()
    batches = _weighed(shared, V.shape[0], column, real, drawn, facts)

    def one(carry, batch):
        V, item_memory, scalars, place = carry
        (u, *leaves), batch = batch
        v = V.at[batch.places].get(mode="promise_in_bounds")  # [b, P + Q, k]
        slope = _slopes(shared, jnp.einsum("bpk,bk->bp", v, u), batch)
        du = jnp.einsum("bp,bpk->bk", slope, v) + batch.reg[:, None] * u
        dv = (slope * shared.scale)[:, :, None] * u[:, None, :]
        V, item_memory, place = _move_items(optimiser, V, item_memory, place, v, dv, batch)
        updates, memory = optimiser.update(du, joined(leaves, scalars), u)
        new, _ = travel.rows_and_scalars(memory)
        counts = batch.weight[:, None] > 0
        moved = [
            jnp.where(counts, after, before)
            for after, before in zip((u + updates, *new.rows), (u, *leaves), strict=True)
        ]
        return (V, item_memory, new.scalars, place), moved

    carry = V, item_memory, scalars, jnp.zeros(V.shape[0], int)
    (V, item_memory, scalars, _), rows = jax.lax.scan(one, carry, (rows, batches))
    return rows, scalars, (V, item_memory)


def _move_items(optimiser, V, memory, place, v, dv, batch: Batch):
    """One step of the optimiser on the drawn items: on the whole block if the draws are as many as its items."""
    items = batch.places.reshape(-1)
    if len(items) >= len(place):
        sums = (
            jnp.zeros_like(V).at[items].add(dv.reshape(-1, dv.shape[-1]), mode="promise_in_bounds")
        )
        ridge = (
            jnp.zeros_like(V[:, 0]).at[items].add(batch.ridge.reshape(-1), mode="promise_in_bounds")
        )
        V, memory = minibatch.sweep(optimiser, V, memory, items, sums + ridge[:, None] * V)
        return V, memory, place
    dv = dv + batch.ridge[:, :, None] * v
    flat = (a.reshape(-1, a.shape[-1]) for a in (v, dv))
    return minibatch.move_items(optimiser, V, memory, minibatch.ItemSlopes(items, *flat), place)


def _slopes(shared: Shared, scores: Float[Array, "b PQ"], batch: Batch) -> Float[Array, "b PQ"]:
    """The derivative of the batch's Σ_i w_i risk_i by the score of each draw.

    The risk of rows of length one, with u_i = 1, is the risk as a function of the scores.
    """
    d, P, b = shared.solver.blocks, _share(shared.solver.num_pos, shared.solver.blocks), len(scores)
    Q = scores.shape[1] - P
    pairs = _pairs(d, batch.stratum[:, :P], batch.stratum[:, P:]) if d > 1 else None
    sample = sampling.Sample(
        jnp.arange(b),
        batch.places[:, :P],
        batch.places[:, P:],
        batch.g[:, :P],
        batch.g[:, P:],
        batch.weight,
        Q / max(Q - 1, 1),
        pairs,
    )
    objective = shared.objective._replace(spread=batch.spread)

    def risk(scores):
        pos, neg = scores[:, :P, None], scores[:, P:, None]
        return b * equation.risk_of_rows(
            objective, jnp.ones((b, 1), scores.dtype), pos, neg, sample
        )

    return jax.lax.optimization_barrier(jax.grad(risk)(scores))


def _share(draws: int, d: int, least: int = 1) -> int:
    """The number of draws per visit, one d-th of `draws`: an iteration then costs the same for any d."""
    return draws if d == 1 else max(-(-draws // d), least)


def _pairs(d: int, pos, neg) -> sampling.Pairs:
    """Weights of pairs: 1, or more for two items of one stratum, which share a block less often (`design.together`).

    Args:
        d: number of blocks.
        pos: the strata of the drawn positives, [b, P].
        neg: the strata of the drawn negatives, [b, Q].
    """

    def against(stratum):
        return jnp.where(stratum[:, :, None] == neg[:, None, :], design.together(d), 1.0)

    return sampling.Pairs(against(pos), against(neg) / d)
