"""Positives as files that this library and others read: csv, parquet, and RecBole's .inter."""

import os
import pathlib
from typing import TYPE_CHECKING

import numpy as np

from mfauc_jax._core import atomic
from mfauc_jax.data import ids
from mfauc_jax.data.interactions import Interactions

if TYPE_CHECKING:
    import polars as pl

ENDINGS = (".csv", ".parquet", ".inter")


def write_ratings(X: Interactions, path: str | os.PathLike) -> None:
    """Write the positives of X, one per row, to a file that `read_ratings` reads, whole or not at all.

    The columns are user, item and, if X has such, confidence; in RecBole's .inter they are user_id:token,
    item_id:token and confidence:float.

    Args:
        X: the positives; their ids are the caller's, or rows and columns where there are none.
        path: a file whose name ends in .csv, .parquet or .inter.
    """
    check(path)
    frame = frame_of(X)
    if X.confidence is not None:
        import polars as pl

        weights = np.asarray(X.confidence, np.float64)
        frame = frame.with_columns(pl.Series("confidence", weights))
    write_frame(frame, path)


def frame_of(X: Interactions) -> "pl.DataFrame":
    """The pairs of X in its ids, with the columns user and item, in the order of its rows."""
    import polars as pl

    rows, columns, _ = X.on_host()
    return pl.DataFrame({"user": ids.of(X, "user")[rows], "item": ids.of(X, "item")[columns]})


def check(path: str | os.PathLike) -> None:
    """Raise ValueError unless a file of that name can be written."""
    if pathlib.Path(path).suffix.lower() not in ENDINGS:
        raise ValueError(f"{path} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")


def write_frame(
    frame: "pl.DataFrame", path: str | os.PathLike, user: str = "user", item: str = "item"
) -> None:
    """Write a frame of ratings, whole or not at all.

    Args:
        frame: the ratings.
        path: the file; its ending decides the layout.
        user: the column of users.
        item: the column of items.
    """
    from polars.exceptions import PolarsError

    kind = pathlib.Path(path).suffix.lower()
    if kind == ".inter":
        frame = _atomic(frame, path, user, item)
    with atomic.beside(path) as beside:
        try:
            if kind == ".parquet":
                frame.write_parquet(beside)
            elif kind == ".inter":
                frame.write_csv(beside, separator="\t", quote_style="never")
            else:
                frame.write_csv(beside)
        except PolarsError as error:
            raise ValueError(f"cannot write {path}: {error}; try .parquet") from None


def _atomic(frame: "pl.DataFrame", path: str | os.PathLike, user: str, item: str) -> "pl.DataFrame":
    """The frame with the names of RecBole's atomic files, column:type; it has no quotes for tabs and line ends."""
    import polars as pl

    names = {user: "user_id", item: "item_id"}
    columns = []
    for column in frame:
        kind = "token" if column.name in names else _type(column)
        text = column.cast(pl.Float64) if kind == "float" else column.cast(pl.String)
        if kind == "token":
            bad = text.filter(text.str.contains(r"[\t\r\n]").fill_null(value=False))
            if len(bad):
                raise ValueError(
                    f"cannot write {path}: {bad[0]!r} has a tab or a line end, which .inter has no quotes for"
                )
        columns.append(text.alias(f"{names.get(column.name, column.name)}:{kind}"))
    return pl.DataFrame(columns)


def _type(column: "pl.Series") -> str:
    """RecBole's type: "float" where every value is a number, "token" elsewhere."""
    import polars as pl

    numbers = column.cast(pl.Float64, strict=False)
    return "float" if numbers.null_count() == column.null_count() else "token"
