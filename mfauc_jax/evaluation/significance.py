"""Confidence intervals of means over users, and tests of whether two models differ.

Users are the independent units. All functions take per-user values, as from `evaluate(..., per_user=True)`. A NaN marks
a user for whom the metric is undefined, and is left out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from mfauc_jax._core import programs

Values = Mapping[str, np.ndarray]


def normal(per_user: Values, level: float = 0.95) -> dict[str, tuple[float, float]]:
    """Confidence intervals mean ± z s/√u of each metric, with s the standard deviation over u users."""
    from scipy import stats

    z = float(stats.norm.ppf(0.5 + _check_level(level) / 2))
    result = {}
    for name, values in _metrics(per_user).items():
        known = values[~np.isnan(values)]
        half = z * known.std(ddof=1) / np.sqrt(len(known)) if len(known) > 1 else np.nan
        mean = known.mean() if len(known) else np.nan
        result[name] = float(mean - half), float(mean + half)
    return result


def bootstrap(
    key: Key[Array, ""], per_user: Values, level: float = 0.95, repeats: int = 1000
) -> dict[str, tuple[float, float]]:
    """Percentile intervals of each metric, from users drawn with replacement, the same draws for all metrics.

    A draw is stored as the number of times each user was drawn, so the means are one product with the values.
    """
    _check_level(level)
    if repeats < 2:
        raise ValueError(f"repeats = {repeats} must be ≥ 2: an interval needs several draws")
    metrics = _metrics(per_user)
    values = jnp.asarray(np.stack(list(metrics.values()), axis=1), float)  # [u, metrics]
    means = np.asarray(_resampled_means(jax.random.split(key, repeats), values))
    tail = (1 - level) / 2
    bounds = [
        np.quantile(column[~np.isnan(column)], [tail, 1 - tail])
        if not np.isnan(column).all()
        else (np.nan, np.nan)
        for column in means.T
    ]
    return {
        name: (float(low), float(high)) for name, (low, high) in zip(metrics, bounds, strict=True)
    }


@programs.jit
def _resampled_means(
    keys: Key[Array, " r"], values: Float[Array, "u metrics"]
) -> Float[Array, "r metrics"]:
    u = values.shape[0]
    known = ~jnp.isnan(values)
    filled, known = jnp.where(known, values, 0), known.astype(values.dtype)

    def mean(key):
        users = jax.random.randint(key, (u,), 0, u)
        times = jnp.zeros(u, values.dtype).at[users].add(1)
        return (times @ filled) / (times @ known)

    return jax.lax.map(mean, keys)


class Paired(NamedTuple):
    """The comparison of two models, a − b, over the users who have both values."""

    difference: float  # mean of a − b
    low: float  # Student's confidence interval
    high: float
    t: float
    p_t: float  # of the two-sided paired t test
    p_wilcoxon: float  # of the two-sided signed-rank test, which drops zero differences
    users: int  # how many have both values


def paired(a: Sequence | np.ndarray, b: Sequence | np.ndarray, level: float = 0.95) -> Paired:
    """Tests of whether two models differ on the same users: paired t and Wilcoxon's signed ranks.

    If all differences are 0, both p-values are 1.
    """
    from scipy import stats

    _check_level(level)
    a, b = np.asarray(a, float), np.asarray(b, float)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(
            f"values of shape {a.shape} and {b.shape}: give one per user, for the same users"
        )
    d = a - b
    d = d[~np.isnan(d)]
    if len(d) < 2:
        raise ValueError(f"{len(d)} users have both values: a paired test needs at least two")
    mean, error = d.mean(), d.std(ddof=1) / np.sqrt(len(d))
    half = float(stats.t.ppf(0.5 + level / 2, len(d) - 1)) * error
    t = mean / error if error > 0 else np.sign(mean) * np.inf if mean else 0.0
    p_t = 2 * float(stats.t.sf(abs(t), len(d) - 1))
    signed_ranks: Any = stats.wilcoxon(d) if (d != 0).any() else None
    p_wilcoxon = 1.0 if signed_ranks is None else signed_ranks.pvalue
    numbers = mean, mean - half, mean + half, t, p_t, p_wilcoxon
    return Paired(*map(float, numbers), users=len(d))


def compare(per_user_a: Values, per_user_b: Values, level: float = 0.95) -> dict[str, Paired]:
    """`paired` for every metric that both have, with p-values corrected by Holm over the metrics.

    The intervals are not corrected.
    """
    users_a, users_b = per_user_a.get("user"), per_user_b.get("user")
    if users_a is not None and users_b is not None and not np.array_equal(users_a, users_b):
        raise ValueError("the two models were evaluated on different users: use the same test set")
    names = [name for name in _metrics(per_user_a) if name in _metrics(per_user_b)]
    if not names:
        raise ValueError(f"no metric in common: {list(per_user_a)} and {list(per_user_b)}")
    results = [paired(per_user_a[name], per_user_b[name], level) for name in names]
    p_t, p_wilcoxon = holm([r.p_t for r in results]), holm([r.p_wilcoxon for r in results])
    return {
        name: result._replace(p_t=float(t), p_wilcoxon=float(w))
        for name, result, t, w in zip(names, results, p_t, p_wilcoxon, strict=True)
    }


def holm(p_values: Sequence[float] | np.ndarray) -> Float[np.ndarray, " tests"]:
    """Holm's step-down correction: the largest (tests − rank) p up to each p in sorted order, at most 1."""
    p = np.asarray(p_values, float)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p-values must be one vector in [0, 1], not {p}")
    order = np.argsort(p, kind="stable")
    steps = p[order] * (len(p) - np.arange(len(p)))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return corrected


def _metrics(per_user: Values) -> dict[str, np.ndarray]:
    return {name: np.asarray(v, float) for name, v in per_user.items() if name != "user"}


def _check_level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level = {level} must be in (0, 1), such as .95")
    return level
