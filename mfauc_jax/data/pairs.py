"""Distinct (user, item) pairs from the rows of a frame: which rows count, are refused, or are merged."""

from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float, Int, Shaped

from mfauc_jax.data import validation
from mfauc_jax.data.catalogue import EVERYTHING, Filter
from mfauc_jax.data.reading import Report

NOTHING = ("nan", "NaN", "None", "none", "null", "NULL", "<NA>", "NaT", "N/A", "#N/A", "NA")


class Pairs(NamedTuple):
    """Distinct (user, item) pairs, sorted by user and then by item."""

    users: Int[np.ndarray, " nnz"]  # places in user_ids
    items: Int[np.ndarray, " nnz"]
    user_ids: Shaped[np.ndarray, " m"]  # sorted
    item_ids: Shaped[np.ndarray, " n"]
    confidence: Float[np.ndarray, " nnz"] | None  # the sum over the rows of each pair
    carried: Shaped[np.ndarray, " nnz"] | None  # the largest value over the rows of each pair


def gather(
    frame: pl.DataFrame,
    report: Report,
    filter: Filter = EVERYTHING,
    *,
    threshold: str = "",
    skip_bad: bool = False,
    numerals: bool = False,
    carry: str | None = None,
) -> Pairs:
    """The relevant pairs of a frame with columns user, item and perhaps rating, confidence, time and train.

    Args:
        frame: one row per interaction.
        report: gets notes about what was left out and merged.
        filter: which ratings are relevant; its minima are not applied here.
        threshold: the filter in words, for messages: "below 4".
        skip_bad: leave out rows that lack an id or a value that is used, and count them, instead of raising.
        numerals: turn ids into integers if all of them are written as integers; 007 is not.
        carry: the column of which the largest value per pair is kept.
    """
    frame = usable(frame, report, filter, threshold, skip_bad, carry)
    (user_ids, users), (item_ids, items) = (
        _encode(report, frame[kind], numerals) for kind in ("user", "item")
    )
    confidence = None if "confidence" not in frame.columns else frame["confidence"].to_numpy()
    carried = None if carry is None else frame[carry].to_numpy()
    pairs = users * len(item_ids) + items
    order = None
    if confidence is None and carried is None:
        pairs = np.sort(pairs)
    else:
        order = np.argsort(pairs, kind="stable")
        pairs = pairs[order]
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))  # of each distinct pair
    added = ", their confidences added" if confidence is not None else ""
    repeats = len(pairs) - len(starts)
    report.note(f"{repeats} repeated pairs merged{added}", repeats)
    return Pairs(
        *np.divmod(pairs[starts], len(item_ids)),
        user_ids,
        item_ids,
        None if confidence is None else np.add.reduceat(confidence[order].astype(float), starts),
        None if carried is None else np.maximum.reduceat(carried[order], starts),
    )


def usable(
    frame: pl.DataFrame,
    report: Report,
    filter: Filter,
    threshold: str = "",
    skip_bad: bool = False,
    carry: str | None = None,
) -> pl.DataFrame:
    """The rows with sound ids and values whose rating is relevant; the arguments are those of `gather`."""
    source, report.rows = report.source, report.rows + frame.height
    frame = frame.with_columns(_ids(source, frame[kind]) for kind in ("user", "item"))
    users_before = (
        frame["user"].drop_nulls().n_unique() if filter.above is not None or skip_bad else 0
    )
    frame = _sound(frame, report, _bad_rows(frame, report, filter, carry), skip_bad)
    if filter.above is None:
        _tell_ratings(report)
    if filter.above is not None:
        frame = _relevant(frame, report, filter, threshold)
    if not frame.height:
        raise ValueError(f"{source} has no ratings: nothing to learn from")
    if users_before:
        gone = users_before - frame["user"].n_unique()
        report.note(f"{gone} users without a usable pair left out", gone)
    return frame


def _tell_ratings(report: Report) -> None:
    """Note that a column of ratings is not used, and which option uses it."""
    used = [
        column for kind, column in report.taken.items() if kind in ("user", "item", "confidence")
    ]
    unused = [str(name) for name in report.ratings if name not in used]
    report.note(
        f"every row counts as a positive, whatever its {' or '.join(unused)}: "
        f"{report.advice('min_rating=…')} to leave low ratings out",
        len(unused),
    )


def _ids(source: str, ids: pl.Series) -> pl.Series:
    """Ids as integers or text, with null for missing ids of any kind."""
    if ids.dtype in (pl.Categorical, pl.Enum):
        ids = ids.cast(pl.String)
    if ids.dtype == pl.String:
        return pl.select(pl.when(ids.str.strip_chars() != "").then(ids).alias(ids.name)).to_series()
    if ids.dtype.is_float():  # pandas turns integers into floats if some are missing
        known = ids.fill_nan(None)
        exact = known.cast(pl.Float64)
        whole = exact.is_between(-(2**53), 2**53) & (exact == exact.round())
        if known.null_count() and whole.fill_null(True).all():
            return known.cast(pl.Int64)
    if ids.null_count() == len(ids):
        return ids.cast(pl.String)
    if not ids.dtype.is_integer():
        raise TypeError(
            f"{source}: column {ids.name} is {ids.dtype}, such as {ids.drop_nulls()[0]!r}: "
            "cast ids to integers or text"
        )
    return ids


