"""The jobs that are killed: fits with checkpoints, saves, figures, selections, records; and the child that does them.

A job runs in a folder of its own, may be killed and started again in the same folder, and returns plain values that do
not depend on where it was interrupted. What it finds on the disk when it starts must be whole.
"""

import hashlib
import json
import os
import pathlib
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from experiments.torture import samples, tally

WATCHED = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate")
SEVERAL = 6  # iterations of the fits


def result(model: Any) -> dict[str, Any]:
    """What two equal fits have in common: the bits of the factors, the history without times, the reason to stop."""
    digest = hashlib.sha256()
    for F in (model.user_factors_, model.item_factors_):
        digest.update(f"{F.dtype} {F.shape}".encode() + F.tobytes())
    history = [{k: v for k, v in record.items() if k != "seconds"} for record in model.history_]
    return {"factors": digest.hexdigest(), "history": history, "stopped": model.stopped_}


def solvers() -> dict[str, Any]:
    """One small model per solver."""
    import mfauc_jax as mf

    pairwise = {"rank": 2, "loss": "logistic"}
    inner = mf.Minibatch(SEVERAL, batch=8, average=mf.Averaging(start=2))
    return {
        "alternating": mf.MFAUC(rank=2, solver=mf.Alternating(SEVERAL)),
        "minibatch": mf.MFAUC(**pairwise, solver=inner),
        "sequential": mf.MFAUC.paper(
            rank=2, solver=mf.Sequential(SEVERAL, num_users=4, num_items=3)
        ),
        "full_batch": mf.MFAUC(**pairwise, solver=mf.FullBatch(SEVERAL)),
        "blockwise": mf.MFAUC(**pairwise, solver=mf.Blockwise(SEVERAL, batch=8, blocks=2)),
        "continuation": mf.MFAUC(**pairwise, solver=mf.Continuation(inner, betas=(1.0, 2.0, 4.0))),
    }


def watching(X: Any) -> dict[str, Callable[[], dict[str, Any]]]:
    """The options of `fit` that each variant adds."""
    import mfauc_jax as mf

    held_out = samples.held_out(X)
    return {
        "plain": dict,
        "validation": lambda: {"validation": held_out},
        "patience": lambda: {
            "validation": held_out,
            "watch": mf.Watch(metric="precision@1", patience=2),
        },
        "records": lambda: {"watch": mf.Watch(record_every=2, tolerance=1e-3)},
        "callbacks": lambda: {"callbacks": [lambda s, factors, record: s == SEVERAL - 1]},
        "everything": lambda: {
            "validation": held_out,
            "watch": mf.Watch(metric="ndcg@5", patience=3, record_every=1, validate_every=2),
            "callbacks": [lambda s, factors, record: None],
        },
    }


def fit(solver: str, variant: str, every: int, folder: pathlib.Path) -> dict[str, Any]:
    """A fit with checkpoints in the folder."""
    import mfauc_jax as mf

    X = samples.matrix()
    states = mf.Checkpoints(str(folder / "states"), every=every)
    return result(solvers()[solver].fit(X, checkpoints=states, **watching(X)[variant]()))


def save(folder: pathlib.Path) -> dict[str, Any]:
    """Two models saved by turns to one file, which is always one of the two."""
    from mfauc_jax import MFAUC

    models, path = [samples.fitted(seed=seed) for seed in (0, 1)], folder / "model"
    wanted = [result(model) for model in models]
    if path.exists() and result(MFAUC.load(path)) not in wanted:
        raise AssertionError("partial: the model file is neither the old nor the new one")
    for turn in range(12):
        models[turn % 2].save(path)
    return result(MFAUC.load(path))


def export(folder: pathlib.Path) -> dict[str, Any]:
    """Lists written as csv and parquet."""
    import polars as pl

    from mfauc_jax import export as exporting

    model, shapes = samples.fitted(), []
    for name, read in (("lists.csv", pl.read_csv), ("lists.parquet", pl.read_parquet)):
        path = folder / name
        if path.exists() and len(read(path)) != 24 * 3:
            raise AssertionError(f"partial: {name} has {len(read(path))} rows")
        for _ in range(4):
            exporting.table(model, path, n=3)
        shapes.append(read(path).shape)
    return {"shapes": shapes}


