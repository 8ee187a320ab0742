"""`mfauc evaluate` and `mfauc certify`: how good a model is on positives that it has not seen."""

import argparse
import dataclasses
import warnings
from typing import Any

import jax
import numpy as np

from mfauc_jax.certify.certificate import CERTIFICATES, options_of
from mfauc_jax.certify.held_out import INEQUALITIES
from mfauc_jax.cli import inputs, options, output
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data import ids
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import formulas, metrics
from mfauc_jax.model import MFAUC


def add_to(commands: Any, everything: bool) -> None:
    """Declare `mfauc evaluate` and `mfauc certify`."""
    parser = options.command(
        commands,
        "evaluate",
        evaluate,
        "evaluate MODEL TEST_RATINGS [options]",
        "AUC, precision, recall, … on held-out positives, with confidence intervals",
        everything,
    )
    add_held_out(parser, "TEST_RATINGS", everything)
    add = parser.add_argument_group("evaluate").add_argument
    length = options.number(int, 1)
    add(
        "--at",
        nargs="+",
        type=length,
        default=[1, 3, 5, 10],
        metavar="N",
        help="lengths of the lists (1 3 5 10)",
    )
    kinds = ("normal", "bootstrap", "none")
    add(
        "--intervals",
        choices=kinds,
        default="normal",
        help="confidence intervals of means over users (normal)",
    )
    level = options.number(float, 0.01, 0.9999)
    add("--level", type=level, default=0.95, metavar="P", help="coverage of the intervals (0.95)")
    forms = ("table", "csv", "json")
    add("--format", choices=forms, default="table", help="format of the output (table)")
    add("--out", metavar="FILE", help="write here instead of to standard output")
    add("--plot", metavar="FILE", help="ROC, AUC by activity, exposure: .png, .pdf or .svg")

    parser = options.command(
        commands,
        "certify",
        certify,
        "certify MODEL HELD_OUT [options]",
        "a lower bound on the true AUC that holds with probability 1 - delta",
        everything,
    )
    add_held_out(parser, "HELD_OUT", everything)
    add = parser.add_argument_group("certify").add_argument
    delta = options.number(float, 1e-12, 1 - 1e-12)
    add(
        "--delta",
        type=delta,
        default=0.05,
        metavar="D",
        help="probability that the bound fails (0.05)",
    )
    add(
        "--kind",
        choices=tuple(CERTIFICATES),
        default="held_out_unseen",
        help=f"{', '.join(CERTIFICATES)} (held_out_unseen)",
    )
    add(
        "--method",
        choices=tuple(INEQUALITIES),
        help="inequality of the held_out kinds (bernstein); choose it before seeing the data",
    )
    add("--format", choices=("text", "json"), default="text", help="format of the output (text)")
    add("--out", metavar="FILE", help="write here instead of to standard output")


def add_held_out(parser: argparse.ArgumentParser, metavar: str, everything: bool) -> None:
    """Add a model, the held-out positives, and what to do with those that do not fit."""
    parser.add_argument("model", metavar="MODEL", help="a file that `mfauc fit` wrote")
    inputs.add_ratings(parser, metavar, everything)
    skip = parser.add_argument_group("what does not fit").add_argument
    text = "users and items that the model lacks: skip and count them, or raise (skip)"
    skip("--unknown", choices=("skip", "raise"), default="skip", help=text)
    skip("--skip_seen", action="store_true", help="leave out pairs that the model was fitted on")


def evaluate(args: argparse.Namespace) -> None:
    """Write the metrics as a table or as JSON."""
    output.check_drawable(args.plot)
    output.check_writable(args.out, stream=True)
    model, held_out = held_out_of(args)
    intervals = None if args.intervals == "none" else args.intervals
    results = metrics.evaluate(
        model,
        model.train_,
        held_out,
        tuple(sorted(set(args.at))),
        intervals=intervals,
        level=args.level,
        key=jax.random.key(args.seed),
    )
    if args.plot:
        from mfauc_jax import plots

        output.draw(
            args.plot,
            lambda ax: plots.roc(model, model.train_, held_out, ax=ax),
            lambda ax: plots.auc_against_activity(model, model.train_, held_out, ax=ax),
            lambda ax: plots.popularity_against_exposure(model, model.train_, ax=ax),
        )
    is_table = args.format == "table"
    text = _table(results, args) if is_table else output.facts(results, args.format)
    output.put(text, args.out)


