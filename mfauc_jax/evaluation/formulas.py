"""Every ranking metric as a formula of `counts.Counts`, by its name.

To add one, decorate a function of the counts, or of the counts and a list length ℓ: `evaluate`, `Watch`, `selection`
and the command line then know it as `name` or `name@ℓ`. A formula returns one value per user with held-out items,
of which the mean is taken (NaN: no value), or one number for all users, those of other processes included.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from mfauc_jax._core import host, registry
from mfauc_jax._core.settings import Settings
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import ranking
from mfauc_jax.evaluation.counts import Counts

METRICS: dict[str, Callable[..., Any]] = {}
NO_METRIC = "or a function of counts.Counts"


def metric(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Register a formula under the name of its function."""
    METRICS[formula.__name__] = formula
    return formula


def of_lists(name: str) -> bool:
    """Whether a metric depends on a list length ℓ and is written name@ℓ."""
    return len(inspect.signature(METRICS[name]).parameters) > 1


def parse(name: str) -> tuple[str, int | None]:
    """The name and the ℓ of a metric: ("ndcg", 10) of "ndcg@10", ("auc", None) of "auc"; a ValueError lists all."""
    match = re.fullmatch(r"([A-Za-z_][A-Za-z_0-9]*)(?:@([1-9][0-9]{0,8}))?", str(name))
    kind, size = (match.group(1), match.group(2)) if match else (str(name), None)
    if match is None or kind not in METRICS or of_lists(kind) != (size is not None):
        raise ValueError(
            f"unknown metric {name!r}: {registry.choose_from(KNOWN, str(name))}, ℓ = 1, 2, …"
        )
    return kind, None if size is None else int(size)


class _Known(Mapping):
    """The metrics by the names that can be written: "auc", and "precision@ℓ" for any ℓ."""

    def __contains__(self, name: object) -> bool:
        try:
            parse(str(name))
        except ValueError:
            return False
        return True

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return METRICS[name.removesuffix("@ℓ") if name in list(self) else parse(name)[0]]

    def __iter__(self) -> Iterator[str]:
        return (f"{name}@ℓ" if of_lists(name) else name for name in METRICS)

    def __len__(self) -> int:
        return len(METRICS)


KNOWN = _Known()


def not_a_metric(function: Callable) -> str | None:
    """What is wrong with a function that should be a metric, or None if nothing is."""
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError):
        return NO_METRIC
    return NO_METRIC if isinstance(function, type | Settings) else None


def name_of(wanted: str | Callable) -> str:
    """The name of a metric in records; the metric is given by name or as a function."""
    if isinstance(wanted, str):
        return wanted
    function = getattr(wanted, "func", wanted)  # of a functools.partial
    return getattr(function, "__name__", type(function).__name__)


@metric
def auc(counts: Counts) -> Float[np.ndarray, " u"]:
    """Eq. 1: the share of (held-out, negative) pairs in the right order, ties ½."""
    return weighted_auc(counts, counts.num_neg, np.ones(len(counts.items)))


@metric
def precision(counts: Counts, size: int) -> Float[np.ndarray, " u"]:
    """h/ℓ, with h the number of held-out items among the first ℓ."""
    return counts.per_user(counts.hit(size)) / size


@metric
def recall(counts: Counts, size: int) -> Float[np.ndarray, " u"]:
    """h/P, with P the number of held-out items, h of them among the first ℓ."""
    return counts.per_user(counts.hit(size)) / counts.num_pos


@metric
def f1(counts: Counts, size: int) -> Float[np.ndarray, " u"]:
    """2h/(ℓ + P): the harmonic mean of precision and recall."""
    return 2 * counts.per_user(counts.hit(size)) / (size + counts.num_pos)


@metric
def ndcg(counts: Counts, size: int) -> Float[np.ndarray, " u"]:
    """Σ_{r_p ≤ ℓ} 1/log₂(1 + r_p) over Σ_{r ≤ min(ℓ, P)} 1/log₂(1 + r), with r_p ≥ 1 the rank of p."""
    gain = 1.0 / np.log2(1.0 + np.arange(1, size + 1))
    ideal = np.cumsum(gain)[np.minimum(counts.num_pos, size) - 1]
    return counts.per_user(counts.hit(size) / np.log2(2.0 + counts.place)) / ideal


