"""The options that every command has, the options for reading ratings, and a compact help."""

import argparse
import contextlib
import logging
import math
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from mfauc_jax.cli import output
from mfauc_jax.cli.output import UsageError

EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."
ALWAYS = (
    "always --seed 0, --quiet, --debug (tracebacks), --threads N, --cpu_devices N, --float64, "
    f"--no_cache (of compiled programs), --help_all. {EXIT_CODES}"
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

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does; an option may be written with hyphens in place of underscores."""
        args = list(sys.argv[1:] if args is None else args)
        by_name = {flag.replace("-", "_"): flag for flag in self._option_string_actions}
        for place, word in enumerate(args):
            if word == "--":
                break
            flag, equals, value = word.partition("=")
            if flag.startswith("--") and flag not in self._option_string_actions:
                args[place] = by_name.get(flag.replace("-", "_"), flag) + equals + value
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the message and how to get help, and exit with code 2."""
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def command(
    commands: Any, name: str, run: Callable, usage: str, text: str, everything: bool
) -> argparse.ArgumentParser:
    """Add a sub-command with the options that every command has, and return its parser."""
    hyphened = [name.replace("_", "-")] if "_" in name else []
    parser = commands.add_parser(
        name,
        aliases=hyphened,
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


def add_metadata(add: Callable[..., Any]) -> None:
    """Add the option for text that a model file shall hold."""
    text = "text to keep in the file; may be repeated"
    add("--metadata", action="append", default=[], metavar="NAME=TEXT", help=text)


def metadata(args: argparse.Namespace) -> dict[str, str]:
    """The text that --metadata gives, by name."""
    given = {}
    for word in args.metadata:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UsageError(f"--metadata {word}: write NAME=TEXT, such as trained=2024-05-01")
        given[name] = text
    return given


@contextlib.contextmanager
def told(args: argparse.Namespace) -> Iterator[None]:
    """Print the library's log and all warnings as notes on standard error."""
    handler, log = logging.Handler(), logging.getLogger("mfauc_jax")
    handler.emit = lambda record: output.tell(args, output.spoken(record.getMessage()))
    pictures = logging.getLogger("matplotlib")
    before = log.level, log.propagate, pictures.level
    pictures.setLevel(logging.ERROR)  # it warns where there is no home to keep its cache in
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False  # orbax gives the root log a handler of its own
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if args.quiet else "default")
            warnings.showwarning = lambda message, *_, **__: output.tell(
                args, f"note: {output.spoken(str(message))}"
            )
            yield
    finally:
        log.removeHandler(handler)
        level, log.propagate, of_pictures = before
        log.setLevel(level)  # not by assignment: whether a level counts is remembered
        pictures.setLevel(of_pictures)
