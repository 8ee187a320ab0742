"""Options of every command, where ratings come from, and a help that fits a screen."""

import argparse
import math
import re
import shutil
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from mfauc_jax import data
from mfauc_jax._core import registry
from mfauc_jax.cli.output import UsageError
from mfauc_jax.data.interactions import Interactions

EXIT_CODES = "Exit codes: 0 done, 1 it failed, 2 wrong usage, 130 interrupted."
ALWAYS = (
    "always --seed 0, --quiet, --debug (tracebacks), --threads N, --cpu_devices N, --float64, "
    f"--no_cache (of compiled programs), --help_all. {EXIT_CODES}"
)
SPOKEN = {  # what the library tells a programmer, for the command line
    r"pass (layout|encoding)=": r"pass --\1",
    r"pass (user|item)= its name": r"pass --\1_column and its name",
    r"above = (\S+)": r"--min_rating \1",
    r"lower user_min or item_min": "lower --user_min or --item_min",
    r"download\('([^']*)', data_dir\)": r"`mfauc data download \1`",
}


class Compact(argparse.HelpFormatter):
    """One line per option where it fits, no blank lines between groups."""

    def __init__(self, prog: str):
        width = min(shutil.get_terminal_size().columns, 100)
        super().__init__(prog, max_help_position=24, width=width)

    def format_help(self) -> str:
        """As argparse has it, closer together."""
        text = re.sub(r"\n\n(?=[\w ]+:\n)", "\n", super().format_help())
        return text


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def __init__(self, **keywords: Any):
        super().__init__(**keywords, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """The message, where help is, and exit code 2."""
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def command(
    commands: Any, name: str, run: Callable, usage: str, text: str, everything: bool
) -> argparse.ArgumentParser:
    """A sub-command with the options that every command has."""
    made = commands.add_parser(
        name,
        help=text,
        description=text,
        usage=f"mfauc {usage}",
        formatter_class=Compact,
        add_help=False,
        epilog="" if everything else ALWAYS,
    )
    made.set_defaults(run=run)
    group = made.add_argument_group("always")

    def add(flag: str, text: str, **how: Any) -> None:
        group.add_argument(flag, **how, help=text if everything else argparse.SUPPRESS)

    seed = number(int, 0, 2**31 - 1)
    add("--seed", "decides every random draw (0)", type=seed, default=0, metavar="N")
    add("--quiet", "say nothing but the answer and errors", action="store_true")
    add("--debug", "a traceback with an error", action="store_true")
    add("--threads", "of XLA (all cores)", type=number(int, 1), metavar="N")
    add("--cpu_devices", "CPU devices to simulate (1)", type=number(int, 1, 1024), metavar="N")
    add("--float64", "double precision", action="store_true")
    add("--no_cache", "keep no compiled programs on disk", action="store_true")
    add("--help", "the usual options", action="help")
    add("-h", "the same", action="help")
    add("--help_all", "all options", action="help")
    return made


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


def add_ratings(made: argparse.ArgumentParser, metavar: str, everything: bool) -> None:
    """A file of ratings, or a data set by name, and how to read it."""
    group = made.add_argument_group("ratings")
    add, hidden = group.add_argument, None if everything else argparse.SUPPRESS
    add("ratings", nargs="?", metavar=metavar, help="csv, tsv, parquet, .inter, u.data, …, or .gz")
    add("--dataset", metavar="NAME", help="one of `mfauc data list`, in place of a file")
    add("--data_dir", metavar="DIR", default="data", help="where data sets are kept (data)")
    columns = "name of a column; also --item_column, --rating_column"
    least = "drop users with fewer positives (1); also --item_min"
    for kind in ("user", "item", "rating"):
        text = f"name of the column of {kind}s"
        text = text if everything else columns if kind == "user" else argparse.SUPPRESS
        add(f"--{kind}_column", metavar="NAME", help=text)
    add("--layout", metavar="NAME", help=hidden or "of a file whose name does not tell")
    add("--encoding", metavar="NAME", help=hidden or "of a text file (utf-8)")
    finite = number(float, -sys.float_info.max, sys.float_info.max)
    add("--min_rating", type=finite, metavar="R", help="lower ratings are not relevant")
    for kind in ("user", "item"):
        text = f"drop {kind}s with fewer positives (1)"
        text = text if everything else least if kind == "user" else argparse.SUPPRESS
        add(f"--{kind}_min", type=number(int, 1), metavar="N", help=text)


def read(args: argparse.Namespace, part: str | None = "train") -> Interactions:
    """The positives that the options of `add_ratings` name.

    Args:
        part: of a data set that comes divided, "train" or "test"; None is both.
    """
    if (args.ratings is None) == (args.dataset is None):
        raise UsageError("give a file of ratings, or --dataset NAME in its place")
    try:
        return _read(args, part)
    except (ValueError, FileNotFoundError) as error:
        text = str(error)
        for said, spoken in SPOKEN.items():
            text = re.sub(said, spoken, text)
        raise (OSError if isinstance(error, OSError) else ValueError)(text) from error


def _read(args: argparse.Namespace, part: str | None) -> Interactions:
    changes = {"user_min": args.user_min, "item_min": args.item_min}
    changes = {name: value for name, value in changes.items() if value is not None}
    if args.min_rating is not None:
        changes["above"] = float(np.nextafter(args.min_rating, -np.inf))
    if args.dataset is None:
        return data.read_ratings(
            args.ratings,
            layout=args.layout,
            user=args.user_column,
            item=args.item_column,
            rating=args.rating_column,
            encoding=args.encoding,
            filter=data.Filter(**changes),
        )
    dataset = registry.lookup("data set", data.DATASETS, args.dataset)
    rule = next(iter(dataset.filters.values()))._replace(**changes)
    if dataset.split and part is not None:
        return getattr(data.load_split(args.dataset, args.data_dir, rule), part)
    return data.load(args.dataset, args.data_dir, rule)


def source(args: argparse.Namespace) -> str:
    """What the ratings are called in messages."""
    return str(args.ratings or args.dataset)