@metric
def map(counts: Counts, size: int) -> Float[np.ndarray, " u"]:
    """(1/P) Σ_{r_p ≤ ℓ} #{p′ : r_p′ ≤ r_p}/r_p: the mean precision at the ranks of the held-out items."""
    precision_there = (counts.mate_place + 1.0) / (counts.place + 1.0)
    return counts.per_user(counts.hit(size) * precision_there) / counts.num_pos


@metric
def mrr(counts: Counts, size: int) -> Float[np.ndarray, " u"]:
    """1/min r_p: the reciprocal rank of the first held-out item, or 0 if it is beyond ℓ."""
    return np.maximum.reduceat(counts.hit(size) / (counts.place + 1.0), counts.starts)


@metric
def hit(counts: Counts, size: int) -> Float[np.ndarray, " u"]:
    """Whether any held-out item is among the first ℓ, 1 or 0."""
    return (counts.per_user(counts.hit(size)) > 0).astype(float)


@metric
def novelty(counts: Counts, size: int) -> Float[np.ndarray, " u"]:
    """The mean of −log₂ p̂_j over a list, with p̂_j ≥ 1/m the share of users who have item j in train."""
    if counts.train is None:
        return np.full(len(counts.users), np.nan)
    return list_novelty(counts.lists[:, :size], counts.train)


@metric
def diversity(counts: Counts, size: int) -> Float[np.ndarray, " u"]:
    """The mean of 1 − cos over the pairs of a list; a list of one item has no pairs and no value."""
    if size < 2:
        return np.full(len(counts.users), np.nan)
    return list_diversity(counts.lists[:, :size], counts.item_features)


@metric
def coverage(counts: Counts, size: int) -> float:
    """The share of all items that are in the list of at least one user."""
    return list_coverage(counts.lists[:, :size], len(counts.item_features))


def weighted_auc(
    counts: Counts, mass: np.ndarray, a: np.ndarray, among: bool | np.ndarray = True
) -> Float[np.ndarray, " u"]:
    """Σ_p a_p [1 − (above + ½ level)/mass] over the p in `among`, divided by Σ_p a_p over all p.

    Args:
        counts: of the held-out positives.
        mass: number, or Σ b, of each user's negatives, [u].
        a: weight of each held-out positive, [h].
        among: which held-out positives count, [h]; True for all.
    """
    above = counts.above if counts.weight_above is None else counts.weight_above
    level = counts.level if counts.weight_level is None else counts.weight_level
    wins = 1 - share(above + 0.5 * level, counts.repeated(mass))
    return share(counts.per_user(a * among * wins), counts.per_user(a))


def list_coverage(lists: np.ndarray, num_items: int) -> float:
    """The share of all items that are in the list of at least one user."""
    listed = host.total(np.bincount(lists[lists >= 0], minlength=num_items))
    return np.count_nonzero(listed) / num_items


def list_novelty(lists: np.ndarray, train: Interactions) -> Float[np.ndarray, " u"]:
    """The mean of −log₂ p̂_j over a list, with p̂_j ≥ 1/m the share of users who have item j in train."""
    counts = host.total(np.bincount(np.asarray(train.indices), minlength=train.num_items))
    surprise = -np.log2(np.maximum(counts, 1) / host.total(train.num_users))
    real = lists >= 0
    return share((surprise[lists] * real).sum(1), real.sum(1).astype(float))


def list_diversity(lists: np.ndarray, features: Any) -> Float[np.ndarray, " u"]:
    """The mean of 1 − cos(f_j, f_j′) over the pairs of a list: 1 − (‖Σ f̂‖² − Σ ‖f̂‖²)/(ℓ(ℓ − 1))."""
    features = np.asarray(features)
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.where(norms > 0, norms, 1)
    result = np.empty(len(lists))
    for block in ranking.blocks(len(lists), 4096):
        real = lists[block] >= 0
        vectors = (unit[lists[block]] * real[:, :, None]).astype(np.float64)  # [b, ℓ, d]
        size = real.sum(1).astype(float)
        inner = (vectors.sum(1) ** 2).sum(1) - (vectors**2).sum((1, 2))
        result[block] = 1 - share(inner, size * (size - 1))
    return result


def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, and NaN where whole is 0."""
    return part / np.where(whole > 0, whole, np.nan)
