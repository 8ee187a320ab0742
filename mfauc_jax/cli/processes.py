"""`mfauc fit --distributed`: one fit by several processes, which the environment tells apart.

Every process reads the ratings and fits its own users; process 0 writes the model of all of them.
"""

import argparse
import time
from typing import Any

import jax
import numpy as np

from mfauc_jax import distributed
from mfauc_jax._core.factors import Factors
from mfauc_jax.cli import inputs, options
from mfauc_jax.cli.output import UsageError, note
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.model import MFAUC
from mfauc_jax.training.checkpoints import Checkpoints
from mfauc_jax.training.loop import Fitted
from mfauc_jax.training.watch import Watch

ALONE = ("validate", "tune", "plot")  # options that need the factors of all users during the fit


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
    mine = _mine(model, X)
    model.fit(
        X.take(mine),
        watch=None if watch == Watch() else watch,
        checkpoints=checkpoints,
        progress=progress,
    )
    seconds = time.perf_counter() - started
    whole = _whole(model, X, mine)
    if jax.process_index() == 0:
        whole.save(args.out, options.metadata(args))
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


def _whole(model: MFAUC, X: Interactions, mine: np.ndarray) -> MFAUC:
    """The model of the users of all processes, in the order of X."""
    U = distributed.joined(model.user_factors_, mine)
    factors = Factors(*map(jax.device_put, (U, model.item_factors_)))
    return model.with_params()._keep(X, Fitted(factors, model.history_, model.stopped_))
