"""What the page of a model shows, as JSON: computed here, by the library; the page only draws.

Arrays are base64 of their bytes, little-endian. Lists, neighbours and contributions name items by their place on the
page; −1 is an empty place.
"""

import base64
import collections
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mfauc_jax._core import host
from mfauc_jax.data import ids
from mfauc_jax.data.digest import digest
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.titles import Titles
from mfauc_jax.evaluation import curves, metrics, ranking, significance
from mfauc_jax.model import MFAUC
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.losses import Square
from mfauc_jax.objective.penalties import Sphere
from mfauc_jax.serving import answers, explanation

LISTED, NEIGHBOURS, REASONS, SEEN = 20, 10, 3, 40  # places per user or item
MOST_ITEMS = 50_000  # on the map; beyond it the most popular ones, and whatever is in a list
MOST_DOTS = 5_000  # users in the picture of AUC and activity
MOST_EXPOSED = 20_000  # users whose lists the exposure counts
MOST_PAIRS = (
    2 * 10**8
)  # (positive, item) pairs of the users explained, for losses other than the square
TITLE = 160  # characters of a title
BLOCK = 4096  # items whose neighbours are found at once


class Shown(NamedTuple):
    """The users on the page with their lists, and the items on it."""

    users: Int[np.ndarray, " u"]  # rows of X
    lists: Int[np.ndarray, "u L"]  # columns of X, or −1
    scores: Float[np.ndarray, "u L"]
    reasons: Int[np.ndarray, "u L R"]  # columns of X: the positives that add most to the score
    added: Float[np.ndarray, "u L R"]  # what they add
    explained: int  # the first so many users have reasons
    why_not: str  # why the others have none, or ""
    items: Int[np.ndarray, " n"]  # columns of X, ascending
    place: Int[np.ndarray, " n_all"]  # of each column of X on the page, or −1


def of(
    model: MFAUC,
    test: Interactions | None,
    titles: Titles | None,
    rows: Int[np.ndarray, " u"],
    name: str,
) -> dict[str, Any]:
    """Everything that the page shows.

    Args:
        model: a fitted model.
        test: held-out positives over the model's users and items; None: the page has no quality and no certificate.
        titles: titles and categories of the items; None: their ids.
        rows: the users on the page, as rows of the training set.
        name: the heading.
    """
    shown = lists(model, rows)
    X = model.train_
    exposed = _some(np.arange(X.num_users), MOST_EXPOSED)
    exposure = curves.exposure(model, X, 10, exposed, exclude=model._seen)
    return {
        "name": name,
        "about": _about(model),
        "settings": list(_flat(model.describe())),
        "solver": repr(model.chosen_solver),
        "metadata": dict(getattr(model, "metadata_", {})),
        "items": _items(model, shown, exposure, titles),
        "users": _users(model, shown),
        "exposure": {
            "users": len(exposed),
            "n": 10,
            "covered": exposure.covered,
            "top_tenth": exposure.top_tenth,
            "line": float(exposure.shown.sum() / max(exposure.had.sum(), 1)),
        },
        "quality": None if test is None else _quality(model, test),
        "certificate": None if test is None else _certificate(model, test),
        "history": _history(model.history_),
    }


def lists(model: MFAUC, rows: Int[np.ndarray, " u"]) -> Shown:
    """The lists of users with their reasons, and which items the page needs for them."""
    X = model.train_
    n = min(LISTED, X.num_items)
    found, scores = ranking.top_items(model, rows, n, exclude=model._seen)
    reasons = np.full((*found.shape, REASONS), -1)
    added = np.zeros(reasons.shape)
    explained, why_not = _explainable(model, rows)
    every = _reasons(model, rows[:explained], found[:explained]) if explained else ()
    for i, (most, how_much) in enumerate(every):
        reasons[i, :, : most.shape[1]], added[i, :, : most.shape[1]] = most, how_much
    popularity = np.bincount(np.asarray(X.indices), minlength=X.num_items)
    popular = np.argsort(-popularity, kind="stable")[:MOST_ITEMS]
    items = np.union1d(popular, np.union1d(found, reasons))
    items = items[items >= 0]
    place = np.full(X.num_items, -1)
    place[items] = np.arange(len(items))
    return Shown(rows, found, scores, reasons, added, explained, why_not, items, place)


