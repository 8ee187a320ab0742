"""Exact ranking metrics of each user, and their averages over users (Eqs 1–2).

Conventions of every metric here. Training items are left out of a user's list. Negatives are the items that are neither
in train nor in test of that user, so the AUC ignores the order of held-out positives among themselves. Equal scores
count ½ in AUC and ROC; in a list the lower item index comes first. Users without held-out items are skipped. A user
without negatives has no AUC: it is NaN, and the mean leaves it out. Held-out positives count alike, whatever their
confidence.

In several processes, each passes the rows of its own users, and all of them call these functions together: means are
over the users of all processes; values per user are of the caller's own.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from mfauc_jax._core import host
from mfauc_jax.data import ids
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import counts as counting
from mfauc_jax.evaluation import formulas, ranking, significance


def evaluate(
    model: Any,
    train: Any,
    test: Any,
    at: tuple[int, ...] = (1, 3, 5),
    *,
    unknown: str = "skip",
    per_user: bool = False,
    intervals: str | None = None,
    level: float = 0.95,
    key: Key[Array, ""] | None = None,
    features: Any = None,
    batch: int | None = None,
) -> dict[str, Any]:
    """All metrics of a model on held-out positives, from one pass over the scores in blocks of users.

    The keys are `users` and `users_skipped` (who have no held-out items), `auc`, and for each ℓ in `at`
    `precision@ℓ recall@ℓ f1@ℓ ndcg@ℓ map@ℓ mrr@ℓ hit@ℓ novelty@ℓ diversity@ℓ coverage@ℓ`.
    Without train there is no novelty; a list of one item has no diversity.

    Args:
        model: Factors, or a fitted model (its `factors_`).
        train: items to leave out of the lists; None leaves out nothing.
        test: the held-out positives, over the same users and items, or with ids if train has ids.
        at: lengths ℓ of the lists.
        unknown: with ids in both, positives of users or items that train does not know are left out ("skip": one
            warning counts them) or "raise".
        per_user: return arrays over the users with held-out items, who are listed under `user`, instead of means.
        intervals: "normal" or "bootstrap" adds a confidence interval, `name_low` and `name_high`, to every mean over
            users.
        level: coverage of the intervals, in (0, 1).
        key: for the bootstrap, which draws users.
        features: [n, d], the vectors by which diversity compares items; None: the model's V. To compare models,
            give the same features to each.
        batch: users per block; None: as many as make 16 MB of scores.
    """
    at = tuple(ranking.check_length("at", size) for size in at)
    if at and max(at) >= 2**31:
        raise ValueError(f"at = {at} must be list lengths below 2³¹, such as (1, 3, 5)")
    if not at:
        raise ValueError("at = () is empty: give list lengths, such as (1, 3, 5)")
    if intervals not in (None, "normal", "bootstrap"):
        raise ValueError(f"intervals = {intervals!r}: choose 'normal', 'bootstrap' or None")
    if intervals == "bootstrap" and key is None:
        raise ValueError("intervals = 'bootstrap' draws users: pass key=jax.random.key(seed)")
    factors = ranking.factors_of(model)
    train, test = _aligned(train, test, unknown)
    counts = counting.count(factors, train, test, top=max(at), item_features=features, batch=batch)
    values = _values(counts, at)
    averages = means(values)
    known = [k for k, v in averages.items() if not (np.isnan(v) and "@" in k)]
    by_user = {k: values[k] for k in known if np.ndim(values[k])}
    if per_user:
        return {"user": counts.users, **by_user}
    users = host.total(np.array([len(counts.users), len(factors.U) - len(counts.users)]))
    result: dict[str, float] = {
        **dict(zip(("users", "users_skipped"), users.tolist(), strict=True)),
        **{name: averages[name] for name in known},
    }
    bounds = {}
    if intervals is not None:
        values = {name: host.everybody(value) for name, value in by_user.items()}
    if intervals == "normal":
        bounds = significance.normal(values, level)
    elif intervals == "bootstrap" and key is not None:
        bounds = significance.bootstrap(key, values, level)
    for name, (low, high) in bounds.items():
        result |= {f"{name}_low": low, f"{name}_high": high}
    return result


def _aligned(train: Any, test: Any, unknown: str) -> tuple[Interactions | None, Interactions]:
    """Both as Interactions, with test over the rows and columns of train."""
    if train is None:
        return None, Interactions.of(test)
    train = Interactions.of(train)
    return train, ids.over(test, train, unknown)


def _values(counts: counting.Counts, at: tuple[int, ...]) -> dict[str, Any]:
    """Every registered metric, those of lists at each length."""
    plain = [name for name in formulas.METRICS if not formulas.of_lists(name)]
    values = {name: formulas.METRICS[name](counts) for name in plain}
    for size in at:
        for name, formula in formulas.METRICS.items():
            if formulas.of_lists(name):
                values[f"{name}@{size}"] = formula(counts, size)
    return values


def lengths(wanted: str | Callable, usual: tuple[int, ...]) -> tuple[int, ...]:
    """The usual list lengths and that of the wanted metric, ascending."""
    size = formulas.parse(wanted)[1] if isinstance(wanted, str) else None
    return tuple(sorted({*usual} | ({size} if size else set())))


def scores(
    model: Any, train: Any, test: Any, wanted: str | Callable, usual: tuple[int, ...] = (1, 3, 5)
) -> dict[str, float]:
    """`evaluate` at the usual list lengths, with the wanted metric: a name, or a function of the counts."""
    train, test = _aligned(train, test, "skip")
    results = evaluate(model, train, test, lengths(wanted, usual))
    if callable(wanted):
        counts = counting.count(model, train, test, top=max(usual))
        name = formulas.name_of(wanted)
        results[name] = mean(_answer(wanted, counts), name)
    return {name: float(value) for name, value in results.items()}


def _answer(metric: Callable, counts: counting.Counts) -> np.ndarray:
    """The values of a metric: one number per user or one for all; a TypeError for anything else."""
    answer = metric(counts)
    values, users = np.asarray(answer), len(counts.users)
    if values.dtype.kind not in "biuf" or values.shape not in ((), (users,)):
        raise TypeError(
            f"the metric {formulas.name_of(metric)} returned {answer!r}: it must be one number for each of "
            f"the {users} users with held-out items, or one for all"
        )
    return values


def means(values: dict[str, Any]) -> dict[str, float]:
    """The mean of each metric over the users of all processes who have a value; NaN if there are none.

    Of a metric that is one number for all users it is that number, which all processes have alike.
    """
    sums = np.zeros((len(values), 2))
    for row, value in zip(sums, values.values(), strict=True):
        array = np.atleast_1d(np.asarray(value, np.float64))
        known = array[~np.isnan(array)]
        row[:] = known.sum(), len(known)
    gathered = host.everyone(sums)
    for place, (name, value) in enumerate(values.items()):
        if not np.ndim(value) and (gathered[:, place] != gathered[0, place]).any():
            raise ValueError(
                f"the metric {name} gave {' and '.join(map(str, gathered[:, place, 0]))} in several processes: it must "
                "return one value per user, or one number that is the same in all of them"
            )
    total, count = gathered.sum(0).T
    found = total / np.where(count > 0, count, np.nan)
    return dict(zip(values, found.tolist(), strict=True))


def mean(values: Any, name: str = "metric") -> float:
    """The mean of one metric, as `means` gives it; `name` is for messages."""
    return means({name: values})[name]
