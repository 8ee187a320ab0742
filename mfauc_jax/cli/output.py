"""Output of the commands: to standard output, or to a file that is written whole or not at all."""

import argparse
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from mfauc_jax._core import atomic

PICTURES = (".png", ".pdf", ".svg")


class UsageError(Exception):
    """A wrong use of the command line: exit code 2."""


def note(args: argparse.Namespace, text: str) -> None:
    """Print a message for a person on standard error, unless --quiet."""
    if not args.quiet:
        print(f"mfauc: {text}", file=sys.stderr)


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
    with atomic.beside(path) as beside:
        figure.savefig(beside, format=pathlib.Path(path).suffix.lower()[1:])


def put(text: str, path: str | os.PathLike | None) -> None:
    """Write `text` and a newline to the file, or to standard output if `path` is None."""
    if path is None:
        print(text)
    else:
        atomic.write_text(path, text + "\n")


def as_json(value: Any) -> str:
    """`value` as strict JSON; nan and infinities, which JSON lacks, become null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
