"""Files of ratings in their various layouts, as one kind of frame.

The frame has the columns `user` and `item` (integers, or text where they are not all integers)
and, where the file has them, `rating` (float), `time` (a number) and `train` (bool).
"""

import io
import os
import pathlib
import struct
import zipfile
import zlib

import numpy as np
import polars as pl
import scipy.io

from mfauc_jax._core import registry
from mfauc_jax.data import delimited
from mfauc_jax.data.delimited import INTEGER, NUMBER, TEXT, Layout

_INTEGERS = {"user": INTEGER, "item": INTEGER, "rating": NUMBER}
_MOVIELENS = {**_INTEGERS, "time": INTEGER}
LAYOUTS: dict[str, Layout | str] = {
    "u.data": Layout("\t", _MOVIELENS),
    "ratings.dat": Layout("::", _MOVIELENS),
    "ratings.csv": Layout(",", _MOVIELENS, header=True),
    "book-crossing": Layout(
        delimited.QUOTED,
        {"user": INTEGER, "item": TEXT, "rating": NUMBER},
        header=True,
        encoding="latin-1",
    ),
    "flixster": Layout("\t", {**_INTEGERS, "time": TEXT}, header=True),
    "csv": Layout(",", quote='"'),
    "tsv": Layout("\t", quote='"'),
    "recbole": Layout("\t"),
    "lightgcn": "one line per user: user item item …",
    "parquet": "named columns",
    "epinions": "Tang's rating.mat: user, product, category, rating, …",
    "npz": "arrays row, col, rating and is_train",
}
UNSOUND = (  # what scipy and numpy raise for damaged files
    ValueError,
    TypeError,
    RuntimeError,
    EOFError,
    OSError,
    zipfile.BadZipFile,
    zlib.error,
    LookupError,
    ArithmeticError,
    AttributeError,
    MemoryError,
    struct.error,
)
NPZ = {"user": "row", "item": "col", "rating": "rating", "train": "is_train"}
ENDINGS = (  # ending of the lower-cased name without .gz, layout; the first that fits is taken
    ("u.data", "u.data"),
    ("ratings.dat", "ratings.dat"),
    ("bx-book-ratings.csv", "book-crossing"),
    ("ratings.timed.txt", "flixster"),
    ("ratings.txt", "flixster"),
    ("train.txt", "lightgcn"),
    ("test.txt", "lightgcn"),
    (".inter", "recbole"),
    (".csv", "csv"),
    (".tsv", "tsv"),
    (".parquet", "parquet"),
    (".mat", "epinions"),
    (".npz", "npz"),
)


def read_frame(
    path: str | os.PathLike,
    layout: str | None = None,
    columns: dict[str, str | None] | None = None,
    encoding: str | None = None,
) -> pl.DataFrame:
    """The ratings of one file, plain or gzipped.

    Args:
        path: the file.
        layout: one of `LAYOUTS`; None: recognised by the file's name.
        columns: the file's names for user, item, rating and time, for layouts with named columns; those not
            given are recognised by `delimited.ALIASES`.
        encoding: of a text file, if it is not the layout's own. A byte order mark has priority.
    """
    path = pathlib.Path(path)
    name = layout or _layout_of(path)
    chosen = registry.lookup("layout", LAYOUTS, name)
    requested = {k: v for k, v in (columns or {}).items() if v is not None}
    if isinstance(chosen, Layout):
        data = delimited.read_text(path, encoding or chosen.encoding)
        if chosen.types is None:
            return delimited.named(path, data, chosen, requested, typed_header=name == "recbole")
        return delimited.positional(path, data, chosen)
    if name == "parquet":
        return _parquet(path, requested)
    if name == "lightgcn":
        return _lightgcn(path, delimited.read_text(path, encoding or "utf-8"))
    return _arrays(path, name)


def _layout_of(path: pathlib.Path) -> str:
    plain = path.name.lower().removesuffix(".gz")
    for ending, layout in ENDINGS:
        if plain.endswith(ending):
            return layout
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name the file of ratings in it")
    raise ValueError(f"{path} does not tell its layout: pass layout=, one of {', '.join(LAYOUTS)}")


def _parquet(path: pathlib.Path, requested: dict[str, str]) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(io.BytesIO(delimited.read_bytes(path)))
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{path} is not sound parquet: {error}") from None
    chosen = delimited.choose(path, frame.columns, requested)
    frame = frame.select(pl.col(column).alias(kind) for kind, column in chosen.items())
    if "rating" in chosen:
        if not frame["rating"].dtype.is_numeric():
            raise TypeError(f"{path}: column {chosen['rating']} is {frame['rating'].dtype}")
        frame = frame.with_columns(pl.col("rating").cast(NUMBER))
        bad = frame.select(~pl.col("rating").is_finite().fill_null(False)).to_series()
        if bad.any():
            row = int(bad.arg_max() or 0)
            raise ValueError(f"{path}: rating {frame['rating'][row]} in row {row} is not finite")
    return delimited.finish(path, frame)


def _lightgcn(path: pathlib.Path, data: bytes) -> pl.DataFrame:
    lines = [line.split() for line in data.splitlines()]
    for number, line in enumerate(lines, 1):
        bad = next((word for word in line if not word.isdigit()), None)
        if bad is not None:
            raise ValueError(f"{path}, line {number}: {bad.decode()!r} is not an item number")
    users = [line[0] for line in lines if line]
    counts = [len(line) - 1 for line in lines if line]
    items = [word for line in lines for word in line[1:]]
    arrays = np.repeat(np.array(users, np.int64), counts), np.array(items, np.int64)
    return pl.DataFrame(dict(zip(("user", "item"), arrays, strict=True)))


def _arrays(path: pathlib.Path, layout: str) -> pl.DataFrame:
    """The frame of Epinions' `rating.mat`, or of the `.npz` of the Flixster sample."""
    content = io.BytesIO(delimited.read_bytes(path))
    if layout == "epinions":
        try:
            table = scipy.io.loadmat(content)["rating"]
        except KeyError:
            raise ValueError(f"{path} has no variable 'rating'") from None
        except (*UNSOUND, scipy.io.matlab.MatReadError) as error:
            raise ValueError(f"{path} is not a sound MATLAB file ({error}): get it again") from None
        if table.ndim != 2 or table.shape[1] < 4:
            raise ValueError(
                f"{path}: rating is {table.shape}, not user, product, category, rating"
            )
        columns = {"user": table[:, 0], "item": table[:, 1], "rating": table[:, 3]}
    else:
        try:
            with np.load(content, allow_pickle=False) as arrays:
                columns = {k: arrays[v] for k, v in NPZ.items() if v in arrays}
        except UNSOUND as error:
            raise ValueError(f"{path} is not a sound .npz file ({error}): get it again") from None
        missing = [v for k, v in NPZ.items() if k not in columns and k != "train"]
        if missing:
            raise ValueError(f"{path} has no array {missing[0]!r}")
    types = {"user": np.int64, "item": np.int64, "rating": np.float64, "train": bool}
    return pl.DataFrame({k: np.asarray(v).astype(types[k]) for k, v in columns.items()})
