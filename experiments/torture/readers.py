"""Damaged files of ratings, of every format that is read, by Python and by the command."""

import contextlib
import io
import pathlib
import shutil
import warnings
from typing import Any

import numpy as np

from experiments.torture import mutations, samples
from experiments.torture.tally import CRASHED, EQUAL, OTHER, REFUSED, SILENT, Outcome, refusal
from mfauc_jax import Interactions, cli, data


def count(quick: bool) -> int:
    return 1_000 if quick else 9_000


def prepare(home: pathlib.Path) -> Any:
    """The sound files and what they read as."""
    folder = home / "readers"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sound = []
    for sample in samples.ratings():
        path = samples.write(folder, sample.name, sample.data)
        sound.append((sample, read(path)))
    return folder, sound


def read(path: pathlib.Path) -> Interactions:
    """What the file reads as, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return data.read_ratings(path)


def attempt(bench: Any, seed: int, case: int) -> Outcome:
    """Damage one file and read it; every tenth case goes through the command."""
    folder, sound = bench
    rng = np.random.default_rng([seed, case])
    sample, wanted = sound[case % len(sound)]
    damaged, how = mutations.mutated(rng, sample.data)
    path = samples.write(folder, sample.name, damaged)
    try:
        judge = by_command if rng.random() < 0.1 else by_python
        outcome = judge(path, sample, wanted)
    finally:
        samples.write(folder, sample.name, sample.data)
    return Outcome(outcome.what, f"{sample.name}, {how}: {outcome.detail}")


def by_python(path: pathlib.Path, sample: samples.Sample, wanted: Interactions) -> Outcome:
    """`data.read_ratings` of the damaged file."""
    try:
        found = read(path)
    except BaseException as error:  # polars' panics are no Exceptions
        return refusal(error, path.name)
    return judged(found, sample.exact, wanted)


def judged(found: Interactions, exact: bool, wanted: Interactions) -> Outcome:
    """How a reading ended: only a format without checksums may give other data, and these must be sound."""
    indptr, indices = np.asarray(found.indptr), np.asarray(found.indices)
    if len(indices) != indptr[-1] or (np.diff(indptr) < 0).any() or not len(indices):
        return Outcome(SILENT, "the rows of the matrix are unsound")
    if indices.min() < 0 or indices.max() >= found.num_items:
        return Outcome(SILENT, f"items {indices.min()} to {indices.max()} of {found.num_items}")
    if samples.same_interactions(found, wanted):
        return Outcome(EQUAL)
    return Outcome(SILENT, "read as other data, against its checksum") if exact else Outcome(OTHER)


def by_command(path: pathlib.Path, sample: samples.Sample, wanted: Interactions) -> Outcome:
    """`mfauc data describe` of the damaged file: one line that names it, or the description."""
    del sample, wanted
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(["data", "describe", str(path), "--no_cache"])
    except BaseException as error:
        return Outcome(CRASHED, f"the command raised {type(error).__name__}: {error}")
    return judged_command(code, out.getvalue(), err.getvalue(), path.name)


def judged_command(code: int, out: str, err: str, *names: str) -> Outcome:
    """How a command ended, by its exit code and what it printed."""
    last = (err.strip().splitlines() or [""])[-1]
    if code not in (0, 1, 2) or "Traceback" in err or "internal error" in err:
        return Outcome(CRASHED, f"exit code {code}: {last}")
    if code == 0:
        return Outcome(OTHER) if out else Outcome(SILENT, "exit code 0, and nothing was printed")
    if not any(line.startswith("mfauc") for line in err.splitlines()):
        return Outcome(CRASHED, f"exit code {code} without a message: {last!r}")
    if names and not any(name in err for name in names):
        return Outcome(CRASHED, f"does not name {' or '.join(names)}: {last}")
    return Outcome(REFUSED, last)
