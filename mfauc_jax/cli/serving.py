"""`mfauc recommend`, `mfauc similar`, `mfauc fold_in`: lists from a model file, in the caller's own ids."""

import argparse
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mfauc_jax.cli import inputs, lists, options
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data import ids
from mfauc_jax.evaluation import ranking
from mfauc_jax.model import MFAUC
from mfauc_jax.serving import export

if TYPE_CHECKING:
    import polars as pl


def add_to(commands: Any, everything: bool) -> None:
    """Declare `mfauc recommend`, `mfauc similar` and `mfauc fold_in`."""
    parser = options.command(
        commands,
        "recommend",
        recommend,
        "recommend MODEL [USER …] [options]",
        "the best unseen items of users: all users unless named",
        everything,
    )
    _add_ids(parser, "user")
    lists.add_to(parser, ("table", "csv", "json", "parquet", "trec"))
    parser.add_argument("--with_seen", action="store_true", help="list training items too")
    parser = options.command(
        commands,
        "similar",
        similar,
        "similar MODEL [ITEM …] [options]",
        "the items nearest in angle to items: to all items unless named",
        everything,
    )
    _add_ids(parser, "item")
    lists.add_to(parser, ("table", "csv", "json"))
    parser = options.command(
        commands,
        "fold_in",
        fold_in,
        "fold_in MODEL NEW_RATINGS [options]",
        "the best unseen items of users who were not in training, from their ratings",
        everything,
    )
    parser.add_argument("model", metavar="MODEL", help="a file that `mfauc fit` wrote")
    inputs.add_ratings(parser, "NEW_RATINGS", everything)
    text = "items that the model lacks: skip and count them, or raise (skip)"
    parser.add_argument("--unknown", choices=("skip", "raise"), default="skip", help=text)
    lists.add_to(parser, ("table", "csv", "json", "parquet"))


def _add_ids(parser: argparse.ArgumentParser, kind: str) -> None:
    parser.add_argument("model", metavar="MODEL", help="a file that `mfauc fit` wrote")
    parser.add_argument("ids", nargs="*", metavar=kind.upper(), help=f"ids of {kind}s")
    add = parser.add_argument
    add(f"--{kind}s_file", dest="ids_file", metavar="FILE", help="ids, one per line; - is stdin")
    ways = ("raise", "skip", "popular") if kind == "user" else ("raise", "skip")
    popular = ", or the most popular items" if kind == "user" else ""
    text = f"for {kind}s that the model lacks: an error, no list{popular} (raise)"
    add("--unknown", choices=ways, default="raise", help=text)


def recommend(args: argparse.Namespace) -> None:
    """Write one row per user and listed item: user, item, rank, score."""
    model, users = _load(args, "user")
    n = min(args.n, model.train_.num_items)
    options: dict[str, Any] = {"exclude_seen": not args.with_seen}
    if args.unknown == "popular":  # skipped ones are no longer among the users
        options["unknown"] = "popular"
    if lists.form(args) == "trec":
        export.trec_run(model, args.out, users, n, **options)
    else:
        lists.put(args, "user", users, export.frames(model, users, n, **options))


def similar(args: argparse.Namespace) -> None:
    """Write one row per item and neighbour: item, similar, rank, cosine."""
    model, items = _load(args, "item")
    lists.put(args, "item", items, _neighbours(model, items, min(args.n, model.train_.num_items)))


def fold_in(args: argparse.Namespace) -> None:
    """Write one row per new user and listed item: user, item, rank, score."""
    lists.check(args)
    model = MFAUC.load(args.model)
    new = inputs.read(args, part=None)
    try:
        folded = model.fold_in(inputs.in_ids_of(new, model.train_), unknown=args.unknown)
    except ValueError as error:
        raise ValueError(f"{inputs.source(args)}: {error}") from None
    n = min(args.n, model.train_.num_items)
    users = ids.of(folded.train_, "user")
    lists.put(args, "user", users, export.frames(folded, users, n))


def _neighbours(model: MFAUC, items: np.ndarray, n: int) -> "Iterator[pl.DataFrame]":
    import polars as pl

    for block in ranking.blocks(len(items), export.BLOCK):
        near, cosines = model.similar_items(items[block], n)
        rows, ranks = np.nonzero(np.isfinite(cosines))
        place = rows, ranks
        columns = {"item": items[block][rows], "similar": near[place], "rank": ranks + 1}
        yield pl.DataFrame(columns | {"cosine": cosines[place].astype(np.float64)})


def _load(args: argparse.Namespace, kind: str) -> tuple[MFAUC, np.ndarray]:
    """The model, and the requested ids as the model has them."""
    lists.check(args)
    if args.ids and args.ids_file:
        raise UsageError(f"give {kind}s or --{kind}s_file, not both")
    model = MFAUC.load(args.model)
    names = ids.of(model.train_, kind)
    if not args.ids and not args.ids_file:
        return model, names
    wanted = _lines(args.ids_file) if args.ids_file else args.ids
    return model, _requested(args, kind, names, list(dict.fromkeys(wanted)))


def _lines(path: str) -> list[str]:
    try:
        if path == "-":
            text = sys.stdin.read()
        else:
            text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start})"
        ) from None
    ids = [line.strip("\r") for line in text.split("\n")]
    ids = [line for line in ids if line]
    if not ids:
        raise ValueError(f"{path} has no ids: give one per line")
    return ids


def _requested(
    args: argparse.Namespace, kind: str, names: np.ndarray, wanted: list[str]
) -> np.ndarray:
    """The wanted ids as the model has them; unknown ones raise, are left out, or stay, as --unknown says."""
    places = ids.matches(names, wanted)
    missing = [name for name, place in zip(wanted, places, strict=True) if place < 0]
    if not missing:
        return names[places]
    shown = ", ".join(map(repr, missing[:5])) + (", …" if len(missing) > 5 else "")
    if args.unknown == "popular":
        note(args, f"the most popular items for {len(missing)} unknown {kind}s: {shown}")
        return _with_unknown(args, kind, names, wanted)
    if len(missing) == len(places):
        examples = ", ".join(repr(str(name)) for name in names[:3].tolist())
        raise ValueError(
            f"unknown {kind} {shown}: {args.model} has none of the {len(missing)}, its {kind}s are "
            f"{examples}, …; was it fitted on another catalogue?"
        )
    if args.unknown == "raise":
        raise ValueError(
            f"unknown {kind} {shown}: {args.model} lacks {len(missing)} of {len(places)}; "
            "--unknown skip goes on without them"
        )
    note(args, f"skipped {len(missing)} unknown {kind}s of {len(places)}: {shown}")
    return names[places[places >= 0]]


def _with_unknown(
    args: argparse.Namespace, kind: str, names: np.ndarray, wanted: list[str]
) -> np.ndarray:
    """Known and unknown ids in one array of the model's own type."""
    if names.dtype.kind == "U":
        return np.array(wanted)
    strange = [name for name in wanted if not re.fullmatch(r"0|-?[1-9]\d{0,17}", name)]
    if strange:
        examples = ", ".join(map(str, names[:3].tolist()))
        raise ValueError(
            f"{kind} {strange[0]!r} is not a whole number, and the {kind}s of {args.model} are: {examples}, …"
        )
    return np.array([int(name) for name in wanted])
