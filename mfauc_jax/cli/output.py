"""Where answers go: standard output, or a file that is written beside and renamed."""

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
    """The command line does not make sense: exit code 2."""


def note(args: argparse.Namespace, text: str) -> None:
    """Tell a person how it goes, on standard error; --quiet tells nothing."""
    if not args.quiet:
        print(f"mfauc: {text}", file=sys.stderr)


def check_writable(path: str | os.PathLike | None, stream: bool = False) -> None:
    """Fail now, and not after an hour's fit, if `path` cannot be written; with `stream` a pipe will do."""
    if path is not None:
        atomic.check_writable(path, stream)


def check_drawable(path: str | os.PathLike | None) -> None:
    """The same for a picture, whose ending must be one that can be drawn."""
    if path is not None and pathlib.Path(path).suffix.lower() not in PICTURES:
        raise UsageError(f"cannot draw {path}: its name must end in {', '.join(PICTURES)}")
    check_writable(path)


def draw(path: str | os.PathLike, *panels: Callable[[Any], Any]) -> None:
    """A picture with a panel for each function of an Axes, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(panels), 3.6), dpi=150, layout="constrained")
    for place, panel in enumerate(panels, 1):
        panel(figure.add_subplot(1, len(panels), place))
    with atomic.beside(path) as beside:
        figure.savefig(beside, format=pathlib.Path(path).suffix.lower()[1:])


def put(text: str, path: str | os.PathLike | None) -> None:
    """`text` and a line's end, to the file or to standard output."""
    if path is None:
        print(text)
    else:
        atomic.write_text(path, text + "\n")


def as_json(value: Any) -> str:
    """JSON that any reader takes: nan, which JSON has not, as null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
