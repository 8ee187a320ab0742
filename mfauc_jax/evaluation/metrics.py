"""What a ranking is worth to each user, exactly, and the average over users (Eqs 1–2).

Conventions, for every metric here. Training items are taken out of a user's list. Negatives are
the items neither in train nor in test of that user: other held-out positives count for nothing in
the AUC. Equal scores count ½ in AUC and ROC; in a list the lower item index comes first. Users
without held-out items are skipped; a user without negatives has no AUC (NaN, left out of its
mean). Held-out positives count alike, whatever their confidence.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import counts as standing
from mfauc_jax.evaluation import ranking, significance
from mfauc_jax.evaluation.counts import Standing
from mfauc_jax.objective import sampling
from mfauc_jax.objective import weights as item_weights


def evaluate(
    model: Any,
    train: Interactions | None,
    test: Interactions,
    at: tuple[int, ...] = (1, 3, 5),
    *,
    per_user: bool = False,
    intervals: str | None = None,
    level: float = 0.95,
    key: Key[Array, ""] | None = None,
    features: Any = None,
    batch: int | None = None,
) -> dict[str, Any]:
    """Every metric, from one pass over the scores in blocks of users.

    Keys: `users` and `users_skipped` (nothing held out), `auc`, and for each ℓ in `at`
    `precision@ℓ recall@ℓ f1@ℓ ndcg@ℓ map@ℓ mrr@ℓ hit@ℓ novelty@ℓ diversity@ℓ coverage@ℓ`.
    Without train there is no novelty; a list of one has no diversity.

    Args:
        model: Factors, or a fitted model (its `factors_`).
        train: taken out of the lists; None takes out nothing.
        test: the held-out positives, over the same users and items.
        at: lengths ℓ of the lists.
        per_user: arrays over the users with held-out items, named by `user`, instead of means.
        intervals: "normal" or "bootstrap" adds `name_low`, `name_high` to every mean over users.
        level: their coverage.
        key: for the bootstrap's draws of users.
        features: [n, d], what diversity compares items by; the model's own V unless given.
            To compare models, give the same features to each.
        batch: users a block; by default as many as make 16 MB of scores.
    """
    at = tuple(at)
    if not at or min(at) < 1:
        raise ValueError(f"at = {at} must be list lengths ≥ 1, such as (1, 3, 5)")
    if intervals not in (None, "normal", "bootstrap"):
        raise ValueError(f"intervals = {intervals!r}: choose 'normal', 'bootstrap' or None")
    if intervals == "bootstrap" and key is None:
        raise ValueError("intervals = 'bootstrap' draws users: pass key=jax.random.key(seed)")
    factors = ranking.factors_of(model)
    train = None if train is None else Interactions.of(train)
    stand = standing.stand(factors, train, test, top=max(at), batch=batch)

    values = {"auc": _auc(stand, stand.num_neg, np.ones(len(stand.items)))}
    for size in at:
        values |= {f"{name}@{size}": value for name, value in at_size(stand, size).items()}
        if train is not None:
            values[f"novelty@{size}"] = novelty(stand.lists[:, :size], train)
        if size > 1:
            items = factors.V if features is None else features
            values[f"diversity@{size}"] = diversity(stand.lists[:, :size], items)
    if per_user:
        return {"user": stand.users, **values}
    result: dict[str, float] = {
        "users": len(stand.users),
        "users_skipped": factors.U.shape[0] - len(stand.users),
        **{name: _mean(value) for name, value in values.items()},
    }
    for size in at:
        result[f"coverage@{size}"] = coverage(stand.lists[:, :size], factors.V.shape[0])
    bounds = {}
    if intervals == "normal":
        bounds = significance.normal(values, level)
    elif intervals == "bootstrap" and key is not None:
        bounds = significance.bootstrap(key, values, level)
    for name, (low, high) in bounds.items():
        result |= {f"{name}_low": low, f"{name}_high": high}
    return result


def at_size(stand: Standing, size: int) -> dict[str, Float[np.ndarray, " u"]]:
    """precision, recall, F1, NDCG, AP, reciprocal rank and hit at ℓ = `size`, for each user.

    With relevance 0 or 1, r_p the rank of p from 1, and P held-out items:
    precision = h/ℓ, recall = h/P, F1 = 2h/(ℓ + P) for h = #{r_p ≤ ℓ};
    NDCG = Σ_{r_p ≤ ℓ} 1/log₂(1 + r_p) over Σ_{r ≤ min(ℓ, P)} 1/log₂(1 + r);
    AP = (1/P) Σ_{r_p ≤ ℓ} #{p′ : r_p′ ≤ r_p}/r_p; the reciprocal rank is 1/min r_p, 0 beyond ℓ.
    """
    rank = stand.place + 1.0
    hit = rank <= size
    hits = stand.per_user(hit.astype(float))
    num_pos = stand.num_pos.astype(float)
    gain = 1.0 / np.log2(1.0 + np.arange(1, size + 1))
    ideal = np.cumsum(gain)[np.minimum(stand.num_pos, size) - 1]
    return {
        "precision": hits / size,
        "recall": hits / num_pos,
        "f1": 2 * hits / (size + num_pos),
        "ndcg": stand.per_user(hit / np.log2(1.0 + rank)) / ideal,
        "map": stand.per_user(hit * (stand.mate_place + 1.0) / rank) / num_pos,
        "mrr": np.maximum.reduceat(hit / rank, stand.starts),
        "hit": (hits > 0).astype(float),
    }


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

    NaN for users without a pair. `np.nanmean` of it is the AUC.

    Args:
        positive_weights: a_j with g_p = a_p / a(held out); uniform unless given.
        negative_weights: b_j with g′_q = b_q / b(negatives); uniform unless given.
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
    """The AUC's sum over those p among the best t of the user's list: the paper's local AUC.

    p counts if s_p ≥ the ⌈t c⌉-th largest of the c candidate scores; t = 1 is the AUC. It is not
    divided by what could be attained: with uniform g its ceiling is min(1, ⌈t c⌉/P).
    """
    if not 0 < t <= 1:
        raise ValueError(f"t = {t} must be in (0, 1]: the share of the list that counts")
    factors = ranking.factors_of(model)
    stand = standing.stand(factors, train, test, negative_weights=negative_weights, batch=batch)
    m, n = factors.U.shape[0], factors.V.shape[0]
    mass, a = stand.num_neg, np.ones(len(stand.items))
    if negative_weights is not None:
        b = np.asarray(negative_weights, np.float64)
        taken = 0 if train is None else (Interactions.of(train).to_scipy() != 0) @ b
        mass = b.sum() - (taken + np.zeros(m))[stand.users] - stand.per_user(b[stand.items])
        mass = np.where(stand.num_neg > 0, mass, 0.0)  # exactly, where the sums only nearly cancel
    if positive_weights is not None:
        weights = standing.item_vector("positive_weights", positive_weights, n)
        a = np.asarray(weights, np.float64)[stand.items]
    candidates = stand.spread(stand.num_pos + stand.num_neg)
    among_best = stand.above + stand.mates_above < np.ceil(t * candidates - 1e-9)  # .7 × 10 > 7
    result = np.full(m, np.nan)
    result[stand.users] = _auc(stand, mass, a, among_best)
    return result


def _auc(stand: Standing, mass: np.ndarray, a: np.ndarray, counts: Any = True) -> np.ndarray:
    """Σ_p a_p [1 − (above + ½ level)/mass] over the p that count, by Σ_p a_p over all."""
    above = stand.above if stand.weight_above is None else stand.weight_above
    level = stand.level if stand.weight_level is None else stand.weight_level
    wins = 1 - _share(above + 0.5 * level, stand.spread(mass))
    return _share(stand.per_user(a * counts * wins), stand.per_user(a))


class Roc(NamedTuple):
    """True-positive rate against false-positive rate, averaged over users."""

    fpr: Float[np.ndarray, " x"]
    tpr: Float[np.ndarray, " x"]  # mean over users
    deviation: Float[np.ndarray, " x"]  # standard deviation over users
    low: Float[np.ndarray, " x"]  # quantiles over users
    high: Float[np.ndarray, " x"]
    users: int


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

    A positive tied with some negatives joins linearly while they do, so that the area under a
    user's curve is their AUC.

    Args:
        max_fpr: the last false-positive rate of the grid.
        points: its size.
        band: share of the users between `low` and `high`.
    """
    for name, value in (("max_fpr", max_fpr), ("band", band)):
        if not 0 < value <= 1:
            raise ValueError(f"{name} = {value} must be in (0, 1]")
    stand = standing.stand(model, train, test, batch=batch)
    usable = stand.num_neg > 0
    if not usable.any():
        raise ValueError("no user has both a held-out item and a negative: there is no curve")
    negatives = stand.spread(np.maximum(stand.num_neg, 1))
    start, ramp = stand.above / negatives, np.maximum(stand.level, 1) / negatives
    fpr = np.linspace(0.0, max_fpr, points)
    curves = np.empty((int(usable.sum()), points))
    for column, x in enumerate(fpr):
        joined = np.where(stand.level > 0, np.clip((x - start) / ramp, 0, 1), x >= start)
        curves[:, column] = (stand.per_user(joined) / stand.num_pos)[usable]
    low, high = np.quantile(curves, [(1 - band) / 2, (1 + band) / 2], axis=0)
    return Roc(fpr, curves.mean(0), curves.std(0), low, high, len(curves))


