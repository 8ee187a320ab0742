"""Delimited text files as frames: quick for sound files; for others, errors name the faulty lines."""

import csv
import io
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from mfauc_jax.data import columns, sniffing
from mfauc_jax.data.reading import Report, Request

QUOTED = '";"'  # every field is in quotes, with semicolons between them
INTEGER, NUMBER, TEXT = pl.Int64, pl.Float64, pl.String
KINDS = {"user": TEXT, "item": TEXT, "rating": NUMBER, "time": TEXT, "confidence": NUMBER}
Panic = pl.exceptions.PanicException  # a BaseException: polars found what it had held impossible
MOST_COLUMNS = 10_000
SHOWN_LINES = 5  # how many faulty lines a message shows


class Layout(NamedTuple):
    """The layout of a text file with one rating per line; columns are known by position (`types`) or by name."""

    separator: str
    types: dict[str, Any] | None = None  # of each column, in order; None: the first line names them
    quote: str | None = None
    header: bool = False  # by position: skip a first line that does not start with an integer
    encoding: str = "utf-8"
    sniffed: bool = False  # recognise delimiter and header; `separator` is only the usual one


class Text(NamedTuple):
    """The content of a file and how to read it."""

    source: str  # for messages
    data: bytes
    layout: Layout
    types: dict[str, Any]  # type of each column by name, in order; unused ones start with _
    header: int  # lines before the first row
    request: Request
    report: Report


def positional(
    source: str, data: bytes, layout: Layout, request: Request, report: Report
) -> pl.DataFrame:
    """The frame of a file whose columns are in the order of the layout."""
    types = dict(layout.types or {})
    for kind, name in request.columns.items():
        if name not in types or kind not in (name, "confidence"):
            raise ValueError(
                f"{source} has no column {name!r} for {kind}=: its columns are {', '.join(types)}, by position"
            )
    weights = request.columns.get("confidence")
    types = {"confidence" if name == weights else name: kind for name, kind in types.items()}
    data, layout = _split_by_one(source, data, layout)
    lines = data[: 2**12].decode(errors="replace").split("\n")[:2]
    fields = lines[0].split(layout.separator)
    header = int(layout.header and not re.fullmatch(r"\s*\d+\s*", fields[0]))
    fields = lines[-1].split(layout.separator) if header else fields
    if list(types) == ["user", "item", "rating", "time"] and len(fields) == 3 and layout.header:
        del types["time"]  # Flixster's ratings.txt
    report.taken = {kind: f"column {place}" for place, kind in enumerate(types, 1)}
    report.ratings = ["rating"] if "rating" in types else []
    request = request._replace(needed=tuple(types))
    return _parse(Text(source, data, layout, types, header, request, report)).select(list(types))


def _split_by_one(source: str, data: bytes, layout: Layout) -> tuple[bytes, Layout]:
    """The same columns with a separator of one byte, as polars needs it."""
    if len(layout.separator.encode()) == 1:
        return data, layout
    if b"\t" in data:
        line = data.count(b"\n", 0, data.index(b"\t")) + 1
        raise ValueError(f"{source}, line {line}: a tab where {layout.separator} separates columns")
    separator = layout.separator.encode()
    data = _unquote(data) if layout.separator == QUOTED else data.replace(separator, b"\t")
    return data, layout._replace(separator="\t", quote=None)


def _unquote(data: bytes) -> bytes:
    r"""The lines of Book-Crossing, "…";"…";"…" with \" for a quote inside, as tab-separated lines."""
    data = b"\n" + data.replace(b"\r\n", b"\n").strip(b"\n") + b"\n"
    data = data.replace(b'"\n', b"\n").replace(b'\n"', b"\n").replace(b'";"', b"\t")
    return data.replace(b'\\"', b'"').strip(b"\n")


