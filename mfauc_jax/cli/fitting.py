"""`mfauc fit` and `mfauc select`: make a model file from ratings, and choose good settings."""

import argparse
import time
from typing import Any

from mfauc_jax import tuning
from mfauc_jax.cli import inputs, options, output, processes, settings, validating
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.model import MFAUC
from mfauc_jax.training import selection
from mfauc_jax.training.checkpoints import Checkpoints
from mfauc_jax.training.watch import Watch


def add_to(commands: Any, everything: bool) -> None:
    """Declare `mfauc fit` and `mfauc select`."""
    parser = options.command(
        commands,
        "fit",
        fit,
        "fit RATINGS --out MODEL [options]",
        "learn a model from ratings and write it to a file",
        everything,
    )
    inputs.add_ratings(parser, "RATINGS", everything, dislikes=True)
    settings.add_model(parser, everything)
    add = parser.add_argument_group("fit").add_argument
    add(
        "--out",
        required=True,
        metavar="MODEL",
        help="the model file to write; an old one is replaced",
    )
    add(
        "--validate",
        nargs="?",
        type=options.number(int, 1),
        const=3,
        metavar="N",
        help="choose the iteration by N held-out items per user (3)",
    )
    add(
        "--tune",
        nargs="?",
        type=options.number(int, 1),
        const=tuning.BUDGET,
        metavar="FITS",
        help=f"choose loss and settings by at most FITS fits ({tuning.BUDGET})",
    )
    add("--plot", metavar="FILE", help="learning curves, as .png, .pdf or .svg")
    add(
        "--distributed",
        action="store_true",
        help="one of several processes: Slurm, MPI, MFAUC_COORDINATOR",
    )
    options.add_metadata(add)
    settings.add_settings(add, Watch, "", everything, short=("metric", "patience"))
    settings.add_settings(add, Checkpoints, "checkpoint_", everything, short=("folder",))

    parser = options.command(
        commands,
        "select",
        select,
        "select RATINGS --grid strength=0.2,0.4,0.8 [--grid …] [options]",
        "try a grid of settings on held-out positives",
        everything,
    )
    inputs.add_ratings(parser, "RATINGS", everything, dislikes=True)
    settings.add_model(parser, everything)
    add = parser.add_argument_group("select").add_argument
    add("--grid", action="append", required=True, metavar="NAME=A,B", help="values to try")
    add("--out", metavar="JSON", help="the winner's settings, for `mfauc fit --params`")
    add(
        "--criterion",
        default="f1@5",
        metavar="M",
        help="metric that decides: auc, ndcg@10, … (f1@5)",
    )
    at_least_1 = options.number(int, 1)
    add("--splits", type=at_least_1, default=3, metavar="N", help="number of random hold-outs (3)")
    add(
        "--per_user",
        type=at_least_1,
        default=3,
        metavar="N",
        help="positives held out per user (3)",
    )
    add(
        "--folds",
        type=options.number(int, 2),
        metavar="N",
        help="number of folds, in place of hold-outs",
    )
    add("--folder", metavar="DIR", help="keep finished parts here; a second run continues")
    add("--plot", metavar="FILE", help="a heat map, as .png, .pdf or .svg")


