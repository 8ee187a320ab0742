"""The files that commands read, ratings and titles: the options that name them, and their reading."""

import argparse
import contextlib
import dataclasses
import glob
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from mfauc_jax import data
from mfauc_jax._core import registry
from mfauc_jax.cli import options, output
from mfauc_jax.cli.output import UsageError
from mfauc_jax.data import ratings, rows
from mfauc_jax.data.interactions import Interactions

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
    finite = options.number(float, -sys.float_info.max, sys.float_info.max)
    add("--min_rating", type=finite, metavar="R", help="lower ratings are not relevant")
    if dislikes:
        text = "lower ratings are dislikes: negatives of more weight"
        add("--dislikes_below", type=finite, metavar="R", help=text)
    for kind in ("user", "item"):
        text = f"drop {kind}s with fewer positives (1)"
        text = text if everything else least if kind == "user" else argparse.SUPPRESS
        add(f"--{kind}_min", type=options.number(int, 1), metavar="N", help=text)


def add_titles(parser: argparse.ArgumentParser) -> None:
    """Add the options for a file of titles."""
    add = parser.add_argument_group("titles").add_argument
    add("--titles", metavar="FILE", help="a csv, … with an id and a title per item")
    add("--title_column", metavar="NAME", help="its column of titles (title, name, …)")


def read_titles(args: argparse.Namespace) -> data.Titles | None:
    """The titles that the options of `add_titles` describe; None if there are none."""
    if args.titles is None:
        if args.title_column is not None:
            raise UsageError(f"--title_column {args.title_column} needs --titles FILE")
        return None
    category = getattr(args, "category_column", None)
    try:
        return data.read_titles(args.titles, title=args.title_column, category=category)
    except ValueError as error:
        raise ValueError(output.spoken(str(error))) from error


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


def in_ids_of(new: Interactions, train: Interactions) -> Interactions:
    """Further positives with their ids as text where the model has text: a file of few rows may hold numbers only."""

    def as_text(ids: np.ndarray | None, known: np.ndarray | None) -> np.ndarray | None:
        both = ids is not None and known is not None
        return ids.astype(str) if both and known.dtype.kind == "U" else ids  # type: ignore

    users = as_text(new.user_ids, train.user_ids)
    items = as_text(new.item_ids, train.item_ids)
    return dataclasses.replace(new, user_ids=users, item_ids=items)


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
        raise (OSError if isinstance(error, OSError) else ValueError)(
            output.spoken(str(error))
        ) from error


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
        "read for titles": [args.titles] if given.get("titles") else [],
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
