"""`mfauc fit --distributed`: one fit by several processes, which the environment tells apart.

Every process reads the ratings and fits its own users; process 0 writes the model of all of them, one process after the
other.
"""

import argparse
import dataclasses
import time
from typing import Any

import jax
import numpy as np

from mfauc_jax import distributed
from mfauc_jax.cli import inputs, options, validating
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.model import MFAUC
from mfauc_jax.training.checkpoints import Checkpoints
from mfauc_jax.training.watch import Watch

ALONE = ("tune", "plot")  # options that only one process takes


def refuse_alone(args: argparse.Namespace) -> None:
    """Raise UsageError for options of a fit that several processes do not share."""
    for name in ALONE:
        if getattr(args, name) is not None:
            raise UsageError(
                f"--{name} is for one process: leave it out, or leave out --distributed"
            )


def fit(
    args: argparse.Namespace,
    model: MFAUC,
    watch: Watch,
    checkpoints: Checkpoints | None,
    progress: bool | None,
) -> int:
    """This process's part of the fit; process 0 saves. 130 if a signal ended the fit early in any process."""
    X, started = inputs.read(args), time.perf_counter()
    if X.user_ids is None:  # the model has the users in another order, so each needs its name
        X = dataclasses.replace(X, user_ids=np.arange(X.num_users))
    if args.validate:
        trial = model, X, watch, checkpoints, progress
        model, _ = validating.validated(args, *trial, mine=_mine)
        watch, checkpoints = watch.replace(patience=None), validating.within(checkpoints, "final")
    model.fit(
        X.take(_mine(model, X)),
        watch=None if watch == Watch() else watch,
        checkpoints=checkpoints,
        progress=progress,
    )
    seconds = time.perf_counter() - started
    model.save(args.out, options.metadata(args))  # all processes take part
    if jax.process_index() == 0:
        ended = ", interrupted" if model.stopped_ == "interrupted" else ""
        count = jax.process_count()
        note(
            args,
            f"rank {model.rank}, {len(model.history_)} iterations{ended}, {count} processes, {seconds:.1f} s: "
            f"wrote {args.out}",
        )
    return 130 if model.stopped_ == "interrupted" else 0


def _mine(model: MFAUC, X: Interactions) -> np.ndarray:
    """The rows of X that this process fits."""
    blocks: Any = getattr(model.chosen_solver, "blocks", jax.process_count())
    return distributed.users(np.asarray(X.row_lengths), blocks, model.seed)
