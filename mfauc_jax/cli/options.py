"""The options that every command has, the options for reading ratings, and a compact help."""

import argparse
import contextlib
import glob
import logging
import math
import pathlib
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from mfauc_jax import data
from mfauc_jax._core import registry
from mfauc_jax.cli import output
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data import ratings, rows
from mfauc_jax.data.interactions import Interactions

EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."
ALWAYS = (
    "always --seed 0, --quiet, --debug (tracebacks), --threads N, --cpu_devices N, --float64, "
    f"--no_cache (of compiled programs), --help_all. {EXIT_CODES}"
)
SPOKEN = {  # patterns in messages for programmers, and what the command line says instead
    r"\b(user|item|rating|time|confidence)= its name": r"--\1_column and its name",
    r"\b(user|item|rating|time|confidence)=(?=[ :])": r"--\1_column",
    r"\b(layout|encoding|delimiter|columns)='([^']*)'": r"--\1 \2",
    r"\b(layout|encoding|delimiter|columns|min_rating)=…?": r"--\1",
    r"\bskip_bad=True": "--skip_bad",
    r"above = (\S+)": r"--min_rating \1",
    r"lower user_min or item_min": "lower --user_min or --item_min",
    r"download\('([^']*)', data_dir\)": r"`mfauc data download \1`",
}
OF_FILES = (  # options for files of ratings, which a data set known by name refuses
    "user_column",
    "item_column",
    "rating_column",
    "confidence_column",
    "time_column",
    "columns",
    "layout",
    "delimiter",
    "encoding",
    "skip_bad",
)


class Compact(argparse.HelpFormatter):
    """One line per option where it fits, no blank lines between groups."""

    def __init__(self, prog: str):
        width = min(shutil.get_terminal_size().columns, 100)
        super().__init__(prog, max_help_position=24, width=width)

    def format_help(self) -> str:
        """The help of argparse, without blank lines between groups."""
        text = re.sub(r"\n\n(?=[\w ]+:\n)", "\n", super().format_help())
        return text


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def __init__(self, **keywords: Any):
        super().__init__(**keywords, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Print the message and how to get help, and exit with code 2."""
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def command(
    commands: Any, name: str, run: Callable, usage: str, text: str, everything: bool
) -> argparse.ArgumentParser:
    """Add a sub-command with the options that every command has, and return its parser."""
    parser = commands.add_parser(
        name,
        help=text,
        description=text,
        usage=f"mfauc {usage}",
        formatter_class=Compact,
        add_help=False,
        epilog="" if everything else ALWAYS,
    )
    parser.set_defaults(run=run)
    group = parser.add_argument_group("always")

    def add(flag: str, text: str, **how: Any) -> None:
        group.add_argument(flag, **how, help=text if everything else argparse.SUPPRESS)

    seed = number(int, 0, 2**31 - 1)
    add("--seed", "seed of every random draw (0)", type=seed, default=0, metavar="N")
    add("--quiet", "print only results and errors", action="store_true")
    add("--debug", "print a traceback with an error", action="store_true")
    add("--threads", "number of XLA threads (all cores)", type=number(int, 1), metavar="N")
    add(
        "--cpu_devices",
        "CPU devices (one per core for fit, else 1)",
        type=number(int, 1, 1024),
        metavar="N",
    )
    add("--float64", "double precision", action="store_true")
    add("--no_cache", "keep no compiled programs on disk", action="store_true")
    add("--help", "show the usual options", action="help")
    add("-h", "show the usual options", action="help")
    add("--help_all", "show all options", action="help")
    return parser


def number(
    kind: type, least: int | float = -math.inf, most: int | float = math.inf
) -> Callable[[str], Any]:
    """A parser of whole (int) or real (float) numbers in [least, most]."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            name = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {name}") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not in [{least:g}, {most:g}]")
        return value

    return parse


def add_ratings(
    parser: argparse.ArgumentParser, metavar: str, everything: bool, dislikes: bool = False
) -> None:
    """Add the options for a file of ratings, or a data set by name, and how to read it; --dislikes_below if wanted."""
    group = parser.add_argument_group("ratings")
    add, hidden = group.add_argument, None if everything else argparse.SUPPRESS
    add(
        "ratings",
        nargs="?",
        metavar=metavar,
        help="csv, tsv, parquet, jsonl, …, .gz, .zip, 'part-*'",
    )
    add("--dataset", metavar="NAME", help="one of `mfauc data list`, in place of a file")
    add("--data_dir", metavar="DIR", default="data", help="where data sets are kept (data)")
    columns = "a column; also --item_, --rating_, --confidence_column"
    least = "drop users with fewer positives (1); also --item_min"
    for kind in ("user", "item", "rating", "confidence"):
        text = f"name of the column of {kind}s"
        text = (
            "name of a column of weights > 0, such as a quantity" if kind == "confidence" else text
        )
        text = text if everything else columns if kind == "user" else argparse.SUPPRESS
        add(f"--{kind}_column", metavar="NAME", help=text)
    add(
        "--columns", metavar="A,B", help=hidden or "names of the columns of a file without a header"
    )
    add("--layout", metavar="NAME", help=hidden or "layout of a file whose name does not show it")
    marks = "delimiter of a text file: a mark, or tab, comma, semicolon, pipe, space (recognised)"
    add("--delimiter", metavar="X", help=hidden or marks)
    add("--encoding", metavar="NAME", help=hidden or "encoding of a text file (utf-8)")
    bad = (
        "leave out rows that cannot be read"
        if everything
        else "leave out bad rows; also --delimiter, --encoding"
    )
    add("--skip_bad", action="store_true", help=bad)
    finite = number(float, -sys.float_info.max, sys.float_info.max)
    add("--min_rating", type=finite, metavar="R", help="lower ratings are not relevant")
    if dislikes:
        text = "lower ratings are dislikes: negatives of more weight"
        add("--dislikes_below", type=finite, metavar="R", help=text)
    for kind in ("user", "item"):
        text = f"drop {kind}s with fewer positives (1)"
        text = text if everything else least if kind == "user" else argparse.SUPPRESS
        add(f"--{kind}_min", type=number(int, 1), metavar="N", help=text)


