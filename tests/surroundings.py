"""What surrounds a fit, in one of several processes: `python tests/surroundings.py OPTIONS_JSON`.

Started by tests/test_processes.py, which compares what it prints with the same calls in one process.
"""

import dataclasses
import json
import pathlib
import sys

import jax
import numpy as np
from processes import matrix, model

import mfauc_jax as mf
from mfauc_jax import distributed, selection
from mfauc_jax.data import shards, splits
from mfauc_jax.objective import losses, weightings
from mfauc_jax.serving import export

METRIC, PATIENCE = "ndcg@5", 2
NAMES = np.array([f"u{10**i % 997}-{i}" for i in range(40)])  # of different widths


def whole(named: bool = False):
    """Train and held-out positives of all users; nobody of the last five has held-out items."""
    X = mf.Interactions.of(matrix())
    train, test = splits.hold_out(jax.random.key(1), X, per_user=2)
    dense = test.to_scipy().toarray()
    dense[-5:] = 0
    train = mf.Interactions.of(matrix() - dense)
    if not named:
        return train, splits.select(X, dense[np.nonzero(matrix())] > 0)
    parts = (np.nonzero(part) for part in (matrix() - dense, dense))
    items = np.array([f"i{j:02d}" for j in range(24)])
    return tuple(mf.Interactions.of((NAMES[rows], items[columns])) for rows, columns in parts)


def default(iterations=6, **changes):
    return mf.MFAUC(3, solver=mf.Alternating(iterations)).set_params(**changes)


def softmax(iterations=4):
    parts = {"loss": losses.Exponential(beta=2.0), "weighting": weightings.Log(c=9.0)}
    return mf.MFAUC(3, solver=mf.Dense(iterations, batch=7), **parts)


def rejecting(train):
    """The same users, of whom those of the first process alone have dislikes."""
    rejected = (np.random.default_rng(5).random(matrix().shape) < 0.2) & (matrix() == 0)
    rejected[20:] = False
    return dataclasses.replace(train, dislikes=mf.Interactions.of(rejected.astype(float)))


def watched(**changes):
    return mf.Watch(metric=METRIC, record_every=1).replace(**changes)


def second(counts):
    """A metric of one's own, per user."""
    return counts.per_user((counts.place == 1).astype(float))


def listed(counts):
    """A metric of one's own that looks at this process's users only."""
    return float(len(counts.users))


def run(mine, dealt, folder) -> dict:
    """Every call, on the rows of one process; what it found."""
    train, test = (part.take(mine) for part in whole())
    found = {}

    def keep(name, fitted):
        found[name] = {
            "history": [{k: v for k, v in r.items() if k != "seconds"} for r in fitted.history_],
            "stopped": fitted.stopped_,
            "V": fitted.item_factors_.tolist(),
        }

    kept = mf.Checkpoints(f"{folder}/patience", every=1)
    first = default(8).fit(train, test, watch=watched(patience=PATIENCE), checkpoints=kept)
    keep("patience", first)
    keep("tanh", default(weighting="tanh").fit(train, watch=watched()))
    tolerant = mf.Watch(tolerance=1e-3)
    keep("converged", default(30, penalty=mf.Fixed(0.5), start="svd").fit(train, watch=tolerant))
    own = tuple(part.take(dealt) for part in whole())
    kept = mf.Checkpoints(f"{folder}/blockwise", every=1)
    keep("blockwise", model().fit(*own, watch=watched(), checkpoints=kept))
    keep("svd", model().with_params(start="svd").fit(own[0]))
    kept = mf.Checkpoints(f"{folder}/dense", every=1)
    keep("dense", softmax().fit(train, test, watch=watched(), checkpoints=kept))
    keep("least squares", softmax(2).with_params(start="least_squares").fit(train))
    disliking = rejecting(whole()[0]).take(mine)
    for name, loss, solver in (
        ("drawn positives", "logistic", mf.Dense(2, batch=7, num_pos=3, num_items=11)),
        ("full batch, moments", "square", mf.FullBatch(3)),
        ("full batch, sorted", "square_hinge", mf.FullBatch(3)),
    ):
        keep(name, mf.MFAUC(3, loss=loss, solver=solver).fit(disliking, watch=watched()))
    for kind in ("normal", "bootstrap"):
        key = jax.random.key(3)
        found[kind] = mf.evaluate(first, train, test, (1, 5), intervals=kind, key=key)
    watch = mf.Watch(metric=second)
    keep("own metric", default().fit(train, test, watch=watch))
    try:
        default().fit(train, test, watch=mf.Watch(metric=listed))
    except ValueError as error:
        found["refused"] = str(error)
    halves = [(train, test), (test, train)]
    grid = {"rank": [2, 3], "penalty__strength": [0.2, 0.4]}
    for criterion in ("auc", "objective"):
        given = {"splits": halves, "criterion": criterion, "folder": f"{folder}/{criterion}"}
        for again in range(2):
            chosen = selection.select(0, default(3), train, grid, progress=False, **given)
            found[f"{criterion} {again}"] = [row["mean"] for row in chosen.means()]
    try:
        random = selection.select(0, default(2), train, {"rank": [2, 3]}, progress=False)
        found["random splits"] = random.best
    except ValueError as error:
        found["random splits"] = str(error)
    train, test = whole(named=True)
    own = np.isin(np.asarray(train.user_ids), NAMES[mine])
    fitted = default().fit(
        train.take(np.flatnonzero(own)), test, watch=watched()
    )  # skips others' ids
    keep("named", fitted)
    fitted.save(f"{folder}/model.safetensors")
    shared = pathlib.Path(folder).parent
    for name in ("shards", "foreign"):
        X = shards.read(shared / name)
        keep(name, default().fit(X))
        found[f"{name} users"] = X.num_users
    found["lists"] = str(export.table(fitted, f"{folder}/lists.csv", n=3))
    found["run"] = str(export.trec_run(fitted, f"{folder}/lists.run", n=3))
    return found


def main(options: dict) -> None:
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_num_cpu_devices", options["devices"])
    distributed.initialize(options["coordinator"], options["count"], options["id"])
    mine = np.array_split(np.arange(40), options["count"])[options["id"]]
    dealt = distributed.users(whole()[0].row_lengths, 4)
    distributed._last_deal = None  # the other fits have other rows
    print(json.dumps(run(mine, dealt, options["folder"])), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
