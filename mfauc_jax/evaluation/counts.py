"""Counts: how many items are ranked above each held-out positive. Every ranking metric is a formula of them.

A user's *candidates* are the items not in their training set; the *negatives* are the candidates that are not held out
either. For a held-out p, the numbers of candidates scored above it and level with it give its place in the list. AUC,
ROC, precision, NDCG, … need nothing else: no sort and no top-k. Scores are computed once, in blocks of users, so memory
does not grow with m.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax._core import host, programs
from mfauc_jax.data import ids
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.ragged import buckets
from mfauc_jax.evaluation import ranking


class Counts(NamedTuple):
    """What is known of each held-out positive p ([h], by user, then by item) and of each user who has any ([u]).

    Places count from 0; among equal scores the lower item index comes first, as in `ranking`.
    """

    users: Int[np.ndarray, " u"]  # the users with held-out items, ascending
    starts: Int[np.ndarray, " u"]  # where each user begins in the arrays over [h]
    items: Int[np.ndarray, " h"]  # p
    num_pos: Int[np.ndarray, " u"]  # P_i
    num_neg: Int[np.ndarray, " u"]  # n − N_i − P_i
    above: Int[np.ndarray, " h"]  # negatives scored above p
    level: Int[np.ndarray, " h"]  # negatives with the same score as p
    mates_above: Int[np.ndarray, " h"]  # other held-out items of the user, scored above p
    mates_level: Int[np.ndarray, " h"]  # other held-out items of the user, with the same score
    place: Int[np.ndarray, " h"]  # the place of p among the candidates
    mate_place: Int[np.ndarray, " h"]  # the place of p among the user's held-out items
    weight_above: Float[np.ndarray, " h"] | None  # Σ b of the negatives above p; None without b
    weight_level: Float[np.ndarray, " h"] | None  # Σ b of the negatives level with p
    lists: Int[np.ndarray, "u top"]  # the top of each user's list; −1 after its end
    train: Interactions | None  # the items that are left out of the lists
    item_features: Any  # [n, d], the vectors by which diversity compares items

    def hit(self, size: int) -> np.ndarray:
        """Whether each held-out p is among the first ℓ = `size` of the list, 1 or 0, [h]."""
        return (self.place < size).astype(float)

    def per_user(self, values: np.ndarray) -> np.ndarray:
        """The sum of `values`, [h], over each user's held-out items, [u]."""
        return np.add.reduceat(values, self.starts)

    def repeated(self, values: np.ndarray) -> np.ndarray:
        """`values` of each user, [u], repeated for each of their held-out items, [h]."""
        return np.repeat(values, self.num_pos)


def count(
    model: Any,
    train: Interactions | None,
    test: Interactions,
    *,
    negative_weights: Any = None,
    top: int = 0,
    item_features: Any = None,
    batch: int | None = None,
) -> Counts:
    """Count, for every held-out positive, the items above it and level with it.

    The P scores are compared with all n in one fused pass, which takes .3 ns per pair on one core; a sort takes
    200 ns per item. Several counts must be reduced by one `lax.reduce` to be fused: a plain sum of comparisons
    stores the [b, P, n] array first and is 6 to 35 times slower (jax 0.10, CPU).

    Args:
        model: Factors, or a model with `factors_`.
        train: items to leave out of each user's candidates, with its dislikes; None leaves out nothing.
        test: the held-out positives.
        negative_weights: b_j ≥ 0, [n], to sum over the negatives above and level as well.
        top: length of the lists to return; 0 for none.
        item_features: [n, d], kept in the result; None: the model's V.
        batch: users per block; None: as many as make 16 MB of scores.
    """
    factors = ranking.factors_of(model)
    m, n = factors.U.shape[0], factors.V.shape[0]
    train, test = check_split(train, test, m, n)
    b = None if negative_weights is None else item_vector("negative_weights", negative_weights, n)
    indptr, lengths = np.asarray(test.indptr), np.asarray(test.row_lengths)
    users = np.flatnonzero(lengths)
    width, V = min(top, n), ranking.catalogue(factors.V)
    everything, N = np.ones(n, bool), V.shape[0]
    b = None if b is None else host.padded(b, N)
    computed = ranking.list_length(width, N) if top else 0
    lists = np.full((m, width), -1, np.int32)
    counts = np.zeros((6, test.nnz), np.int32)
    weights = None if b is None else np.zeros((2, test.nnz))
    U, seen = np.asarray(factors.U), [] if train is None else seen_in(train)
    for bucket in buckets(test):
        members, items, slots = (np.asarray(a) for a in (bucket.users, bucket.items, bucket.slots))
        real = np.asarray(bucket.real) > 0
        size = ranking.batch_size(len(members), n, batch)
        for block in ranking.blocks(len(members), size):
            rows, *padded = (ranking.pad(a[block], size) for a in (members, items, real))
            is_candidate = ranking.candidates(rows, N, everything, seen)
            block_counts, block_weights, block_lists = _count(
                U[rows], V, is_candidate, *padded, b=b, top=computed
            )
            real_here = real[block]
            entries, num_here = slots[block][real_here], len(real_here)
            counts[:, entries] = np.asarray(block_counts)[:, :num_here][:, real_here]
            if weights is not None:
                weights[:, entries] = np.asarray(block_weights)[:, :num_here][:, real_here]
            if top:
                lists[members[block], :width] = np.asarray(block_lists)[:num_here, :width]
    above, level, before, mates_above, mates_level, mates_before = counts
    num_seen = sum((np.asarray(part.row_lengths) for part in seen), np.zeros(m, int))
    return Counts(
        users=users,
        starts=indptr[users],
        items=np.asarray(test.indices),
        num_pos=lengths[users],
        num_neg=n - (num_seen + lengths)[users],
        above=above - mates_above,
        level=level - mates_level,
        mates_above=mates_above,
        mates_level=mates_level,
        place=above + before,
        mate_place=mates_above + mates_before,
        weight_above=None if weights is None else weights[0],
        weight_level=None if weights is None else weights[1],
        lists=lists[users],
        train=train,
        item_features=factors.V if item_features is None else item_features,
    )


