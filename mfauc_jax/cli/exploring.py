"""`mfauc explore`: a model as one HTML page."""

import argparse
from typing import Any

from mfauc_jax import explorer
from mfauc_jax.cli import inputs, judging, options, output
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data import ids
from mfauc_jax.model import MFAUC


def add_to(commands: Any, everything: bool) -> None:
    """Declare `mfauc explore`."""
    parser = options.command(
        commands,
        "explore",
        explore,
        "explore MODEL [TEST_RATINGS] --out PAGE.html [options]",
        "one HTML page to look at a model: lists, reasons, a map of items, quality",
        everything,
    )
    judging.add_held_out(parser, "TEST_RATINGS", everything)
    inputs.add_titles(parser)
    add = parser.add_argument_group("explore").add_argument
    add("--category_column", metavar="NAME", help="column of categories in --titles (genres, …)")
    add("--out", required=True, metavar="PAGE.html", help="the page to write")
    most = options.number(int, 1)
    add("--users", type=most, default=2000, metavar="N", help="users on the page (2000)")
    text = "a user who must be on the page; may be repeated"
    add("--user", action="append", default=[], metavar="ID", help=text)
    add("--name", metavar="TEXT", help="heading of the page (the name of the model file)")


def explore(args: argparse.Namespace) -> None:
    """Write the page and tell its size."""
    if not args.out.lower().endswith((".html", ".htm")):
        raise UsageError(f"--out {args.out} must end in .html")
    if args.category_column is not None and args.titles is None:
        raise UsageError(f"--category_column {args.category_column} needs --titles FILE")
    output.check_writable(args.out)
    held_out = None
    if args.ratings is None and args.dataset is None:
        model = MFAUC.load(args.model)
    else:
        model, held_out = judging.held_out_of(args)
    names = ids.of(model.train_, "user")
    places = ids.matches(names, args.user)
    for wanted, place in zip(args.user, places, strict=True):
        if place < 0:
            examples = ", ".join(repr(str(name)) for name in names[:3].tolist())
            raise ValueError(
                f"unknown user {wanted!r}: the users of {args.model} are {examples}, …"
            )
    size = explorer.explore(
        model,
        args.out,
        held_out,
        titles=inputs.read_titles(args),
        users=args.users,
        named=names[places],
        name=args.name or str(args.model),
    )
    note(args, f"wrote {args.out}, {size / 1e6:.1f} MB: open it in a browser")
