"""Who is ranked above each held-out positive: the counts every ranking metric is a formula of.

A user's *candidates* are the items not in their training set; the *negatives* are the candidates
that are not held out either. For a held-out p the candidates scored above it, and level with it,
say where p stands in the list: AUC, ROC, precision, NDCG, … need nothing else, no sort and no
top-k. Scores come in blocks of users, once; memory does not grow with m.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax.data import ids
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.ragged import buckets
from mfauc_jax.evaluation import ranking


class Counts(NamedTuple):
    """One entry per held-out positive p (by user, then item), or one per user who has any.

    Places count from 0; ties go to the lower item index, as in `ranking`.
    """

    users: Int[np.ndarray, " u"]  # those with held-out items, rising
    starts: Int[np.ndarray, " u"]  # their first entry in the arrays over [h]
    items: Int[np.ndarray, " h"]  # p
    num_pos: Int[np.ndarray, " u"]  # P_i
    num_neg: Int[np.ndarray, " u"]  # n − N_i − P_i
    above: Int[np.ndarray, " h"]  # negatives scored above p
    level: Int[np.ndarray, " h"]  # negatives scored as p is
    mates_above: Int[np.ndarray, " h"]  # other held-out items of the user above p
    mates_level: Int[np.ndarray, " h"]
    place: Int[np.ndarray, " h"]  # of p among the candidates
    mate_place: Int[np.ndarray, " h"]  # of p among the user's held-out items
    weight_above: Float[np.ndarray, " h"] | None  # b-weight of those `above`; None without b
    weight_level: Float[np.ndarray, " h"] | None
    lists: Int[np.ndarray, "u top"]  # the head of each user's list; −1 where it ends
    train: Interactions | None  # what was taken out of the lists
    item_features: Any  # [n, d], what diversity compares items by

    def hit(self, size: int) -> np.ndarray:
        """Whether each held-out p is among the first ℓ = `size` of the list, 1 or 0, [h]."""
        return (self.place < size).astype(float)

    def per_user(self, values: np.ndarray) -> np.ndarray:
        """Σ_p over each user's held-out items."""
        return np.add.reduceat(values, self.starts)

    def repeated(self, values: np.ndarray) -> np.ndarray:
        """A value of each user, repeated for each of their held-out items."""
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
    """Count, for every held-out positive, who is above it and who is level.

    Compares the P scores with all n, one fused pass: .3 ns a pair on one core, where a sort takes
    200 ns per item. `lax.reduce` of several counts at once is what fuses; a plain sum of
    comparisons stores the [b, P, n] array first and is 6 to 35 times slower (jax 0.10, CPU).

    Args:
        model: Factors, or a model with `factors_`.
        train: items taken out of each user's candidates; None takes out nothing.
        test: the held-out positives.
        negative_weights: b_j, to weigh the negatives above and level as well.
        top: length of the lists wanted besides.
        item_features: kept in the answer; the model's own V unless given.
        batch: users per block; by default as many as make 16 MB of scores.
    """
    factors = ranking.factors_of(model)
    m, n = factors.U.shape[0], factors.V.shape[0]
    train, test = check_split(train, test, m, n)
    b = None if negative_weights is None else item_vector("negative_weights", negative_weights, n)
    indptr, lengths = np.asarray(test.indptr), np.asarray(test.row_lengths)
    users = np.flatnonzero(lengths)
    width = min(top, n)
    lists = np.full((m, top), -1, np.int32)
    counts = np.zeros((6, test.nnz), np.int32)
    weights = None if b is None else np.zeros((2, test.nnz))
    U, seen = np.asarray(factors.U), [] if train is None else [train]
    for bucket in buckets(test):
        who, items, slots = (np.asarray(a) for a in (bucket.users, bucket.items, bucket.slots))
        real = np.asarray(bucket.real) > 0
        size = ranking.batch_size(len(who), n, batch)
        hidden = ranking.flat_places(seen, who, size)
        for block, places in zip(ranking.blocks(len(who), size), hidden, strict=True):
            rows, *padded = (ranking.pad(a[block], size) for a in (who, items, real))
            found, weighed, head = _count(U[rows], factors.V, places, *padded, b=b, top=width)
            inside = real[block]
            at, filled = slots[block][inside], len(inside)
            counts[:, at] = np.asarray(found)[:, :filled][:, inside]
            if weights is not None:
                weights[:, at] = np.asarray(weighed)[:, :filled][:, inside]
            if top:
                lists[who[block], :width] = np.asarray(head)[:filled]
    above, level, before, mates_above, mates_level, mates_before = counts
    taken = np.zeros(m, int) if train is None else np.asarray(train.row_lengths)
    return Counts(
        users=users,
        starts=indptr[users],
        items=np.asarray(test.indices),
        num_pos=lengths[users],
        num_neg=n - (taken + lengths)[users],
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


@partial(jax.jit, static_argnames="top")
def _count(U, V, hidden, items, real, *, b, top):
    """Counts [6, b, P], weights [2, b, P] and lists [b, top] of one block."""
    S = ranking.scores(U, V, hidden)
    s = jnp.take_along_axis(S, items, axis=1)
    mates = jnp.where(real, s, -jnp.inf)  # padding is above nobody
    everyone = jnp.arange(V.shape[0], dtype=items.dtype)[None, :]
    counts = _compare(s, items, S, everyone) + _compare(s, items, mates, items)
    weights = None
    if b is not None:
        all_weights, mate_weights = _weigh(s, S, b[None, :]), _weigh(s, mates, b[items])
        weights = jnp.stack([x - y for x, y in zip(all_weights, mate_weights, strict=True)])
    head = None
    if top:
        values, head = ranking.best(S, top)
        head = jnp.where(values == -jnp.inf, -1, head)
    return jnp.stack(counts), weights, head


def _compare(
    s: Float[Array, "b P"],
    items: Int[Array, "b P"],
    others: Float[Array, "b Q"],
    other_items: Int[Array, "_ Q"],
) -> tuple[Int[Array, "b P"], ...]:
    """#{q : s_q > s_p}, #{q ≠ p : s_q = s_p} and how many of the latter come before p."""
    s, others = s[:, :, None], others[:, None, :]
    level = others == s
    before = level & (other_items[:, None, :] < items[:, :, None])
    terms = tuple(x.astype(jnp.int32) for x in (others > s, level, before))
    above, level, before = _sum(terms, jnp.int32(0))
    return above, level - 1, before  # p is level with itself


def _weigh(
    s: Float[Array, "b P"], others: Float[Array, "b Q"], b: Float[Array, "_ Q"]
) -> tuple[Float[Array, "b P"], ...]:
    """Σ b_q over s_q > s_p, and over s_q = s_p, p among them."""
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
    """Train and test over the rows of U and V; external ids of test are put in train's order."""
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
        both = train.to_scipy().multiply(test.to_scipy()).tocoo()
        if both.nnz:
            raise ValueError(
                f"item {both.col[0]} of user {both.row[0]} is in train and in test: take it out "
                "of one, or pass train=None to rank the training items too"
            )
    return train, test


def item_vector(name: str, values: Any, num_items: int) -> Float[Array, " n"]:
    """A weight ≥ 0 for each item."""
    values = jnp.asarray(values, float)
    if values.shape != (num_items,):
        raise ValueError(f"{name} has shape {values.shape}; one weight per item is ({num_items},)")
    if not bool(jnp.all(jnp.isfinite(values) & (values >= 0))):
        raise ValueError(f"{name} must be finite and ≥ 0; the least is {values.min()}")
    return values
