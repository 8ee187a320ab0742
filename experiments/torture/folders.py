"""A folder of checkpoints that belongs to another fit, and folders of cells that were damaged."""

import functools
import json
import pathlib
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import mfauc_jax as mf
from experiments.torture import fits, mutations, samples
from experiments.torture.tally import EQUAL, REFUSED, SILENT, Outcome, refusal

Change = Callable[[mf.MFAUC, np.ndarray], tuple[mf.MFAUC, Any, dict[str, Any]]]
CELLS = 20, 600  # damaged folders of cells, quick and full


def _data(of: Callable[[np.ndarray], Any]) -> Change:
    return lambda model, X: (model, of(X), {})


def _set(**changes: Any) -> Change:
    return lambda model, X: (model.with_params(**changes), X, {})


def _fit(**options: Any) -> Change:
    return lambda model, X: (model, X, options)


def _swapped(X: np.ndarray) -> np.ndarray:
    """As many positives in every row, one of them elsewhere."""
    X = X.copy()
    X[0, [np.argmax(X[0]), np.argmin(X[0])]] = X[0, [np.argmin(X[0]), np.argmax(X[0])]]
    return X


def _named(X: np.ndarray, word: str) -> mf.Interactions:
    users, items = np.nonzero(X)
    return mf.Interactions.from_pairs([f"{word}{u}" for u in users], items)


OTHER_FITS: dict[str, Change] = {  # each must be refused in a folder of the plain fit
    "another positive": _data(_swapped),
    "users in another order": _data(lambda X: X[::-1].copy()),
    "items in another order": _data(lambda X: X[:, ::-1].copy()),
    "ids": _data(lambda X: _named(X, "a")),
    "confidence": _data(lambda X: mf.Interactions.of(2 * X, confidence=True)),
    "one user more": _data(lambda X: np.vstack([X, X[:1]])),
    "learning rate": _set(solver__learning_rate=0.2),
    "batch": _set(solver__batch=4),
    "num_neg": _set(solver__num_neg=3),
    "optimiser": _set(solver__optimiser="adam"),
    "average": _set(solver__average=mf.Averaging(start=1)),
    "rank": _set(rank=3),
    "seed": _set(seed=1),
    "β": _set(loss=mf.losses.Logistic(beta=2.0)),
    "loss": _set(loss="square_hinge"),
    "a loss of one's own": _set(loss=lambda x: jax.numpy.logaddexp(0.0, -1.5 * x)),
    "weighting": _set(weighting="tanh"),
    "weights": _set(weights=mf.Weights(user_power=0.3)),
    "penalty": _set(penalty=mf.Fixed(reg=0.3)),
    "start": _set(start="svd"),
    "solver": _set(solver=mf.FullBatch(6)),
    "fewer iterations than every state": _set(solver__iterations=2),
    "a series of β": _set(solver=mf.Continuation(mf.Minibatch(6, batch=8), betas=(1.0, 2.0))),
    "validation": _fit(validation=samples.held_out(samples.matrix())),
    "records": _fit(watch=mf.Watch(record_every=1)),
}
SAME_FIT: dict[str, Change] = {  # each must go on to what it finds in an empty folder
    "nothing": _fit(),
    "more iterations": _set(solver__iterations=8),
    "a sparse matrix": _data(mf.Interactions.of),
    "a callback that never stops": _fit(callbacks=[lambda s, factors, record: None]),
}
EITHER: dict[str, Change] = {"fewer iterations": _set(solver__iterations=5)}  # equal or refused


def count(quick: bool) -> int:
    return len(OTHER_FITS) + len(SAME_FIT) + len(EITHER) + 1 + CELLS[not quick]


def prepare(home: pathlib.Path) -> pathlib.Path:
    """A folder of states of the plain fit, and folders of cells with what they hold."""
    folder = home / "folders"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model, X = plain()
    model.with_params().fit(X, checkpoints=mf.Checkpoints(str(folder / "states"), every=1))
    for name, job in (("select", fits.select), ("records", fits.records)):
        (folder / name).mkdir()
        (folder / f"{name}.json").write_text(json.dumps(job(folder / name)))
    return folder


def plain() -> tuple[mf.MFAUC, np.ndarray]:
    """The fit to which the folder belongs."""
    solver = mf.Minibatch(6, batch=8, learning_rate=0.1)
    return mf.MFAUC(rank=2, loss="logistic", solver=solver), samples.matrix()


def attempt(folder: pathlib.Path, seed: int, case: int) -> Outcome:
    """One other fit in the folder of the plain one, or one damaged folder of cells."""
    cases = {**OTHER_FITS, **SAME_FIT, **EITHER}
    if case < len(cases):
        name = list(cases)[case]
        return another(folder, name, cases[name])
    if case == len(cases):
        with jax.enable_x64(True):
            return another(folder, "float64", _fit())
    return damaged_cells(folder, np.random.default_rng([seed, case]))


def another(folder: pathlib.Path, name: str, change: Change) -> Outcome:
    """A fit with one change in a copy of the folder, compared with the same fit in an empty folder."""
    model, X, options = change(*plain())
    copy, empty = folder / "copy", folder / "empty"
    for path in (copy, empty):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(folder / "states", copy)
    try:
        found = _fitted(model, X, copy, options)
    except BaseException as error:
        outcome = refusal(error, str(copy))
        if outcome.what == REFUSED and name in SAME_FIT:
            return Outcome(SILENT, f"{name}: the same fit was refused: {error}")
        return Outcome(outcome.what, f"{name}: {outcome.detail}")
    same = found == _fitted(model, X, empty, options)
    if same and name not in OTHER_FITS:
        return Outcome(EQUAL, name)
    return Outcome(SILENT, f"{name}: a fit with other settings or data was taken for the same")


def _fitted(model: mf.MFAUC, X: Any, folder: pathlib.Path, options: dict[str, Any]) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        states = mf.Checkpoints(str(folder), every=1)
        return fits.result(model.with_params().fit(X, checkpoints=states, **options))


def damaged_cells(folder: pathlib.Path, rng: np.random.Generator) -> Outcome:
    """Damage one file of a finished selection, or of the records of an experiment, and ask for it again."""
    name = ("select", "records")[int(rng.integers(2))]
    job = {"select": fits.select, "records": fits.records}[name]
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder / name, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    victim = files[int(rng.integers(len(files)))]
    damaged, how = mutations.mutated(rng, victim.read_bytes())
    victim.write_bytes(damaged)
    shown = f"{victim.relative_to(copy)}, {how}"
    return judged(
        functools.partial(job, copy),
        json.loads((folder / f"{name}.json").read_text()),
        shown,
        victim.name,
    )


def judged(ask: Callable[[], dict], wanted: dict, shown: str, file: str) -> Outcome:
    """How a finished piece of work that was damaged ended: the same values, or a refusal that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = json.loads(json.dumps(ask()))
    except BaseException as error:
        outcome = refusal(error, file, "copy")
        return Outcome(outcome.what, f"{shown}: {outcome.detail}")
    return Outcome(EQUAL) if found == wanted else Outcome(SILENT, f"{shown}: other values")
