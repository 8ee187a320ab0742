"""∂risk/∂s of a batch of users, from the matrix of their scores: what the dense solver multiplies by U and V.

The softmax loss has a closed form over all pairs (docs/derivations.md#softmax). Any other loss takes one positive per
user at a time against all columns.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mfauc_jax.objective import equation, losses, weightings
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Sphere
from mfauc_jax.objective.weights import PairWeights


class Batch(NamedTuple):
    """Users and all their positives; those that are not `real` fill the layout and count for nothing."""

    users: Int[Array, "b"]
    weight: Float[Array, "b"]  # w_i, or 0
    real: Bool[Array, "b"]
    row: Int[Array, "L"]
    items: Int[Array, "L"]  # n where there is none
    g: Float[Array, "L"]  # 0 where there is none


class Positives(NamedTuple):
    """The positives that the loss is summed over: all, or some that were drawn."""

    row: Int[Array, "P"]
    items: Int[Array, "P"]  # n where there is none
    g: Float[Array, "P"]


class Slopes(NamedTuple):
    """∂(Σ_i w_i risk_i)/∂s: scale_i · negative_iq for the columns, `positive` for the positives of the loss."""

    negative: Float[Array, "b Q"]
    scale: Float[Array, "b"]
    positive: Float[Array, "P"]


class Scores(NamedTuple):
    """The scores of a batch of users against Q columns, and what says which of them are negatives."""

    matrix: Float[Array, "b Q"]  # s
    column_weight: Float[Array, "Q"]  # b_q
    mass: Float[Array, "b"]  # b(ω̄_i) Q/n: g′_iq is b_q over it
    seen: tuple[
        Int[Array, "L"], Int[Array, "L"]
    ]  # rows and columns of all positives; ≥ Q: no column
    positive: Float[Array, "P"]  # s of the positives that the loss is summed over
    # rows and columns of the dislikes, whose b is multiplied by c; ≥ Q: no column
    disliked: tuple[Int[Array, "D"], Int[Array, "D"]] | None = None


def of_scores(
    objective: Objective, scores: Scores, positives: Positives, batch: Batch, weights: PairWeights
) -> Slopes:
    """∂(Σ_i w_i risk_i)/∂s at the negatives and at the positives of the loss, the spread penalty included."""
    softmax = equation.is_softmax(objective)
    found = softmax_slopes(objective, scores, positives, batch, weights) if softmax else None
    if found is not None and isinstance(objective.reg, Sphere):
        return found  # there is no spread penalty on the sphere
    S, mass = scores.matrix, scores.mass[:, None]
    g_neg = (scores.column_weight[None, :] / mass).at[scores.seen].set(0.0, mode="drop")
    if scores.disliked is not None and weights.disliked is not None:
        g_neg = g_neg.at[scores.disliked].multiply(weights.disliked.factor, mode="drop")
    if found is None:
        found = pair_slopes(objective, S, g_neg, scores.positive, positives, batch)
    mean = (g_neg * S).sum(1, keepdims=True)
    spread = jnp.broadcast_to(objective.spread, weights.user.shape)[batch.users] * batch.weight
    negative = found.scale[:, None] * found.negative + spread[:, None] * g_neg * (S - mean)
    return Slopes(negative, jnp.ones_like(scores.mass), found.positive)


def softmax_slopes(
    objective: Objective, scores: Scores, positives: Positives, batch: Batch, weights: PairWeights
) -> Slopes:
    """The softmax loss: with z_p = log Σ_q g′ exp(βs_q) − βs_p, φ̃(z) = φ(eᶻ) and a_p = g_p φ̃′(z_p),

        ∂s_q = w β (Σ_p a_p) softmax_q,     ∂s_p = −w β a_p.

    exp(βs − top) is written once and read by both products, so its sum over q goes into `scale`.
    """
    loss, weighting = objective.loss, objective.weighting
    assert isinstance(loss, losses.Exponential) and isinstance(weighting, weightings.Log)
    x = loss.beta * scores.matrix
    if weights.neg_table is not None:  # else b is uniform
        x = x + jnp.log(scores.column_weight)[None, :]
    if scores.disliked is not None and weights.disliked is not None:
        x = x.at[scores.disliked].add(jnp.log(weights.disliked.factor), mode="drop")
    x = x.at[scores.seen].set(-jnp.inf, mode="drop")
    top = x.max(1)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    E = jnp.exp(x - top[:, None])
    Z = E.sum(1)
    some = Z > 0  # a sample of columns may hold no negative of a user
    Z = jnp.where(some, Z, 1.0)
    log_mean = jnp.log(Z) + top - jnp.log(scores.mass)
    z = log_mean[positives.row] - loss.beta * scores.positive
    a = positives.g * jax.vmap(jax.grad(weighting.of_log))(z) * some[positives.row]
    sums = jax.ops.segment_sum(a, positives.row, E.shape[0], indices_are_sorted=True)
    pull = batch.weight * loss.beta
    return Slopes(E, pull * sums / Z, -pull[positives.row] * a)


def pair_slopes(
    objective: Objective,
    S: Float[Array, "b Q"],
    g_neg: Float[Array, "b Q"],
    s_pos: Float[Array, "P"],
    positives: Positives,
    batch: Batch,
) -> Slopes:
    """Any loss and φ: with f_p = w g φ′(C_p), ∂s_q = −Σ_p f_p g′_q L′(γ_pq) and ∂s_p = f_p Σ_q g′_q L′(γ_pq).

    Every user has the same number of positives; one per user is taken at a time, so that memory does not grow with it.
    """
    b = S.shape[0]
    steepness = jax.vmap(jax.grad(objective.weighting))

    def one(negative, p):
        s, g = p
        loss, slope = jax.jvp(objective.loss, (s[:, None] - S,), (jnp.ones_like(S),))
        f = batch.weight * g * steepness((loss * g_neg).sum(1))
        pair = f[:, None] * slope * g_neg
        return negative - pair, pair.sum(1)

    turns = s_pos.reshape(b, -1).T, positives.g.reshape(b, -1).T
    negative, positive = jax.lax.scan(one, jnp.zeros_like(S), turns)
    return Slopes(negative, jnp.ones(b, S.dtype), positive.T.reshape(-1))
