"""θ and ∇θ over all pairs without listing them: moments, sorting, or bounded blocks of pairs.

| loss          | how                                                      | cost of value and gradient    |
| square        | first and second moments (docs/derivations.md#moments)   | O(nnz k + (m + n) k²)         |
| square hinge  | positives sorted, negatives bucketed                     | O(n (k + log N_i)) per user   |
| softmax       | one log-sum-exp per user (docs/derivations.md#softmax)   | O(n k) per user               |
| any other     | blocks of (positive, all items)                          | O(n (k + N_i)) per user       |

Every φ, g, g′, user weight and spread penalty is supported. Users are streamed in blocks, so memory does not
grow with m · n. Gradients are `jax.grad` of these functions.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax._core import host, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import ragged
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import dislikes, equation, losses
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import by_row
from mfauc_jax.objective.weights import PairWeights

BLOCK = 2**20  # numbers in one block's temporary array: 4 MB in float32


class Plan(NamedTuple):
    """The data as the exact evaluation reads them: laid out once, used at every evaluation."""

    X: Interactions
    weights: PairWeights
    blocks: (
        tuple  # of (users [c, b], items [c, b, P], g [c, b, P], removed); empty for the square loss
    )
    # what X's entries take from b, where X has the dislikes too (`dislikes.Entries`); None: b itself
    removed: Float[Array, "nnz"] | None = None


def plan(objective: Objective, X: Interactions, weights: PairWeights, block: int = BLOCK) -> Plan:
    """The usable users in rectangles of similar N_i, cut into blocks of at most `block` numbers."""
    removed = None
    if weights.disliked is not None:
        g, b = np.asarray(weights.g), np.asarray(weights.b)
        X, g, removed = dislikes.entries(X, g, b, weights.disliked)
        weights, removed = weights._replace(g=host.floats(g)), host.floats(removed)
    if isinstance(objective.loss, losses.Square):
        return Plan(X, weights, (), removed)
    blocks = []
    for bucket in ragged.buckets(X, np.asarray(weights.usable)):
        rows = bucket.users.shape[0]
        size = min(max(1, block // X.num_items), rows)
        own_g = np.asarray(weights.g)[np.asarray(bucket.slots)] * np.asarray(bucket.real)
        g = ragged.cut(own_g, size)  # padding has weight 0
        users, items = (ragged.cut(a, size, repeat=True) for a in (bucket.users, bucket.items))
        own = None
        if removed is not None:
            own = np.asarray(removed)[np.asarray(bucket.slots)] * np.asarray(bucket.real)
            own = ragged.cut(own, size, repeat=True)
        blocks.append((users, items, g, own))
    return Plan(X, weights, tuple(blocks), removed)


@programs.jit
def value_and_grad(
    objective: Objective, factors: Factors, data: Plan
) -> tuple[Float[Array, ""], Factors]:
    """θ(U, V) and its gradient."""
    if isinstance(objective.loss, losses.Square):
        return jax.value_and_grad(_moments, argnums=1)(objective, factors, data)
    total, grads = jax.value_and_grad(equation.penalty, argnums=1)(objective, factors)
    for block in data.blocks:
        (total, grads), _ = jax.lax.scan(
            partial(_add_block, objective, factors, data.weights), (total, grads), block
        )
    return total, grads


@programs.jit
def value(objective: Objective, factors: Factors, data: Plan) -> Float[Array, ""]:
    """θ(U, V)."""
    if isinstance(objective.loss, losses.Square):
        return _moments(objective, factors, data)
    total = equation.penalty(objective, factors)

    @jax.checkpoint  # jax.grad recomputes a block instead of keeping it
    def add(total, block):
        U = factors.U[block[0]]
        return total + _block_risk(objective, data.weights, U, factors.V, block), None

    for block in data.blocks:
        total, _ = jax.lax.scan(add, total, block)
    return total


def value_of_all(objective: Objective, factors: Factors, data: Plan) -> float:
    """θ(U, V) of the users of all processes, each of which gives its own; in one process it is `value`.

    θ = Σ_i w_i risk_i / m₊ + ½ (Σ_i λ_i |u_i|² / m + Σ_j λ_j |v_j|² / n): the sums over users, m₊ and m are added up.
    """
    if jax.process_count() == 1:
        return float(value(objective, factors, data))
    usable = data.weights.usable.shape[0]
    unpenalised = objective._replace(reg=0.0)
    risks = usable * float(value(unpenalised, factors, data)) if usable else 0.0
    squares = [(np.asarray(F, np.float64) ** 2).sum(1) for F in factors]
    reg = by_row(objective.reg, *map(len, squares))
    users, items = (np.asarray(r, np.float64) @ s for r, s in zip(reg, squares, strict=True))
    risks, usable, users, m = host.total(np.array([risks, usable, users, len(squares[0])], float))
    return float(risks / usable + 0.5 * (users / m + items / len(squares[1])))


def _add_block(objective, factors, weights, carry, block):
    total, grads = carry
    users = block[0]
    risk, (dU, dV) = jax.value_and_grad(_block_risk, argnums=(2, 3))(
        objective, weights, factors.U[users], factors.V, block
    )
    return (total + risk, Factors(grads.U.at[users].add(dU), grads.V + dV)), None


def _block_risk(objective, weights, U, V, block):
    """Σ over a block's users of w_i risk_i / (number of usable users)."""
    users, items, g, removed = block
    rank_losses = (
        hinge_rank_losses if isinstance(objective.loss, losses.SquareHinge) else pair_rank_losses
    )
    spread = jnp.broadcast_to(objective.spread, weights.user.shape)[users]
    user_weight = (g.sum(1) > 0) * weights.user[users] / weights.usable.shape[0]

    def user(u, items, g, removed, neg_mass, spread):
        s = V @ u
        b = weights.b
        b = b.at[items].set(0.0) if removed is None else b.at[items].add(-removed)
        g_neg = b / neg_mass
        mean = g_neg @ s
        # margins do not change, and float32 keeps its digits (docs/derivations.md#centring)
        s = s - mean
        if equation.is_softmax(objective):
            weighted = equation.softmax_losses(objective, s[items], s, g_neg)
            return g @ weighted + 0.5 * spread * (g_neg @ s**2)
        s_pos, g_pos = _sorted(s[items], g)
        rank_loss = rank_losses(objective.loss, s_pos, s, g_neg)
        return g_pos @ objective.weighting(rank_loss) + 0.5 * spread * (g_neg @ s**2)

    risks = jax.vmap(user)(U, items, g, removed, weights.neg_mass[users], spread)
    return user_weight @ risks


