"""What a ranking is worth to each user, exactly, and the average over users (Eqs 1–2).

Conventions, for every metric here. Training items are taken out of a user's list. Negatives are
the items neither in train nor in test of that user: other held-out positives count for nothing in
the AUC. Equal scores count ½ in AUC and ROC; in a list the lower item index comes first. Users
without held-out items are skipped; a user without negatives has no AUC (NaN, left out of its
mean). Held-out positives count alike, whatever their confidence.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import counts as counting
from mfauc_jax.evaluation import formulas, ranking, significance


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
    counts = counting.count(factors, train, test, top=max(at), item_features=features, batch=batch)
    values = _values(counts, at)
    if per_user:
        return {"user": counts.users, **{k: v for k, v in values.items() if np.ndim(v)}}
    result: dict[str, float] = {
        "users": len(counts.users),
        "users_skipped": factors.U.shape[0] - len(counts.users),
        **{name: mean(value) for name, value in values.items()},
    }
    values, bounds = {k: v for k, v in values.items() if np.ndim(v)}, {}
    if intervals == "normal":
        bounds = significance.normal(values, level)
    elif intervals == "bootstrap" and key is not None:
        bounds = significance.bootstrap(key, values, level)
    for name, (low, high) in bounds.items():
        result |= {f"{name}_low": low, f"{name}_high": high}
    return result


def _values(counts: counting.Counts, at: tuple[int, ...]) -> dict[str, Any]:
    """Every registered metric; those of lists at each length, without those that have no value there."""
    plain = [name for name in formulas.METRICS if not formulas.of_lists(name)]
    values = {name: formulas.METRICS[name](counts) for name in plain}
    for size in at:
        for name, formula in formulas.METRICS.items():
            if formulas.of_lists(name):
                value = formula(counts, size)
                if not np.isnan(value).all():
                    values[f"{name}@{size}"] = value
    return values


def lengths(wanted: str | Callable, usual: tuple[int, ...]) -> tuple[int, ...]:
    """The usual list lengths and that of the wanted metric."""
    size = formulas.parse(wanted)[1] if isinstance(wanted, str) else None
    return tuple(sorted({*usual} | ({size} if size else set())))


def scores(
    model: Any,
    train: Interactions | None,
    test: Interactions,
    wanted: str | Callable,
    usual: tuple[int, ...] = (1, 3, 5),
) -> dict[str, float]:
    """`evaluate` at the usual lengths and with the wanted metric, a name or a function of the counts."""
    found = evaluate(model, train, test, lengths(wanted, usual))
    if callable(wanted):
        counts = counting.count(model, train, test, top=max(usual))
        found[formulas.name_of(wanted)] = mean(_answer(wanted, counts))
    return {name: float(value) for name, value in found.items()}


def _answer(metric: Callable, counts: counting.Counts) -> np.ndarray:
    """One number per user or one for all; a TypeError for a function that answers anything else."""
    answer = metric(counts)
    values, users = np.asarray(answer), len(counts.users)
    if values.dtype.kind not in "biuf" or values.shape not in ((), (users,)):
        raise TypeError(
            f"the metric {formulas.name_of(metric)} answered {answer!r}: it must be one number for each of "
            f"the {users} users with held-out items, or one for all"
        )
    return values


def mean(values: Any) -> float:
    """The mean over the users who have a value."""
    values = np.asarray(values, np.float64)
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(np.atleast_1d(known)) else float("nan")
