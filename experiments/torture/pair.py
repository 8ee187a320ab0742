"""One of two processes that fit together and differ in one thing; it is told the differences one after the other.

It reads one line of JSON per case, {"case": name}, and answers with one: how its fit ended.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np

import mfauc_jax as mf
from experiments.torture import samples

ITERATIONS, SWEEPS = 5, 20


def base(**changes: Any) -> mf.MFAUC:
    """What both processes fit."""
    solver = mf.Blockwise(
        ITERATIONS, batch=8, num_pos=2, num_neg=3, blocks=4, devices=changes.pop("devices", None)
    )
    model = mf.MFAUC(rank=2, loss="square_hinge", solver=solver)
    return model.set_params(**changes)


@dataclasses.dataclass
class Fit:
    """Everything that a process passes to its fit; a difference changes one field in one process."""

    model: mf.MFAUC
    X: np.ndarray  # all users
    mine: np.ndarray  # the rows of this process
    of: Callable[[np.ndarray], Any] = lambda X: X  # the form in which the rows are passed
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    around: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext


def _set(**changes: Any) -> Callable[[Fit, pathlib.Path], None]:
    def change(fit: Fit, folder: pathlib.Path) -> None:
        del folder
        fit.model = base(**changes)

    return change


def _options(**options: Any) -> Callable[[Fit, pathlib.Path], None]:
    def change(fit: Fit, folder: pathlib.Path) -> None:
        del folder
        fit.options |= options

    return change


def _checkpoints(name: str, **options: Any) -> Callable[[Fit, pathlib.Path], None]:
    def change(fit: Fit, folder: pathlib.Path) -> None:
        fit.options["checkpoints"] = mf.Checkpoints(str(folder / name), **options)

    return change


def _default_route(fit: Fit, folder: pathlib.Path) -> None:
    """Twenty slow sweeps of the default route in float64, each kept."""
    fit.model = mf.MFAUC(rank=3, solver=mf.Alternating(SWEEPS))
    count, me = jax.process_count(), jax.process_index()
    fit.mine = np.array_split(np.arange(len(fit.X)), count)[me]
    fit.around = lambda: jax.enable_x64(True)
    fit.options["callbacks"] = [lambda *_: time.sleep(0.05)]
    _checkpoints("kept", every=1)(fit, folder)


def _rows(
    choose: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Callable[[Fit, pathlib.Path], None]:
    def change(fit: Fit, folder: pathlib.Path) -> None:
        del folder
        fit.mine = choose(fit.mine, np.arange(len(fit.X)))

    return change


def _form(of: Callable[[np.ndarray], Any]) -> Callable[[Fit, pathlib.Path], None]:
    def change(fit: Fit, folder: pathlib.Path) -> None:
        del folder
        fit.of = of

    return change


def _at(iteration: int, act: Callable[[], Any]) -> Callable[[Fit, pathlib.Path], None]:
    def change(fit: Fit, folder: pathlib.Path) -> None:
        del folder
        fit.options["callbacks"] = [lambda s, factors, record: act() if s == iteration else None]

    return change


def _around(
    make: Callable[[], contextlib.AbstractContextManager],
) -> Callable[[Fit, pathlib.Path], None]:
    def change(fit: Fit, folder: pathlib.Path) -> None:
        del folder
        fit.around = make

    return change


def _raise() -> None:
    raise ZeroDivisionError("a callback's own error")


@contextlib.contextmanager
def _other_version() -> Iterator[None]:
    original = importlib.metadata.version
    fake = lambda name: "9.9.9" if "mfauc" in name else original(name)  # noqa: E731
    with mock.patch.object(importlib.metadata, "version", fake):
        yield


def _ids(X: np.ndarray, order: slice = slice(None), name: str = "i") -> mf.Interactions:
    columns = np.array([f"{name}{j}" for j in range(X.shape[1])])[order]
    users, items = np.nonzero(X)
    return mf.Interactions.from_pairs(users, columns[items])


REFUSE: dict[str, Callable[[Fit, pathlib.Path], None]] = {  # both must raise a sentence
    "learning rate": _set(solver__learning_rate=0.1),
    "seed": _set(seed=1),
    "loss": _set(loss="logistic"),
    "loss of one's own": _set(loss=lambda x: (x - 1) ** 2),
    "λ": _set(penalty=mf.Fixed(reg=0.5)),
    "σ": _set(penalty__spread=0.5),
    "num_pos": _set(solver__num_pos=3),
    "num_neg": _set(solver__num_neg=4),
    "η": _set(solver__average__eta=1.0),
    "start of the average": _set(solver__average__start=2),
    "τ": _set(weights__tau=0.3),
    "user_power": _set(weights__user_power=0.1),
    "rank": _set(rank=3),
    "batch": _set(solver__batch=4),
    "optimiser": _set(solver__optimiser="adam"),
    "blocks": _set(solver__blocks=2),
    "iterations": _set(solver__iterations=ITERATIONS + 1),
    "weighting": _set(weighting="tanh"),
    "start": _set(start__scale=0.2),
    "another solver": _set(loss="square", solver="alternating"),
    "float64 in one": _around(lambda: jax.enable_x64(True)),
    "number of items": _form(lambda X: np.pad(X, ((0, 0), (0, 1)))),
    "fewer items": _form(lambda X: X[:, :-1]),
    "ids in one": _form(_ids),
    "confidence in one": _form(lambda X: mf.Interactions.of(2.0 * X, confidence=True)),
    "overlapping users": _rows(
        lambda mine, every: np.append(mine[1:], np.setdiff1d(every, mine)[0])
    ),
    "missing users": _rows(lambda mine, every: mine[1:]),
    "more users": _rows(lambda mine, every: every),
    "wrong rows": _rows(lambda mine, every: np.setdiff1d(every, mine)),
    "rows in another order": _rows(lambda mine, every: mine[::-1]),
    "checkpoints in one": _checkpoints("one"),
    "other `every`": _checkpoints("same", every=3),
    "other `keep`": _checkpoints("same", every=2, keep=5),
    "other folders": _checkpoints("other", every=2),
    "watch in one": _options(watch=mf.Watch(record_every=1)),
    "validation in one": _options(validation=samples.held_out(samples.matrix())[:1]),
    "library version": _around(_other_version),
    "nonsense in one": _form(lambda X: X * np.nan),
    "an empty matrix in one": _form(lambda X: X[:0]),
    "a callback raises in one": _at(2, _raise),
}
BOTH: dict[
    str, Callable[[Fit, pathlib.Path], None]
] = {  # what both have in some of the cases above
    "other `every`": _checkpoints("same", every=2),
    "other `keep`": _checkpoints("same", every=2),
    "other folders": _checkpoints("same", every=2),
    "other item ids": _form(_ids),
    "item ids in another order": _form(_ids),
    "SIGTERM with checkpoints": _checkpoints("kept", every=2),
    "SIGKILL": _checkpoints("kept", every=1),  # by the parent, see `pair_kills`
    "SIGKILL, default route": _default_route,
}
REFUSE |= {
    "other item ids": _form(lambda X: _ids(X, name="j")),
    "item ids in another order": _form(lambda X: _ids(X, slice(None, None, -1))),
}
AGREE: dict[
    str, tuple[str, Callable[[Fit, pathlib.Path], None]]
] = {  # both must end alike, for this reason
    "nothing differs": ("iterations", lambda fit, folder: None),
    "SIGKILL": ("iterations", lambda fit, folder: None),
    "SIGKILL, default route": ("iterations", lambda fit, folder: None),
    "a callback stops one": ("callback", _at(3, lambda: True)),
    "Ctrl-C in one": ("interrupted", _at(3, lambda: os.kill(os.getpid(), signal.SIGINT))),
    "SIGTERM in one": ("interrupted", _at(3, lambda: os.kill(os.getpid(), signal.SIGTERM))),
    "SIGTERM with checkpoints": (
        "interrupted",
        _at(3, lambda: os.kill(os.getpid(), signal.SIGTERM)),
    ),
}


def attempt(case: str, me: int, folder: pathlib.Path) -> dict[str, Any]:
    """Fit with one difference in process 1."""
    X = samples.matrix(3, 40, 24)
    fit = Fit(base(), X, mf.distributed.users(X.sum(1), 4))
    if case.endswith("default route"):
        mf.distributed._last_deal = None  # it has other rows
    if case in BOTH:
        BOTH[case](fit, folder)
    if me == 1:
        (REFUSE.get(case) or AGREE[case][1])(fit, folder)
    try:
        with fit.around():
            model = fit.model.fit(fit.of(X[fit.mine]), **fit.options)
    except BaseException as error:
        traceback.print_exc()  # to the log
        return {"error": type(error).__name__, "message": str(error)}
    V = model.item_factors_  # what both have
    digest = hashlib.sha256(V.tobytes()).hexdigest()
    ended = {"stopped": model.stopped_, "iterations": len(model.history_), "items": digest}
    return ended | {"V": V.tolist()}


def main(where: str, me: str, folder: str, devices: str, count: str = "2") -> None:
    """Join the other process, if there is one, and try what one is told."""
    pipe = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    jax.config.update("jax_num_cpu_devices", int(devices))
    try:
        mf.distributed.initialize(where, int(count), int(me), timeout=20, heartbeat=10)
    except BaseException as error:
        pipe.write(json.dumps({"error": type(error).__name__, "message": str(error)}) + "\n")
        sys.exit(1)
    pipe.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        case = json.loads(line)
        found = attempt(case["case"], int(me), pathlib.Path(folder) / case["name"])
        pipe.write(json.dumps(found) + "\n")
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
