"""`mfauc data`: what data sets there are, getting them, looking at ratings, holding some out."""

import argparse
from typing import Any

import jax
import numpy as np

from mfauc_jax import data
from mfauc_jax._core import atomic
from mfauc_jax.cli import options, output
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data import ids as id_columns
from mfauc_jax.data import ratings, splits
from mfauc_jax.data.interactions import Interactions


def add_to(commands: Any, everything: bool) -> None:
    """Declare the commands."""
    text = "list, download, describe and split ratings"
    made = commands.add_parser("data", help=text, description=text, formatter_class=options.Compact)
    inner = made.add_subparsers(metavar="COMMAND [options]", required=True)

    made = options.command(
        inner,
        "list",
        show,
        "data list [--data_dir DIR]",
        "the data sets known by name, and which are there",
        everything,
    )
    made.add_argument("--data_dir", metavar="DIR", default="data", help="look here (data)")

    made = options.command(
        inner,
        "download",
        download,
        "data download NAME [--data_dir DIR]",
        "fetch a data set from its official address",
        everything,
    )
    made.add_argument("name", metavar="NAME", help="one of `mfauc data list`")
    made.add_argument("--data_dir", metavar="DIR", default="data", help="put it here (data)")
    made.add_argument("--base_url", metavar="URL", help="a mirror that has the same file names")

    made = options.command(
        inner,
        "describe",
        describe,
        "data describe RATINGS [options]",
        "users, items, positives, and how they are spread",
        everything,
    )
    options.add_ratings(made, "RATINGS", everything)
    made.add_argument("--format", choices=("table", "json"), default="table", help="(table)")

    made = options.command(
        inner,
        "split",
        split,
        "data split RATINGS --train FILE --test FILE [options]",
        "hold out random positives of each user",
        everything,
    )
    options.add_ratings(made, "RATINGS", everything)
    add = made.add_argument_group("split").add_argument
    add("--train", required=True, metavar="FILE", help="the rest, as .csv or .parquet")
    add("--test", required=True, metavar="FILE", help="the held-out positives, the same")
    at_least_1 = options.number(int, 1)
    add("--per_user", type=at_least_1, default=5, metavar="N", help="held out of each user (5)")


def show(args: argparse.Namespace) -> None:
    """One line per data set."""
    for name, dataset in data.DATASETS.items():
        try:
            state = f"in {ratings.find(name, args.data_dir)[0].parent}"
        except FileNotFoundError:
            state = "download" if dataset.urls else "by hand"
        print(f"{name:<20}{dataset.title:<32}{state}")


def download(args: argparse.Namespace) -> None:
    """Where it is, and whether its hash is the known one."""
    found = data.download(args.name, args.data_dir, base_url=args.base_url)
    print(found.folder)
    sure = "its sha256 is right" if found.verified else "no sha256 is known to compare with"
    note(args, f"{args.name}: {sure}")


def describe(args: argparse.Namespace) -> None:
    """Sizes and quantiles."""
    X = options.read(args, part=None)
    lengths = {
        "user": np.diff(np.asarray(X.indptr)),
        "item": np.bincount(np.asarray(X.indices), minlength=X.num_items),
    }
    found: dict[str, Any] = {
        "users": X.num_users,
        "items": X.num_items,
        "positives": X.nnz,
        "density": X.nnz / (X.num_users * X.num_items),
    }
    for kind, counts in lengths.items():
        quantiles = np.quantile(counts, [0, 0.25, 0.5, 0.75, 1], method="lower")
        found[f"positives_of_{kind}"] = dict(
            zip(
                ("least", "quarter", "median", "three_quarters", "most"),
                quantiles.tolist(),
                strict=True,
            )
        )
        found[f"{kind}_ids"] = id_columns.of(X, kind)[:3].tolist()
    if args.format == "json":
        print(output.as_json(found))
        return
    print(
        f"{X.num_users} users × {X.num_items} items, {X.nnz} positives ({100 * found['density']:.3g} %)"
    )
    for kind in lengths:
        numbers = found[f"positives_of_{kind}"]
        text = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in numbers.items())
        ids = ", ".join(map(repr, map(str, found[f"{kind}_ids"])))
        print(f"positives of one {kind}: {text}; {kind} ids: {ids}, …")


def split(args: argparse.Namespace) -> None:
    """Two files of pairs, which `mfauc fit` and `mfauc evaluate` read."""
    for path in (args.train, args.test):
        if not path.lower().endswith((".csv", ".parquet")):
            raise UsageError(f"{path} must end in .csv or .parquet")
        output.check_writable(path)
    X = options.read(args, part=None)
    parts = splits.hold_out(jax.random.key(args.seed), X, args.per_user)
    for path, part in zip((args.train, args.test), parts, strict=True):
        frame = _frame(X, part)
        with atomic.beside(path) as beside:
            frame.write_csv(beside) if path.lower().endswith(".csv") else frame.write_parquet(
                beside
            )
        note(args, f"wrote {part.nnz} positives to {path}")
    lost = len(np.setdiff1d(np.asarray(parts.test.indices), np.asarray(parts.train.indices)))
    if lost:
        note(args, f"{lost} items are only in {args.test}: evaluate with --skip_unknown")


def _frame(X: Interactions, part: Interactions) -> Any:
    import polars as pl

    rows, columns = part.to_scipy().tocoo().coords
    users, items = id_columns.of(X, "user")[rows], id_columns.of(X, "item")[columns]
    return pl.DataFrame({"user": users, "item": items})
