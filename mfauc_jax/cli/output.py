"""Output of the commands: to standard output, or to a file that is written whole or not at all."""

import argparse
import csv
import io
import itertools
import json
import logging
import os
import pathlib
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mfauc_jax._core import atomic, strict_json

LOG = logging.getLogger("mfauc_jax.cli")
SPOKEN = {  # patterns in messages for programmers, and what the command line says instead
    r"\b(title|category)=(?=[ :])": r"--\1_column",
    r"\b(user|item|rating|time|confidence)= its name": r"--\1_column and its name",
    r"\b(user|item|rating|time|confidence)=(?=[ :])": r"--\1_column",
    r"\b(layout|encoding|delimiter|columns)='([^']*)'": r"--\1 \2",
    r"\b(layout|encoding|delimiter|columns|min_rating)=…?": r"--\1",
    r"\bskip_bad=True": "--skip_bad",
    r"above = (\S+)": r"--min_rating \1",
    r"lower user_min or item_min": "lower --user_min or --item_min",
    r"download\('([^']*)', data_dir\)": r"`mfauc data download \1`",
}
PICTURES = (".png", ".pdf", ".svg")


class UsageError(Exception):
    """A wrong use of the command line: exit code 2."""


def note(args: argparse.Namespace, text: str) -> None:
    """Log a message for a person; `options.told` prints the log on standard error."""
    del args
    LOG.info("%s", text)


def tell(args: argparse.Namespace, text: str) -> None:
    """Print a message for a person on standard error, unless --quiet."""
    if not args.quiet:
        print(f"mfauc: {text}", file=sys.stderr)


def spoken(text: str) -> str:
    """A message of the library in terms of the command line."""
    for pattern, replacement in SPOKEN.items():
        text = re.sub(pattern, replacement, text)
    return text


def refuse_same(outputs: Mapping[str, str], inputs: Mapping[str, Iterable[str]]) -> None:
    """Raise UsageError if an output would replace another output, or a file that the command reads.

    Args:
        outputs: the files to write, by flag.
        inputs: the files to read, by what they are called in messages.
    """
    outputs = {flag: path for flag, path in outputs.items() if not atomic.is_stream(path)}
    for (flag, path), (other, place) in itertools.combinations(outputs.items(), 2):
        if is_same(path, place):
            raise UsageError(f"{flag} {path} and {other} {place} are the same file")
    for flag, path in outputs.items():
        for name, files in inputs.items():
            if any(is_same(path, file) for file in files):
                raise UsageError(f"{flag} {path} is the file that is {name}: give another name")


def is_same(one: str, other: str) -> bool:
    """Whether two paths mean one file, also through links and before a file exists.

    Of files that do not exist, names that differ only in case count as one: on some file systems they are.
    """
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    names = (
        unicodedata.normalize("NFC", os.path.realpath(path)).casefold() for path in (one, other)
    )
    return len(set(names)) == 1


def check_writable(path: str | os.PathLike | None, stream: bool = False) -> None:
    """Raise OSError now, and not after an hour's fit, if `path` cannot be written; with `stream` a pipe is allowed."""
    if path is not None:
        atomic.check_writable(path, stream)


def check_drawable(path: str | os.PathLike | None) -> None:
    """As `check_writable`, for a picture, whose ending must be one of PICTURES."""
    if path is not None and pathlib.Path(path).suffix.lower() not in PICTURES:
        raise UsageError(f"cannot draw {path}: its name must end in {', '.join(PICTURES)}")
    check_writable(path)


def draw(path: str | os.PathLike, *panels: Callable[[Any], Any]) -> None:
    """Write a picture with one panel per function, side by side; each function draws on the Axes it is given."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(panels), 3.6), dpi=150, layout="constrained")
    for place, panel in enumerate(panels, 1):
        panel(figure.add_subplot(1, len(panels), place))
    atomic.save_figure(figure, path)


def put(text: str, path: str | os.PathLike | None) -> None:
    """Write `text` and a newline to the file, or to standard output if `path` is None."""
    if path is None:
        print(text)
    else:
        atomic.write_text(path, text + "\n")


def facts(values: Mapping[str, Any], form: str) -> str:
    """Names with their values, as a table, as csv or as JSON."""
    if form == "json":
        return as_json(dict(values))
    flat = list(_flat(values))
    if form == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("name", "value"), *flat])
        return text.getvalue().rstrip("\n")
    width = max(len(name) for name, _ in flat)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in flat)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            several = value if isinstance(value, list | tuple) else [value]
            shown = (f"{one:.6g}" if isinstance(one, float) else str(one) for one in several)
            yield prefix + name, ", ".join(shown)


def as_json(value: Any) -> str:
    """`value` as strict JSON; nan and infinities, which JSON lacks, become null."""
    return json.dumps(strict_json.finite(value), indent=2, ensure_ascii=False, allow_nan=False)
