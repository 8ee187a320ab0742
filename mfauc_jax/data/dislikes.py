"""Explicit dislikes: items that a user rejected, beside the positives, over the same users and items.

Dislikes are negatives that count more than the items a user has not seen (`Weights.dislikes`). An item that a user both
likes and dislikes counts as liked; one warning counts such pairs. Dislikes of users or items without a positive are
left out, and the same warning counts them.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from mfauc_jax.data import ids, interactions, reading
from mfauc_jax.data.interactions import Interactions

if TYPE_CHECKING:  # imported with the first frame
    import polars as pl

    from mfauc_jax.data.catalogue import Filter


LIKED = "items both liked and disliked by a user count as liked"


class Union(NamedTuple):
    """The positives and the dislikes of every user in one matrix, and where each entry comes from."""

    X: Interactions  # without confidences and ids
    positive: Bool[np.ndarray, " both"]  # whether an entry is a positive
    slots: Int[np.ndarray, " both"]  # its place in `X.indices`, or in `X.dislikes.indices`


def attached(X: Interactions, data: Any) -> Interactions:
    """X with further dislikes, which are joined by ids, or by positions if X has none.

    Args:
        X: the positives; dislikes that it has stay.
        data: the dislikes: anything that `Interactions.of` reads.
    """
    given = ids.over_another(data, "dislikes")
    places = []
    for axis, kind in enumerate(("user", "item")):
        names, own, size = ids.of(given, kind), _ids(X, kind), X.shape[axis]
        if own is None and _ids(given, kind) is None and given.shape[axis] != size:
            raise ValueError(
                f"the dislikes are {given.shape}, the positives {X.shape}: give both with ids, or one shape"
            )
        position, is_known = ids.known(kind, own, names, size)
        places.append(np.where(is_known, position, -1))
    rows, columns, _ = given.on_host()
    found = _with(X, places[0][rows], places[1][columns])
    lost = f"left out {found.lost} of {given.nnz}, of users or items without a positive"
    notes = [lost] * (found.lost > 0) + [f"{found.liked} {LIKED}"] * (found.liked > 0)
    reading.warn("dislikes", notes)
    return found.X


def low_ratings(
    frame: "pl.DataFrame", below: float, rule: "Filter", X: Interactions, report: reading.Report
) -> Interactions:
    """X with the rows of a frame whose rating is lower than `below` as dislikes.

    Args:
        frame: one row per rating, with columns user, item and rating.
        below: the bound.
        rule: says which ratings are positive: none of them may be below the bound.
        X: the positives of the frame.
        report: gets a note of what was read, and what was left out.
    """
    import polars as pl

    values = frame["rating"].cast(pl.Float64)
    low = (values < below) & values.is_finite() & ~((values == 0) & rule.zero)
    rows = frame.filter(low.fill_null(False))
    known = [_places(rows[kind], _ids(X, kind)) for kind in ("user", "item")]
    found = _with(X, *known)
    lost = f", {found.lost} of users or items without a positive left out" if found.lost else ""
    report.how.append(f"{rows.height} ratings below {below:g} are dislikes{lost}")
    report.note(f"{found.liked} {LIKED}", found.liked)
    return found.X


def check_below(below: float | None, rule: "Filter") -> None:
    """Raise ValueError unless every rating below the bound is outside the positives of the filter."""
    if below is None:
        return
    if not np.isfinite(below):
        raise ValueError(f"dislikes_below = {below} is not a finite number")
    if rule.above is None or below > np.nextafter(rule.above, np.inf):
        raise ValueError(
            f"dislikes_below = {below:g} would make positives dislikes: min_rating must be at least as large"
        )


def _places(column: "pl.Series", names: np.ndarray | None) -> np.ndarray:
    """The position of each id of a column among `names`, −1 for unknown ids; text and integers are compared as text."""
    import polars as pl

    assert names is not None
    texts = column.cast(pl.String).to_list()
    position_of = {str(name): place for place, name in enumerate(names.tolist())}
    return np.array([position_of.get(text, -1) for text in texts], np.int64)


class _Found(NamedTuple):
    X: Interactions  # with the dislikes
    lost: int  # dislikes of an unknown user or item
    liked: int  # distinct dislikes that are positives


def _with(X: Interactions, users: np.ndarray, items: np.ndarray) -> _Found:
    """X with dislikes at some positions; −1 where the user or the item is unknown."""
    known, n = (users >= 0) & (items >= 0), X.num_items
    keys = np.unique(users[known].astype(np.int64) * n + items[known])
    is_liked = np.isin(keys, _keys(X))
    found = placed(X, *np.divmod(keys[~is_liked], n))
    return _Found(found, int((~known).sum()), int(is_liked.sum()))


def _keys(X: Interactions) -> Int[np.ndarray, " nnz"]:
    """One number per entry of X."""
    rows, columns, _ = X.on_host()
    return rows.astype(np.int64) * X.num_items + columns


def placed(X: Interactions, rows: np.ndarray, columns: np.ndarray) -> Interactions:
    """X with further dislikes at positions that hold no positive; X itself if there is no dislike at all."""
    if X.dislikes is not None:
        own_rows, own_columns, _ = X.dislikes.on_host()
        rows, columns = np.append(own_rows, rows), np.append(own_columns, columns)
    if not len(rows):
        return dataclasses.replace(X, dislikes=None)
    return dataclasses.replace(X, dislikes=interactions.merged(rows, columns, X.shape, None))


def moved(
    X: Interactions, source: Interactions, users: np.ndarray, items: np.ndarray
) -> Interactions:
    """X with the dislikes of `source`, whose row i is row users[i] of X, column j column items[j]; −1: left out.

    A dislike that is a positive of X is left out.
    """
    if source.dislikes is None:
        return X
    rows, columns, _ = source.dislikes.on_host()
    rows, columns = users[rows], items[columns]
    keep = (rows >= 0) & (columns >= 0)
    keep &= ~np.isin(rows.astype(np.int64) * X.num_items + columns, _keys(X))
    return placed(X, rows[keep], columns[keep])


def union(X: Interactions) -> Union:
    """The positives and the dislikes of X, sorted within each row."""
    assert X.dislikes is not None
    rows, columns, places, own = [], [], [], []
    for part, is_positive in ((X, True), (X.dislikes, False)):
        part_rows, part_columns, _ = part.on_host()
        rows.append(part_rows)
        columns.append(part_columns)
        places.append(np.arange(part.nnz))
        own.append(np.full(part.nnz, is_positive))
    rows, columns = np.concatenate(rows), np.concatenate(columns)
    order = np.lexsort((columns, rows))
    both = interactions.merged(rows, columns, X.shape, None)
    return Union(both, np.concatenate(own)[order], np.concatenate(places)[order])


def seen(X: Interactions) -> Interactions:
    """What a list leaves out: the positives and, if there are any, the dislikes, with the ids of X."""
    if X.dislikes is None:
        return X
    return dataclasses.replace(union(X).X, user_ids=X.user_ids, item_ids=X.item_ids)


def _ids(X: Interactions, kind: str) -> np.ndarray | None:
    return X.user_ids if kind == "user" else X.item_ids
