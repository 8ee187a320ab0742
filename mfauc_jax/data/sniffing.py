"""What a text file does not declare: its encoding, its delimiter, and whether line 1 is a header or a row.

The delimiter and the header are recognised from the first lines. If they leave a doubt, a ValueError says what to pass,
because a row taken for a header would be lost, and a header taken for a row would become a false user.
"""

import codecs
import csv
import io
import pathlib
import re
from collections.abc import Mapping

from mfauc_jax.data import columns

# byte order marks and their encodings
MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
CHUNK = 2**24  # bytes that are decoded at a time
SNIFFED = (",", ";", "\t", "|", "::")
WORDS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " "}
SAMPLE, LINES = 2**16, 100  # first bytes and lines from which a file is recognised
NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
DATE = re.compile(r"\s*\d{4}-\d\d?-\d\d?([T ].*)?")
EARLIEST = 1e8  # seconds since 1970: a larger number counts as a time, not as a rating


def utf8(path: pathlib.Path, raw: bytes, encoding: str) -> bytes:
    """The content of a text file as UTF-8, without a byte order mark and with line feeds."""
    encoding = next((codec for mark, codec in MARKS if raw.startswith(mark)), encoding)
    if b"\0" in raw[:4096] and not encoding.lower().startswith(("utf-16", "utf-32")):
        raise ValueError(
            f"{path} has zero bytes, so it is not {encoding} text: if it is UTF-16 without a byte order mark, "
            "pass encoding='utf-16-le'"
        )
    if not (encoding in ("utf-8", "latin-1") and raw.isascii()):
        raw = _transcoded(path, raw, encoding)
    if not raw[:SAMPLE].strip() and not raw.strip():
        raise ValueError(f"{path} is empty")
    return raw if b"\n" in raw else raw.replace(b"\r", b"\n")


def _transcoded(path: pathlib.Path, raw: bytes, encoding: str) -> bytes:
    """The content as UTF-8, decoded in pieces, so that checking a large file makes no second copy of it."""
    try:
        codec = codecs.lookup(encoding)
        decoder = codec.incrementaldecoder() if codec._is_text_encoding else None  # type: ignore[attr-defined]
    except LookupError:
        decoder = None
    if decoder is None:
        raise ValueError(f"encoding {encoding!r} is unknown to Python")
    made = io.BytesIO()
    for start in range(0, len(raw), CHUNK):
        chunk = raw[start : start + CHUNK]
        try:
            text = decoder.decode(chunk, final=start + CHUNK >= len(raw))
            if codec.name != "utf-8":
                made.write(text.encode())
        except UnicodeDecodeError as error:
            at = start + len(chunk) - len(error.object) + error.start
            line = raw.count(b"\n", 0, at) + 1
            raise ValueError(
                f"{path}, line {line}: byte 0x{raw[at]:02x} is not {encoding}: "
                "pass encoding='latin-1', or whatever the file is written in"
            ) from None
        except UnicodeError as error:
            raise ValueError(f"{path} is not {encoding} text: {error}") from None
    return raw if codec.name == "utf-8" else made.getvalue()


def delimiter(said: str) -> str:
    """The delimiter that an option gives, as itself or by name."""
    found = WORDS.get(said.lower(), said)
    if not found or any(c in found for c in '\r\n"'):
        raise ValueError(
            f"delimiter={said!r} cannot separate fields: use one of {', '.join(WORDS)}, or ::"
        )
    return found


def spoken(separator: str) -> str:
    """The name of a delimiter for messages, such as tab."""
    names = {mark: word for word, mark in WORDS.items() if word != "\\t"}
    return names.get(separator, separator)


def sample(data: bytes) -> str:
    """The first lines of a file; the last of them is whole."""
    text = data[:SAMPLE]
    if len(data) > SAMPLE:
        text = text[: text.rfind(b"\n") + 1] or text
    return text.decode(errors="replace")


def rows(text: str, separator: str, quote: str | None) -> list[list[str]]:
    """The fields of the first lines, without blank lines; no rows if the quotes do not close."""
    if quote and len(separator) == 1:
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quotechar=quote)
            found = [row for row, _ in zip(reader, range(LINES), strict=False)]
        except csv.Error:
            return []
    else:
        found = [line.rstrip("\r").split(separator) for line in text.split("\n")[:LINES]]
    return [row for row in found if any(field.strip() for field in row)]