def _bad_rows(
    frame: pl.DataFrame, report: Report, filter: Filter, carry: str | None
) -> dict[str, pl.Series]:
    """For each possible fault of a row, which rows have it."""
    bad = {f"no {kind} id": frame[kind].is_null() for kind in ("user", "item")}
    for kind in ("rating", "confidence"):
        if kind not in frame.columns or (kind == "rating" and filter.above is None):
            continue
        values = frame[kind]
        if not values.dtype.is_numeric():
            name = report.taken.get(kind, kind)
            raise TypeError(
                f"{report.source}: column {name} is {values.dtype}: a {kind} is a number"
            )
        finite = values.cast(pl.Float64).is_finite().fill_null(False)
        bad[f"no finite {kind}"] = ~finite
        if kind == "confidence":
            bad["a confidence that is not > 0"] = finite & (values <= 0).fill_null(False)
    if carry is not None:
        bad[f"no {carry}"] = frame[carry].is_null()
    return bad


def _sound(
    frame: pl.DataFrame, report: Report, bad: dict[str, pl.Series], skip_bad: bool
) -> pl.DataFrame:
    """The rows without a fault; a ValueError gives the counts, the first bad row and the fix."""
    counts = {what: int(rows.sum()) for what, rows in bad.items()}
    if not any(counts.values()):
        return frame
    wrong = pl.select(pl.any_horizontal(*bad.values())).to_series()
    found = ", ".join(f"{count} with {what}" for what, count in counts.items() if count)
    if not skip_bad:
        first = int(wrong.arg_max() or 0)
        raise ValueError(
            f"{report.source} has {int(wrong.sum())} bad rows of {frame.height}, {found}; the first is row {first}, "
            f"counted from 0: repair them, or {report.advice('skip_bad=True')} to leave them out"
        )
    report.note(f"left out {int(wrong.sum())} bad rows of {frame.height}: {found}")
    return frame.filter(~wrong)


def _relevant(frame: pl.DataFrame, report: Report, filter: Filter, threshold: str) -> pl.DataFrame:
    assert filter.above is not None
    if "rating" not in frame.columns:
        raise ValueError(f"{report.source} has no ratings to compare with above = {filter.above:g}")
    values = frame["rating"].cast(pl.Float64)
    relevant = (values > filter.above) | ((values == 0) & filter.zero)
    if not relevant.any() and frame.height:
        raise ValueError(
            f"{report.source}: none of {frame.height} ratings, from {values.min()} to {values.max()}, "
            f"is above {filter.above:g}: lower it"
        )
    threshold = threshold or f"of {filter.above:g} or less"
    left_out = frame.height - int(relevant.sum())
    report.how += [f"{left_out} rows with a rating {threshold} left out"] if left_out else []
    return frame.filter(relevant)


def _encode(report: Report, ids: pl.Series, numerals: bool) -> tuple[np.ndarray, np.ndarray]:
    """The sorted distinct ids, and the place of each id among them."""
    if ids.dtype == pl.String and numerals:
        whole = ids.cast(pl.Int64, strict=False)
        if not whole.null_count() and (whole.cast(pl.String) == ids).all():  # 007 stays text
            ids = whole
    if ids.dtype.is_integer() and numerals and _too_large(ids):
        ids = ids.cast(pl.String)  # as in a text file, where they are not turned into integers
    if ids.dtype.is_integer():
        if _too_large(ids):
            validation.int64(ids.name, np.array([ids.max()], object))  # raises
        found, places = np.unique(ids.cast(pl.Int64).to_numpy(), return_inverse=True)
        return found, places.astype(np.int64)
    distinct = ids.unique().sort()
    _check_text(report, distinct, ids)
    place = pl.DataFrame({"id": distinct, "place": np.arange(len(distinct))})
    joined = pl.DataFrame({"id": ids}).join(place, on="id", how="left", maintain_order="left")
    return distinct.to_numpy().astype(str), joined["place"].to_numpy()


def _too_large(ids: pl.Series) -> bool:
    """Whether some integers need more than 64 bits with a sign."""
    least, most = ids.min(), ids.max()
    return not -(2**63) <= int(least) <= int(most) < 2**63  # type: ignore[arg-type]


def _check_text(report: Report, ids: pl.Series, rows: pl.Series) -> None:
    """Raise ValueError for ids that NumPy cannot hold well, and note ids that look like missing values or floats.

    One huge id would make every id as wide in memory, and NumPy drops zero characters at the end of an id.
    """

    def example(at: int) -> str:
        row = int((rows == ids[at]).arg_max() or 0)
        return f"{validation.short(ids[at])} of rating {row + 1}"

    validation.widths(f"{report.source}: {ids.name}", ids.str.len_chars().to_numpy(), example)
    if ids.str.contains("\0", literal=True).any():
        raise ValueError(f"{report.source}: a {ids.name} id has a zero character in it: remove it")
    suspects = [name for name in NOTHING if ids.is_in([name]).any()]
    report.note(
        f"{ids.name} id {', '.join(map(repr, suspects))}: is it a missing value?", len(suspects)
    )
    if ids.str.contains(r"^-?\d+\.0$").all():
        report.note(f"{ids.name} ids are written as {ids[0]!r}: were they whole numbers?")