def fit(args: argparse.Namespace) -> int:
    """Read ratings, fit, and save; 130 if Ctrl-C ended the fit early, and the factors so far were saved."""
    output.check_drawable(args.plot)
    output.check_writable(args.out)
    metadata = options.metadata(args)
    model, watch = settings.model(args), settings.built_from(args, Watch)
    if watch.patience is not None and not args.validate:
        raise UsageError(f"--patience {watch.patience} counts validations: add --validate")
    checkpoints = (
        settings.built_from(args, Checkpoints, "checkpoint_") if _has_folder(args) else None
    )
    if args.tune:
        return _tuned(args, model, watch, checkpoints)
    if args.distributed:
        return processes.fit(args, model, watch, checkpoints, _progress(args))
    X = inputs.read(args)
    started, history = time.perf_counter(), None
    if args.validate:
        trial = model, X, watch, checkpoints, _progress(args)
        model, history = validating.validated(args, *trial)
        watch, checkpoints = watch.replace(patience=None), validating.within(checkpoints, "final")
    elif args.plot and not watch.record_every:
        watch = watch.replace(record_every=1)
    model.fit(X, watch=watch, checkpoints=checkpoints, progress=_progress(args))
    seconds = time.perf_counter() - started
    model.save(args.out, metadata)
    if args.plot:
        from mfauc_jax import plots

        output.draw(args.plot, lambda ax: plots.learning_curves(history or model, ax=ax))
    interrupted = model.stopped_ == "interrupted"
    ended = ", interrupted" if interrupted else ""
    done = len(model.history_)
    note(args, f"rank {model.rank}, {done} iterations{ended}, {seconds:.1f} s: wrote {args.out}")
    return 130 if interrupted else 0


def _tuned(
    args: argparse.Namespace, model: MFAUC, watch: Watch, checkpoints: Checkpoints | None
) -> int:
    """`mf.tune` with the given rank, seed and metric, which are all that it leaves to the caller; then save."""
    given = model.with_params(rank=MFAUC().rank, seed=MFAUC().seed)
    left = watch.replace(metric=Watch().metric)
    if given != MFAUC() or left != Watch() or checkpoints or args.validate or args.plot:
        raise UsageError(
            "--tune chooses the settings itself: beside it give --rank, --metric and --seed only"
        )
    criterion = watch.metric if hasattr(args, "metric") else tuning.CRITERION
    X, started = inputs.read(args), time.perf_counter()
    tuned = tuning.tune(
        X, args.tune, rank=model.rank, criterion=criterion, seed=args.seed, progress=_progress(args)
    )
    print(vars(tuned)["tuning_"])
    tuned.save(args.out, options.metadata(args))
    seconds = time.perf_counter() - started
    note(args, f"rank {tuned.rank}, {seconds:.1f} s: wrote {args.out}")
    return 130 if tuned.stopped_ == "interrupted" else 0


def _progress(args: argparse.Namespace) -> bool | None:
    return False if args.quiet else None


def _has_folder(args: argparse.Namespace) -> bool:
    if hasattr(args, "checkpoint_folder"):
        return True
    for name in Checkpoints.specs():
        if hasattr(args, f"checkpoint_{name}"):
            raise UsageError(f"--checkpoint_{name} needs --checkpoint_folder")
    return False


def select(args: argparse.Namespace) -> None:
    """Print the table of points, best first, and write the winner's settings."""
    output.check_drawable(args.plot)
    output.check_writable(args.out, stream=True)
    model = settings.model(args)
    grid, names = _grid(model, args.grid)
    selection.grid_points(model, grid)
    X = inputs.read(args)
    outcome = selection.select(
        args.seed,
        model,
        X,
        grid,
        splits=args.splits,
        per_user=args.per_user,
        folds=args.folds,
        criterion=args.criterion,
        folder=args.folder,
        progress=_progress(args),
    )
    print(outcome.text(names))
    if args.plot:
        outcome.draw(args.plot)
    if args.out:
        output.put(output.as_json(settings.flat(outcome.best_model())), args.out)
        note(
            args,
            f"wrote {args.out}: mfauc fit {inputs.source(args)} --params {args.out} --out MODEL",
        )


def _grid(model: MFAUC, texts: list[str]) -> tuple[dict[str, list], dict[str, str]]:
    """The grid by nested names, and the flag of each name."""
    grid: dict[str, list] = {}
    names: dict[str, str] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UsageError(f"--grid {text}: write NAME=A,B,…, such as rank=16,32,64")
        try:
            nested, spec = settings.path(model, name)
            grid[nested] = [settings.value(spec, one) for one in values.split(",")]
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise UsageError(f"--grid {text}: {error}") from None
        names[nested] = name
    return grid, names