def _sorted(s_pos, g):
    order = jnp.argsort(s_pos)
    return s_pos[order], g[order]


def hinge_rank_losses(
    loss, s_pos: Float[Array, "P"], s: Float[Array, "n"], g_neg: Float[Array, "n"]
) -> Float[Array, "P"]:
    """C_p = Σ_q g′_q ½ max(0, 1 − s_p + s_q)² for sorted s_pos, in O((P + n) log P).

    Negative q is active for positive p when s_p < s_q + 1. Let rank(q) be the number of such p. The active
    negatives of the positive at place r are those with rank > r, so it is enough to bucket the moments Σ g′ s^t
    of the negatives by rank and to sum the buckets from the right. The loss is C¹, so its gradient may treat the
    ranks as constants.
    """
    del loss  # this *is* the square hinge
    P = s_pos.shape[0]
    rank = _count_below(jax.lax.stop_gradient(s_pos), jax.lax.stop_gradient(s) + 1)
    moments = (g_neg, g_neg * s, g_neg * s**2)
    bucketed = (jax.ops.segment_sum(moment, rank, P + 1) for moment in moments)  # [P + 1] each
    W0, W1, W2 = (jax.lax.cumsum(bucket, reverse=True)[1:] for bucket in bucketed)
    return 0.5 * ((1 - s_pos) ** 2 * W0 + 2 * (1 - s_pos) * W1 + W2)


