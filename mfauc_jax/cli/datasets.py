"""`mfauc data`: list and download data sets, describe ratings, hold some out."""

import argparse
import dataclasses
import warnings
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mfauc_jax import data
from mfauc_jax.cli import inputs, options, output
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data import ids as id_columns
from mfauc_jax.data import ratings, splits, writing
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.serving import export

if TYPE_CHECKING:
    import polars as pl


def add_to(commands: Any, everything: bool) -> None:
    """Declare the sub-commands of `mfauc data`."""
    text = "list, download, describe and split ratings"
    parser = commands.add_parser(
        "data", help=text, description=text, formatter_class=options.Compact
    )
    inner = parser.add_subparsers(metavar="COMMAND [options]", required=True)

    parser = options.command(
        inner,
        "list",
        show,
        "data list [--data_dir DIR]",
        "the data sets known by name, and which are there",
        everything,
    )
    parser.add_argument(
        "--data_dir", metavar="DIR", default="data", help="folder of the data sets (data)"
    )

    parser = options.command(
        inner,
        "download",
        download,
        "data download NAME [--data_dir DIR]",
        "fetch a data set from its official address",
        everything,
    )
    parser.add_argument("name", metavar="NAME", help="one of `mfauc data list`")
    parser.add_argument(
        "--data_dir", metavar="DIR", default="data", help="folder to put it in (data)"
    )
    parser.add_argument("--base_url", metavar="URL", help="a mirror that has the same file names")

    parser = options.command(
        inner,
        "describe",
        describe,
        "data describe RATINGS [options]",
        "numbers of users, items and positives, and quantiles",
        everything,
    )
    inputs.add_ratings(parser, "RATINGS", everything)
    forms = ("table", "csv", "json")
    parser.add_argument("--format", choices=forms, default="table", help="(table)")

    parser = options.command(
        inner,
        "convert",
        convert,
        "data convert RATINGS --out FILE [options]",
        "write the positives of a file as .csv, .parquet or RecBole's .inter",
        everything,
    )
    inputs.add_ratings(parser, "RATINGS", everything)
    text = "the file to write: .csv, .parquet or .inter"
    parser.add_argument("--out", required=True, metavar="FILE", help=text)

    parser = options.command(
        inner,
        "split",
        split,
        "data split RATINGS --train FILE --test FILE [options]",
        "hold out random positives of each user, or the latest ones",
        everything,
    )
    inputs.add_ratings(parser, "RATINGS", everything)
    add = parser.add_argument_group("split").add_argument
    add("--train", required=True, metavar="FILE", help="the rest, as .csv, .parquet or .inter")
    add("--test", required=True, metavar="FILE", help="the held-out positives, the same")
    add("--time_column", metavar="NAME", help="column of times, for --last and --after")
    way = parser.add_argument_group("what is held out").add_mutually_exclusive_group()
    at_least_1, add = options.number(int, 1), way.add_argument
    add("--per_user", type=at_least_1, metavar="N", help="N random positives of each user (5)")
    add("--last", type=at_least_1, metavar="N", help="the last N rows of each user, by time")
    add("--after", metavar="TIME", help="rows at TIME or later: 2024-05-01, or a number")


def show(args: argparse.Namespace) -> None:
    """Print one line per data set."""
    for name, dataset in data.DATASETS.items():
        try:
            state = f"in {ratings.find(name, args.data_dir)[0].parent}"
        except FileNotFoundError:
            state = "download" if dataset.urls else "by hand"
        known = all(file.sha256 is not None for file in dataset.files)
        check = "sha256 known" if known else "UNVERIFIED"
        print(f"{name:<20}{dataset.title:<32}{check:<14}{state}")


def download(args: argparse.Namespace) -> None:
    """Print the folder of the data set, and whether its hash is the known one."""
    downloaded = data.download(args.name, args.data_dir, base_url=args.base_url)
    print(downloaded.folder)
    if downloaded.verified:  # else a warning has said so
        note(args, f"{args.name}: its sha256 is right")


