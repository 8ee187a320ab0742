"""Damaged folders of checkpoints: the fit resumes to the same bits, or refuses the folder clearly."""

import contextlib
import pathlib
import shutil
import warnings
from typing import Any

import numpy as np

from experiments.torture import mutations, samples
from experiments.torture.fits import result
from experiments.torture.tally import EQUAL, SILENT, Outcome, refusal
from mfauc_jax import MFAUC, Alternating, Checkpoints, Minibatch, Watch


def count(quick: bool) -> int:
    return 60 if quick else 1_000


def prepare(home: pathlib.Path) -> Any:
    """A folder with the last two states of a fit that was cut short, per kind of fit, and what the whole fit finds."""
    top = home / "states"
    shutil.rmtree(top, ignore_errors=True)
    X = samples.matrix()
    sound = []
    for name, (model, options) in _fits(X).items():
        folder = top / name
        cut = Checkpoints(str(folder), every=1)
        with contextlib.suppress(Stop):
            model.with_params().fit(X, checkpoints=cut, callbacks=[_stop_at_5], **options)
        wanted = result(model.with_params().fit(X, **options))
        sound.append((name, folder, model, options, wanted))
    return X, top / "damaged", sound


def _fits(X: np.ndarray) -> dict[str, tuple[MFAUC, dict[str, Any]]]:
    minibatch = MFAUC(rank=2, loss="logistic", solver=Minibatch(6, batch=8))
    watched = {"validation": samples.held_out(X), "watch": Watch(patience=9)}
    return {
        "alternating": (MFAUC(rank=2, solver=Alternating(6)), {}),
        "minibatch": (minibatch, watched),
    }


def _stop_at_5(iteration: int, factors: Any, record: dict) -> None:
    if iteration == 5:
        raise Stop


class Stop(Exception):  # noqa: N818
    """Ends a fit as an error of the caller's own would."""


def attempt(bench: Any, seed: int, case: int) -> Outcome:
    """Damage, delete or empty one file of the folder, and fit again."""
    X, folder, sound = bench
    rng = np.random.default_rng([seed, case])
    name, whole, model, options, wanted = sound[case % len(sound)]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    victim = files[int(rng.integers(len(files)))]
    how = damage(rng, victim, folder)
    detail = f"{name}, {victim.relative_to(folder)}, {how}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = model.with_params().fit(
                X, checkpoints=Checkpoints(str(folder), every=1), **options
            )
    except BaseException as error:
        outcome = refusal(error, str(folder))
        return Outcome(outcome.what, f"{detail}: {outcome.detail}")
    found = result(again)
    if found == wanted:
        return Outcome(EQUAL, detail)
    differ = [key for key in wanted if found[key] != wanted[key]]
    return Outcome(SILENT, f"{detail}: other {', '.join(differ)}")


def damage(rng: np.random.Generator, victim: pathlib.Path, folder: pathlib.Path) -> str:
    """Change the victim, or remove it, or remove the folder that it lies in."""
    dice = rng.random()
    if dice < 0.1:
        victim.unlink()
        return "deleted"
    if dice < 0.15 and victim.parent != folder:
        shutil.rmtree(victim.parent)
        return "folder deleted"
    damaged, how = mutations.mutated(rng, victim.read_bytes())
    victim.write_bytes(damaged)
    return how
