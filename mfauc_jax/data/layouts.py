"""Files of ratings in their various layouts, as one kind of frame.

The frame has the columns `user` and `item` (integers or text) and, where the file has them, `rating` and
`confidence` (float), `time` (a number) and `train` (bool). A new layout is one line of `LAYOUTS`, at the end.
"""

import functools
import glob
import io
import os
import pathlib
import re
import struct
import zipfile
import zlib
from typing import Any

import numpy as np
import polars as pl

from mfauc_jax._core import registry
from mfauc_jax.data import compressed, delimited, json_objects, matlab, parquet, sniffing
from mfauc_jax.data.compressed import Content
from mfauc_jax.data.delimited import INTEGER, NUMBER, TEXT, Layout
from mfauc_jax.data.reading import Report, Request

UNSOUND = (  # what numpy raises for damaged files
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
ONE_PER_USER = re.compile(rb"[\d ]+\r?(\n|$)")  # the first line of LightGCN's files
NPZ = {"user": "row", "item": "col", "rating": "rating", "train": "is_train"}
ENDINGS = (  # a whole name in lower case, or an ending, without those of compressions; the layout
    ("u.data", "u.data"),
    ("ratings.dat", "ratings.dat"),
    ("bx-book-ratings.csv", "book-crossing"),
    ("train.txt", "lightgcn"),
    ("test.txt", "lightgcn"),
    (".inter", "recbole"),
    (".csv", "csv"),
    (".tsv", "tsv"),
    (".tab", "tsv"),
    (".txt", "text"),
    (".dat", "text"),
    (".data", "text"),
    (".jsonl", "jsonl"),
    (".ndjson", "jsonl"),
    (".json", "jsonl"),
    (".parquet", "parquet"),
    (".mat", "epinions"),
    (".npz", "npz"),
)


def read_frame(
    path: str | os.PathLike, request: Request = Request(), report: Report | None = None
) -> pl.DataFrame:
    """The ratings of one file, plain or compressed, or of several that a pattern or a folder of parquet names.

    Args:
        path: the file, `archive.zip/member`, a pattern such as "part-*.csv", or a folder of parquet files.
        request: what the caller says about the file; the rest is recognised.
        report: gets what was found; None if the caller does not need it.
    """
    report = Report(str(path)) if report is None else report
    paths = _paths(path)
    reports = [Report(str(one)) for one in paths]
    with parquet.trial() as trial:
        frames = [_read(*each, request, trial) for each in zip(paths, reports, strict=True)]
    for name, frame in zip(paths, frames, strict=True):
        if set(frame.columns) != set(frames[0].columns):
            raise ValueError(
                f"{name} has {', '.join(frame.columns)}, but {paths[0]} has {', '.join(frames[0].columns)}"
            )
    report.taken, report.ratings = reports[0].taken, reports[0].ratings
    report.how += reports[0].how + ([f"{len(paths)} files"] if len(paths) > 1 else [])
    report.rows = sum(one.rows for one in reports)
    report.notes += [note for one in reports for note in one.notes]
    try:
        ordered = [frame.select(frames[0].columns) for frame in frames]
        frame = pl.concat(ordered, how="vertical_relaxed")
        return frame if request.whole else delimited.finish(frame)
    except pl.exceptions.PolarsError as error:
        raise ValueError(
            f"{path}: the files do not have the same kinds of columns: {error}"
        ) from None


def _paths(path: str | os.PathLike) -> list[pathlib.Path]:
    """The files that a path means."""
    found = pathlib.Path(path)
    if found.is_dir():
        parts = sorted(p for p in found.iterdir() if not p.name.startswith((".", "_")))
        return parts if parts and all(_is_parquet(p) for p in parts) else [found]
    if found.exists() or not glob.has_magic(str(path)):
        return [found]
    parts = [pathlib.Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
    if not parts:
        raise FileNotFoundError(f"{path} does not exist, and no file matches it as a pattern")
    return parts


def _is_parquet(path: pathlib.Path) -> bool:
    return path.suffix.lower() == ".parquet" and path.is_file()


def _read(
    path: pathlib.Path, report: Report, request: Request, trial: parquet.Trial
) -> pl.DataFrame:
    """The ratings of one file."""
    if path.suffix.lower() != ".zip" and request.layout is None and not path.is_dir():
        _layout_of(path, compressed.plain_name(path))
    if _is_parquet(path) and request.layout in (None, "parquet"):
        content = Content(path.name, b"", packed=path.stat().st_size)  # read column by column
    else:
        content = compressed.read(path, lambda name: _known(name) is not None)
    if content.member is not None:
        report.how.append(f"member {content.member}")
    name = request.layout or _layout_of(path, content.name)
    if request.layout is None and name == "lightgcn" and not ONE_PER_USER.match(content.data):
        name = "text"
    reader = registry.lookup("layout", LAYOUTS, name)
    if isinstance(reader, Layout):
        return _text(str(path), content, request, report, reader)
    said = {"delimiter": request.delimiter, "columns": request.header}
    said |= {} if name in ("lightgcn", "jsonl") else {"encoding": request.encoding}
    said |= {} if name in ("parquet", "jsonl") else request.columns
    for option, value in said.items():
        if value is not None:
            raise ValueError(f"{path}: {option}= does not apply to a file of layout {name}")
    if name == "parquet":
        reader = functools.partial(parquet.read, trial=trial)
    return reader(str(path), content, request, report)


def _layout_of(path: pathlib.Path, name: str) -> str:
    found = _known(name)
    if found is None:
        compressed.check(path)
        raise ValueError(
            f"{path} does not tell its layout: pass layout=, one of {', '.join(LAYOUTS)}"
        )
    return found


def _known(name: str) -> str | None:
    """The layout that the name of a file stands for, or None."""
    name = name.lower()
    fitting = (lay for end, lay in ENDINGS if name == end or (end[0] == "." and name.endswith(end)))
    return next(fitting, None)


def _text(
    source: str, content: Content, request: Request, report: Report, layout: Layout
) -> pl.DataFrame:
    data = sniffing.utf8(pathlib.Path(source), content.data, request.encoding or layout.encoding)
    compressed.check_rows(source, data.count(b"\n"), content.packed)
    compressed.check_lines(source, data)
    if layout.types is not None and (request.delimiter or request.header):
        layout = Layout("", quote='"', sniffed=True)
    read = delimited.named if layout.types is None else delimited.positional
    return read(source, data, layout, request, report)


def _json(source: str, content: Content, request: Request, report: Report) -> pl.DataFrame:
    """A JSON file: one object per line, or a list of objects."""
    data = sniffing.utf8(pathlib.Path(source), content.data, request.encoding or "utf-8")
    compressed.check_rows(source, data.count(b"{"), content.packed)
    if not json_objects.is_list(data):
        compressed.check_lines(source, data)
    return json_objects.read(source, data, request, report)


def _lightgcn(path: str, content: Content, request: Request, report: Report) -> pl.DataFrame:
    """A file of LightGCN, one line per user: user item item …"""
    data = sniffing.utf8(pathlib.Path(path), content.data, request.encoding or "utf-8")
    compressed.check_rows(path, data.count(b" ") + data.count(b"\n"), content.packed)
    lines = [line.split() for line in data.splitlines()]
    for number, line in enumerate(lines, 1):
        bad = next((word for word in line if not word.isdigit()), None)
        if bad is not None:
            raise ValueError(f"{path}, line {number}: {bad.decode()!r} is not an item number")
    users = [line[0] for line in lines if line]
    if request.layout is None and len(set(users)) < len(users):
        raise ValueError(
            f"{path}: user {max(users, key=users.count).decode()} has several lines, but LightGCN's files have one per "
            "user: pass layout='lightgcn' if it is one, or delimiter='space' if a line is one rating"
        )
    counts = [len(line) - 1 for line in lines if line]
    items = [word for line in lines for word in line[1:]]
    try:
        arrays = np.repeat(np.array(users, np.int64), counts), np.array(items, np.int64)
    except OverflowError:
        longest = max((*users, *items), key=len).decode()
        raise ValueError(f"{path}: {longest} is too large: ids are numbers below 2⁶³") from None
    report.how.append("one line per user, as LightGCN has it")
    return pl.DataFrame(dict(zip(("user", "item"), arrays, strict=True)))


def _epinions(path: str, content: Content, request: Request, report: Report) -> pl.DataFrame:
    """Tang's rating.mat: user, product, category, rating, …"""
    del request
    try:
        table = matlab.matrix(content.data, "rating", compressed.most_bytes(content.packed))
    except KeyError:
        raise ValueError(f"{path} has no variable 'rating'") from None
    except ValueError as error:
        raise ValueError(f"{path} is not a sound MATLAB file ({error}): get it again") from None
    if table.ndim != 2 or table.shape[1] < 4:
        raise ValueError(f"{path}: rating is {table.shape}, not user, product, category, rating")
    return _numbers(path, report, {"user": table[:, 0], "item": table[:, 1], "rating": table[:, 3]})


def _npz(path: str, content: Content, request: Request, report: Report) -> pl.DataFrame:
    """A .npz file with the arrays row, col, rating and is_train, as the Flixster sample."""
    del request
    try:
        with np.load(io.BytesIO(content.data), allow_pickle=False) as arrays:
            size = sum(member.file_size for member in arrays.zip.infolist())
            if size > compressed.most_bytes(content.packed):
                raise ValueError(f"it unpacks to {size} bytes from {content.packed}")
            found = {k: arrays[v] for k, v in NPZ.items() if v in arrays}
    except UNSOUND as error:
        raise ValueError(f"{path} is not a sound .npz file ({error}): get it again") from None
    missing = [v for k, v in NPZ.items() if k not in found and k != "train"]
    if missing:
        raise ValueError(f"{path} has no array {missing[0]!r}")
    return _numbers(path, report, found)


def _numbers(path: str, report: Report, arrays: dict[str, np.ndarray]) -> pl.DataFrame:
    """The frame of some columns of numbers; users and items must be whole."""
    types = {"user": np.int64, "item": np.int64, "rating": np.float64, "train": bool}
    for kind, column in arrays.items():
        if (
            column.shape != arrays["user"].shape
            or column.ndim != 1
            or column.dtype.kind not in "iufb"
        ):
            raise ValueError(
                f"{path}: {kind} is {column.dtype} {column.shape}: it must be one number for each of "
                f"{arrays['user'].shape} users"
            )
        if kind in ("user", "item"):
            wrong = ~(np.abs(column) <= 2.0**53) | (column != np.round(column))
            if wrong.any():
                raise ValueError(f"{path}: {kind} {column[wrong][0]} is not a whole number")
    report.ratings = ["rating"]
    return pl.DataFrame({k: np.asarray(v).astype(types[k]) for k, v in arrays.items()})


_INTEGERS = {"user": INTEGER, "item": INTEGER, "rating": NUMBER}
_MOVIELENS = {**_INTEGERS, "time": INTEGER}
_BOOKS = {"user": INTEGER, "item": TEXT, "rating": NUMBER}
LAYOUTS: dict[str, Any] = {
    "u.data": Layout("\t", _MOVIELENS),
    "ratings.dat": Layout("::", _MOVIELENS),
    "ratings.csv": Layout(",", _MOVIELENS, header=True),
    "book-crossing": Layout(delimited.QUOTED, _BOOKS, header=True, encoding="latin-1"),
    "flixster": Layout("\t", {**_INTEGERS, "time": TEXT}, header=True),
    "csv": Layout(",", quote='"', sniffed=True),
    "tsv": Layout("\t", quote='"', sniffed=True),
    "text": Layout("", quote='"', sniffed=True),
    "recbole": Layout("\t"),
    "lightgcn": _lightgcn,
    "jsonl": _json,
    "parquet": parquet.read,
    "epinions": _epinions,
    "npz": _npz,
}
