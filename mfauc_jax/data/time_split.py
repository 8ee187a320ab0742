"""Train on the past, test on the future: the rows of a frame divided by time, with all their columns."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from mfauc_jax.data import columns, reading, times

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw


class FrameSplit(NamedTuple):
    """Two frames of the caller's own kind with the same columns; no (user, item) pair is in both."""

    train: Any
    test: Any


def by_time(
    frame: Any,
    *,
    at: Any = None,
    last: int | None = None,
    time: str | None = None,
    user: str | None = None,
    item: str | None = None,
) -> FrameSplit:
    """Train on the past and test on the future: rows of a frame divided by their time, all columns kept.

    A test row whose (user, item) pair also trains is left out, and one warning says how many there were. Rows keep
    their order within each half, and which half a row is in does not depend on the order of the rows.

    Args:
        frame: pandas, polars or arrow, one row per interaction; both halves are of the same kind. A lazy
            frame is collected.
        at: rows before it train, rows at or after it test: a number, a date or datetime, or ISO text such as
            "2024-05-01". Dates without a time zone are read as UTC where the column has zones.
        last: test on the last rows of each user, this many or, if a user has too few, all but one. Rows of equal
            time are taken in the order of their items. Give either `at` or `last`.
        time: name of the column of times: numbers, dates, datetimes or ISO text, to the microsecond. By default the
            one whose name tells.
        user: the same for users.
        item: the same for items.
    """
    if (at is None) == (last is None):
        raise ValueError("give either at= (a time) or last= (rows per user)")
    if last is not None and last < 1:
        raise ValueError(f"last = {last} must be ≥ 1")
    table = _eager(frame)
    given = {"user": user, "item": item, "time": time}
    chosen = columns.find("the frame", table.columns, given, needed=tuple(given))
    named = {kind: chosen[kind] for kind in given}
    when = times.read(table[named["time"]])
    users, items = (_codes(kind, table[named[kind]]) for kind in ("user", "item"))
    if last is None:
        later = times.since(when, named["time"], at)
    else:
        later = _last_rows(table.drop(list(named.values())), users, when.values, items, last)
    pairs = users * (items.max() + 1) + items
    repeats = later & np.isin(pairs, pairs[~later])
    rule = f"last = {last}" if at is None else f"at = {at}"
    for half, rows in (("train", ~later), ("test", later & ~repeats)):
        if not rows.any():
            raise ValueError(
                f"{rule} leaves no row to {half}: {len(pairs)} rows of {users.max() + 1} users, {when.span()}, "
                f"of which {repeats.sum()} repeat a pair of training"
            )
    if repeats.any():
        lost = (
            f"left out {repeats.sum()} of {later.sum()} test rows, which repeat a pair of training"
        )
        reading.warn(rule, [lost])
    parts = (table[np.flatnonzero(rows)] for rows in (~later, later & ~repeats))
    return FrameSplit(*(part.to_native() for part in parts))


def _eager(frame: Any) -> "nw.DataFrame":
    import narwhals.stable.v2 as nw

    table = nw.from_native(frame, pass_through=True)
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    if not isinstance(table, nw.DataFrame):
        raise TypeError(
            f"by_time divides a pandas, polars or arrow frame, not {type(frame).__name__}: "
            "for Interactions with an array of times use leave_last_out"
        )
    return table


def _codes(kind: str, ids: "nw.Series") -> Int[np.ndarray, " rows"]:
    """The place of each id among the sorted distinct ones."""
    import narwhals.stable.v2 as nw
    import polars as pl

    if ids.null_count():
        raise ValueError(f"column {ids.name!r} has {ids.null_count()} missing {kind} ids")
    if ids.dtype.is_integer():
        return np.unique(ids.to_numpy(), return_inverse=True)[1]
    if ids.dtype not in (nw.String, nw.Categorical, nw.Enum):
        raise TypeError(
            f"column {ids.name!r} of {kind} ids is {ids.dtype}: make it integers or text"
        )
    text = pl.Series(ids.cast(nw.String).to_list(), dtype=pl.String)
    return text.rank("dense").to_numpy().astype(np.int64) - 1


def _last_rows(
    others: "nw.DataFrame", users: np.ndarray, when: np.ndarray, items: np.ndarray, last: int
) -> Bool[np.ndarray, " rows"]:
    """The latest min(last, N_i − 1) rows of each user; where user, time and item agree, `others` decide."""
    order = np.lexsort((items, when, users))
    ties = np.all([column[order][1:] == column[order][:-1] for column in (users, when, items)], 0)
    if ties.any() and others.columns:
        tied = np.sort(order[np.append(ties, False) | np.append(False, ties)])
        further = np.zeros(len(users), np.int64)
        texts = [repr(row) for row in others[tied].rows()]
        further[tied] = np.unique(np.array(texts), return_inverse=True)[1]
        order = np.lexsort((further, items, when, users))
    lengths = np.bincount(users)
    from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(users)) - 1
    later = np.zeros(len(users), bool)
    later[order] = from_end < np.repeat(np.minimum(last, lengths - 1), lengths)
    return later