def _explainable(model: MFAUC, rows: np.ndarray) -> tuple[int, str]:
    """How many of the users are explained, and why the others are not."""
    if model._is_absent():
        return 0, "the loss of this model is a function that its file does not hold"
    try:
        on_sphere = Sphere() if model.penalty.sphere else 0.0
        explanation.check(Objective(model.loss, model.weighting, on_sphere))
    except ValueError as error:
        return 0, str(error)
    if isinstance(model.loss, Square):
        return len(rows), ""
    X = model.train_
    pairs = np.cumsum(np.diff(np.asarray(X.indptr))[rows].astype(float) * X.num_items)
    explained = int((pairs <= MOST_PAIRS).sum())
    return explained, "" if explained == len(rows) else "only the first users were explained"


def _reasons(
    model: MFAUC, rows: np.ndarray, found: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each user the positives that add most to the score of each listed item, and what they add; both [L, R]."""
    V = np.asarray(model.item_factors_, np.float64)
    for (positives, parts), listed in zip(model.explanations(rows), found, strict=True):
        added = V[listed] @ parts  # [L, P]
        most = np.argsort(-added, axis=1, kind="stable")[:, :REASONS]
        columns, how_much = positives[most], np.take_along_axis(added, most, 1)
        yield np.where((how_much > 0) & (listed >= 0)[:, None], columns, -1), how_much


def sample(X: Interactions, most: int, wanted: np.ndarray) -> Int[np.ndarray, " u"]:
    """The wanted rows and further ones, at most `most` in all or as many as are wanted; evenly over the users."""
    others = np.setdiff1d(np.arange(X.num_users), wanted)
    return np.concatenate([wanted, _some(others, most - len(wanted))]).astype(np.int64)


def _some(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the rows, chosen at random with a fixed seed, in order."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, max(most, 0), replace=False))


def projection(V: Float[np.ndarray, "n k"]) -> tuple[Float[np.ndarray, "n 2"], list[float]]:
    """The two principal components of the rows of V, and the share of the variance that each has."""
    V = V.astype(np.float64) - V.astype(np.float64).mean(0)
    values, vectors = np.linalg.eigh(V.T @ V)
    axes = vectors[:, ::-1][:, :2]
    axes = axes * np.where(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])] < 0, -1.0, 1.0)
    shares = (values[::-1] / max(values.sum(), 1e-300))[:2]
    flat = np.zeros((len(V), 2))
    flat[:, : axes.shape[1]] = V @ axes
    return flat, [*map(float, shares), 0.0][:2]


def _items(
    model: MFAUC, shown: Shown, exposure: curves.Exposure, titles: Titles | None
) -> dict[str, Any]:
    X, chosen = model.train_, shown.items
    names = ids.of(X, "item")[chosen]
    flat, shares = projection(model.item_factors_)
    flat = flat[chosen]
    size = max(float(np.abs(flat).max(initial=0)), 1e-30)
    near, cosines = _neighbours(model, shown)
    categories = [] if titles is None else titles.category_of(names)
    counts = collections.Counter(kind for kind in categories if kind)
    kinds = sorted(counts, key=lambda kind: (-counts[kind], kind))
    kinds = [*kinds[:254], ""]  # the last: none, or one of the rarest
    code = {kind: at for at, kind in enumerate(kinds)}
    return {
        "count": len(chosen),
        "all": X.num_items,
        "ids": [str(one) for one in names.tolist()],
        "titles": None if titles is None else [title[:TITLE] for title in titles.of(names)],
        "categories": kinds if len(kinds) > 1 else None,
        "category": coded([code.get(one, len(kinds) - 1) for one in categories], "u1"),
        "had": coded(exposure.had[chosen], "u4"),
        "shown": coded(exposure.shown[chosen], "u4"),
        "map": coded(np.round(flat / size * 32767), "i2"),
        "shares": shares,
        "near": coded(near, "i4"),
        "cosine": coded(np.round(cosines * 32767), "i2"),
        "neighbours": near.shape[1],
    }


def _neighbours(model: MFAUC, shown: Shown) -> tuple[np.ndarray, np.ndarray]:
    """The places of the nearest items of each item on the page, and their cosines; items elsewhere are left out."""
    n = min(NEIGHBOURS, len(shown.place))
    near, cosines = (np.zeros((len(shown.items), n), kind) for kind in (np.int64, np.float64))
    for block in ranking.blocks(len(shown.items), BLOCK):
        found, cosine = answers.nearest_rows(model.factors_.V, shown.items[block], n)
        near[block] = np.where(found >= 0, shown.place[np.maximum(found, 0)], -1)
        cosines[block] = np.where(near[block] >= 0, cosine, 0.0)
    return near, cosines


def _users(model: MFAUC, shown: Shown) -> dict[str, Any]:
    X = model.train_
    bounds, indices = np.asarray(X.indptr), np.asarray(X.indices)
    seen = [
        places[places >= 0][:SEEN]
        for places in (shown.place[indices[bounds[i] : bounds[i + 1]]] for i in shown.users)
    ]

    def placed(columns: np.ndarray) -> np.ndarray:
        return np.where(columns >= 0, shown.place[np.maximum(columns, 0)], -1)

    return {
        "count": len(shown.users),
        "all": X.num_users,
        "ids": [str(one) for one in ids.of(X, "user")[shown.users].tolist()],
        "had": coded(np.diff(bounds)[shown.users], "u4"),
        "length": shown.lists.shape[1],
        "reasons": REASONS,
        "lists": coded(placed(shown.lists), "i4"),
        "scores": coded(np.where(shown.lists >= 0, shown.scores, 0.0), "f4"),
        "why": coded(placed(shown.reasons), "i4"),
        "added": coded(shown.added, "f4"),
        "explained": shown.explained,
        "why_not": shown.why_not,
        "seen": coded(np.concatenate([np.zeros(0, int), *seen]), "i4"),
        "seen_counts": coded([len(one) for one in seen], "u1"),
    }


def _about(model: MFAUC) -> dict[str, Any]:
    X = model.train_
    return {
        "users": X.num_users,
        "items": X.num_items,
        "positives": X.nnz,
        "rank": int(model.factors_.V.shape[1]),
        "stopped": model.stopped_,
        "data": digest(X),
        "library": host.library_version(),
    }


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            if value.get("name", name) != name:
                yield prefix + name, str(value["name"])
            inner = {k: v for k, v in value.items() if k != "name"}
            yield from _flat(inner, f"{prefix}{name} › ")
        else:
            yield prefix + name, str(value)


def _quality(model: MFAUC, test: Interactions) -> dict[str, Any]:
    """The metrics with intervals, and the AUC of users against their activity, in groups and one by one."""
    X = model.train_
    results = metrics.evaluate(model, X, test, (5, 10), intervals="normal")
    auc, length = curves.auc(model, X, test), np.asarray(X.row_lengths)
    known = np.flatnonzero(~np.isnan(auc) & (length > 0))
    auc, length = auc[known], length[known]
    groups = []
    if len(known):
        group = curves.activity_groups(length)
        for one in range(group.max() + 1):
            mine = auc[group == one]
            low, high = significance.normal({"auc": mine})["auc"]
            least, most = (int(f(length[group == one])) for f in (np.min, np.max))
            middle = float(np.exp(np.log(length[group == one]).mean()))
            groups.append([least, most, middle, len(mine), float(mine.mean()), low, high])
    dots = _some(np.arange(len(known)), MOST_DOTS)
    return {
        "metrics": [
            [name, value, results.get(f"{name}_low"), results.get(f"{name}_high")]
            for name, value in results.items()
            if not name.endswith(("_low", "_high")) and name not in ("users", "users_skipped")
        ],
        "users": results["users"],
        "skipped": results["users_skipped"],
        "groups": groups,
        "length": coded(length[dots], "u4"),
        "auc": coded(auc[dots], "f4"),
    }


def _certificate(model: MFAUC, test: Interactions) -> dict[str, Any]:
    try:
        made = model.certify(test)
    except ValueError as error:  # such as too few held-out positives
        return {"refused": str(error)}
    return {
        "sentence": made.sentence,
        "kind": f"{made.kind}, {made.method}",
        "terms": list(made.terms.items()),
        "assumptions": list(made.assumptions),
    }


def _history(history: list[dict[str, float]]) -> dict[str, Any]:
    """The records of the iterations by name: pairs of an iteration and a value."""
    names = dict.fromkeys(name for record in history for name in record)
    return {
        name: [[record["iteration"], record[name]] for record in history if name in record]
        for name in names
        if name not in ("iteration", "seconds")
    }


def coded(values: Any, kind: str) -> str:
    """An array as base64 of its bytes, little-endian."""
    array = np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")
