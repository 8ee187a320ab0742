"""Damaged model files: every one is refused, or loads as the model that was saved."""

import json
import pathlib
import shutil
import warnings
from typing import Any

import numpy as np

from experiments.torture import mutations, samples
from experiments.torture.tally import CRASHED, EQUAL, SILENT, Outcome, refusal
from mfauc_jax import MFAUC, Interactions


def count(quick: bool) -> int:
    return 400 if quick else 3_000


def prepare(home: pathlib.Path) -> Any:
    """Three sound model files, and what each holds."""
    folder = home / "models"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    X = samples.matrix(2)
    weighted = Interactions.of(X * np.linspace(1, 3, X.size).reshape(X.shape), confidence=True)
    models = [samples.fitted(), samples.fitted(ids=False), MFAUC(rank=2).fit(weighted)]
    sound = []
    for number, model in enumerate(models):
        path = folder / f"{number}.model"
        model.save(path)
        sound.append((path.name, path.read_bytes(), contents(model)))
    return folder, sound


def contents(model: MFAUC) -> tuple:
    """Everything that a model file holds, to compare."""
    factors = [F.tobytes() for F in (model.user_factors_, model.item_factors_)]
    untimed = [{k: v for k, v in r.items() if k != "seconds"} for r in model.history_]
    settings = json.dumps([model.describe(), untimed, model.stopped_], sort_keys=True)
    return (*factors, settings, samples._triples(model.train_))


def attempt(bench: Any, seed: int, case: int) -> Outcome:
    """Damage one file, load it, and compare; every third case damages only the header."""
    folder, sound = bench
    rng = np.random.default_rng([seed, case])
    name, data, wanted = sound[case % len(sound)]
    begin, end = 0, len(data)
    if case % 3 == 0:
        end = 8 + int.from_bytes(data[:8], "little")
    damaged, how = mutations.mutated(rng, data[begin:end])
    path = samples.write(folder, f"damaged-{name}", data[:begin] + damaged + data[end:])
    outcome = judged(path, wanted)
    return Outcome(outcome.what, f"{name}, {how}: {outcome.detail}")


def judged(path: pathlib.Path, wanted: tuple, load: Any = MFAUC.load) -> Outcome:
    """How the loading of a damaged file ended: what loads must equal what was saved."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = load(path)
    except BaseException as error:
        return refusal(error, path.name)
    try:
        found = contents(model)
    except BaseException as error:
        return Outcome(CRASHED, f"loaded, and then {type(error).__name__}: {error}")
    return Outcome(EQUAL) if found == wanted else Outcome(SILENT, "another model was loaded")
