"""The documentation builds without a warning, and what it says to type works."""

import pathlib
import re
import subprocess
import sys

import pytest

from experiments import page_outputs

ROOT = pathlib.Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
REAL_DATA = ("tutorial.md",)  # prints numbers of MovieLens 100K: python -m experiments.page_outputs


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if page_outputs.BLOCK.search(p.read_text())],
    ids=lambda page: page.stem,
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, capsys):
    text = page.read_text()
    with page_outputs.scratch():
        for block in page_outputs.run(text, page.name, {"__name__": "__main__"}):
            if block.printed is not None and page.name not in REAL_DATA:
                assert block.printed == block.wanted, block.code
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
