"""X from files of ratings. A `Filter` says which ratings are relevant, and the usual filters have names.

"table" gives the sizes of the paper's table of data sets, with the authors' own thresholds; "text" does what the
paper's text says; "everything" counts every rating. Where the paper's text and table agree, so do the first two.
"""

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Shaped

from mfauc_jax._core import registry
from mfauc_jax.data import splits
from mfauc_jax.data.catalogue import DATASETS, EVERYTHING, Dataset, Filter
from mfauc_jax.data.interactions import Interactions

if TYPE_CHECKING:  # polars is imported by the first file that is read
    import polars as pl


class Timed(NamedTuple):
    """X and the last time of each of its positives, for `splits.leave_last_out`."""

    X: Interactions
    times: Shaped[np.ndarray, " nnz"]


def load(
    name: str, data_dir: str | os.PathLike, filter: str | Filter | None = None
) -> Interactions:
    """The data set `name` from `data_dir`/`name`/, filtered.

    Args:
        name: one of `catalogue.DATASETS`.
        data_dir: where `download` puts data sets, each in a folder of its name; files may be
            gzipped.
        filter: "table", "text", "everything" or a `Filter`; None: the data set's first, which is "table" for
            data with ratings.
    """
    dataset, frame = _read(name, data_dir)
    return _positives(name, frame, _filter(dataset, filter))[0]


def load_timed(name: str, data_dir: str | os.PathLike, filter: str | Filter | None = None) -> Timed:
    """`load`, with the time of every positive."""
    dataset, frame = _read(name, data_dir)
    return Timed(*_positives(name, frame, _filter(dataset, filter), carry="time"))


def load_split(
    name: str, data_dir: str | os.PathLike, filter: str | Filter | None = None
) -> splits.Split:
    """`load` for data that come divided into training and test (Gowalla, the Flixster sample)."""
    dataset, frame = _read(name, data_dir)
    if not dataset.split:
        own = ", ".join(n for n, d in DATASETS.items() if d.split)
        raise ValueError(f"{name} has no split of its own ({own} do): use splits.hold_out")
    X, trains = _positives(name, frame, _filter(dataset, filter), carry="train")
    return splits.Split(splits.select(X, trains), splits.select(X, ~trains))


def read_ratings(
    path: str | os.PathLike,
    *,
    layout: str | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    encoding: str | None = None,
    filter: Filter = EVERYTHING,
) -> Interactions:
    """X from one file, plain or gzipped, with the file's ids as `user_ids` and `item_ids`.

    A pair is relevant if any of its ratings is. `read_ratings("ratings.csv", filter=Filter(above=3, user_min=10))`
    keeps ratings over 3, and then users with at least ten of them.

    Args:
        path: u.data (tab), ratings.dat (::), .csv, .tsv, .parquet, RecBole .inter, LightGCN
            train.txt, BX-Book-Ratings.csv, Epinions' rating.mat, Flixster's ratings.
        layout: one of `layouts.LAYOUTS`; None: recognised by the file's name.
        user: name of the column of users; None: recognised by its name, such as userId.
        item: the same for items.
        rating: the same for ratings; in a file without ratings every line is a positive.
        time: the same for times, which `read_timed` reads.
        encoding: of a text file; None: the layout's own, which is mostly UTF-8.
        filter: which ratings are relevant; by default all.
    """
    columns = {"user": user, "item": item, "rating": rating, "time": time}
    return _positives(str(path), _frame(path, layout, columns, encoding), filter)[0]


def read_timed(path: str | os.PathLike, *, filter: Filter = EVERYTHING, **options: Any) -> Timed:
    """`read_ratings` with the time of every positive; it has the same options."""
    how = {name: options.pop(name, None) for name in ("layout", "encoding")}
    columns = {name: options.pop(name, None) for name in ("user", "item", "rating", "time")}
    if options:
        raise TypeError(f"read_timed has no option {next(iter(options))!r}: see read_ratings")
    frame = _frame(path, how["layout"], columns, how["encoding"])
    return Timed(*_positives(str(path), frame, filter, carry="time"))


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


