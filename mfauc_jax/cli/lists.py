"""Lists on their way out of the command: as a table, csv, JSON or parquet, with titles where there are any."""

import argparse
import contextlib
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mfauc_jax._core import atomic
from mfauc_jax.cli import inputs, options, output
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data import Titles
from mfauc_jax.serving import export

if TYPE_CHECKING:
    import polars as pl

WIDEST = 48  # characters of a cell of a table


def add_to(parser: argparse.ArgumentParser, formats: tuple[str, ...]) -> None:
    """Declare the options of lists: their length, format, file and titles."""
    add = parser.add_argument
    add("--n", type=options.number(int, 1), default=10, metavar="N", help="items in a list (10)")
    text = f"{', '.join(formats)} (--out's ending, or table on a terminal and csv elsewhere)"
    add("--format", choices=formats, metavar="F", help=text)
    add("--out", metavar="FILE", help="write here instead of to standard output")
    text = "put ' before ids in a csv that a spreadsheet may run as formulas"
    add("--escape_formulas", action="store_true", help=text)
    inputs.add_titles(parser)


def form(args: argparse.Namespace) -> str:
    """The format of the lists; a UsageError if it does not suit --out."""
    ending = pathlib.Path(args.out or "").suffix.lower()[1:]
    usual = "table" if args.out is None and sys.stdout.isatty() else "csv"
    chosen = args.format or (ending if ending in ("json", "parquet", "trec") else usual)
    if chosen == "trec" and not args.out:
        raise UsageError("--format trec needs --out FILE")
    if chosen == "trec" and args.titles:
        raise UsageError("--format trec has no room for --titles")
    if chosen == "parquet" and ending != "parquet":
        raise UsageError("--format parquet needs --out FILE.parquet")
    return chosen


def check(args: argparse.Namespace) -> None:
    """Raise now if the format does not suit --out, or --out cannot be written."""
    output.check_writable(args.out, stream=form(args) != "parquet")


def put(
    args: argparse.Namespace, kind: str, requested: np.ndarray, frames: "Iterable[pl.DataFrame]"
) -> None:
    """Write frames of (id, listed id, rank, value), one after the other; JSON has one list per id.

    Args:
        args: the parsed options.
        kind: whose lists these are, "user" or "item".
        requested: the ids whose lists these are; those without a list are counted in a note.
        frames: the lists.
    """
    chosen, titles = form(args), inputs.read_titles(args)
    listed: set = set()
    frames = _noted(listed, _titled(frames, titles))
    if chosen == "parquet":
        _parquet(args.out, frames)
    else:
        with contextlib.ExitStack() as stack:
            file: Any = sys.stdout
            if args.out is not None:
                file = stack.enter_context(atomic.text_file(args.out))
            write = {"csv": _csv, "json": _json, "table": _table}[chosen]
            write(args, file, requested, frames)
    empty = [str(name) for name in requested.tolist() if name not in listed]
    if empty:
        note(args, f"nothing left to list for {len(empty)} {kind}s, such as {empty[0]!r}: all seen")


def _titled(frames: "Iterable[pl.DataFrame]", titles: Titles | None) -> "Iterator[pl.DataFrame]":
    """The frames with a column of titles after the listed ids."""
    import polars as pl

    for frame in frames:
        if titles is not None:
            found = pl.Series("title", titles.of(frame[frame.columns[1]].to_numpy()), pl.String)
            frame = frame.clone().insert_column(2, found)  # noqa: PLW2901
        yield frame


def _noted(listed: set, frames: "Iterable[pl.DataFrame]") -> "Iterator[pl.DataFrame]":
    """The frames, whose ids are added to `listed`."""
    for frame in frames:
        listed.update(frame[frame.columns[0]].to_list())
        yield frame


def _csv(args: argparse.Namespace, file: Any, requested: Any, frames: Any) -> None:
    del requested
    header, risky = True, 0
    for frame in frames:
        risky += export.count_formulas(frame)
        shown = export.escaped(frame) if args.escape_formulas else frame
        file.write(export.short(shown).write_csv(include_header=header))
        header = False
    if risky and not args.escape_formulas:
        note(args, f"{risky} {export.RISK}; --escape_formulas puts ' before them")


def _json(args: argparse.Namespace, file: Any, requested: np.ndarray, frames: Any) -> None:
    del args
    lists: dict[Any, list] = {name: [] for name in requested.tolist()}
    kind = "user"
    for frame in frames:
        kind, *names = frame.columns
        for name, *rest in export.short(frame).iter_rows():
            entry = dict(zip(names, rest, strict=True))
            del entry["rank"]  # the place in the list
            lists[name].append(entry)
    answer = [{kind: name, "list": items} for name, items in lists.items()]
    file.write(output.as_json(answer) + "\n")


def _table(args: argparse.Namespace, file: Any, requested: Any, frames: Any) -> None:
    """Columns side by side, with numbers to four digits; an id stands on the first line of its list only."""
    del args, requested
    last: Any = None
    for place, frame in enumerate(frames):
        rows = [[_cell(value) for value in row] for row in frame.iter_rows()]
        widths = [max([len(n), *(len(r[at]) for r in rows)]) for at, n in enumerate(frame.columns)]
        numbers = [kind.is_numeric() for kind in frame.dtypes]
        numbers[:2] = False, False
        for row in [frame.columns, *rows] if place == 0 else rows:
            shown = ["" if row[0] == last else row[0], *row[1:]]
            last = row[0]
            cells = zip(shown, widths, numbers, strict=True)
            line = "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in cells)
            file.write(line.rstrip() + "\n")


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _parquet(path: str, frames: "Iterable[pl.DataFrame]") -> None:
    import polars as pl
    from polars.io.plugins import register_io_source

    frames = iter(frames)
    first = next(frames)

    def source(with_columns, predicate, n_rows, batch_size):
        del with_columns, predicate, n_rows, batch_size  # polars applies them to what it is given
        yield first
        yield from frames

    with atomic.beside(path) as temporary:
        schema: pl.Schema = first.schema
        register_io_source(source, schema=schema).sink_parquet(temporary)