def named(
    source: str, data: bytes, layout: Layout, request: Request, report: Report
) -> pl.DataFrame:
    """The frame of a file whose columns have names, in its first line or in the request, or are in the usual order."""
    text = sniffing.sample(data)
    if request.delimiter is not None:
        layout = layout._replace(separator=sniffing.delimiter(request.delimiter))
    elif layout.sniffed:
        layout = layout._replace(
            separator=sniffing.separator(source, text, layout.separator, layout.quote)
        )
    lines = sniffing.rows(text, layout.separator, layout.quote)
    if not lines:
        raise ValueError(f"{source}, line 1: no fields can be told apart")
    if max(map(len, lines)) > MOST_COLUMNS:
        raise ValueError(
            f"{source} has {max(map(len, lines))} columns or more, but at most {MOST_COLUMNS} are read: give one row "
            "per rating, with a user and an item"
        )
    names, header = _names(source, lines, layout, request, report)
    chosen = columns.find(source, names, request.columns, request.needed, _remedy)
    report.ratings = [chosen["rating"]] if "rating" in chosen else columns.matching(names, "rating")
    if "rating" not in (*request.needed, *request.columns) and "rating" in chosen:
        values = [
            row[names.index(chosen["rating"])] for row in lines[header:] if len(row) == len(names)
        ]
        if 2 * sum(map(sniffing.is_value, values)) < len(values):  # text, and not used
            del chosen["rating"]
    report.taken = chosen
    if layout.sniffed and layout.separator != ",":
        report.how.append(f"separated by {sniffing.spoken(layout.separator)}")
    kind_of = {name: kind for kind, name in chosen.items()}
    types = {kind_of.get(n, f"_{n}"): KINDS.get(kind_of.get(n, ""), TEXT) for n in names}
    types = dict.fromkeys(types, TEXT) if request.whole else types
    data, layout = _split_by_one(source, data, layout)
    frame = _parse(Text(source, data, layout, types, int(header), request, report))
    return frame.rename(dict(zip(types, names, strict=True))) if request.whole else frame


def _names(
    source: str, lines: list[list[str]], layout: Layout, request: Request, report: Report
) -> tuple[list[str], bool]:
    """The names of the columns, and whether the first line has them."""
    first = [field.strip() for field in lines[0]]
    if request.header is not None:
        names = [n if n.strip("-_ ") else f"{n}{at}" for at, n in enumerate(request.header, 1)]
        if list(map(columns.plain, first)) == list(map(columns.plain, request.header)):
            raise ValueError(f"{source}: line 1 is a header, so leave columns= out")
        return names, False
    if not layout.sniffed and layout.types is None:  # RecBole
        plain = [h for h in first if ":" not in h]
        if plain:
            raise ValueError(
                f"{source}, line 1: column {plain[0]!r} has no type, as in user_id:token"
            )
        return [h.rpartition(":")[0] for h in first], True
    if sniffing.has_header(source, lines, request.columns):
        return first, True
    names = sniffing.by_position(source, lines)
    report.how.append("no header, so columns by position")
    if first == list(map(str, range(len(first)))):
        report.note(f"line 1 is {','.join(first)}, taken for a row: is it a header of pandas?")
    return names, False


def _remedy(kind: str, chosen: Any) -> str:
    del chosen
    return f"pass {kind}= its name, or columns='user,item,…' if line 1 is not a header"


def _parse(text: Text) -> pl.DataFrame:
    """The frame as polars reads it; if polars fails or finds gaps, a slow search finds the faulty lines."""
    source, data, layout, types = text.source, text.data, text.layout, text.types
    if data.endswith((b"\n\n", b"\n\r\n")):
        data = data.rstrip(b"\r\n")
    text = text._replace(data=data)
    head = data.find(b"\n")
    if text.header and (head < 0 or not data[head : head + 2**12].strip()):
        raise ValueError(f"{source} has no ratings below its header")
    wanted = [name for name in types if text.request.whole or not name.startswith("_")]
    last = list(types)[-1]  # shows whether a line is too short or too long
    places = [at for at, name in enumerate(types) if name in (*wanted, last)]
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            skip_rows=text.header,
            schema=types,
            columns=places,
            separator=layout.separator,
            quote_char=layout.quote,
        )
    except (pl.exceptions.PolarsError, Panic) as error:
        if text.request.skip_bad:
            return _good_lines(text, wanted)
        _blame(text)
        raise ValueError(f"{source} cannot be read: {error}") from None
    ragged = bool(frame[last].null_count()) and not _is_even(text, frame.height)
    numbers = [name for name in wanted if types[name] is NUMBER and name in text.request.needed]
    gaps = any(frame[name].null_count() for name in wanted if name in text.request.needed)
    if text.request.skip_bad:
        return _good_lines(text, wanted) if ragged else frame.select(wanted)
    if ragged or gaps or not all(frame[name].is_finite().all() for name in numbers):
        _blame(text)
    return frame.select(wanted)