def _read(name: str, data_dir: str | os.PathLike) -> "tuple[Dataset, pl.DataFrame]":
    paths, dataset = find(name, data_dir), DATASETS[name]
    layouts = {file.name: file.layout for file in dataset.files}
    frames = [_frame(path, layouts[path.name.removesuffix(".gz")]) for path in paths]
    if len(frames) == 1:
        return dataset, frames[0]
    import polars as pl

    parts = zip(frames, (True, False), strict=True)  # train.txt, then test.txt
    return dataset, pl.concat([f.with_columns(pl.lit(first).alias("train")) for f, first in parts])


def _frame(path: Any, *args: Any) -> "pl.DataFrame":
    from mfauc_jax.data import layouts

    return layouts.read_frame(path, *args)


def _filter(dataset: Dataset, choice: str | Filter | None) -> Filter:
    if isinstance(choice, Filter):
        return choice
    return registry.lookup("filter", dataset.filters, choice or next(iter(dataset.filters)))


def _positives(
    source: str, frame: "pl.DataFrame", filter: Filter, carry: str | None = None
) -> tuple[Interactions, np.ndarray]:
    """The relevant pairs of a frame as X, and the largest `carry` of each pair, in CSR order."""
    if carry is not None and carry not in frame.columns:
        raise ValueError(f"{source} has no column for {carry}: it has {', '.join(frame.columns)}")
    if filter.above is not None:
        frame = _relevant(source, frame, filter)
    if frame.height == 0:
        raise ValueError(f"{source} has no ratings")
    if carry is not None and frame[carry].null_count():
        raise ValueError(f"{source}: {frame[carry].null_count()} ratings have no {carry}")
    (user_ids, users), (item_ids, items) = _encode(frame["user"]), _encode(frame["item"])
    pairs = users * len(item_ids) + items
    order = np.argsort(pairs, kind="stable")
    starts = np.flatnonzero(np.diff(pairs[order], prepend=-1))  # one per distinct pair
    pairs, carried = pairs[order][starts], np.zeros(len(starts))
    if carry is not None:
        carried = np.maximum.reduceat(frame[carry].to_numpy()[order], starts)
    shape = len(user_ids), len(item_ids)
    X = Interactions.from_pairs(*np.divmod(pairs, len(item_ids)), shape=shape)
    X = dataclasses.replace(X, user_ids=user_ids, item_ids=item_ids)
    if max(filter.user_min, filter.item_min) <= 1:
        return X, carried
    core = splits.in_core(X, filter.user_min, filter.item_min)
    if not core.any():
        raise ValueError(
            f"{source}: no positives are left of {X.nnz} when users need {filter.user_min} and "
            f"items {filter.item_min}: lower user_min or item_min"
        )
    return splits.compact(X, core), carried[core]


def _relevant(source: str, frame: "pl.DataFrame", filter: Filter) -> "pl.DataFrame":
    if "rating" not in frame.columns:
        raise ValueError(f"{source} has no ratings to compare with above = {filter.above:g}")
    values = frame["rating"]
    relevant = (values > filter.above) | ((values == 0) & filter.zero)
    if not relevant.any():
        raise ValueError(
            f"{source}: none of {frame.height} ratings, from {values.min()} to {values.max()}, "
            f"is above {filter.above:g}: lower it"
        )
    return frame.filter(relevant)


def _encode(ids: "pl.Series") -> tuple[np.ndarray, np.ndarray]:
    """The sorted distinct ids, and the place of each id among them."""
    import polars as pl

    if ids.dtype.is_integer():
        return np.unique(ids.to_numpy(), return_inverse=True)
    distinct = ids.unique().sort()
    place = pl.DataFrame({"id": distinct, "place": np.arange(len(distinct))})
    joined = pl.DataFrame({"id": ids}).join(place, on="id", how="left", maintain_order="left")
    return distinct.to_numpy().astype(str), joined["place"].to_numpy()
