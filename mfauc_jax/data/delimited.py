"""Delimited text files as frames: quick for sound files; for others, errors name the faulty lines."""

import csv
import gzip
import io
import math
import pathlib
import re
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

# byte order marks and their encodings
MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
ALIASES = {  # column names without case and punctuation
    "user": ("user", "userid", "uid"),
    "item": ("item", "itemid", "iid", "movie", "movieid", "isbn", "book", "bookid", "productid"),
    "rating": ("rating", "ratings", "score", "stars", "bookrating"),
    "time": ("time", "timestamp", "date"),
}
QUOTED = '";"'  # every field is in quotes, with semicolons between them
INTEGER, NUMBER, TEXT = pl.Int64, pl.Float64, pl.String
SHOWN_LINES = 5  # how many faulty lines a message shows
LONGEST_ID = 1000  # characters in an id


class Layout(NamedTuple):
    """The layout of a text file with one rating per line; columns are known by position (`types`) or by name."""

    separator: str
    types: dict[str, Any] | None = None  # of each column, in order; None: the first line names them
    quote: str | None = None
    header: bool = False  # by position: skip a first line that does not start with an integer
    encoding: str = "utf-8"


def read_bytes(path: pathlib.Path) -> bytes:
    """The content of a file, decompressed if it is gzipped."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name the file of ratings in it")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    raw = path.read_bytes()
    if raw.startswith(b"PK\x03\x04") and path.suffix != ".npz":
        raise ValueError(f"{path} is a zip archive: unpack it first")
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is a truncated or damaged gzip ({error}): get it again") from None


def read_text(path: pathlib.Path, encoding: str) -> bytes:
    """The content of a text file as UTF-8, without a byte order mark."""
    raw = read_bytes(path)
    encoding = next((codec for mark, codec in MARKS if raw.startswith(mark)), encoding)
    if b"\0" in raw[:4096] and not encoding.lower().startswith(("utf-16", "utf-32")):
        raise ValueError(
            f"{path} has zero bytes, so it is not {encoding} text: if it is UTF-16 without a byte order mark, "
            "pass encoding='utf-16-le'"
        )
    if not (encoding in ("utf-8", "latin-1") and raw.isascii()):
        try:
            raw = raw.decode(encoding).encode()
        except LookupError:
            raise ValueError(f"encoding {encoding!r} is unknown to Python") from None
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise ValueError(
                f"{path}, line {line}: byte 0x{raw[error.start]:02x} is not {encoding}: "
                "pass the file's own encoding=, such as 'latin-1'"
            ) from None
    if not raw.strip():
        raise ValueError(f"{path} is empty")
    return raw


def positional(path: pathlib.Path, data: bytes, layout: Layout) -> pl.DataFrame:
    """The frame of a file whose columns are in the order of the layout."""
    types, first_line = dict(layout.types or {}), 1
    if len(layout.separator) > 1:  # polars splits at single bytes
        if b"\t" in data:
            line = data.count(b"\n", 0, data.index(b"\t")) + 1
            raise ValueError(
                f"{path}, line {line}: a tab where {layout.separator} separates columns"
            )
        data = _unquote(data) if layout.separator == QUOTED else data.replace(b"::", b"\t")
        layout = layout._replace(separator="\t")
    head, _, rest = data.partition(b"\n")
    fields = head.decode().split(layout.separator)
    if layout.header and not re.fullmatch(r"\s*\d+\s*", fields[0]):
        data, first_line = rest, 2
        fields = rest.partition(b"\n")[0].decode().split(layout.separator)
    if list(types) == ["user", "item", "rating", "time"] and len(fields) == 3 and layout.header:
        del types["time"]  # Flixster's ratings.txt
    return finish(path, _parse(path, data, layout, types, first_line))


def _unquote(data: bytes) -> bytes:
    r"""Book-Crossing's lines, "…";"…";"…" with \" for a quote inside, as tab-separated ones."""
    data = b"\n" + data.replace(b"\r\n", b"\n").strip(b"\n") + b"\n"
    data = data.replace(b'"\n', b"\n").replace(b'\n"', b"\n").replace(b'";"', b"\t")
    return data.replace(b'\\"', b'"').strip(b"\n")