def figure(folder: pathlib.Path) -> dict[str, Any]:
    """A figure that is drawn again and again, as PNG and PDF, by the writer that all experiments share."""
    from experiments import style

    ends = {"drawn.png": b"IEND\xaeB`\x82", "drawn.pdf": b"%%EOF\n"}
    for name, end in ends.items():
        path = folder / name
        if path.exists() and not path.read_bytes().endswith(end):
            raise AssertionError(f"partial: {name} is cut")
    for _ in range(3):
        drawn, axes = style.plt.subplots()
        axes.plot(range(1000), [i * i % 97 for i in range(1000)])
        style.save(drawn, folder, "drawn")
    return {name: (folder / name).read_bytes().endswith(end) for name, end in ends.items()}


def select(folder: pathlib.Path) -> dict[str, Any]:
    """A selection that keeps its cells."""
    import mfauc_jax as mf

    model, grid = (
        mf.MFAUC(rank=2, solver=mf.Alternating(2)),
        {"penalty__strength": [0.1, 1.0], "rank": [2, 3]},
    )
    found = mf.selection.select(
        0, model, samples.matrix(), grid, splits=2, per_user=1, folder=folder / "cells"
    )
    return {"best": found.best, "score": found.score, "table": found.table}


def records(folder: pathlib.Path) -> dict[str, Any]:
    """Cells of an experiment, appended one by one."""
    from experiments import results

    cells = results.Cells(folder / "records.jsonl")
    found = cells.run([{"job": i} for i in range(30)], lambda job: {"square": job["job"] ** 2})
    return {"squares": [record["square"] for record in found]}


def jobs() -> dict[str, Callable[[pathlib.Path], dict[str, Any]]]:
    """All jobs by name."""
    variants = ("plain", "validation", "patience", "records", "callbacks", "everything")
    names = ("alternating", "minibatch", "sequential", "full_batch", "blockwise", "continuation")
    found: dict[str, Callable[[pathlib.Path], dict[str, Any]]] = {}
    for number, (solver, variant) in enumerate((s, v) for s in names for v in variants):
        every = 1 + number % 2
        found[f"{solver}-{variant}"] = lambda folder, s=solver, v=variant, e=every: fit(
            s, v, e, folder
        )
    return found | {
        "save": save,
        "export": export,
        "figure": figure,
        "select": select,
        "records": records,
    }


class Bomb:
    """Kills this process at the n-th change of, or look into, a folder; it counts them in any case."""

    def __init__(self) -> None:
        """Begin to count; an audit hook cannot be removed again."""
        self.folder, self.at, self.seen = "\0", 0, 0
        sys.addaudithook(self._event)

    def arm(self, folder: pathlib.Path, at: int) -> None:
        """Count the events in this folder from now on, and kill at event `at`; 0: never."""
        self.folder, self.at, self.seen = str(folder), at, 0

    def _event(self, event: str, arguments: tuple) -> None:
        if event in WATCHED and any(self.folder in str(a) for a in arguments[:2]):
            self.seen += 1
            if self.seen == self.at:
                os.kill(os.getpid(), signal.SIGKILL)


def main(home: str) -> None:
    """Do the jobs of `plan.json` in order: a list of [name, folder, event to kill at]."""
    import orbax.checkpoint  # noqa: F401  so that no kill hits the import

    pipe = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    known, bomb = jobs(), Bomb()
    for name, where, at in json.loads((pathlib.Path(home) / "plan.json").read_text()):
        folder = pathlib.Path(home) / where
        folder.mkdir(parents=True, exist_ok=True)
        pipe.write(json.dumps({"begin": where}) + "\n")
        began, said = time.monotonic(), {}
        bomb.arm(folder, at)
        try:
            said["found"] = known[name](folder)
        except BaseException as error:
            said["error"], said["refused"] = (
                f"{type(error).__name__}: {error}",
                tally.refusal(error).what,
            )
        said |= {"events": bomb.seen, "seconds": time.monotonic() - began}
        bomb.arm(folder, 0)
        pipe.write(json.dumps({"done": where, "left": tally.left_over(folder), **said}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