def describe(args: argparse.Namespace) -> None:
    """Print the sizes of the data, and quantiles of the numbers of positives."""
    X = inputs.read(args, part=None)
    lengths = {
        "user": np.diff(np.asarray(X.indptr)),
        "item": np.bincount(np.asarray(X.indices), minlength=X.num_items),
    }
    summary: dict[str, Any] = {
        "users": X.num_users,
        "items": X.num_items,
        "positives": X.nnz,
        "density": X.nnz / (X.num_users * X.num_items),
    }
    for kind, counts in lengths.items():
        summary[f"positives_of_{kind}"] = _quantiles(counts)
        summary[f"{kind}_ids"] = id_columns.of(X, kind)[:3].tolist()
    if X.confidence is not None:
        summary["confidence"] = _quantiles(np.asarray(X.confidence, np.float64))
    if args.format != "table":
        print(output.facts(summary, args.format))
        return
    print(
        f"{X.num_users} users × {X.num_items} items, {X.nnz} positives ({100 * summary['density']:.3g} %)"
    )
    for kind in lengths:
        text = _in_words(summary[f"positives_of_{kind}"])
        ids = ", ".join(map(repr, map(str, summary[f"{kind}_ids"])))
        print(f"positives of one {kind}: {text}; {kind} ids: {ids}, …")
    if "confidence" in summary:
        print(f"confidence of one positive: {_in_words(summary['confidence'])}")


def _quantiles(values: np.ndarray) -> dict[str, float]:
    names = ("least", "quarter", "median", "three_quarters", "most")
    found = np.quantile(values, [0, 0.25, 0.5, 0.75, 1], method="lower")
    return dict(zip(names, found.tolist(), strict=True))


def _in_words(quantiles: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:g}" for name, count in quantiles.items())


def convert(args: argparse.Namespace) -> None:
    """Write the distinct positives of a file in another layout."""
    _check_ending(args.out)
    output.check_writable(args.out)
    X = inputs.read(args, part=None)
    writing.write_ratings(X, args.out)
    note(args, f"wrote {X.nnz} positives to {args.out}")


def _check_ending(path: str) -> None:
    try:
        writing.check(path)
    except ValueError as error:
        raise UsageError(str(error)) from None


def split(args: argparse.Namespace) -> None:
    """Write two files, which `mfauc fit` and `mfauc evaluate` read."""
    by_time = args.last is not None or args.after is not None
    if args.time_column is not None and not by_time:
        raise UsageError(f"--time_column {args.time_column} is for --last or --after")
    for path in (args.train, args.test):
        _check_ending(path)
    for path in (args.train, args.test):
        output.check_writable(path)
    frames, (user, item) = _by_time(args) if by_time else _at_random(args)
    for path, frame in zip((args.train, args.test), frames, strict=True):
        writing.write_frame(frame, path, user, item)
        if path.lower().endswith(".csv") and export.count_formulas(frame):
            note(args, f"{path}: {export.count_formulas(frame)} {export.RISK}")
        note(args, f"wrote {frame.height} {'rows' if by_time else 'positives'} to {path}")
    train, test = frames
    lost = [len(set(test[name]) - set(train[name])) for name in (user, item)]
    if any(lost):
        unseen = f"{id_columns.counted(lost[0], 'user')} and {id_columns.counted(lost[1], 'item')}"
        note(args, f"{unseen} are only in {args.test}: `mfauc evaluate` leaves them out")


def _at_random(args: argparse.Namespace) -> "tuple[list[pl.DataFrame], tuple[str, str]]":
    """Both halves of a random split as frames of distinct pairs, and the names of their columns."""
    X = inputs.read(args, part=None)
    per_user = 5 if args.per_user is None else args.per_user
    parts = splits.hold_out(jax.random.key(args.seed), X, per_user)
    return [_in_ids(X, part) for part in parts], ("user", "item")


def _by_time(args: argparse.Namespace) -> "tuple[list[pl.DataFrame], tuple[str, str]]":
    """Both halves of a split by time as frames with all columns of the file, and the columns of users and items."""
    frame, columns = inputs.read_rows(args)
    named = {kind: columns[kind] for kind in ("user", "item", "time")}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            parts = splits.by_time(frame, at=args.after, last=args.last, **named)
        except ValueError as error:
            raise ValueError(f"{inputs.source(args)}: {_spoken(str(error))}") from None
    for warning in told:
        note(args, f"note: {_spoken(str(warning.message))}")
    return list(parts), (named["user"], named["item"])


def _spoken(text: str) -> str:
    """A message of `by_time` in terms of the command's options."""
    for said, option in (
        ("at = ", "--after "),
        ("last = ", "--last "),
        ("leave these rows out,", "leave these rows out with --skip_bad,"),
    ):
        text = text.replace(said, option)
    return text


def _in_ids(X: Interactions, part: Interactions) -> "pl.DataFrame":
    """The pairs of a part of X, in the ids of X."""
    return writing.frame_of(dataclasses.replace(part, user_ids=X.user_ids, item_ids=X.item_ids))
