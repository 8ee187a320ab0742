"""JSON files of ratings, as logs are written: one object per line, or one list of objects."""

import io
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from mfauc_jax.data import reading
from mfauc_jax.data.delimited import Panic
from mfauc_jax.data.reading import Report, Request

SAMPLE = 100  # objects from which the names of the fields are taken
SPACE = re.compile(r"[ \t\n\r]*")
PART = 500_000  # objects that are held as Python objects at once


def is_list(data: bytes) -> bool:
    """Whether a JSON file is one list of objects, and not one object per line."""
    return data[:SAMPLE].lstrip()[:1] == b"["


def read(source: str, data: bytes, request: Request, report: Report) -> pl.DataFrame:
    """The frame of a JSON file: the requested fields of every object."""
    listed = is_list(data)
    looked_at = None if request.whole else SAMPLE
    unheard = Report(source) if request.skip_bad else None
    first = itertools.islice(_objects(source, data, listed, unheard), looked_at)
    names = list(dict.fromkeys(name for record in first for name in record))
    chosen = reading.choose(source, names, request, report)
    schema = {column: pl.String for column in (names if request.whole else chosen.values())}
    try:
        if listed:
            raise pl.exceptions.ComputeError("a list of objects is not read by lines")
        frame = pl.read_ndjson(data, schema=schema)
    except (pl.exceptions.PolarsError, Panic):
        objects = _objects(source, data, listed, report if request.skip_bad else None)
        rows = ([_cell(record.get(column)) for column in schema] for record in objects)
        parts = [pl.DataFrame(schema=schema)]
        while part := list(itertools.islice(rows, PART)):
            parts.append(pl.DataFrame(part, schema, orient="row"))
        frame = pl.concat(parts)
    if request.whole:
        return frame
    frame = frame.select(pl.col(column).alias(kind) for kind, column in chosen.items())
    numbers = [kind for kind in ("rating", "confidence") if kind in chosen]
    return frame.with_columns(pl.col(numbers).cast(pl.Float64, strict=False))


def _objects(
    source: str, data: bytes, listed: bool, report: Report | None
) -> Iterator[dict[str, Any]]:
    """The objects of a JSON file; anything else is counted in the report, or raises ValueError without a report."""
    bad = 0
    if listed:
        found = ((number, record, None) for number, record in enumerate(_members(source, data), 1))
    else:
        lines = enumerate(io.BytesIO(data), 1)
        found = ((number, *_loaded(line)) for number, line in lines if line.strip())
    for number, record, fault in found:
        if isinstance(record, dict):
            yield record
        elif report is None:
            where = f"{'object' if listed else 'line'} {number}"
            raise ValueError(
                f"{source}, {where}: {fault or 'not an object'} (skip_bad=True leaves it out)"
            )
        else:
            bad += 1
    if report is not None:
        report.rows += bad
        report.note(f"left out {bad} lines of {source} that cannot be read", bad)


def _members(source: str, data: bytes) -> Iterator[Any]:
    """The members of a JSON list, one after the other."""
    text, decoder = data.decode(), json.JSONDecoder()
    at = SPACE.match(text, text.index("[") + 1).end()  # type: ignore[union-attr]
    more = text[at : at + 1] != "]"
    while more:
        try:
            member, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{source} is not JSON: {error}") from None
        yield member
        at = SPACE.match(text, at).end()  # type: ignore[union-attr]
        mark, more = text[at : at + 1], text[at : at + 1] == ","
        if mark not in (",", "]") or not mark:
            raise ValueError(f"{source} is not JSON: no , or ] at character {at}")
        at = SPACE.match(text, at + more).end()  # type: ignore[union-attr]
    if text[at:].strip() != "]":
        raise ValueError(f"{source} is not JSON: something follows its list at character {at}")


def _loaded(line: bytes) -> tuple[Any, str | None]:
    try:
        return json.loads(line), None
    except (ValueError, RecursionError) as error:
        return None, f"not JSON ({error})"


def _cell(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else json.dumps(value)
