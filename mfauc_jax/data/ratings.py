"""X from files of ratings. A `Filter` says which ratings are relevant, and the usual filters have names.

"table" gives the sizes of the paper's table of data sets, with the authors' own thresholds; "text" does what the
paper's text says; "everything" counts every rating. Where the paper's text and table agree, so do the first two.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Shaped

from mfauc_jax._core import registry
from mfauc_jax.data import dislikes, interactions, splits
from mfauc_jax.data.catalogue import DATASETS, EVERYTHING, Dataset, Filter
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.reading import Report, Request

if TYPE_CHECKING:  # polars is imported by the first file that is read
    import polars as pl


KINDS = ("user", "item", "rating", "time", "confidence")  # of columns that can be named


class Timed(NamedTuple):
    """X and the last time of each of its positives, for `splits.leave_last_out`."""

    X: Interactions
    times: Shaped[np.ndarray, " nnz"]


def load(
    name: str,
    data_dir: str | os.PathLike,
    filter: str | Filter | None = None,
    *,
    dislikes_below: float | None = None,
) -> Interactions:
    """The data set `name` from `data_dir`/`name`/, filtered.

    Args:
        name: one of `catalogue.DATASETS`.
        data_dir: where `download` puts data sets, each in a folder of its name; files may be
            gzipped.
        filter: "table", "text", "everything" or a `Filter`; None: the data set's first, which is "table" for
            data with ratings.
        dislikes_below: lower ratings are dislikes (`X.dislikes`), as in `read_ratings`.
    """
    dataset, frame, report = read_dataset(name, data_dir)
    rule = _filter(dataset, filter)
    dislikes.check_below(dislikes_below, rule)
    return _positives(report, frame, rule, dislikes_below=dislikes_below)[0]


def load_timed(name: str, data_dir: str | os.PathLike, filter: str | Filter | None = None) -> Timed:
    """`load`, with the time of every positive."""
    dataset, frame, report = read_dataset(name, data_dir)
    return Timed(*_positives(report, frame, _filter(dataset, filter), carry="time"))


def load_split(
    name: str, data_dir: str | os.PathLike, filter: str | Filter | None = None
) -> splits.Split:
    """`load` for data that come divided into training and test (Gowalla, the Flixster sample)."""
    dataset, frame, report = read_dataset(name, data_dir)
    if not dataset.split:
        own = ", ".join(n for n, d in DATASETS.items() if d.split)
        raise ValueError(f"{name} has no split of its own ({own} do): use splits.hold_out")
    X, trains = _positives(report, frame, _filter(dataset, filter), carry="train")
    return splits.Split(splits.select(X, trains), splits.select(X, ~trains))


def read_ratings(
    path: str | os.PathLike,
    *,
    layout: str | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    confidence: str | None = None,
    min_rating: float | None = None,
    dislikes_below: float | None = None,
    columns: str | Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    skip_bad: bool = False,
    filter: Filter = EVERYTHING,
) -> Interactions:
    """X from a file of ratings, with the file's ids as `user_ids` and `item_ids`.

    A pair is relevant if any of its ratings is. `read_ratings("ratings.csv", min_rating=4)` keeps ratings of 4 and
    more; `filter=Filter(above=3, user_min=10)` keeps ratings over 3, and then users with at least ten of them. How
    the file was understood goes to the log `mfauc_jax`; one warning lists what deserves attention.

    Args:
        path: .csv, .tsv, .txt or .dat with any usual delimiter, with or without a header; .parquet, .jsonl;
            u.data, ratings.dat, RecBole .inter, LightGCN train.txt, BX-Book-Ratings.csv, Epinions' rating.mat.
            Each plain, .gz, .bz2, .xz, .zst or .zip; `archive.zip/member`; a pattern such as "part-*.parquet"; a
            folder of parquet files.
        layout: one of `layouts.LAYOUTS`; None: recognised by the file's name.
        user: name of the column of users; None: recognised by its name, such as userId.
        item: the same for items.
        rating: the same for ratings; in a file without ratings every line is a positive.
        time: the same for times, which `read_timed` reads.
        confidence: name of a column of weights > 0, such as a quantity; those of repeated pairs are added.
        min_rating: lower ratings are not relevant; None: all are relevant.
        dislikes_below: lower ratings are dislikes (`X.dislikes`), which `fit` takes as negatives of more weight; it is
            at most `min_rating`. Dislikes of users or items without a positive are left out.
        columns: names of the columns of a text file without a header, in order, as "user,item,-,time" or a list.
        delimiter: of a text file; None: recognised.
        encoding: of a text file; None: the layout's own, which is mostly UTF-8.
        skip_bad: leave out rows that have no id or cannot be read, and count them, instead of raising.
        filter: which ratings are relevant, and how many positives users and items must have; by default all.
    """
    named = {"user": user, "item": item, "rating": rating, "time": time, "confidence": confidence}
    return _file(
        path,
        layout=layout,
        min_rating=min_rating,
        dislikes_below=dislikes_below,
        columns=columns,
        delimiter=delimiter,
        encoding=encoding,
        skip_bad=skip_bad,
        filter=filter,
        **named,
    )[0]


def read_timed(path: str | os.PathLike, **options: Any) -> Timed:
    """`read_ratings` with the time of every positive; it has the same options."""
    X, times = _file(path, "time", **options)
    return Timed(X, times)


def _file(
    path: str | os.PathLike,
    carry: str | None = None,
    dislikes_below: float | None = None,
    **options: Any,
) -> tuple[Interactions, Any]:
    """X from a file, and what its positives carry."""
    from mfauc_jax.data import layouts

    request, rule, threshold = requested(carry, **options)
    dislikes.check_below(dislikes_below, rule)
    report = Report(str(path))
    frame = layouts.read_frame(path, request, report)
    return _positives(report, frame, rule, carry, threshold, request.skip_bad, dislikes_below)


def requested(
    carry: str | None = None,
    *,
    layout: str | None = None,
    min_rating: float | None = None,
    columns: str | Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    skip_bad: bool = False,
    filter: Filter = EVERYTHING,
    **named: str | None,
) -> tuple[Request, Filter, str]:
    """The options of `read_ratings` as a request, a filter, and the filter in words for messages."""
    from mfauc_jax.data import frames

    for name in named:
        if name not in KINDS:
            raise TypeError(f"read_timed has no option {name!r}: see read_ratings")
    names = columns.split(",") if isinstance(columns, str) else columns
    rule = frames.least(min_rating, filter)
    needed = [*KINDS[:2], *(["rating"] * (rule.above is not None)), *([carry] if carry else [])]
    request = Request(
        layout,
        {kind: name for kind, name in named.items() if name is not None},
        None if names is None else tuple(name.strip() for name in names),
        delimiter,
        encoding,
        skip_bad,
        (*needed, *(["confidence"] * (named.get("confidence") is not None))),
    )
    return request, rule, "" if min_rating is None else f"below {min_rating:g}"


def find(name: str, data_dir: str | os.PathLike) -> list[pathlib.Path]:
    """The files of a data set, each plain or gzipped; a FileNotFoundError says how to get missing ones."""
    data_dir = pathlib.Path(data_dir)
    if name not in DATASETS:
        entries = sorted(p.name for p in data_dir.iterdir()) if data_dir.is_dir() else []
        content = f"which holds {', '.join(entries)}" if entries else "which is empty or not there"
        try:
            registry.lookup("data set", DATASETS, name)
        except ValueError as error:
            raise ValueError(f"{error}; looked in {data_dir}, {content}") from None
    dataset = DATASETS[name]
    folders = [data_dir / f for f in (name, dataset.folder) if f is not None]
    found = {
        file.name: path
        for file in dataset.files
        for folder in reversed(folders)
        for path in (folder / f"{file.name}.gz", folder / file.name)
        if path.is_file()
    }
    missing = [file.name for file in dataset.files if file.name not in found]
    if missing if dataset.split else not found:
        first = f"download({name!r}, data_dir) or " if dataset.urls else ""
        wanted = (" and " if dataset.split else " or ").join(missing)
        raise FileNotFoundError(
            f"{dataset.title} not found at {folders[0]}{os.sep}{wanted} (or .gz): "
            f"get it by {first}{dataset.get}"
        )
    return list(found.values()) if dataset.split else list(found.values())[:1]


def read_dataset(
    name: str, data_dir: str | os.PathLike, whole: bool = False
) -> "tuple[Dataset, pl.DataFrame, Report]":
    """A data set, its frame, and the report of the reading; `whole` is as in `Request`."""
    import polars as pl

    from mfauc_jax.data import layouts

    paths, dataset = find(name, data_dir), DATASETS[name]
    kinds, report = {file.name: file.layout for file in dataset.files}, Report(name, known=True)
    frames = [
        layouts.read_frame(path, Request(kinds[path.name.removesuffix(".gz")], whole=whole), report)
        for path in paths
    ]
    report.rows = 0  # counted when pairs are gathered
    if len(frames) == 1:
        return dataset, frames[0], report
    parts = zip(frames, (True, False), strict=True)  # train.txt, then test.txt
    made = pl.concat([f.with_columns(pl.lit(first).alias("train")) for f, first in parts])
    return dataset, made, report


def _filter(dataset: Dataset, choice: str | Filter | None) -> Filter:
    if isinstance(choice, Filter):
        return choice
    return registry.lookup("filter", dataset.filters, choice or next(iter(dataset.filters)))


def _positives(
    report: Report,
    frame: "pl.DataFrame",
    filter: Filter,
    carry: str | None = None,
    threshold: str = "",
    skip_bad: bool = False,
    dislikes_below: float | None = None,
) -> tuple[Interactions, Any]:
    """The relevant pairs of a frame as X, and the largest `carry` of each pair, in CSR order."""
    from mfauc_jax.data import pairs

    if carry is not None and carry not in frame.columns:
        raise ValueError(
            f"{report.source} has no column for {carry}: it has {', '.join(frame.columns)}"
        )
    found = pairs.gather(
        frame, report, filter, threshold=threshold, skip_bad=skip_bad, numerals=True, carry=carry
    )
    X, carried = interactions.gathered(found), found.carried
    if max(filter.user_min, filter.item_min) > 1:
        core = splits.in_core(X, filter.user_min, filter.item_min)
        if not core.any():
            raise ValueError(
                f"{report.source}: no positives are left of {X.nnz} when users need {filter.user_min} and "
                f"items {filter.item_min}: lower user_min or item_min"
            )
        X, carried = splits.compact(X, core), None if carried is None else carried[core]
    report.notes += interactions.useless(X)
    if dislikes_below is not None:
        X = dislikes.low_ratings(frame, dislikes_below, filter, X, report)
    report.tell(*X.shape, X.nnz)
    return X, carried