def named(
    path: pathlib.Path, data: bytes, layout: Layout, requested: dict[str, str], typed_header: bool
) -> pl.DataFrame:
    """The frame of a file whose first line names the columns: user, item and, if there, rating and time.

    Args:
        path: the file, for messages.
        data: its content in UTF-8.
        layout: separator and quote.
        requested: names of columns that the caller gives, by kind; the others are recognised by `ALIASES`.
        typed_header: names end in a type, as RecBole's user_id:token.
    """
    head, _, rest = data.partition(b"\n")
    line = head.decode().rstrip("\r")
    try:
        header = next(csv.reader([line], delimiter=layout.separator)) if layout.quote else None
    except csv.Error as error:
        raise ValueError(f"{path}, line 1: {error}") from None
    header = [h.strip() for h in header or line.split(layout.separator)]
    if typed_header:
        plain = [h for h in header if ":" not in h]
        if plain:
            raise ValueError(
                f"{path}, line 1: column {plain[0]!r} has no type, as in user_id:token"
            )
        header = [h.rpartition(":")[0] for h in header]
    if len(set(header)) < len(header):
        raise ValueError(f"{path}, line 1: a column name comes twice: {', '.join(header)}")
    chosen = choose(path, header, requested)
    kinds = {"user": TEXT, "item": TEXT, "rating": NUMBER, "time": TEXT}
    kind_of = {name: kind for kind, name in chosen.items()}
    types = {kind_of.get(h, f"_{h}"): kinds.get(kind_of.get(h, ""), TEXT) for h in header}
    frame = _parse(path, rest, layout, types, first_line=2)
    return finish(path, frame.select(list(chosen)))


def choose(path: pathlib.Path, header: list[str], requested: dict[str, str]) -> dict[str, str]:
    """The column that holds each of user, item, rating and time; rating and time may be missing."""
    chosen = {}
    plain = {re.sub(r"[\W_]", "", h).lower(): h for h in reversed(header)}
    for kind, aliases in ALIASES.items():
        if kind in requested:
            if requested[kind] not in header:
                raise ValueError(
                    f"{path} has no column {requested[kind]!r}: it has {', '.join(header)}"
                )
            chosen[kind] = requested[kind]
        else:
            match = next((plain[a] for a in aliases if a in plain), None)
            if match is None and kind in ("user", "item"):
                raise ValueError(
                    f"{path} has no column that looks like {kind} ids among {', '.join(header)}: "
                    f"pass {kind}= its name"
                )
            if match is not None:
                chosen[kind] = match
    return chosen


def _parse(
    path: pathlib.Path, data: bytes, layout: Layout, types: dict[str, Any], first_line: int
) -> pl.DataFrame:
    """The frame as polars reads it; if polars fails or finds gaps, a slow search names the faulty lines."""
    data = data.rstrip(b"\r\n")
    if not data:
        raise ValueError(f"{path} has no ratings below its header")
    try:
        frame = pl.read_csv(
            io.BytesIO(data),
            has_header=False,
            schema=types,
            separator=layout.separator,
            quote_char=layout.quote,
        )
    except pl.exceptions.PolarsError as error:
        _blame(path, data, layout, types, first_line)
        raise ValueError(f"{path} cannot be read: {error}") from None
    numbers = frame["rating"] if "rating" in types else pl.Series([0.0])
    suspects = [c for c in (*ALIASES, list(types)[-1]) if c in types]
    if any(frame[c].null_count() for c in suspects) or not numbers.is_finite().all():
        _blame(path, data, layout, types, first_line)
    return frame


def _blame(
    path: pathlib.Path, data: bytes, layout: Layout, types: dict[str, Any], first_line: int
) -> None:
    """Raise ValueError if lines do not fit `types`: it shows the first few of them and their number."""
    first: list[tuple[int, str]] = []
    count = 0
    for number, fields in _records(path, data.decode(), layout, first_line):
        fault = _fault(fields, types)
        if fault is not None:
            count += 1
            first += [(number, fault)] if len(first) < SHOWN_LINES else []
    if count == 1:
        raise ValueError(f"{path}, line {first[0][0]}: {first[0][1]}")
    if count:
        shown = "".join(f"\n  line {number}: {fault}" for number, fault in first)
        part = "" if count == len(first) else f", the first {len(first)} of them"
        raise ValueError(f"{path} has {count} bad lines{part}:{shown}")