def read(args: argparse.Namespace, part: str | None = "train") -> Interactions:
    """The positives that the options of `add_ratings` describe.

    Args:
        args: the parsed options.
        part: "train" or "test" of a data set that comes divided; None: both.
    """
    with _reading(args):
        if args.dataset is None:
            return data.read_ratings(args.ratings, **_of_file(args), **_dislikes(args))
        rule, dataset = _rule(args), data.DATASETS[args.dataset]
        if dataset.split and part is not None and _dislikes(args):
            raise UsageError(f"{args.dataset} comes divided, where --dislikes_below is not read")
        if dataset.split and part is not None:
            return getattr(data.load_split(args.dataset, args.data_dir, rule), part)
        return data.load(args.dataset, args.data_dir, rule, **_dislikes(args))


def read_rows(args: argparse.Namespace) -> rows.Rows:
    """The rows of the positives with all their columns; times are in --time_column, or recognised by name."""
    with _reading(args):
        if args.dataset is None:
            return rows.read(args.ratings, **_of_file(args), time=args.time_column)
        return rows.load(args.dataset, args.data_dir, _rule(args))


@contextlib.contextmanager
def _reading(args: argparse.Namespace) -> Iterator[None]:
    """Check that a file or a data set is given, and put errors and notes in terms of the command line."""
    if (args.ratings is None) == (args.dataset is None):
        raise UsageError("give a file of ratings, or --dataset NAME in its place")
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        raise (OSError if isinstance(error, OSError) else ValueError)(spoken(str(error))) from error


def spoken(text: str) -> str:
    """A message of the library in terms of the command line."""
    for pattern, replacement in SPOKEN.items():
        text = re.sub(pattern, replacement, text)
    return text


@contextlib.contextmanager
def told(args: argparse.Namespace) -> Iterator[None]:
    """Print the library's log and all warnings as notes on standard error."""
    handler, log = logging.Handler(), logging.getLogger("mfauc_jax")
    handler.emit = lambda record: note(args, spoken(record.getMessage()))
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False  # orbax gives the root log a handler of its own
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if args.quiet else "default")
            warnings.showwarning = lambda message, *_, **__: note(
                args, f"note: {spoken(str(message))}"
            )
            yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before


def _of_file(args: argparse.Namespace) -> dict[str, Any]:
    """The options for `read_ratings`, from the command line."""
    return {
        "layout": args.layout,
        "user": args.user_column,
        "item": args.item_column,
        "rating": args.rating_column,
        "confidence": args.confidence_column,
        "min_rating": args.min_rating,
        "columns": args.columns,
        "delimiter": args.delimiter,
        "encoding": args.encoding,
        "skip_bad": args.skip_bad,
        "filter": data.Filter(**_minima(args)),
    }


def _dislikes(args: argparse.Namespace) -> dict[str, Any]:
    """The bound of dislikes, if the command has the option and it was given."""
    given = getattr(args, "dislikes_below", None)
    return {} if given is None else {"dislikes_below": given}


def _minima(args: argparse.Namespace) -> dict[str, Any]:
    given = {"user_min": args.user_min, "item_min": args.item_min}
    return {name: value for name, value in given.items() if value is not None}


def _rule(args: argparse.Namespace) -> data.Filter:
    """The filter of a data set, with the changes that the options make."""
    changes = _minima(args)
    given = [name for name in OF_FILES if getattr(args, name, None)]
    if given:
        raise UsageError(
            f"--{given[0]} is for a file of ratings, and --dataset {args.dataset} is known by name"
        )
    if args.min_rating is not None:
        changes["above"] = float(np.nextafter(args.min_rating, -np.inf))
    dataset = registry.lookup("data set", data.DATASETS, args.dataset)
    return next(iter(dataset.filters.values()))._replace(**changes)


def refuse_same(args: argparse.Namespace) -> None:
    """Raise UsageError if an output of a command is another of its outputs, or one of its inputs."""
    given = vars(args)
    names = {n: f"--{n}" for n in ("out", "train", "test", "plot") if given.get(n) is not None}
    inputs = {
        "split" if "train" in names else "read": _files(args) if "ratings" in given else [],
        "the model": [args.model] if "model" in given else [],
        "read for ids": [args.ids_file] if given.get("ids_file") else [],
        "read by --params": [args.params] if given.get("params") else [],
    }
    output.refuse_same({flag: given[name] for name, flag in names.items()}, inputs)


def _files(args: argparse.Namespace) -> list[str]:
    """The files of ratings that a command reads: one, those of a pattern or a folder, an archive, or a data set's."""
    if args.ratings is None:
        try:
            return [str(path) for path in ratings.find(str(args.dataset), args.data_dir)]
        except (ValueError, OSError):  # reading it says what is wrong
            return []
    path = pathlib.Path(args.ratings)
    inside = path.iterdir() if path.is_dir() else ()
    archives = (parent for parent in path.parents if parent.is_file())
    return [args.ratings, *glob.glob(args.ratings, recursive=True), *map(str, (*inside, *archives))]


def source(args: argparse.Namespace) -> str:
    """The name of the ratings in messages."""
    return str(args.ratings or args.dataset)
