"""`mfauc recommend` and `mfauc similar`: lists from a model file, in the caller's own ids."""

import argparse
import contextlib
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mfauc_jax._core import atomic
from mfauc_jax.cli import options, output
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data import ids
from mfauc_jax.evaluation import ranking
from mfauc_jax.model import MFAUC
from mfauc_jax.serving import export

if TYPE_CHECKING:
    import polars as pl


def add_to(commands: Any, everything: bool) -> None:
    """Declare `mfauc recommend` and `mfauc similar`."""
    parser = options.command(
        commands,
        "recommend",
        recommend,
        "recommend MODEL [USER …] [options]",
        "the best unseen items of users: all users unless named",
        everything,
    )
    _add_lists(parser, "user", ("csv", "json", "parquet", "trec"))
    parser.add_argument("--with_seen", action="store_true", help="list training items too")
    parser = options.command(
        commands,
        "similar",
        similar,
        "similar MODEL [ITEM …] [options]",
        "the items nearest in angle to items: to all items unless named",
        everything,
    )
    _add_lists(parser, "item", ("csv", "json"))


def _add_lists(parser: argparse.ArgumentParser, kind: str, formats: tuple[str, ...]) -> None:
    parser.add_argument("model", metavar="MODEL", help="a file that `mfauc fit` wrote")
    parser.add_argument("ids", nargs="*", metavar=kind.upper(), help=f"ids of {kind}s")
    add = parser.add_argument
    add(f"--{kind}s_file", dest="ids_file", metavar="FILE", help="ids, one per line; - is stdin")
    ways = ("raise", "skip", "popular") if kind == "user" else ("raise", "skip")
    popular = ", or the most popular items" if kind == "user" else ""
    text = f"for {kind}s that the model lacks: an error, no list{popular} (raise)"
    add("--unknown", choices=ways, default="raise", help=text)
    add("--n", type=options.number(int, 1), default=10, metavar="N", help="items in a list (10)")
    add("--format", choices=formats, metavar="F", help=f"{', '.join(formats)} (--out's ending)")
    add("--out", metavar="FILE", help="write here instead of to standard output")
    text = "put ' before ids in a csv that a spreadsheet may run as formulas"
    add("--escape_formulas", action="store_true", help=text)


def recommend(args: argparse.Namespace) -> None:
    """Write one row per user and listed item: user, item, rank, score."""
    model, users = _load(args, "user")
    n = min(args.n, model.train_.num_items)
    options: dict[str, Any] = {"exclude_seen": not args.with_seen}
    if args.unknown == "popular":  # skipped ones are no longer among the users
        options["unknown"] = "popular"
    if _format(args) == "parquet":
        export.table(model, args.out, users, n, **options)
    elif _format(args) == "trec":
        export.trec_run(model, args.out, users, n, **options)
    else:
        _put(args, users, export.frames(model, users, n, **options))


def similar(args: argparse.Namespace) -> None:
    """Write one row per item and neighbour: item, similar, rank, cosine."""
    model, items = _load(args, "item")
    _put(args, items, _neighbours(model, items, min(args.n, model.train_.num_items)))


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
    _format(args)
    output.check_writable(args.out, stream=_format(args) != "parquet")
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


def _format(args: argparse.Namespace) -> str:
    ending = pathlib.Path(args.out or "").suffix.lower()[1:]
    chosen = args.format or (ending if ending in ("json", "parquet", "trec") else "csv")
    if chosen == "trec" and not args.out:
        raise UsageError("--format trec needs --out FILE")
    if chosen == "parquet" and ending != "parquet":
        raise UsageError("--format parquet needs --out FILE.parquet")
    return chosen


def _put(args: argparse.Namespace, requested: np.ndarray, frames: "Iterator[pl.DataFrame]") -> None:
    """Write frames of (id, listed id, rank, value) as CSV, one after the other, or as JSON with one list per id."""
    kind = "user" if args.run is recommend else "item"
    lists: dict[Any, list] = {name: [] for name in requested.tolist()}
    listed, risky = set(), 0
    with contextlib.ExitStack() as stack:
        file: Any = sys.stdout
        if args.out is not None:
            file = stack.enter_context(atomic.text_file(args.out))
        for frame in frames:
            if _format(args) == "csv":
                risky += export.count_formulas(frame)
                shown = export.escaped(frame) if args.escape_formulas else frame
                file.write(shown.write_csv(include_header=not listed))
            else:
                _, item_column, _, value_column = frame.columns
                for name, item, _, number in frame.iter_rows():
                    lists[name].append({item_column: item, value_column: number})
            listed.update(frame[kind].to_list(), [None])
        if _format(args) == "json":
            answer = [{kind: name, "list": items} for name, items in lists.items()]
            file.write(output.as_json(answer) + "\n")
    if risky and not args.escape_formulas:
        note(args, f"{risky} {export.RISK}; --escape_formulas puts ' before them")
    empty = [str(name) for name in lists if name not in listed]
    if empty:
        note(args, f"nothing left to list for {len(empty)} {kind}s, such as {empty[0]!r}: all seen")
