"""Options: MFAUC's own fields, where ratings come from, and a help that fits a screen."""

import argparse
import dataclasses
import json
import math
import pathlib
import re
import shutil
import sys
import typing
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from mfauc_jax import data
from mfauc_jax._core import registry
from mfauc_jax.cli.output import UsageError
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.model import MFAUC

FIELDS = {f.name: f for f in dataclasses.fields(MFAUC) if f.name not in ("seed", "progress")}
OFTEN = (
    "rank",
    "loss",
    "weighting",
    "reg",
    "solver",
    "iterations",
    "learning_rate",
    "metric",
    "patience",
    "checkpoint_dir",
)
UNBROKEN = "\N{NO-BREAK SPACE}"  # an option stays with its default
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
PRESETS = {"default": MFAUC, "paper": MFAUC.paper, "authors": MFAUC.authors}


class Compact(argparse.HelpFormatter):
    """One line an option where it fits, no blank lines between groups."""

    def __init__(self, prog: str):
        width = min(shutil.get_terminal_size().columns, 100)
        super().__init__(prog, max_help_position=24, width=width)

    def format_help(self) -> str:
        """As argparse has it, closer together."""
        text = re.sub(r"\n\n(?=[\w ]+:\n)", "\n", super().format_help())
        return text.replace(UNBROKEN, " ")


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


def field_value(field: dataclasses.Field, text: str) -> Any:
    """The value of a hyper-parameter from text, by the type of its field."""
    kinds = typing.get_args(field.type) or (field.type,)
    if type(None) in kinds and text.lower() == "none":
        return None
    if bool in kinds:
        return registry.lookup(field.name, {"true": True, "false": False}, text.lower())
    if int in kinds or float in kinds:
        return number(int, -(2**31), 2**31 - 1)(text) if int in kinds else number(float)(text)
    if str in kinds:
        return text
    several = [_number_or_name(part) for part in text.split(",")]
    return tuple(several) if len(several) > 1 else several[0]


def _number_or_name(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def add_model(made: argparse.ArgumentParser, everything: bool, without: tuple = ()) -> None:
    """An option for each field of `MFAUC`; in the short help, the usual ones a line each."""
    add = made.add_argument_group("model").add_argument
    add(
        "--preset",
        choices=PRESETS,
        default="default",
        metavar="X",
        help="where to start: default, paper or authors",
    )
    add("--params", metavar="JSON", help="settings from a file, as `mfauc select` writes")
    rare = []
    for name, field in FIELDS.items():
        if name in without:
            continue
        text = field.metadata["help"].replace("%", "%%")
        text += "" if field.default is None else f" ({field.default})"
        if not everything and name not in OFTEN:
            rare.append(f"--{name}{UNBROKEN}{_shown(field.default)}")
            text = argparse.SUPPRESS
        if field.type is bool:
            action = argparse.BooleanOptionalAction
            add(f"--{name}", action=action, default=argparse.SUPPRESS, help=text)
        else:
            kind = _typed(field)
            add(f"--{name}", type=kind, default=argparse.SUPPRESS, metavar="X", help=text)
    if rare:
        made.epilog = f"also {', '.join(rare)}; --help_all tells what they are; {made.epilog}"


def _typed(field: dataclasses.Field) -> Callable[[str], Any]:
    return lambda text: field_value(field, text)


def _shown(default: Any) -> str:
    return "none" if default is None else str(default)


def model(args: argparse.Namespace) -> MFAUC:
    """The unfitted model: the preset, then --params, then what the command line says."""
    given = {} if args.params is None else _from_file(args.params)
    given |= {name: getattr(args, name) for name in FIELDS if hasattr(args, name)}
    progress = False if args.quiet else None
    return PRESETS[args.preset](**given, seed=args.seed, progress=progress)


def _from_file(path: str) -> dict[str, Any]:
    try:
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f'{path} must hold an object such as {{"reg": 0.1, "rank": 32}}')
    return {name: _from_json(path, name, value) for name, value in found.items()}


def _from_json(path: str, name: str, value: Any) -> Any:
    field = registry.lookup(f"hyper-parameter in {path}", FIELDS, name)
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    try:
        return field_value(field, text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise ValueError(f"{path}: {name}: {error}") from None


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