def one_negative_auc(
    key: Key[Array, ""], model: Any, train: Interactions | None, test: Interactions
) -> float:
    """The authors' AUC: each held-out positive against *one* random negative, ties ½.

    An unbiased draw of the exact `auc`, with a standard error of about .005 on 500 users with 5
    held-out items; the differences in the paper's tables are of that size.
    """
    factors = ranking.factors_of(model)
    U, V = (np.asarray(F) for F in factors)
    train, test = standing.check_split(train, test, len(U), len(V))
    rows, items = test.to_scipy().tocoo().coords
    known = test
    if train is not None:
        known = Interactions.from_scipy((train.to_scipy() + test.to_scipy()) != 0)
    full = np.asarray(known.row_lengths) == len(V)
    rows, items = rows[~full[rows]], items[~full[rows]]
    drawn, _ = _draw(key, known, item_weights.make(known), jnp.asarray(rows), count=1)
    negatives = np.asarray(drawn)[:, 0]
    wins = np.empty(len(rows))
    for block in ranking.blocks(len(rows), 2**16):
        u = U[rows[block]]
        s_p, s_q = ((u * V[j[block]]).sum(1) for j in (items, negatives))
        wins[block] = (s_p > s_q) + 0.5 * (s_p == s_q)
    users, inverse = np.unique(rows, return_inverse=True)
    return float((np.bincount(inverse, wins) / np.bincount(inverse)).sum() / len(users))


