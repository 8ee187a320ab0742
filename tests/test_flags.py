"""Every experiment says what its flags mean, and `--out` moves everything it writes."""

import dataclasses
import importlib
import pathlib
import subprocess
import sys

import pytest

from experiments import flags

ROOT = pathlib.Path(__file__).parent.parent
COMMANDS = sorted(
    path.stem
    for path in (ROOT / "experiments").glob("*.py")
    if "    flags.run(" in path.read_text() or "sys.exit(flags.run(" in path.read_text()
)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_has_a_meaning(name):
    module = importlib.import_module(f"experiments.{name}")
    for field in dataclasses.fields(module.Config):
        said = field.metadata.get("help") or flags.MEANINGS.get(field.name)
        assert said, f"experiments.{name} --{field.name}: declare it by flags.option(default, text)"


def test_help_lists_the_flags_of_the_command_with_their_meanings():
    ran = subprocess.run(
        [sys.executable, "-m", "experiments.fig_loss_plots", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    for line in ("--beta: β, the slope", "--out: folder for everything", "--results: file of"):
        assert line in ran.stdout


def test_out_moves_what_was_not_given_itself():
    paths = {"results": "results/a.jsonl", "figure": "results/a.png", "images": "docs/images"}
    assert flags.moved(paths | {"seed": 1}, "there") == {
        "results": "there/a.jsonl",
        "figure": "there/a.png",
        "images": "there",
    }
    assert flags.moved({"results": "", "seed": 1}, "there") == {}


def test_a_command_writes_where_out_says_and_nowhere_else(tmp_path):
    command = [sys.executable, "-m", "experiments.fig_loss_plots", "--points=11"]
    for more, records in (
        ([f"--out={tmp_path}/new"], "new/fig_loss_plots.jsonl"),
        ([f"--out={tmp_path}/own", f"--results={tmp_path}/r.jsonl"], "r.jsonl"),
    ):
        ran = subprocess.run(
            [*command, *more],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert (tmp_path / records).exists()
    assert {path.name for path in tmp_path.iterdir()} == {"new", "own", "r.jsonl"}
