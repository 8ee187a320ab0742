"""What the README says is so: its commands are the ones that are checked, its code runs."""

import importlib.util
import os
import pathlib
import re
import subprocess
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = ("README.md", "CONTRIBUTING.md", "theory/README.md")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The lines of the README's first shell block: run, then test."""
    lines = blocks("sh")[0].splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_the_first_screen_has_the_equation_the_two_commands_and_an_example():
    screen = "\n".join(README.splitlines()[:60])
    assert "$$" in screen or "```math" in screen
    assert len(commands()) == 2
    assert len(blocks("python", screen)[0].splitlines()) <= 10


def test_each_command_sets_everything_up():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for command in commands():
        made, installed, ran = command.split(" && ")
        assert made == "python -m venv .venv"
        assert installed.startswith(".venv/bin/pip install")
        assert re.findall(r"\.\[(\w+)\]", installed)[0] in extras
        assert ran.startswith(".venv/bin/python -m ")


def test_ci_runs_the_readmes_test_command():
    ran = subprocess.run(
        ["bash", ".ci/run"],
        cwd=ROOT,
        env={**os.environ, "DRY_RUN": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    first = ran.stdout.splitlines()[0]
    scratch = re.findall(r"-m venv (\S+)/venv ", first)[0]
    assert first.replace(f"{scratch}/venv", ".venv") == commands()[1]
    assert "bash .ci/run" in (ROOT / ".github/workflows/ci.yml").read_text()


def test_the_code_of_the_readme_runs(capsys):
    namespace: dict = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)
    assert namespace["items"].shape == namespace["scores"].shape
    assert 0.5 < float(capsys.readouterr().out.split()[0]) <= 1  # the AUC it prints first


@pytest.mark.parametrize("page", PAGES)
def test_modules_and_paths_that_are_named_exist(page):
    text = (ROOT / page).read_text()
    for module in re.findall(r"python -m ((?:theory|experiments|mfauc_jax)[\w.]*)", text):
        assert importlib.util.find_spec(module), f"{page} names {module}"
    home = (ROOT / page).parent
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (home / link).exists(), f"{page} links to {link}"
    for path in re.findall(r"`((?:mfauc_jax|theory|experiments|tests)/[\w/.]*)`", text):
        assert (ROOT / path).exists(), f"{page} names {path}"
