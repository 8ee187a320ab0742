"""When things happened: numbers, dates, datetimes or ISO text, as numbers that compare.

A number stays what it is, in whatever unit the caller has. A date or datetime becomes microseconds since 1970; one
with a time zone is moved to UTC first, one without is taken as it stands.
"""

import datetime
import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Shaped

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw

EPOCH = datetime.datetime(1970, 1, 1)
EPOCH_UTC = EPOCH.replace(tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
EXAMPLE = "'2024-05-01' or '2024-05-01 12:30:00'"


class Times(NamedTuple):
    """One time per row."""

    values: Shaped[np.ndarray, " rows"]  # the column's own numbers, or microseconds since 1970
    dated: bool  # whether they are microseconds

    def span(self) -> str:
        """The first and the last time, as one would write them."""
        return f"from {self.show(self.values.min())} to {self.show(self.values.max())}"

    def show(self, value: Any) -> str:
        """One of the values, as one would write it."""
        return str(EPOCH + int(value) * MICROSECOND) if self.dated else str(value)


def read(column: "nw.Series") -> Times:
    """The times of a column of a frame; missing and unreadable ones raise ValueError with their count."""
    import narwhals.stable.v2 as nw

    name, kind = column.name, column.dtype
    if kind.is_numeric():
        known = column.drop_nulls().to_numpy()
        known = known.astype(np.float64) if known.dtype.kind == "O" else known  # decimals
        _refuse(name, len(column), len(column) - int(np.isfinite(known).sum()), [])
        return Times(known, dated=False)
    if kind in (nw.Date, nw.Datetime):
        _refuse(name, len(column), int(column.null_count()), [])
        return Times(column.dt.timestamp("us").to_numpy().astype(np.int64), dated=True)
    if kind in (nw.String, nw.Categorical, nw.Enum, nw.Object):
        nulls = column.is_null().to_list()
        return _from_text(name, list(map(_as_text, column.to_list(), nulls)))
    raise TypeError(f"column {name!r} is {kind}: times are numbers, dates, datetimes or ISO text")


def moment(at: Any) -> tuple[int | float, bool]:
    """One time as (value, whether it is a date), comparable with `Times` of the same kind."""
    if isinstance(at, np.datetime64):
        at = at.astype("datetime64[us]").item()
    if isinstance(at, datetime.date):  # a datetime is one
        at = at.isoformat()
    if isinstance(at, str):
        value, date = _number(at), _microseconds(at)
        if value is not None:
            return value, False
        if date is not None:
            return date[0], True
        raise ValueError(f"at = {at!r} is neither a number nor an ISO date such as {EXAMPLE}")
    if isinstance(at, bool | np.bool_) or not isinstance(at, int | float | np.number):
        raise TypeError(f"at = {at!r} must be a number, a date or ISO text such as {EXAMPLE}")
    if not math.isfinite(at):
        raise ValueError(f"at = {at} is not finite")
    return at.item() if isinstance(at, np.number) else at, False


def since(times: Times, name: str, at: Any) -> np.ndarray:
    """Which times are `at` or later; a ValueError if one is a date and the other a number."""
    value, dated = moment(at)
    if dated and not times.dated:
        raise ValueError(
            f"at = {at!r} is a date and column {name!r} has numbers, {times.span()}: give a number; "
            f"if they are Unix seconds, {value // 10**6}, if milliseconds, {value // 1000}"
        )
    if times.dated and not dated:
        raise ValueError(
            f"at = {at!r} is a number and column {name!r} has dates, {times.span()}: "
            f"give a date such as {EXAMPLE}"
        )
    return times.values >= value


def unreadable(texts: Iterable[str | None]) -> set[str]:
    """The texts that are no times: not numbers, or not ISO dates, whichever are fewer."""
    counts = Counter(text for text in texts if text is not None)
    no_numbers = {text for text in counts if _number(text) is None}
    if not no_numbers:
        return set()
    no_dates = {text for text in counts if _microseconds(text) is None}
    return min(no_dates, no_numbers, key=lambda failed: sum(counts[text] for text in failed))


def _from_text(name: str, texts: list[str | None]) -> Times:
    bad, missing = unreadable(texts), sum(text is None for text in texts)
    _refuse(name, len(texts), missing, [text for text in texts if text in bad])
    known = [text for text in texts if text is not None]
    numbers = [_number(text) for text in known]
    if all(number is not None for number in numbers):
        return Times(np.array(numbers), dated=False)
    dates = {text: _microseconds(text) for text in set(known)}
    found = [date for text in known if (date := dates[text])]
    zoned = sum(zone for _, zone in found)
    if 0 < zoned < len(found):
        raise ValueError(
            f"column {name!r}: {zoned} of {len(found)} times have a time zone and the others have none"
        )
    return Times(np.array([value for value, _ in found], np.int64), dated=True)


def _refuse(name: str, rows: int, missing: int, unreadable: list[str]) -> None:
    if not rows:
        raise ValueError(f"column {name!r} has no times: the frame has no rows")
    if not missing and not unreadable:
        return
    example = f" ({unreadable[0]!r} …)" if unreadable else ""
    raise ValueError(
        f"column {name!r}: of {rows} times {missing} are missing and {len(unreadable)} unreadable{example}: "
        f"leave these rows out, or write them as numbers or as {EXAMPLE}"
    )


def _as_text(value: Any, is_null: bool) -> str | None:
    """A cell of a column of objects or text; None where it is missing."""
    if is_null:
        return None
    return value.isoformat() if isinstance(value, datetime.date) else str(value).strip() or None


def _number(text: str) -> int | float | None:
    for kind in (int, float):  # whole numbers exactly
        try:
            value = kind(text)
        except (ValueError, OverflowError):
            continue
        return value if math.isfinite(value) and abs(value) < 2**63 else None
    return None


def _microseconds(text: str) -> tuple[int, bool] | None:
    """(microseconds since 1970, whether a time zone was given) of an ISO date; None for other text."""
    try:
        found = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if found.tzinfo is None:
        return (found - EPOCH) // MICROSECOND, False
    return (found - EPOCH_UTC) // MICROSECOND, True
