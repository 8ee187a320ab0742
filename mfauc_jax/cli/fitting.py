"""`mfauc fit` and `mfauc select`: from ratings to a model file, and to good hyper-parameters."""

import argparse
import dataclasses
import pathlib
import shutil
import tempfile
import time
from typing import Any

import jax

from mfauc_jax._core import registry
from mfauc_jax.cli import options, output
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data import splits
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.model import MFAUC
from mfauc_jax.training import selection


def add_to(commands: Any, everything: bool) -> None:
    """Declare the commands."""
    made = options.command(
        commands,
        "fit",
        fit,
        "fit RATINGS --out MODEL [options]",
        "learn a model from ratings and write it to a file",
        everything,
    )
    options.add_ratings(made, "RATINGS", everything)
    options.add_model(made, everything)
    add = made.add_argument_group("fit").add_argument
    add("--out", required=True, metavar="MODEL", help="the model file; an old one is replaced")
    add(
        "--validate",
        nargs="?",
        type=options.number(int, 1),
        const=3,
        metavar="N",
        help="choose the iteration by N held-out items a user (3)",
    )
    add("--plot", metavar="FILE", help="learning curves, as .png, .pdf or .svg")

    made = options.command(
        commands,
        "select",
        select,
        "select RATINGS --grid reg=0.1,1,10 [--grid …] [options]",
        "try a grid of hyper-parameters on held-out positives",
        everything,
    )
    options.add_ratings(made, "RATINGS", everything)
    options.add_model(made, everything, without=selection.IDLE)
    add = made.add_argument_group("select").add_argument
    add("--grid", action="append", required=True, metavar="NAME=A,B", help="values to try")
    add("--out", metavar="JSON", help="the winner's hyper-parameters, for `mfauc fit --params`")
    add("--criterion", default="f1@5", metavar="M", help="what decides: auc, ndcg@10, … (f1@5)")
    at_least_1 = options.number(int, 1)
    add("--splits", type=at_least_1, default=3, metavar="N", help="random hold-outs (3)")
    add("--per_user", type=at_least_1, default=3, metavar="N", help="positives held out (3)")
    add("--folds", type=options.number(int, 2), metavar="N", help="folds, in place of hold-outs")
    add("--folder", metavar="DIR", help="keeps finished parts, so that a second run goes on")
    add("--plot", metavar="FILE", help="a heat map, as .png, .pdf or .svg")


def fit(args: argparse.Namespace) -> int:
    """Read, fit, save; 130 if Ctrl-C ended the fit early (what there was is saved)."""
    output.check_drawable(args.plot)
    output.check_writable(args.out)
    model = options.model(args)
    X = options.read(args)
    note(args, f"{X.num_users} users × {X.num_items} items, {X.nnz} positives")
    if args.plot and not args.validate and not model.record_every:
        model = dataclasses.replace(model, record_every=1)
    begun = time.perf_counter()
    history = None
    if args.validate:
        model, history = _validated(args, model, X)
    model.fit(X)
    spent = time.perf_counter() - begun
    model.save(args.out)
    if args.plot:
        from mfauc_jax import plots

        output.draw(args.plot, lambda ax: plots.learning_curves(history or model, ax=ax))
    interrupted = model.stopped_ == "interrupted"
    ended = ", interrupted" if interrupted else ""
    done = len(model.history_)
    note(args, f"rank {model.rank}, {done} iterations{ended}, {spent:.1f} s: wrote {args.out}")
    return 130 if interrupted else 0


def _validated(args: argparse.Namespace, model: MFAUC, X: Interactions) -> tuple[MFAUC, list[dict]]:
    """The setting with the iterations that serve held-out positives best, and how it went."""
    folder = model.checkpoint_dir
    inside = (lambda name: None) if folder is None else (lambda name: f"{folder}/{name}")
    train, held = splits.hold_out(jax.random.key(args.seed), X, per_user=args.validate)
    if not held.nnz:
        raise ValueError("no user has two positives: there is nothing to hold out, drop --validate")
    trial = dataclasses.replace(model, checkpoint_dir=inside("validation"))
    trial.fit(train, validation=held, callbacks=[_knows(model.metric)])
    if trial.stopped_ == "interrupted":
        raise KeyboardInterrupt
    records = [record for record in trial.history_ if model.metric in record]
    best = max(records, key=lambda record: record[model.metric])
    note(
        args,
        f"held-out {model.metric} {best[model.metric]:.4f} at iteration {best['iteration']} "
        f"of {len(trial.history_)}; now on all positives",
    )
    final = dataclasses.replace(
        model, iterations=best["iteration"], patience=None, checkpoint_dir=inside("final")
    )
    return final, trial.history_


def _knows(metric: str) -> Any:
    def check(iteration: int, factors: Any, record: dict) -> None:
        if "auc" in record:
            known = [name for name in record if name not in ("iteration", "seconds", "step_size")]
            registry.lookup("metric", dict.fromkeys(known), metric)

    return check


def select(args: argparse.Namespace) -> None:
    """Print the table, best first; write the winner."""
    output.check_drawable(args.plot)
    output.check_writable(args.out)
    grid = _grid(args.grid)
    model = options.model(args)
    selection.grid_points(grid)
    X = options.read(args)
    note(args, f"{X.num_users} users × {X.num_items} items, {X.nnz} positives")
    found = selection.select(
        args.seed,
        model,
        X,
        grid,
        splits=args.splits,
        per_user=args.per_user,
        folds=args.folds,
        criterion=args.criterion,
        folder=args.folder,
        progress=model.progress,
    )
    print(found)
    if args.plot:
        with tempfile.TemporaryDirectory() as folder, output.written(args.plot) as beside:
            picture = pathlib.Path(folder, f"map{pathlib.Path(args.plot).suffix}")
            found.draw(picture)
            shutil.copyfile(picture, beside)
    if args.out:
        usual, chosen = MFAUC().get_params(), found.best_model().get_params()
        changed = {n: chosen[n] for n in options.FIELDS if chosen[n] != usual[n]}
        output.put(output.as_json(changed), args.out)
        note(
            args,
            f"wrote {args.out}: mfauc fit {options.source(args)} --params {args.out} --out MODEL",
        )


def _grid(texts: list[str]) -> dict[str, list]:
    grid: dict[str, list] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UsageError(f"--grid {text}: write NAME=A,B,…, such as reg=0.1,1,10")
        field = registry.lookup("hyper-parameter", options.FIELDS, name)
        try:
            grid[name] = [options.field_value(field, value) for value in values.split(",")]
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise UsageError(f"--grid {text}: {error}") from None
    return grid