@partial(programs.jit, static_argnames="top")
def _count(U, V, is_candidate, items, real, *, b, top):
    """The counts [6, b, P], weights [2, b, P] and lists [b, top] of one block of users."""
    S = ranking.scores(U, V, is_candidate)
    s = jnp.take_along_axis(S, items, axis=1)
    mates = jnp.where(real, s, -jnp.inf)  # padding is above no item
    all_items = jnp.arange(V.shape[0], dtype=items.dtype)[None, :]
    counts = _compare(s, items, S, all_items) + _compare(s, items, mates, items)
    weights = None
    if b is not None:
        all_weights, mate_weights = _weigh(s, S, b[None, :]), _weigh(s, mates, b[items])
        weights = jnp.stack([x - y for x, y in zip(all_weights, mate_weights, strict=True)])
    lists = None
    if top:
        values, lists = ranking.best(S, top)
        lists = jnp.where(values == -jnp.inf, -1, lists)
    return jnp.stack(counts), weights, lists


def _compare(
    s: Float[Array, "b P"],
    items: Int[Array, "b P"],
    others: Float[Array, "b Q"],
    other_items: Int[Array, "_ Q"],
) -> tuple[Int[Array, "b P"], ...]:
    """#{q : s_q > s_p}, #{q ≠ p : s_q = s_p}, and the number of the latter that come before p."""
    s, others = s[:, :, None], others[:, None, :]
    level = others == s
    before = level & (other_items[:, None, :] < items[:, :, None])
    terms = tuple(x.astype(jnp.int32) for x in (others > s, level, before))
    above, level, before = _sum(terms, jnp.int32(0))
    return above, level - 1, before  # p is level with itself


def _weigh(
    s: Float[Array, "b P"], others: Float[Array, "b Q"], b: Float[Array, "_ Q"]
) -> tuple[Float[Array, "b P"], ...]:
    """Σ b_q over s_q > s_p, and Σ b_q over s_q = s_p, which includes p."""
    s, others, b = s[:, :, None], others[:, None, :], b[:, None, :]
    return _sum((jnp.where(others > s, b, 0), jnp.where(others == s, b, 0)), jnp.zeros((), b.dtype))


def _sum(terms: tuple, zero: Array) -> tuple:
    """The sums of several [b, P, Q] arrays in one pass that never stores them."""
    zeros = (zero,) * len(terms)
    return tuple(
        jax.lax.reduce(terms, zeros, lambda x, y: tuple(map(jnp.add, x, y)), dimensions=(2,))
    )


def check_split(
    train: Interactions | None, test: Interactions, num_users: int, num_items: int
) -> tuple[Interactions | None, Interactions]:
    """Train and test over the rows of U and V, the ids of test in the order of train's; errors for any misfit."""
    if train is not None:
        train = Interactions.of(train)
        ranking.check_shape("train", train, num_users, num_items)
    test = Interactions.of(test) if train is None else ids.over(test, train)
    outside = np.asarray(test.indices)[np.asarray(test.indices) >= num_items]
    if len(outside):
        raise ValueError(
            f"test item {outside[0]} is outside the training catalogue of {num_items} items: "
            "drop it from test"
        )
    if test.shape != (num_users, num_items):
        ranking.check_shape("test", test, num_users, num_items)
    if train is not None:
        for part in seen_in(train):
            both = part.to_scipy().multiply(test.to_scipy()).tocoo()
            if both.nnz:
                where = "train" if part is train else "the dislikes of train"
                raise ValueError(
                    f"item {both.col[0]} of user {both.row[0]} is in {where} and in test: take it out "
                    "of one, or pass train=None to rank the training items too"
                )
    return train, test


def seen_in(train: Interactions) -> list[Interactions]:
    """What a list leaves out: the positives and, if there are any, the dislikes."""
    return [train] if train.dislikes is None else [train, train.dislikes]


def item_vector(name: str, values: Any, num_items: int) -> Float[Array, " n"]:
    """`values` as one weight ≥ 0 per item, [n]; `name` is for messages."""
    values = np.asarray(values, float)
    if values.shape != (num_items,):
        raise ValueError(f"{name} has shape {values.shape}; one weight per item is ({num_items},)")
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"{name} must be finite and ≥ 0; the least is {values.min()}")
    return host.floats(values)