def _table(results: dict[str, Any], args: argparse.Namespace) -> str:
    def cell(name: str) -> str:
        if name not in results:
            return ""
        half = (results.get(f"{name}_high", np.nan) - results.get(f"{name}_low", np.nan)) / 2
        return f"{results[name]:.4f}" + ("" if np.isnan(half) else f" ± {half:.4f}")

    sizes = sorted(set(args.at))
    shown = [name for name in formulas.METRICS if formulas.of_lists(name)]
    rows = [["", *(f"@{size}" for size in sizes)]]
    rows += [[name, *(cell(f"{name}@{size}") for size in sizes)] for name in shown]
    width = max(len(c) for row in rows for c in row[1:])
    body = [row[0].ljust(10) + "".join("  " + c.ljust(width) for c in row[1:]) for row in rows]
    tested = f"{results['users']} users, {results['users_skipped']} without held-out items"
    confidence = "" if args.intervals == "none" else f"; ± is {100 * args.level:g} % confidence"
    head = f"AUC {cell('auc')}   ({tested}{confidence})"
    plain = [n for n in formulas.METRICS if n != "auc" and not formulas.of_lists(n)]
    return "\n".join([head, *(f"{n} {cell(n)}" for n in plain), *(x.rstrip() for x in body)])


def certify(args: argparse.Namespace) -> None:
    """Write the certificate: its statement, its terms, and its assumptions."""
    output.check_writable(args.out, stream=True)
    model, held_out = held_out_of(args)
    known, extra = options_of(args.kind), {}
    if args.method is not None:
        if "method" not in known:
            raise UsageError(
                f"--method {args.method} belongs to the held_out kinds, not to {args.kind}"
            )
        extra["method"] = args.method
    if "key" in known:
        extra["key"] = jax.random.key(args.seed)
    certificate = model.certify(held_out, args.delta, kind=args.kind, **extra)
    if args.format == "json":
        output.put(
            output.as_json(dataclasses.asdict(certificate) | {"sentence": certificate.sentence}),
            args.out,
        )
    else:
        output.put(str(certificate), args.out)


def held_out_of(args: argparse.Namespace) -> tuple[MFAUC, Interactions]:
    """The model, and the held-out positives over its users and items."""
    model = MFAUC.load(args.model)
    train, X = model.train_, inputs.read(args, "test")
    names = {kind: ids.of(X, kind) for kind in ("user", "item")}
    at_user, at_item = (ids.matches(ids.of(train, kind), wanted) for kind, wanted in names.items())
    try:
        known = ids.both_known(X, at_user, at_item, train, args.unknown)
    except ValueError as error:
        text = str(error).replace("unknown='skip' goes on", "--unknown skip goes on")
        raise ValueError(f"{inputs.source(args)}: {text}") from None
    rows, columns, _ = X.on_host()
    users, items = at_user[rows], at_item[columns]
    seen = _seen(train, users, items)
    if seen.any() and not args.skip_seen:
        first = int(np.argmax(seen))
        user, item = names["user"][rows[first]], names["item"][columns[first]]
        raise ValueError(
            f"{seen.sum()} of {X.nnz} positives of {inputs.source(args)} were in training, such as "
            f"user {user}, item {item}: hold positives out "
            "with `mfauc data split`, or leave these out with --skip_seen"
        )
    if seen.any():
        note(args, f"skipped {seen.sum()} of {X.nnz} positives that were in training")
    keep = known & ~seen
    if not keep.any():
        raise ValueError(f"nothing of {inputs.source(args)} is left to judge {args.model} by")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # users without held-out items are expected
        return model, Interactions.from_pairs(users[keep], items[keep], shape=train.shape)


def _seen(train: Interactions, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Which (user, item) pairs are training positives."""
    rows, columns = train.to_scipy().tocoo().coords
    flat = rows.astype(np.int64) * train.num_items + columns
    return np.isin(users * train.num_items + items, flat) & (users >= 0) & (items >= 0)