def _count_below(s_pos, bar):
    """#{p: s_p < bar_q} for sorted s_pos, 2.5 times as fast as jnp.searchsorted on CPU: one index per step."""
    bits = s_pos.shape[0].bit_length()
    padded = jnp.pad(s_pos, (0, 2**bits - 1 - s_pos.shape[0]), constant_values=jnp.inf)

    def step(t, count):
        half = jnp.int32(1) << (bits - 1 - t)
        return count + jnp.where(padded[count + half - 1] < bar, half, 0)

    return jax.lax.fori_loop(0, bits, step, jnp.zeros(bar.shape, jnp.int32))


def pair_rank_losses(
    loss, s_pos: Float[Array, "P"], s: Float[Array, "n"], g_neg: Float[Array, "n"]
) -> Float[Array, "P"]:
    """C_p = Σ_q g′_q L(s_p − s_q), one positive at a time; the backward pass recomputes the losses."""
    one = jax.checkpoint(lambda s_p: loss(s_p - s) @ g_neg)
    return jax.lax.map(one, s_pos)


class Positives(NamedTuple):
    """The entries of X, in the order of the users; a user ≥ m marks padding, whose g is 0."""

    rows: Int[Array, "nnz"]
    items: Int[Array, "nnz"]
    g: Float[Array, "nnz"]
    removed: Float[Array, "nnz"] | None  # as in `Plan`


def _moments(objective: Objective, factors: Factors, data: Plan) -> Float[Array, ""]:
    positives = Positives(data.X.rows, data.X.indices, data.weights.g, data.removed)
    return moments(objective, factors, data, positives) + equation.penalty(objective, factors)


def moments(
    objective: Objective,
    factors: Factors,
    data: Plan,
    positives: Positives,
    over: Callable[[Array], Array] = lambda sums: sums,
) -> Float[Array, ""]:
    """The data term of the square loss from moments of the scores (docs/derivations.md#moments; w and σ of #spread).

    C_ip = ½[(1 − s_ip)² + 2 (1 − s_ip) μ′_i + Q′_i]. Here μ′ and Q′ are the mean and the mean square of the
    negatives' scores: the moments over all items minus those over the positives.

    Args:
        objective: φ and σ.
        factors: U and V.
        data: the weights, and the number of users.
        positives: all of them, or those of one device.
        over: the sum over devices.
    """
    weights, m = data.weights, data.X.num_users
    b, (rows, items, g, removed) = weights.b, positives
    U, V = factors
    V = V - (b @ V / b.sum())[None, :]  # a common shift of all items leaves the margins as they are
    s = scores_at(U, V, rows, items)
    own_b = b[items] if removed is None else removed

    def row_sums(values):
        return over(jax.ops.segment_sum(values, rows, m, indices_are_sorted=True))

    second = ((U @ (V.T @ (b[:, None] * V))) * U).sum(1)  # Σ_j b_j s_ij²; Σ_j b_j s_ij is 0
    mean = -row_sums(own_b * s) / weights.neg_mass  # μ′
    square = (second - row_sums(own_b * s**2)) / weights.neg_mass  # Q′
    rank_loss = 0.5 * ((1 - s) ** 2 + 2 * (1 - s) * mean[rows] + square[rows])
    risks = row_sums(g * objective.weighting(rank_loss))
    risks = risks + 0.5 * objective.spread * (square - mean**2)
    return weights.user @ risks / weights.usable.shape[0]


CHUNK = 2**17  # pairs whose scores are computed at a time


def scores_at(
    U: Float[Array, "m k"],
    V: Float[Array, "n k"],
    rows: Int[Array, "nnz"],
    items: Int[Array, "nnz"],
) -> Float[Array, "nnz"]:
    """s_ij = u_i·v_j of the given pairs, in chunks: no nnz × k array is made, forward or backward."""
    nnz = rows.shape[0]
    chunks = max(1, -(-nnz // CHUNK))
    pad = chunks * (-(-nnz // chunks)) - nnz

    def cut(a):
        return jnp.pad(a, (0, pad)).reshape(chunks, -1)

    dots = jax.checkpoint(lambda pairs: (U[pairs[0]] * V[pairs[1]]).sum(1))
    return jax.lax.map(dots, (cut(rows), cut(items))).reshape(-1)[:nnz]
