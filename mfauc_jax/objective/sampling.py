"""Samples: which triples (user i, positive p, negative q) the objective sees, and with what weight.

Negatives come from the exact complement ω̄_i: the r-th item *not* in a sorted CSR row is found by a binary
search on `indices[t] − t`. This needs no rejection and no mask, and its cost is fixed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core import draws
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import lookups
from mfauc_jax.objective.dislikes import Disliked, refuse
from mfauc_jax.objective.weights import MASS, PairWeights


class Sample(NamedTuple):
    """Triples of b users; the mean over the users of w · risk is the data term of θ or θ′."""

    users: Int[Array, "b"]
    pos: Int[Array, "b P"]
    neg: Int[Array, "b Q"]
    g_pos: Float[Array, "b P"]  # padding has weight 0
    g_neg: Float[Array, "b Q"]
    user_weight: Float[Array, "b"]
    spread_scale: float | Float[Array, ""]  # Q/(Q − 1) when sampled, 1 when exact
    pairs: "Pairs | None" = None  # None: every pair counts alike


class Pairs(NamedTuple):
    """Weights of pairs of drawn items, where some pairs are drawn together more often than others."""

    pos_neg: Float[Array, "*b P Q"]
    neg_neg: Float[Array, "*b Q Q"]


def everything(X: Interactions, weights: PairWeights) -> Sample:
    """All triples of all usable users, padded: `value` of it is θ itself. For small data and tests."""
    users = np.asarray(weights.usable)
    relevant = X.to_scipy()[users].toarray() != 0
    by_relevance = np.argsort(~relevant, axis=1, kind="stable")  # positives first, then negatives
    lengths = relevant.sum(1)
    P, Q = lengths.max(), X.num_items - lengths.min()
    pos, neg = by_relevance[:, :P], by_relevance[:, ::-1][:, :Q]
    dense_g = np.zeros(relevant.shape)
    dense_g[relevant] = np.asarray(weights.g)[np.isin(np.asarray(X.rows), users)]
    dense_b = ~relevant * np.asarray(weights.b) / np.asarray(weights.neg_mass)[users][:, None]
    if weights.disliked is not None:
        rejected = weights.disliked.X.to_scipy()[users].toarray() != 0
        dense_b = np.where(rejected, np.asarray(weights.disliked.factor) * dense_b, dense_b)
    return Sample(
        jnp.asarray(users),
        jnp.asarray(pos, jnp.int32),
        jnp.asarray(neg, jnp.int32),
        jnp.asarray(np.take_along_axis(dense_g, pos, 1), float),
        jnp.asarray(np.take_along_axis(dense_b, neg, 1), float),
        weights.user[weights.usable],
        1.0,
    )


def uniform(
    key: Key[Array, ""],
    X: Interactions,
    weights: PairWeights,
    users: Int[Array, "b"],
    num_pos: int,
    num_neg: int,
    first: int | Int[Array, ""] = 0,
) -> Sample:
    """num_pos positives ~ g_i and num_neg negatives ~ g′_i for each of the given users, who must be usable.

    With users drawn uniformly from `weights.usable` and φ = identity, `jax.grad` of the sampled value is unbiased
    for ∇θ, row by row (docs/derivations.md#minibatch), and so is that of the spread penalty. With φ = tanh it is
    biased. `first` users before these have drawn from the same key.
    """
    width = num_pos + (num_neg if weights.disliked is None else 2 * num_neg)
    drawn = draws.words(key, (users.shape[0], width), first * width)
    pos, g_pos = positives_at(drawn[:, :num_pos], X, weights, users)
    neg, g_neg = _negatives(drawn[:, num_pos:], X, weights, users)
    scale = num_neg / max(num_neg - 1, 1)
    return Sample(users, pos, neg, g_pos, g_neg, weights.user[users], scale)


def halves(sample: Sample) -> tuple[Sample, Sample]:
    """Two samples with half of the drawn negatives each, for Richardson's correction."""
    Q = sample.neg.shape[1] // 2
    scale = Q / max(Q - 1, 1)
    cuts = (slice(0, Q), slice(Q, 2 * Q))
    first, second = (
        sample._replace(neg=sample.neg[:, c], g_neg=2 * sample.g_neg[:, c], spread_scale=scale)
        for c in cuts
    )
    return first, second


def for_items(
    key: Key[Array, ""],
    X: Interactions,
    weights: PairWeights,
    items: Int[Array, "b"],
    num_users: int,
    num_items: int,
    columns: Interactions | None = None,
    first: int | Int[Array, ""] = 0,
) -> Sample:
    """κ_W users for each ∂θ′/∂v_j: a Sample with a leading axis over the given items j.

    Slot 0 of `pos` (if j ∈ ω_i) or of `neg` (if not) is item j with its own weight g_ij or g′_ij. The other
    negatives are drawn from ω̄_i without j, so that the inner sum is unbiased. `equation.item_risk` differentiates
    through slot 0 only.

    Without `columns` the users are drawn uniformly: the paper's estimator (docs/derivations.md#estimator-item).
    With `columns`, K₊ of them have item j and K₋ have not: the low-variance estimator. It is unbiased for any
    split with K₊, K₋ ≥ 1. The split is f s₊ : (1 − f) s₋ with f = n_j/m and s± ~ 1/N, 1/M, the sizes of the
    terms, because a split into halves has a larger variance for popular items.

    `num_users` is κ_W, the users per item; `num_items` is κ_Y, the positives and negatives per user; `columns` is
    `X.transpose()` or None; `first` items before these have drawn from the same key.
    """
    refuse(weights.disliked, "the sampler of Algorithm 1")
    width = 1 + 2 * num_items
    drawn = draws.words(key, (items.shape[0], num_users, width), first * (num_users * width))

    def one(item, bits):
        user_bits = bits[:, 0]
        pos_bits, neg_bits = bits[:, 1 : num_items + 1], bits[:, num_items + 1 :]
        if columns is None:
            users = weights.usable[draws.below(user_bits, weights.usable.shape[0])]
            user_weight = weights.user[users]
        else:
            users, user_weight = _stratified(user_bits, X, columns, weights, item)
        return _around_item(pos_bits, neg_bits, X, weights, item, users, user_weight)

    return jax.vmap(one)(items, drawn)


def for_item(
    key: Key[Array, ""],
    X: Interactions,
    weights: PairWeights,
    item: Int[Array, ""],
    num_users: int,
    num_items: int,
    columns: Interactions | None = None,
) -> Sample:
    """`for_items` for one item."""
    many = for_items(key, X, weights, item[None], num_users, num_items, columns)
    return jax.tree.map(lambda a: a[0], many)


def _stratified(bits, X: Interactions, columns: Interactions, weights: PairWeights, item):
    """Users with item j in the first K₊ places and users without it in the others, and their weights."""
    m, n = X.shape
    num_users = bits.shape[0]
    count = columns.indptr[item + 1] - columns.indptr[item]  # n_j
    fraction, density = count / m, X.nnz / (m * n)
    holder_scale = fraction / density  # f s₊ up to the factor n
    other_scale = (1 - fraction) / (1 - density)
    split = jnp.round(num_users * holder_scale / (holder_scale + other_scale))
    num_holders = jnp.clip(split, 1, num_users - 1)  # K₊
    has_item = jnp.arange(num_users) < num_holders
    place = draws.below(bits, jnp.where(has_item, jnp.maximum(count, 1), jnp.maximum(m - count, 1)))
    slot = jnp.minimum(columns.indptr[item] + place, columns.nnz - 1)
    others, _ = lookups.complement(columns, None, None, jnp.broadcast_to(item, (num_users,)), place)
    users = jnp.where(has_item, columns.indices[slot], jnp.minimum(others, m - 1))
    share = jnp.where(has_item, count / num_holders, (m - count) / (num_users - num_holders))
    # the share is n_j/K₊ or (m − n_j)/K₋: 0 if no user, or every user, has the item
    return users, weights.user[users] * share * (num_users / weights.usable.shape[0])


def draw_positives(
    key: Key[Array, ""], X: Interactions, weights: PairWeights, users: Int[Array, "b"], count: int
) -> tuple[Int[Array, "b count"], Float[Array, "b count"]]:
    """`count` iid items of ω_i from g_i, and their weights (1/count each, up to rounding)."""
    return positives_at(draws.words(key, (users.shape[0], count)), X, weights, users)


def positives_at(bits, X: Interactions, weights: PairWeights, users):
    """`draw_positives` from random words, [b, count]."""
    count = bits.shape[1]
    users = jnp.broadcast_to(users[:, None], bits.shape)
    start, end = X.indptr[users], X.indptr[users + 1]
    if weights.pos_table is None:
        slot = start + draws.below(bits, end - start)
        return X.indices[slot], jnp.full(bits.shape, 1 / count, weights.g.dtype)
    table = weights.pos_table
    total = table[end - 1]
    x = draws.below(bits, total)
    slot = lookups.first(X.row_bits, start, end, lambda t: table[t] > x)
    mass = table[slot] - jnp.where(slot > start, table[slot - 1], 0)
    return X.indices[slot], weights.g[slot] * (total / mass).astype(weights.g.dtype) / count


def draw_negatives(
    key: Key[Array, ""], X: Interactions, weights: PairWeights, users: Int[Array, "b"], count: int
) -> tuple[Int[Array, "b count"], Float[Array, "b count"]]:
    """`count` iid items of ω̄_i from g′_i, and their weights (1/count each, up to rounding)."""
    words = count if weights.disliked is None else 2 * count
    return _negatives(draws.words(key, (users.shape[0], words)), X, weights, users)


def _negatives(bits, X: Interactions, weights: PairWeights, users):
    """One word per draw; with dislikes a second half of words says which draws are dislikes."""
    if weights.disliked is not None:
        return _with_dislikes(bits, X, weights, weights.disliked, users)
    count = bits.shape[1]
    users = jnp.broadcast_to(users[:, None], bits.shape)
    x = draws.below(bits, lookups.negative_mass(X, weights, users))
    items, drawn_mass = lookups.complement(X, weights.neg_table, weights.row_table, users, x)
    if weights.neg_table is None:
        return items, jnp.full(users.shape, 1 / count, weights.g.dtype)
    share = (
        weights.b[items] / weights.neg_mass[users]
    )  # g′, to be divided by the probability of the draw
    return items, share * (lookups.negative_mass(X, weights, users) / drawn_mass).astype(
        share.dtype
    ) / count


def _with_dislikes(bits, X: Interactions, weights: PairWeights, disliked: Disliked, users):
    """Draws from g′ as the mixture of `Disliked`; each share of g′ is divided by the probability of its draw."""
    count = bits.shape[1] // 2
    D, bits, coins = disliked.X, bits[:, :count], bits[:, count:]
    rejected = draws.below(coins, MASS) < disliked.coin[users][:, None]
    unseen = weights._replace(disliked=None)
    items, share = _negatives(bits, X, unseen, users)
    start, end = D.indptr[users][:, None], D.indptr[users + 1][:, None]
    if disliked.table is None:
        slot = start + draws.below(bits, jnp.maximum(end - start, 1))
        own = jnp.full(share.shape, 1 / count, share.dtype)
    else:
        # the shares of both parts are b_q / b_i(ω̄_i) over the probability, so those of whole parts must be 1
        share = (
            share * MASS / jnp.maximum(MASS - disliked.coin[users], 1)[:, None].astype(share.dtype)
        )
        table = disliked.table
        total = table[jnp.maximum(end - 1, 0)]
        x = draws.below(bits, jnp.maximum(total, 1))
        low, high = (jnp.broadcast_to(a, x.shape) for a in (start, end))
        slot = lookups.first(D.row_bits, low, high, lambda t: table[jnp.minimum(t, D.nnz - 1)] > x)
        slot = jnp.minimum(slot, D.nnz - 1)
        mass = table[slot] - jnp.where(slot > start, table[jnp.maximum(slot - 1, 0)], 0)
        own = weights.b[D.indices[slot]] * (disliked.factor - 1) / weights.neg_mass[users][:, None]
        own = own * (total / jnp.maximum(mass, 1)).astype(share.dtype) / count
        own = own * MASS / jnp.maximum(disliked.coin[users], 1)[:, None].astype(share.dtype)
    slot = jnp.minimum(slot, D.nnz - 1)
    return jnp.where(rejected, D.indices[slot], items), jnp.where(rejected, own, share)


def _around_item(pos_bits, neg_bits, X, weights, item, users, user_weight) -> Sample:
    b, count = neg_bits.shape
    relevant, slot = lookups.contains(X, users, item)
    pos, g_pos = positives_at(pos_bits, X, weights, users)
    # negatives other than j: draw from the mass without j's own, then step over j's place
    mass_before = lookups.mass_before(weights.neg_table, item) - lookups.row_mass_before(
        X, weights, users, slot
    )
    own_mass = jnp.where(
        relevant,
        0,
        lookups.mass_before(weights.neg_table, item + 1)
        - lookups.mass_before(weights.neg_table, item),
    )
    mass_left = lookups.negative_mass(X, weights, users) - own_mass
    x = draws.below(neg_bits, jnp.maximum(mass_left, 1)[:, None])
    x = x + jnp.where((x >= mass_before[:, None]) & ~relevant[:, None], own_mass[:, None], 0)
    user_of_draw = jnp.broadcast_to(users[:, None], x.shape)
    neg, drawn_mass = lookups.complement(X, weights.neg_table, weights.row_table, user_of_draw, x)
    share = weights.b[neg] / weights.neg_mass[users][:, None]
    g_neg = (
        share
        * (mass_left[:, None] / jnp.maximum(drawn_mass, 1)).astype(share.dtype)
        / count
        * (mass_left > 0)[:, None]
    )
    own_g = jnp.where(relevant, weights.g[jnp.minimum(slot, X.nnz - 1)], 0.0)
    own_b = jnp.where(relevant, 0.0, weights.b[item] / weights.neg_mass[users])
    own_item = jnp.full((b, 1), item)
    return Sample(
        users,
        jnp.concatenate([own_item, pos], 1),
        jnp.concatenate([own_item, jnp.minimum(neg, X.num_items - 1)], 1),
        jnp.concatenate([own_g[:, None], jnp.where(relevant[:, None], 0.0, g_pos)], 1),
        jnp.concatenate([own_b[:, None], g_neg], 1),
        user_weight,
        jnp.ones((), weights.g.dtype),
    )