_draw = jax.jit(sampling.draw_negatives, static_argnames="count")


def coverage(lists: np.ndarray, num_items: int) -> float:
    """The share of the catalogue that somebody is shown."""
    return len(np.unique(lists[lists >= 0])) / num_items


def novelty(lists: np.ndarray, train: Interactions) -> Float[np.ndarray, " u"]:
    """Mean of −log₂ p̂_j over a list, p̂_j the share of users with j in train (1/m at least)."""
    counts = np.bincount(np.asarray(train.indices), minlength=train.num_items)
    surprise = -np.log2(np.maximum(counts, 1) / train.num_users)
    real = lists >= 0
    return _share((surprise[lists] * real).sum(1), real.sum(1).astype(float))


def diversity(lists: np.ndarray, features: Any) -> Float[np.ndarray, " u"]:
    """Mean of 1 − cos(f_j, f_j′) over the pairs of a list: 1 − (‖Σ f̂‖² − Σ ‖f̂‖²)/(ℓ(ℓ − 1))."""
    features = np.asarray(features)
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.where(norms > 0, norms, 1)
    result = np.empty(len(lists))
    for block in ranking.blocks(len(lists), 4096):
        real = lists[block] >= 0
        vectors = (unit[lists[block]] * real[:, :, None]).astype(np.float64)  # [b, ℓ, d]
        size = real.sum(1).astype(float)
        inner = (vectors.sum(1) ** 2).sum(1) - (vectors**2).sum((1, 2))
        result[block] = 1 - _share(inner, size * (size - 1))
    return result


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole; NaN where there is nothing."""
    return part / np.where(whole > 0, whole, np.nan)


def _mean(values: np.ndarray) -> float:
    """The mean over the users who have a value."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
