"""`mfauc info`, `mfauc update`, `mfauc export`: what is in a model file, what came after it, and for other tools."""

import argparse
import time
from typing import Any

import numpy as np

from mfauc_jax.cli import inputs, options, output
from mfauc_jax.cli.output import note
from mfauc_jax.data import ids
from mfauc_jax.data.digest import digest
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.model import MFAUC
from mfauc_jax.serving import export as exporting
from mfauc_jax.serving import model_file


def add_to(commands: Any, everything: bool) -> None:
    """Declare `mfauc info`, `mfauc update` and `mfauc export`."""
    parser = options.command(
        commands,
        "info",
        info,
        "info MODEL [options]",
        "what is in a model file: sizes, settings, metadata, and the digest of its data",
        everything,
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="a file that `mfauc fit` wrote")
    add("--format", choices=("table", "csv", "json"), default="table", help="(table)")
    add("--out", metavar="FILE", help="write here instead of to standard output")

    parser = options.command(
        commands,
        "update",
        update,
        "update MODEL NEW_RATINGS --out MODEL [options]",
        "add positives, users and items to a model, in a fraction of a fit",
        everything,
    )
    parser.add_argument("model", metavar="MODEL", help="a file that `mfauc fit` wrote")
    inputs.add_ratings(parser, "NEW_RATINGS", everything)
    add = parser.add_argument_group("update").add_argument
    add("--out", required=True, metavar="MODEL", help="the model file to write; not the one read")
    text = "iterations over all positives, in place of solving only what the new ones touch"
    add("--iterations", type=options.number(int, 1), metavar="N", help=text)
    options.add_metadata(add)

    parser = options.command(
        commands,
        "export",
        export,
        "export MODEL --out FOLDER [options]",
        "the vectors of items and users, for faiss, hnswlib and others",
        everything,
    )
    add = parser.add_argument
    add("model", metavar="MODEL", help="a file that `mfauc fit` wrote")
    add("--out", required=True, metavar="FOLDER", help="the folder to write into")
    text = "npy (vectors and ids apart), parquet or csv (npy)"
    add("--format", choices=exporting.KINDS, default="npy", metavar="F", help=text)


def info(args: argparse.Namespace) -> None:
    """Write the facts about a model file."""
    output.check_writable(args.out, stream=True)
    found = model_file.read(args.model)
    model = MFAUC.load(args.model)
    X, training = found.train, found.training
    facts = {
        "model": repr(model),
        "users": X.num_users,
        "items": X.num_items,
        "positives": X.nnz,
        "dislikes": 0 if X.dislikes is None else X.dislikes.nnz,
        "user_ids": _ids(X, "user"),
        "item_ids": _ids(X, "item"),
        "rank": int(found.factors.V.shape[1]),
        "numbers": str(found.factors.V.dtype),
        "confidence": X.confidence is not None,
        "solver": repr(model.chosen_solver),
        "iterations": training.get("iterations", 0),
        "stopped": training.get("stopped", ""),
        "last_record": training.get("last", {}),
        "data_digest": digest(X),
        "written_by": f"mfauc_jax {found.library_version}",
        "format_version": found.format_version,
        "sha256": found.checksum,
        "metadata": dict(found.metadata),
    }
    output.put(output.facts(facts, args.format), args.out)


def _ids(X: Interactions, kind: str) -> list[str]:
    return [str(name) for name in ids.of(X, kind)[:3].tolist()]


def update(args: argparse.Namespace) -> int:
    """Read a model and further positives, and save the model that has both; 130 if Ctrl-C ended it early."""
    output.check_writable(args.out)
    metadata = options.metadata(args)
    model = MFAUC.load(args.model)
    new = inputs.in_ids_of(inputs.read(args, part=None), model.train_)
    before, started = model.train_, time.perf_counter()
    progress = False if args.quiet else None
    model.partial_fit(new, args.iterations, progress=progress)
    model.save(args.out, {**model.metadata_, **metadata})
    grown = np.array([model.train_.num_users, model.train_.num_items, model.train_.nnz])
    grown = grown - [before.num_users, before.num_items, before.nnz]
    counts = zip(grown.tolist(), ("user", "item", "positive"), strict=True)
    new_ones = ", ".join(ids.counted(count, f"new {noun}") for count, noun in counts)
    seconds = time.perf_counter() - started
    note(args, f"{new_ones}, {seconds:.1f} s: wrote {args.out}")
    return 130 if model.stopped_ == "interrupted" else 0


def export(args: argparse.Namespace) -> None:
    """Write the vectors of a model and print the names of the files."""
    for path in exporting.vectors(MFAUC.load(args.model), args.out, args.format):
        print(path)
