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
    """The lines of the README that set everything up: run, then test."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("python -m venv")]


def test_the_first_screen_is_for_a_stranger():
    """One sentence, how to install it, a few lines of pandas with their output, the picture, the two commands."""
    screen = "\n".join(README.splitlines()[:62])
    install, code, output = (blocks(language, screen)[0] for language in ("sh", "python", "text"))
    assert install.startswith("pip install")
    assert len(code.splitlines()) <= 8 and "import pandas" in code
    assert output in screen[screen.index(code) :]
    assert screen.index("study_top.png") < screen.index("python -m venv")
    assert len(commands()) == 2 and all(command in screen for command in commands())
    assert "https://arxiv.org/abs/1508.06091" in screen
    assert README.index("```math") > len(screen)  # the formula is for the reader who goes on


@pytest.mark.parametrize("page", ["docs/index.md", "CITATION.cff"])
def test_the_paper_is_linked(page):
    assert "https://arxiv.org/abs/1508.06091" in (ROOT / page).read_text()


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
