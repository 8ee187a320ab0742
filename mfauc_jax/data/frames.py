"""Interactions from pandas, polars and arrow frames: the needed columns as one kind of frame."""

from typing import TYPE_CHECKING, Any

import numpy as np

from mfauc_jax.data import columns, validation
from mfauc_jax.data.catalogue import EVERYTHING, Filter
from mfauc_jax.data.reading import Report

if TYPE_CHECKING:  # imported with the first frame, which keeps our import quick
    import narwhals.stable.v2 as nw
    import polars as pl

    from mfauc_jax.data.pairs import Pairs


def read(
    frame: Any,
    *,
    user: str | None,
    item: str | None,
    rating: str | None,
    min_rating: float | None,
    confidence: str | None,
    skip_bad: bool,
) -> "tuple[Pairs, Report]":
    """The pairs of a frame, and a report; the arguments are those of `Interactions.from_frame`."""
    import polars as pl

    from mfauc_jax.data import pairs

    table, report = table_of(frame), Report("the frame", "use Interactions.from_frame(df, {})")
    names = {str(name): name for name in table.collect_schema().names()}  # pandas has 0, 1, …
    given = {"user": user, "item": item, "rating": rating, "confidence": confidence}
    needed = ("user", "item") if min_rating is None else ("user", "item", "rating")
    found = columns.find(report.source, list(names), given, needed, columns.call)
    report.ratings = (
        [found["rating"]] if "rating" in found else columns.matching(list(names), "rating")
    )
    taken = {kind: column for kind, column in found.items() if kind in (*needed, "confidence")}
    report.taken = taken
    chosen = _collected(table, {kind: names[column] for kind, column in taken.items()})
    made = pl.DataFrame({kind: _series(kind, chosen[kind]) for kind in taken})
    rule = least(min_rating)
    threshold = "" if min_rating is None else f"below {min_rating:g}"
    return pairs.gather(made, report, rule, threshold=threshold, skip_bad=skip_bad), report


def least(min_rating: float | None, rule: Filter = EVERYTHING) -> Filter:
    """The filter `rule` with the condition that ratings of `min_rating` or more are relevant."""
    if min_rating is None:
        return rule
    if rule.above is not None:
        raise ValueError(
            f"give either min_rating = {min_rating:g} or a filter with above = {rule.above:g}"
        )
    if not np.isfinite(min_rating):
        raise ValueError(f"min_rating = {min_rating} is not a finite number")
    return rule._replace(above=float(np.nextafter(min_rating, -np.inf)))


def is_frame(data: Any) -> bool:
    """Whether `data` is a frame that `read` takes."""
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import DuplicateError

    try:
        found = nw.from_native(data, pass_through=True)
    except DuplicateError:  # `read` raises with what is wrong
        return True
    return isinstance(found, nw.DataFrame | nw.LazyFrame)


def table_of(frame: Any) -> "nw.DataFrame | nw.LazyFrame":
    """The frame as narwhals sees it; a ValueError if a column name comes twice."""
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import DuplicateError

    try:
        table = nw.from_native(frame)
        table.collect_schema()
    except DuplicateError:  # only pandas has such frames
        raise ValueError(
            f"the frame has a column name twice: {columns.shown(list(frame.columns))}"
        ) from None
    return table


def _collected(table: "nw.DataFrame | nw.LazyFrame", taken: dict[str, Any]) -> "nw.DataFrame":
    import narwhals.stable.v2 as nw

    chosen = table.select(*(nw.col(column).alias(kind) for kind, column in taken.items()))
    return chosen.collect() if isinstance(chosen, nw.LazyFrame) else chosen


def _series(kind: str, values: "nw.Series") -> "pl.Series":
    """A column as a polars series, with null for missing values; pandas may be installed without pyarrow."""
    import polars as pl

    native = values.to_native()
    if isinstance(native, pl.Series):
        return native
    if type(native).__module__.startswith("pyarrow"):
        return pl.Series(kind, native)
    dtype = values.dtype
    if dtype.is_float() or (dtype.is_integer() and not values.null_count()):
        return pl.Series(kind, values.to_numpy())
    missing = values.is_null().to_list()
    cells = [None if gone else cell for cell, gone in zip(values.to_list(), missing, strict=True)]
    kinds = {type(cell) for cell in cells if cell is not None}
    if all(issubclass(k, str) for k in kinds):
        try:
            return pl.Series(kind, cells, pl.String)
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{kind} {validation.short(error.object)} has half a surrogate pair, which is not text: repair it"
            ) from None
    if all(issubclass(k, int | np.integer) and k is not bool for k in kinds):
        validation.int64(kind, np.array([0, *(c for c in cells if c is not None)], object))
        return pl.Series(kind, [None if cell is None else int(cell) for cell in cells], pl.Int64)
    if kind in ("user", "item"):
        shown = " and ".join(sorted(k.__name__ for k in kinds))
        raise TypeError(f"{kind} ids are {shown}: make them all integers or all text")
    try:
        return pl.Series(kind, cells, pl.Float64)
    except (TypeError, ValueError, pl.exceptions.PolarsError):
        raise TypeError(f"column for {kind} is {dtype}: make it numbers") from None
