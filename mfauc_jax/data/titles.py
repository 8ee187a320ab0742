"""Titles and categories of items from a file, for people who read lists."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mfauc_jax.data import columns
from mfauc_jax.data.reading import LOG, Report, Request

TITLES = "title titles name itemname itemtitle movietitle booktitle productname producttitle label description"
CATEGORIES = "category categories genre genres type class department section topic tag tags brand"


class Titles(NamedTuple):
    """The title and the category of items; both are known by the item's id as text."""

    title: dict[str, str]
    category: dict[str, str]  # empty if the file has none

    def of(self, ids: Sequence | np.ndarray) -> list[str]:
        """The title of each id; the id itself where the file has none."""
        return [self.title.get(str(name)) or str(name) for name in np.asarray(ids).tolist()]

    def category_of(self, ids: Sequence | np.ndarray) -> list[str]:
        """The category of each id; "" where the file has none."""
        return [self.category.get(str(name), "") for name in np.asarray(ids).tolist()]


def read(
    path: str | os.PathLike,
    *,
    item: str | None = None,
    title: str | None = None,
    category: str | None = None,
    columns_: Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Titles:
    """Titles from a table of items: csv, tsv, parquet, jsonl, … , as files of ratings are read.

    Of several lines for one item the first counts. Of a category such as Action|Comedy the first part counts.

    Args:
        path: the file.
        item: the name of the column of ids; None: recognised.
        title: the name of the column of titles; None: title, name, …
        category: the name of the column of categories; None: category, genres, … if there is one.
        columns_: names of the columns of a text file without a header.
        delimiter: as for `read_ratings`.
        encoding: as for `read_ratings`.
    """
    from mfauc_jax.data import layouts

    request = Request(
        columns={} if item is None else {"item": item},
        header=None if columns_ is None else tuple(columns_),
        delimiter=delimiter,
        encoding=encoding,
        needed=("item",),
        whole=True,
    )
    report = Report(str(path))
    frame = layouts.read_frame(path, request, report)
    names, source = frame.columns, str(path)
    ids = report.taken.get("item", "item")
    titles = _chosen(source, names, title, TITLES, "title")
    if titles is None or titles == ids:
        raise ValueError(
            f"{source} has no column that looks like titles among {columns.shown(names)}: pass title= its name"
        )
    categories = _chosen(source, names, category, CATEGORIES, "category")
    known: dict[str, dict[str, str]] = {"title": {}, "category": {}}
    for kind, column in (("title", titles), ("category", categories)):
        if column is None:
            continue
        for key, value in zip(frame[ids].to_list(), frame[column].to_list(), strict=True):
            if key is not None and value is not None and str(value).strip():
                known[kind].setdefault(str(key), str(value).strip())
    known["category"] = {key: c.split("|")[0].strip() for key, c in known["category"].items()}
    said = "" if categories is None else f", category = {categories}"
    LOG.info("%s: item = %s, title = %s%s; %d rows", source, ids, titles, said, frame.height)
    return Titles(**known)


def _chosen(
    source: str, names: Sequence[str], given: str | None, usual: str, kind: str
) -> str | None:
    """The column that the caller gave, or the first whose name is usual, in the order of what is usual."""
    if given is not None:
        if given not in names:
            raise ValueError(
                f"{source} has no column {given!r} for {kind}=: it has {columns.shown(names)}"
            )
        return given
    plain = {columns.plain(name): name for name in reversed(names)}
    return next((plain[word] for word in usual.split() if word in plain), None)
