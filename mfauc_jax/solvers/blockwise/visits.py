"""A visit of one block: steps of the minibatch solver on the users of a row block and the items of a column block."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from mfauc_jax.objective import equation, sampling
from mfauc_jax.objective.equation import Objective
from mfauc_jax.solvers import row_updates
from mfauc_jax.solvers.blockwise import design, travel
from mfauc_jax.solvers.blockwise.drawing import Drawn
from mfauc_jax.solvers.blockwise.placement import Items

INSIDE = "promise_in_bounds"  # every place is within its block


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
    P = share(shared.solver.num_pos, d)
    Q = drawn.places.shape[-1] - P
    items = jax.lax.dynamic_slice_in_dim(shared.item_at, column * size, size)
    b, stratum = shared.items.b[items], shared.items.stratum[items]
    real = real & (facts.weight > 0)
    reg_item = objective.reg.item if shared.items.reg is None else shared.items.reg[items]
    reg_item = jnp.broadcast_to(reg_item, (size,)) / (d * jnp.maximum(real.sum(), 1))
    # the number of positives and of negatives that each draw stands for
    counts = real * drawn.count / P, real * (size - drawn.count) / Q
    g_pos = (1 / facts.length)[..., None] if drawn.g is None else drawn.g
    neg = drawn.places[..., P:]
    g_neg = b[neg] * (d / facts.neg_mass)[..., None]
    stands_for = [
        jnp.broadcast_to(s[..., None], (*s.shape, c)) for s, c in zip(counts, (P, Q), strict=True)
    ]
    weights = Batch(
        drawn.places,
        jnp.concatenate([stands_for[0] * g_pos, stands_for[1] * g_neg], -1),
        reg_item[drawn.places] * jnp.concatenate(stands_for, -1),
        stratum[drawn.places],
        facts.weight * real,
        real * facts.reg * drawn.count / facts.length,
        facts.spread,
    )
    return jax.lax.optimization_barrier(weights)


def visit(
    shared: Shared, u: int, joined, column, rows, scalars, travelling, drawn: Drawn, facts: Facts
):
    """The minibatch solver on one block: every usable user once, batch by batch."""
    (V, item_memory), solver = travelling, shared.solver
    optimiser = solver.make_optimiser()
    real = (jnp.arange(facts.weight.size) < u).reshape(facts.weight.shape)  # others fill up batches
    batches = _weighed(shared, V.shape[0], column, real, drawn, facts)

    def one(carry, batch):
        V, item_memory, scalars, place = carry
        (u, *leaves), batch = batch
        v = V.at[batch.places].get(mode=INSIDE)  # [b, P + Q, k]
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
        sums = jnp.zeros_like(V).at[items].add(dv.reshape(-1, dv.shape[-1]), mode=INSIDE)
        ridge = jnp.zeros_like(V[:, 0]).at[items].add(batch.ridge.reshape(-1), mode=INSIDE)
        V, memory = row_updates.sweep(optimiser, V, memory, items, sums + ridge[:, None] * V)
        return V, memory, place
    dv = dv + batch.ridge[:, :, None] * v
    flat = (a.reshape(-1, a.shape[-1]) for a in (v, dv))
    return row_updates.move_items(optimiser, V, memory, row_updates.ItemSlopes(items, *flat), place)


def _slopes(shared: Shared, scores: Float[Array, "b PQ"], batch: Batch) -> Float[Array, "b PQ"]:
    """The derivative of the batch's Σ_i w_i risk_i by the score of each draw.

    The risk of rows of length one, with u_i = 1, is the risk as a function of the scores.
    """
    d, P, b = shared.solver.blocks, share(shared.solver.num_pos, shared.solver.blocks), len(scores)
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


def share(draws: int, d: int, least: int = 1) -> int:
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
