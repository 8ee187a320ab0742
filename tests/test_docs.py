"""The documentation builds without a warning, and what it says to type works."""

import contextlib
import pathlib
import re
import shlex
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

from mfauc_jax import cli

ROOT = pathlib.Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
STRANGERS = ("pip ", "cut ", "python ", "NPROC=")  # what a shell block may say that is not ours


def blocks(page: pathlib.Path) -> list[tuple[str, str]]:
    """(language, text) of every fenced block of Python or shell, in order."""
    found = re.findall(r"^```(python|sh)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [b for b in found if page != README or b[0] == "sh"]  # its Python: test_readme.py


def movielens(folder: pathlib.Path) -> None:
    """A small stand-in for MovieLens 100K, with two tastes and popular items."""
    rng = np.random.default_rng(0)
    taste, kind = rng.integers(2, size=(80, 1)), rng.integers(2, size=(1, 60))
    liked = rng.random((80, 60)) < np.where(taste == kind, 0.5, 0.15)
    users, items = np.nonzero(rng.random((80, 60)) < 0.7)
    stars = np.where(liked[users, items], 5, 2)
    (folder / "ml-100k").mkdir(parents=True)
    lines = (f"{u + 1}\t{j + 1}\t{r}\t0\n" for u, j, r in zip(users, items, stars, strict=True))
    (folder / "ml-100k" / "u.data").write_text("".join(lines))


def likes(path: pathlib.Path) -> None:
    """ann, bob and six more like five of eight things each, every thing liked by five."""
    people, things = (
        ("ann", "bob", *"cdefgh"),
        ("tea", "jam", "rye", "oat", "fig", "nut", "pea", "egg"),
    )
    pairs = (f"{people[i]},{things[(i + j) % 8]}\n" for i in range(8) for j in range(5))
    path.write_text("user,item\n" + "".join(pairs))


def type_in(text: str) -> None:
    """The lines of a shell block that call our command, in this process."""
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if not words or line.startswith(STRANGERS):
            continue
        assert words[0] == "mfauc", f"{line!r} is neither ours nor a known stranger"
        assert cli.main(words[1:]) == 0, line


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, tmp_path, capsys):
    movielens(tmp_path / "data")
    likes(tmp_path / "ratings.csv")
    namespace: dict = {"__name__": "__main__"}
    with (
        contextlib.chdir(tmp_path),
        mock.patch.object(cli, "_set_up_jax"),
        mock.patch("jax.config.update"),
        mock.patch("mfauc_jax.data.download", return_value=mock.Mock(folder="data", verified=True)),
    ):
        for language, text in blocks(page):
            if language == "sh":
                type_in(text)
            else:
                exec(compile(text, page.name, "exec"), namespace)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_paths_that_are_named_exist(page):
    for path in re.findall(r"`((?:mfauc_jax|theory|experiments|tests)/[\w/.]*)`", page.read_text()):
        assert (ROOT / path).exists(), f"{page.name} names {path}"


def test_the_site_builds_without_a_warning(tmp_path):
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not re.search("^WARNING", ran.stderr, re.MULTILINE), ran.stderr
    assert "fold_in" in (tmp_path / "api" / "index.html").read_text()
