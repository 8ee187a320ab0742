"""Two processes that differ in one thing after the other: `python tests/disagreements.py OPTIONS_JSON`.

Started by tests/test_distributed.py. Each process prints one line of JSON per case: what the fit said, and after how
long.
"""

import json
import os
import signal
import sys
import time

import jax
import numpy as np
from processes import matrix, model

import mfauc_jax as mf
from mfauc_jax import distributed

USERS, ITEMS = [f"u{i:02d}" for i in range(40)], [f"i{j:02d}" for j in range(24)]


def named(rows, items=ITEMS):
    """Rows of the toy with ids."""
    row, column = np.nonzero(matrix())
    return mf.Interactions.of((np.asarray(USERS)[row], np.asarray(items)[column])).take(rows)


def stop(s, factors, record):
    """A callback that stops."""
    return s == 2


def fail(s, factors, record):
    """A callback that breaks."""
    raise KeyError("broken callback")


def send(number):
    """A callback that sends a signal to its own process."""
    return lambda s, factors, record: s == 3 and os.kill(os.getpid(), number)


def cases(me: int, mine: np.ndarray, folder: str) -> dict:
    """What this process does otherwise in each case, by name: a model, data and arguments of fit."""
    X, odd = matrix(), me == 1  # process 1 is the odd one

    def settings(**changes):
        return model().with_params(**(changes if odd else {})), X[mine], {}

    def data(theirs):
        return model(), theirs if odd else X[mine], {}

    def given(**arguments):
        return model(), X[mine], arguments if odd else {}

    theirs = np.setdiff1d(np.arange(len(X)), mine)
    alike = [(i, j) for i in mine for j in theirs if X[i].sum() == X[j].sum()]
    twin = np.where(mine == alike[0][0], alike[0][1], mine) if odd else mine
    other = X[mine].copy()
    other[[0, 1]] = other[[1, 0]]
    return {
        "nothing": lambda: (model(), X[mine], {}),
        "learning_rate": lambda: settings(solver__learning_rate=0.2),
        "seed": lambda: settings(seed=1),
        "loss": lambda: settings(loss="logistic"),
        "weighting": lambda: settings(weighting="tanh"),
        "penalty": lambda: settings(penalty=mf.Fixed(reg=0.1)),
        "strength": lambda: settings(penalty=mf.Auto(strength=0.5)),
        "num_pos": lambda: settings(solver__num_pos=3),
        "num_neg": lambda: settings(solver__num_neg=4),
        "eta": lambda: settings(solver__average__eta=1.0),
        "tau": lambda: settings(weights__tau=-0.5),
        "user_power": lambda: settings(weights__user_power=0.5),
        "iterations": lambda: settings(solver__iterations=4),
        "blocks": lambda: settings(solver__blocks=2),
        "batch": lambda: settings(solver__batch=4),
        "optimiser": lambda: settings(solver__optimiser="adam"),
        "rank": lambda: settings(rank=4),
        "start": lambda: settings(start=mf.Gaussian(scale=0.2)),
        "solver": lambda: settings(solver="minibatch"),
        "shard_items": lambda: (mf.MFAUC(3, solver=mf.Alternating(shard_items=odd)), X[mine], {}),
        "items": lambda: data(np.pad(X[mine], ((0, 0), (0, 1)))),
        "wrong rows": lambda: data(other),
        "too few rows": lambda: data(X[mine][:-1]),
        "broken data": lambda: data(np.full((3, 3), 0.5)),
        "confidence": lambda: data(mf.Interactions.of(2 * X[mine], confidence=True)),
        "ids": lambda: data(named(mine)),
        "item ids": lambda: (model(), named(mine, [*ITEMS[:-1], "z"] if odd else ITEMS), {}),
        "folder in one": lambda: given(checkpoints=f"{folder}/one"),
        "every": lambda: (
            model(),
            X[mine],
            {"checkpoints": mf.Checkpoints(f"{folder}/every", every=2 + me)},
        ),
        "watch": lambda: given(watch=mf.Watch(patience=3)),
        "validation": lambda: given(validation=1 - X[mine]),
        "broken validation": lambda: given(validation=X[mine]),
        "callback stops": lambda: given(callbacks=[stop]),
        "callback fails": lambda: given(callbacks=[fail]),
        "Ctrl-C": lambda: given(callbacks=[send(signal.SIGINT)]),
        "SIGTERM": lambda: given(callbacks=[send(signal.SIGTERM)]),
        "same users": lambda: (model(), named(twin), {}),
    }


def main(options: dict) -> None:
    jax.config.update("jax_num_cpu_devices", 1)
    distributed.initialize(options["coordinator"], options["count"], options["id"])
    mine = distributed.users(matrix().sum(1), 4)
    for name, case in cases(options["id"], mine, options["folder"]).items():
        began = time.monotonic()
        try:
            chosen, X, given = case()
            fitted = chosen.fit(X, **given)
            said = f"{fitted.stopped_} {len(fitted.history_)}"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - began
        print(json.dumps({"case": name, "said": said, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
