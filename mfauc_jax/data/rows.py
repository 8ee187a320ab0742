"""The rows of a file that count as positives, with all columns of the file, for splits that keep them."""

import os
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mfauc_jax.data import ratings, splits, times
from mfauc_jax.data.catalogue import Filter
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.reading import Report

if TYPE_CHECKING:  # polars is imported by the first file that is read
    import polars as pl


class Rows(NamedTuple):
    """A polars frame with the text of the file, and the names of its columns by kind."""

    frame: Any
    columns: dict[str, str]  # user, item, time, … → the name of the column


def read(path: str | os.PathLike, **options: Any) -> Rows:
    """The positive rows of a file, with times; the options are those of `read_ratings`."""
    from mfauc_jax.data import layouts

    request, rule, threshold = ratings.requested("time", **options)
    report = Report(str(path))
    frame = layouts.read_frame(path, request._replace(whole=True), report)
    return _positive(report, frame, rule, threshold, request.skip_bad)


def load(name: str, data_dir: str | os.PathLike, rule: Filter) -> Rows:
    """The positive rows of a data set known by name, with times."""
    _, frame, report = ratings.read_dataset(name, data_dir, whole=True)
    return _positive(report, frame, rule)


def _positive(
    report: Report, frame: "pl.DataFrame", rule: Filter, threshold: str = "", skip_bad: bool = False
) -> Rows:
    """The rows from which `read_ratings` would make positives."""
    import polars as pl

    from mfauc_jax.data import pairs

    named = {kind: column for kind, column in report.taken.items() if column in frame.columns}
    named = named or {kind: kind for kind in ratings.KINDS if kind in frame.columns}
    if "time" not in named:
        raise ValueError(f"{report.source} has no times: it has {', '.join(frame.columns)}")
    kinds = pl.DataFrame({kind: frame[column] for kind, column in named.items()})
    numbers = [kind for kind in ("rating", "confidence") if kinds.schema.get(kind) == pl.String]
    kinds = kinds.with_columns(pl.col(numbers).cast(pl.Float64, strict=False))
    kinds = kinds.with_columns(_times(kinds["time"], skip_bad))
    kinds = pairs.usable(kinds.with_row_index(), report, rule, threshold, skip_bad, carry="time")
    users, items = (
        kinds[kind].rank("dense").to_numpy().astype(np.int64) - 1 for kind in ("user", "item")
    )
    kept, sizes = _in_core(report.source, users, items, rule)
    report.tell(*sizes)
    kinds = kinds.filter(kept)
    ids = (kinds[kind].alias(named[kind]) for kind in ("user", "item"))
    return Rows(frame[kinds["index"]].with_columns(ids), named)


def _times(when: "pl.Series", skip_bad: bool) -> "pl.Series":
    """Times with null where there is nothing and, to be skipped, where text is no time."""
    import polars as pl

    if when.dtype != pl.String:
        return when
    when = pl.select(pl.when(when.str.strip_chars() != "").then(when.str.strip_chars())).to_series()
    bad = times.unreadable(when.to_list()) if skip_bad else set()
    return pl.select(pl.when(~when.is_in(list(bad))).then(when).alias("time")).to_series()


def _in_core(
    source: str, users: np.ndarray, items: np.ndarray, rule: Filter
) -> tuple[np.ndarray, tuple[int, int, int]]:
    """Which rows have users and items with enough distinct pairs, and the numbers of users, items and pairs left."""
    m, n = int(users.max()) + 1, int(items.max()) + 1
    distinct, place = np.unique(users * n + items, return_inverse=True)
    if max(rule.user_min, rule.item_min) <= 1:
        return np.ones(len(users), bool), (m, n, len(distinct))
    starts = np.searchsorted(distinct, n * np.arange(m + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reading the halves will warn about users without a pair
        X = Interactions.from_csr(starts, distinct % n, n)
    core = splits.in_core(X, rule.user_min, rule.item_min)
    if not core.any():
        raise ValueError(
            f"{source}: no positives are left of {len(distinct)} when users need {rule.user_min} and "
            f"items {rule.item_min}: lower user_min or item_min"
        )
    left = [len(np.unique(part)) for part in np.divmod(distinct[core], n)]
    return core[place], (left[0], left[1], int(core.sum()))
