"""Random command lines for `mfauc`, in one process: exit code 0, 1 or 2, one message, and no partial file."""

import contextlib
import functools
import io
import itertools
import pathlib
import shutil
import sys
from typing import Any
from unittest import mock

import numpy as np

from experiments.torture import samples
from experiments.torture.readers import judged_command
from experiments.torture.tally import CRASHED, EQUAL, OTHER, PARTIAL, SILENT, Outcome, left_over
from mfauc_jax import cli

FILES = (
    "ratings.csv",
    "model",
    "missing",
    "folder",
    "empty.csv",
    "noise.csv",
    "new",
    "new.csv",
    "new.parquet",
)
WORDS = (
    *FILES,
    *(
        "ü1",
        "nobody",
        "日本",
        "\udcff",
        "",
        "-",
        "--",
        "0",
        "1",
        "-1",
        "2",
        "3",
        "0.5",
        "1e309",
        "nan",
        "none",
    ),
    *(
        "9" * 40,
        "strength=0.1,1",
        "rank=x",
        "rank=2,3",
        "=",
        "csv",
        "json",
        "parquet",
        "square",
        "logistic",
    ),
    *(
        "tanh",
        "minibatch",
        "alternating",
        "held_out_all",
        "ml-100k",
        "utf-16",
        "user",
        "item",
        "stars",
        "time",
    ),
    *(
        "true",
        "a\0b",
        "auc",
        "ndcg@10",
        "x.png",
        "folder/new",
        "/nowhere/x",
        "ratings.csv/x",
        "100",
        "101",
    ),
)
COMMANDS = {
    ("fit",): ("ratings.csv", "--out", "new", "--rank", "2", "--iterations", "2"),
    ("select",): ("ratings.csv", "--grid", "strength=1,2", "--rank", "2", "--iterations", "1"),
    ("recommend",): ("model",),
    ("similar",): ("model",),
    ("evaluate",): ("model", "held_out.csv"),
    ("certify",): ("model", "held_out.csv"),
    ("data", "list"): (),
    ("data", "download"): ("ml-100k",),
    ("data", "describe"): ("ratings.csv",),
    ("data", "split"): ("ratings.csv", "--train", "new.csv", "--test", "new2.csv"),
}


def count(quick: bool) -> int:
    return 400 if quick else 4_000


@functools.cache
def flags() -> list[str]:
    """Every option of every command."""
    found, left = set(), [cli.parser()]
    while left:
        for action in left.pop()._actions:
            found |= set(action.option_strings)
            if isinstance(action.choices, dict) and action.nargs == "A...":
                left += action.choices.values()
    return sorted(found - {"--debug"})


def prepare(home: pathlib.Path) -> Any:
    """A folder with everything that the words can name, to be copied for each command line."""
    whole = home / "commands" / "whole"
    shutil.rmtree(home / "commands", ignore_errors=True)
    (whole / "folder").mkdir(parents=True)
    samples.frame(text=True).write_csv(whole / "ratings.csv")
    held_out = samples.frame(1, text=True).join(
        samples.frame(text=True), on=("user", "item"), how="anti"
    )
    held_out.write_csv(whole / "held_out.csv")
    (whole / "empty.csv").touch()
    (whole / "noise.csv").write_bytes(bytes(range(256)))
    with contextlib.chdir(whole):
        ran = run(["fit", "ratings.csv", "--out", "model", "--rank", "2", "--iterations", "2"])
    if ran[0] != 0:
        raise RuntimeError(f"the sound command failed: {ran[2]}")
    return whole, home / "commands" / "here"


def run(words: list[str]) -> tuple[int, str, str]:
    """The exit code of a command line, and what it wrote to standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "stdin", io.StringIO("ü1\n")),
        mock.patch.object(cli, "_set_up_jax"),  # for a process of its own
        mock.patch.object(cli, "parser", _parser),
        mock.patch("mfauc_jax.data.download", side_effect=ConnectionError("no network here")),
    ):
        return cli.main(words), out.getvalue(), err.getvalue()


_parser = functools.cache(cli.parser)  # making it takes longer than most commands


def line(rng: np.random.Generator) -> list[str]:
    """A random command line: often a sound one with some nonsense behind it."""
    known = list(COMMANDS)
    command = known[int(rng.integers(len(known)))]
    words = [*command, *(COMMANDS[command] if rng.random() < 0.7 else ())]
    for _ in range(int(rng.integers(0, 5))):
        word, flag = (str(rng.choice(many)) for many in (WORDS, flags()))
        words += [[flag, word], [flag, word], [word], [flag]][int(rng.integers(4))]
    return words


def attempt(bench: Any, seed: int, case: int) -> Outcome:
    """Run one random command line in a fresh copy of the folder."""
    whole, here = bench
    words = line(np.random.default_rng([seed, case]))
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(whole, here)
    before = _files(here)
    try:
        with contextlib.chdir(here):
            code, out, err = run(words)
    except BaseException as error:
        return Outcome(CRASHED, f"{words}: raised {type(error).__name__}: {error}")
    return judged(words, code, out, err, before, _files(here), left_over(here))


def judged(
    words: list[str], code: int, out: str, err: str, before: dict, after: dict, left: list[str]
) -> Outcome:
    """How a command line ended, by its exit code, its output and the files before and after."""
    shown = f"mfauc {words}"
    if left:
        return Outcome(PARTIAL, f"{shown}: left {left[0]}")
    outcome = judged_command(code, out or "nothing needs to be printed", err)
    if code != 0 and before != after and outcome.what not in (CRASHED,):
        changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
        return Outcome(PARTIAL, f"{shown}: failed with {code} and changed {', '.join(changed)}")
    given = dict(itertools.pairwise(words))
    if code == 0 and "split" in words and given.get("--train", 0) == given.get("--test", 1):
        return Outcome(SILENT, f"{shown}: training and test went to one file")
    lost = sorted(before.keys() - after.keys())
    if lost:
        return Outcome(SILENT, f"{shown}: lost {', '.join(lost)}")
    what = EQUAL if outcome.what == OTHER else outcome.what
    return Outcome(what, f"{shown}: {outcome.detail}")


def _files(folder: pathlib.Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }
