"""Curves and variants of the AUC: weighted and local (Eq. 2), the ROC curve, the authors' estimate.

The conventions are those of `metrics`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core import programs
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import counts as counting
from mfauc_jax.evaluation import formulas, ranking
from mfauc_jax.objective import sampling
from mfauc_jax.objective.weights import Weights


def auc(
    model: Any,
    train: Interactions | None,
    test: Interactions,
    *,
    positive_weights: Any = None,
    negative_weights: Any = None,
    batch: int | None = None,
) -> Float[np.ndarray, " m"]:
    """AUC_i = Σ_p g_p Σ_q g′_q [I(s_p > s_q) + ½ I(s_p = s_q)] of every user: Eq. 1, or Eq. 2.

    It is NaN for users without a pair; its `np.nanmean` is the AUC.

    Args:
        model: Factors, or a fitted model.
        train: items to leave out of the lists; None leaves out nothing.
        test: the held-out positives.
        positive_weights: a_j, [n], with g_p = a_p / a(held out); None: uniform.
        negative_weights: b_j, [n], with g′_q = b_q / b(negatives); None: uniform.
        batch: users per block; None: as many as make 16 MB of scores.
    """
    weights = {"positive_weights": positive_weights, "negative_weights": negative_weights}
    return local_auc(model, train, test, 1.0, **weights, batch=batch)


def local_auc(
    model: Any,
    train: Interactions | None,
    test: Interactions,
    t: float,
    *,
    positive_weights: Any = None,
    negative_weights: Any = None,
    batch: int | None = None,
) -> Float[np.ndarray, " m"]:
    """The part of each user's AUC that comes from positives in the best share t of the list: the paper's local AUC.

    p counts if s_p ≥ the ⌈t c⌉-th largest of the c candidate scores; t = 1 is the AUC. It is not divided by its
    largest possible value, which is min(1, ⌈t c⌉/P) with uniform g. The arguments are those of `auc`.
    """
    if not 0 < t <= 1:
        raise ValueError(f"t = {t} must be in (0, 1]: the share of the list that counts")
    factors = ranking.factors_of(model)
    counts = counting.count(factors, train, test, negative_weights=negative_weights, batch=batch)
    m, n = factors.U.shape[0], factors.V.shape[0]
    mass, a = counts.num_neg, np.ones(len(counts.items))
    if negative_weights is not None:
        b = np.asarray(negative_weights, np.float64)
        seen = [] if train is None else counting.seen_in(Interactions.of(train))
        seen_mass = sum((part.to_scipy() != 0) @ b for part in seen)
        mass = b.sum() - (seen_mass + np.zeros(m))[counts.users] - counts.per_user(b[counts.items])
        mass = np.where(
            counts.num_neg > 0, mass, 0.0
        )  # exactly 0 where the sums cancel only nearly
    if positive_weights is not None:
        weights = counting.item_vector("positive_weights", positive_weights, n)
        a = np.asarray(weights, np.float64)[counts.items]
    candidates = counts.repeated(counts.num_pos + counts.num_neg)
    among_best = counts.above + counts.mates_above < np.ceil(
        t * candidates - 1e-9
    )  # in floats .7 × 10 > 7
    result = np.full(m, np.nan)
    result[counts.users] = formulas.weighted_auc(counts, mass, a, among_best)
    return result


def activity_groups(lengths: Int[np.ndarray, " users"], bins: int = 8) -> Int[np.ndarray, " users"]:
    """The group of each user, 0 for the least active: at most `bins` groups of about equally many users.

    Users with the same number of items are in the same group.

    Args:
        lengths: the number of training items of each user.
        bins: largest number of groups.
    """
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, bins + 1)))
    group = np.clip(np.searchsorted(edges, lengths, side="right") - 1, 0, max(len(edges) - 2, 0))
    return np.unique(group, return_inverse=True)[1]


class Exposure(NamedTuple):
    """How often each item is in a list, and how popular it is."""

    had: Int[np.ndarray, " n"]  # users with the item in training
    shown: Int[np.ndarray, " n"]  # users with the item in their list
    covered: float  # share of the items that are in some list
    top_tenth: float  # share of all places that the most popular tenth of the items fills


def exposure(
    model: Any,
    train: Interactions,
    n: int = 10,
    users: Any = None,
    exclude: Interactions | None = None,
) -> Exposure:
    """In how many lists of n each item is, and how many users had it in training.

    Args:
        model: a fitted model or Factors.
        train: the training positives, which are left out of the lists.
        n: length of a list.
        users: rows of the users whose lists count; None: all.
        exclude: what is left out of the lists in place of `train`, such as dislikes too; None: `train`.
    """
    users = np.arange(train.num_users) if users is None else users
    items, _ = ranking.top_items(model, users, n, exclude=train if exclude is None else exclude)
    shown = np.bincount(items[items >= 0], minlength=train.num_items)
    had = np.bincount(np.asarray(train.indices), minlength=train.num_items)
    popular = np.argsort(-had, kind="stable")[: max(1, train.num_items // 10)]
    share = shown[popular].sum() / max(shown.sum(), 1)
    return Exposure(had, shown, float((shown > 0).mean()), float(share))


class Roc(NamedTuple):
    """The mean ROC curve over users, and how much the users differ."""

    fpr: Float[np.ndarray, " x"]
    tpr: Float[np.ndarray, " x"]  # mean over users
    deviation: Float[np.ndarray, " x"]  # standard deviation over users
    low: Float[np.ndarray, " x"]  # quantiles over users, see `band` of `roc`
    high: Float[np.ndarray, " x"]
    users: int  # how many have a curve


def roc(
    model: Any,
    train: Interactions | None,
    test: Interactions,
    max_fpr: float = 1.0,
    *,
    points: int = 101,
    band: float = 0.5,
    batch: int | None = None,
) -> Roc:
    """The ROC curve of each user on one grid of false-positive rates, and their mean.

    Where a positive has the same score as some negatives, the curve rises linearly over them, so that the area
    under a user's curve is their AUC.

    Args:
        model: Factors, or a fitted model.
        train: items to leave out of the lists; None leaves out nothing.
        test: the held-out positives.
        max_fpr: the last false-positive rate of the grid, in (0, 1].
        points: number of grid points.
        band: share of the users between `low` and `high`, in (0, 1].
        batch: users per block; None: as many as make 16 MB of scores.
    """
    for name, value in (("max_fpr", max_fpr), ("band", band)):
        if not 0 < value <= 1:
            raise ValueError(f"{name} = {value} must be in (0, 1]")
    counts = counting.count(model, train, test, batch=batch)
    usable = counts.num_neg > 0
    if not usable.any():
        raise ValueError("no user has both a held-out item and a negative: there is no curve")
    negatives = counts.repeated(np.maximum(counts.num_neg, 1))
    start, ramp = counts.above / negatives, np.maximum(counts.level, 1) / negatives
    fpr = np.linspace(0.0, max_fpr, points)
    curves = np.empty((int(usable.sum()), points))
    for column, x in enumerate(fpr):
        joined = np.where(counts.level > 0, np.clip((x - start) / ramp, 0, 1), x >= start)
        curves[:, column] = (counts.per_user(joined) / counts.num_pos)[usable]
    low, high = np.quantile(curves, [(1 - band) / 2, (1 + band) / 2], axis=0)
    return Roc(fpr, curves.mean(0), curves.std(0), low, high, len(curves))


def one_negative_auc(
    key: Key[Array, ""], model: Any, train: Interactions | None, test: Interactions
) -> float:
    """The authors' AUC: each held-out positive against *one* random negative, ties ½.

    It is unbiased for the exact `auc`, with a standard error of about .005 for 500 users with 5 held-out items;
    the differences in the paper's tables are of that size.
    """
    factors = ranking.factors_of(model)
    U, V = (np.asarray(F) for F in factors)
    train, test = counting.check_split(train, test, len(U), len(V))
    rows, items = test.to_scipy().tocoo().coords
    known = test
    if train is not None:
        parts = (part.to_scipy() for part in counting.seen_in(train))
        known = Interactions.from_scipy(sum(parts, test.to_scipy()) != 0)
    full = np.asarray(known.row_lengths) == len(V)
    rows, items = rows[~full[rows]], items[~full[rows]]
    drawn, _ = _draw(key, known, Weights.paper().of(known), jnp.asarray(rows), count=1)
    negatives = np.asarray(drawn)[:, 0]
    wins = np.empty(len(rows))
    for block in ranking.blocks(len(rows), 2**16):
        u = U[rows[block]]
        s_p, s_q = ((u * V[j[block]]).sum(1) for j in (items, negatives))
        wins[block] = (s_p > s_q) + 0.5 * (s_p == s_q)
    users, inverse = np.unique(rows, return_inverse=True)
    return float((np.bincount(inverse, wins) / np.bincount(inverse)).sum() / len(users))


_draw = programs.jit(sampling.draw_negatives, static_argnames="count")
