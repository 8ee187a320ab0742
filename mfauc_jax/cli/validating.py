"""`mfauc fit --validate`: the number of iterations that ranks held-out positives best, found by a trial fit."""

import argparse
from collections.abc import Callable

import jax
import numpy as np

from mfauc_jax.cli.output import note
from mfauc_jax.data import splits
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.model import MFAUC
from mfauc_jax.solvers import Continuation
from mfauc_jax.training.checkpoints import Checkpoints
from mfauc_jax.training.watch import Watch


def within(checkpoints: Checkpoints | None, name: str) -> Checkpoints | None:
    """The same checkpoints in a subfolder, for one of several fits."""
    return (
        None if checkpoints is None else checkpoints.replace(folder=f"{checkpoints.folder}/{name}")
    )


def validated(
    args: argparse.Namespace,
    model: MFAUC,
    X: Interactions,
    watch: Watch,
    checkpoints: Checkpoints | None,
    progress: bool | None,
    mine: Callable[[MFAUC, Interactions], np.ndarray] | None = None,
) -> tuple[MFAUC, list[dict]]:
    """The model with the number of iterations that is best on held-out positives, and the history of the trial fit.

    Args:
        args: --validate, --seed and --quiet.
        model: what is fitted.
        X: the positives of all users, in every process.
        watch: the metric that decides, and when to stop.
        checkpoints: where the states of the trial fit are kept, in the subfolder validation.
        progress: whether to show a progress bar.
        mine: the rows that this process fits; None: all of them.
    """
    train, held_out = splits.hold_out(jax.random.key(args.seed), X, per_user=args.validate)
    if not held_out.nnz:
        raise ValueError(
            "no user has two positives, so there is nothing to hold out: drop --validate"
        )
    if mine is not None:
        rows = mine(model, train)
        train, held_out = train.take(rows), held_out.take(rows)
    trial = model.with_params()
    kept = within(checkpoints, "validation")
    trial.fit(train, held_out, watch=watch, checkpoints=kept, progress=progress)
    if trial.stopped_ == "interrupted":
        raise KeyboardInterrupt
    metric = watch.metric
    records = [record for record in trial.history_ if metric in record]
    best = max(records, key=lambda record: record[metric])
    if jax.process_index() == 0:
        note(
            args,
            f"held-out {metric} {best[metric]:.4f} at iteration {best['iteration']} "
            f"of {len(trial.history_)}; now on all positives",
        )
    where = "inner__iterations" if isinstance(model.solver, Continuation) else "iterations"
    return model.with_params(**{f"solver__{where}": int(best["iteration"])}), trial.history_