def _fault(fields: list[str], types: dict[str, Any]) -> str | None:
    """What is wrong with a line, or None."""
    if len(fields) != len(types):
        shown = ", ".join(t.removeprefix("_") for t in types)
        return f"{len(fields)} columns instead of {len(types)} ({shown})"
    for (name, kind), field in zip(types.items(), fields, strict=True):
        if kind is INTEGER and not re.fullmatch(r"\s*[+-]?\d{1,18}\s*", field):
            return f"{name} {_short(field)} is not an integer"
        if kind is NUMBER and not _is_finite(field):
            return f"{name} {_short(field)} is not a finite number"
        if name in ("user", "item") and not field:
            return f"{name} is empty"
    return None


def _short(field: str) -> str:
    return repr(field if len(field) <= 60 else field[:59] + "…")


def _records(
    path: pathlib.Path, text: str, layout: Layout, first_line: int
) -> Iterator[tuple[int, list[str]]]:
    if layout.quote:
        reader = csv.reader(io.StringIO(text), delimiter=layout.separator, quotechar=layout.quote)
        try:
            for fields in reader:
                yield reader.line_num + first_line - 1, fields
        except csv.Error as error:
            line = reader.line_num + first_line - 1
            raise ValueError(f"{path}, line {line}: {error}") from None
        return
    for number, line in enumerate(text.split("\n"), first_line):
        yield number, line.rstrip("\r").split(layout.separator)


def _is_finite(field: str) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False


def finish(path: pathlib.Path, frame: pl.DataFrame) -> pl.DataFrame:
    """Ids to integers where all are; times to numbers."""
    new = []
    for column in ("user", "item"):
        ids = frame[column]
        if ids.null_count():
            row = int(ids.is_null().arg_max() or 0)
            raise ValueError(f"{path}: {column} of rating {row + 1} is missing")
        if ids.dtype in (pl.Categorical, pl.Enum):
            ids = ids.cast(TEXT)
        if ids.dtype == TEXT:
            _check_length(path, ids)
            whole = ids.cast(INTEGER, strict=False)
            if not whole.null_count() and (whole.cast(TEXT) == ids).all():  # 007 stays text
                ids = whole
        elif not ids.dtype.is_integer():
            raise TypeError(f"{path}: column {column} is {ids.dtype}: make it integers or text")
        new.append(ids.alias(column))
    if "time" in frame.columns and frame["time"].dtype == TEXT:
        new.append(_times(frame["time"]))
    elif "time" in frame.columns and frame["time"].dtype.is_temporal():
        new.append(frame["time"].cast(pl.Datetime("us")).cast(INTEGER))
    return frame.with_columns(new)


def _check_length(path: pathlib.Path, ids: pl.Series) -> None:
    """Raise ValueError for a huge id: all ids would be as wide in memory, and the file is probably faulty."""
    lengths = ids.str.len_chars()
    if int(lengths.max() or 0) > LONGEST_ID:  # type: ignore[arg-type]
        row = int(lengths.arg_max() or 0)
        raise ValueError(
            f"{path}: {ids.name} {_short(ids[row])} of rating {row + 1} has {lengths[row]} characters, "
            f"more than {LONGEST_ID}: is a quote not closed?"
        )


def _times(times: pl.Series) -> pl.Series:
    """Numbers as they are, dates as microseconds; null where neither."""
    number = times.cast(NUMBER, strict=False)
    if number.null_count() == times.null_count():
        whole = times.cast(INTEGER, strict=False)
        return whole if whole.null_count() == times.null_count() else number
    text = times.str.replace("T", " ", literal=True)
    second = text.str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    day = text.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us"))
    return second.zip_with(second.is_not_null(), day).cast(INTEGER)