def separator(source: str, text: str, usual: str, quote: str | None) -> str:
    """The delimiter that divides all of the first lines into the same number of fields, two or more.

    Args:
        source: the file, for messages.
        text: its first lines.
        usual: the delimiter that the file's name suggests, or ""; it is taken if the lines differ in their number of
            fields, so that the faulty ones can be shown.
        quote: the character around fields that contain the delimiter.
    """
    found = {mark: rows(text, mark, quote) for mark in SNIFFED}
    even = [m for m, r in found.items() if len({len(row) for row in r}) == 1 and len(r[0]) > 1]
    telling = [m for m, r in found.items() if r and tells(r[0])]
    for marks in (even, telling):
        if len(marks) == 1:
            return marks[0]
    if len(even) > 1:
        shown = " or ".join(map(spoken, even))
        raise ValueError(
            f"{source} may be separated by {shown}: pass delimiter='{spoken(even[0])}' or the other"
        )
    if usual:
        return usual
    most = max(SNIFFED, key=lambda m: sum(len(row) > 1 for row in found[m]))
    if 2 * sum(len(row) > 1 for row in found[most]) > len(found[most]):
        return most
    shown = ", ".join(map(spoken, SNIFFED))
    raise ValueError(
        f"{source}: none of {shown} divides its lines into the same number of fields: pass delimiter='…'"
    )


def tells(fields: list[str]) -> bool:
    """Whether a first line names a column of users and one of items."""
    return all(columns.matching(fields, kind) for kind in ("user", "item"))


def has_header(source: str, lines: list[list[str]], requested: Mapping[str, str]) -> bool:
    """Whether the first line names the columns, judged from the first lines and the names that the caller gave."""
    first, rest = [field.strip() for field in lines[0]], lines[1:]
    if tells(first) or any(name in first for name in requested.values()):
        return True
    values = any(is_value(field) for field in first)
    known = any(columns.matching(first, kind) for kind in ("user", "item"))
    if values and requested:
        name = next(iter(requested.values()))
        raise ValueError(
            f"{source} has no header with a column {name!r}, line 1 is {_shown(first)}: "
            "pass columns='user,item,…', the names of its columns in order"
        )
    if values and not known:
        return False
    if not values and (
        known or requested or any(columns.matching(first, k) for k in ("rating", "time"))
    ):
        return True
    typed = [
        all(is_value(row[at]) for row in rest if len(row) == len(first)) for at in range(len(first))
    ]
    if not values and rest and any(typed):
        return True
    raise ValueError(
        f"{source}: line 1, {_shown(first)}, may be a header or a row: pass user= its name and item= its name if it is "
        "a header, columns='user,item,…' in the order of the file if it is a row"
    )


def by_position(source: str, lines: list[list[str]]) -> list[str]:
    """The columns of a file without a header: user, item and, if their values allow it, rating and time."""
    width = max((len(row) for row in lines), key=[len(row) for row in lines].count)
    values = [
        [row[at] for row in lines if len(row) == width and row[at].strip()] for at in range(width)
    ]
    kinds = [
        "time" if all(map(_is_time, v)) else "number" if all(map(is_value, v)) else "text"
        for v in values
    ]
    if width == 2:
        return ["user", "item"]
    if width == 3 and kinds[2] != "text":
        return ["user", "item", "time" if kinds[2] == "time" else "rating"]
    if width == 4 and kinds[2] == "number" and kinds[3] != "text":
        return ["user", "item", "rating", "time"]
    raise ValueError(
        f"{source} has no header and {width} columns, such as {_shown(lines[0])}: "
        "pass columns='user,item,…', their names in order"
    )


def is_value(field: str) -> bool:
    """Whether a field is a number or a date, and so not the name of a column."""
    return bool(NUMBER.fullmatch(field) or DATE.fullmatch(field))


def _is_time(field: str) -> bool:
    if DATE.fullmatch(field):
        return True
    return bool(NUMBER.fullmatch(field)) and float(field.replace(",", ".")) >= EARLIEST


def _shown(fields: list[str]) -> str:
    text = ", ".join(fields[:8])
    return repr(text if len(text) < 60 else text[:59] + "…")