def _is_even(text: Text, height: int) -> bool:
    """Whether no line can be too short, so that a null in the last column is an empty field."""
    separators = text.data.count(text.layout.separator.encode())
    quoted = text.layout.quote is not None and text.layout.quote.encode() in text.data
    return not quoted and separators == (len(text.types) - 1) * (height + text.header)


def _good_lines(text: Text, wanted: list[str]) -> pl.DataFrame:
    """The frame of the lines that can be read; the others are counted in the report."""
    made, part, bad = [], [], 0
    readers = {INTEGER: int, NUMBER: lambda field: float(field) if field.strip() else None}
    schema = {name: text.types[name] for name in wanted}
    places = [
        (at, readers.get(t, str)) for at, (n, t) in enumerate(text.types.items()) if n in wanted
    ]
    for _, fields in _records(text):
        if _fault(fields, text) is not None:
            bad += 1
            continue
        part.append([read(fields[at]) for at, read in places])
        if len(part) == 500_000:
            made.append(pl.DataFrame(part, schema, orient="row"))
            part = []
    text.report.rows += bad
    text.report.note(f"left out {bad} lines of {text.source} that cannot be read", bad)
    return pl.concat([*made, pl.DataFrame(part, schema, orient="row")])


def _blame(text: Text) -> None:
    """Raise ValueError if lines do not fit the types: it shows the first few of them and their number."""
    first: list[tuple[int, str]] = []
    count = 0
    for number, fields in _records(text):
        fault = _fault(fields, text)
        if fault is not None:
            count += 1
            first += [(number, fault)] if len(first) < SHOWN_LINES else []
    if count == 1:
        raise ValueError(
            f"{text.source}, line {first[0][0]}: {first[0][1]} (skip_bad=True leaves it out)"
        )
    if count:
        shown = "".join(f"\n  line {number}: {fault}" for number, fault in first)
        part = "" if count == len(first) else f", the first {len(first)} of them"
        raise ValueError(
            f"{text.source} has {count} bad lines{part} (skip_bad=True leaves them out):{shown}"
        )


def _fault(fields: list[str], text: Text) -> str | None:
    """What is wrong with a line, or None."""
    types, needed = text.types, text.request.needed
    if len(fields) != len(types):
        shown = ", ".join(t.removeprefix("_") for t in types)
        return f"{len(fields)} columns instead of {len(types)} ({shown})"
    for (name, kind), field in zip(types.items(), fields, strict=True):
        if kind is INTEGER and not re.fullmatch(r"\s*[+-]?\d{1,18}\s*", field):
            return f"{name} {_short(field)} is not an integer"
        if kind is NUMBER and not _is_finite(field) and (field or name in needed):
            return f"{name} {_short(field)} is not a finite number"
        if name in ("user", "item") and not field.strip():
            return f"{name} is empty"
    return None


def _short(field: str) -> str:
    return repr(field if len(field) <= 60 else field[:59] + "…")


def _records(text: Text) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row, with the number of its line."""
    layout, newline = text.layout, "" if text.layout.quote else "\n"
    lines = io.TextIOWrapper(io.BytesIO(text.data), "utf-8", newline=newline)
    if layout.quote:
        reader = csv.reader(lines, delimiter=layout.separator, quotechar=layout.quote)
        try:
            for count, fields in enumerate(reader):
                if count >= text.header:
                    yield reader.line_num, fields
        except csv.Error as error:
            raise ValueError(f"{text.source}, line {reader.line_num}: {error}") from None
        return
    for number, line in enumerate(lines, 1):
        if number > text.header:
            yield number, line.removesuffix("\n").rstrip("\r").split(layout.separator)


def _is_finite(field: str) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False


def finish(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with its times as numbers."""
    if "time" in frame.columns and frame["time"].dtype == TEXT:
        return frame.with_columns(_times(frame["time"]))
    if "time" in frame.columns and frame["time"].dtype.is_temporal():
        return frame.with_columns(frame["time"].cast(pl.Datetime("us")).cast(INTEGER))
    return frame


def _times(times: pl.Series) -> pl.Series:
    """Times as numbers: numbers stay as they are, dates become microseconds since 1970, anything else null."""
    number = times.cast(NUMBER, strict=False)
    if number.null_count() == times.null_count():
        whole = times.cast(INTEGER, strict=False)
        return whole if whole.null_count() == times.null_count() else number
    text = times.str.replace("T", " ", literal=True)
    second = text.str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    day = text.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us"))
    return second.zip_with(second.is_not_null(), day).cast(INTEGER)
