"""The documentation builds without a warning, and what it says to type works."""

import html
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import mfauc_jax
from experiments import page_outputs

ROOT = pathlib.Path(__file__).parent.parent
README = ROOT / "README.md"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    ran = subprocess.run(
        [*command, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert not re.search("^WARNING", ran.stderr, re.MULTILINE), ran.stderr
    return folder


def test_the_site_builds_without_a_warning_and_has_signatures_and_parameters(site):
    page = (site / "api" / "index.html").read_text()
    text = html.unescape(re.sub("<[^>]+>", "", page))
    assert "exclude_seen: bool = True" in text  # of recommend, in its signature
    assert text.count("Parameters:") > 20 and "length of the lists, ≥ 1" in text
    assert "docs/derivations.md" not in text  # citations are links
    home = (site / "index.html").read_text()
    assert f"Version {mfauc_jax.__version__}" in home and "images/study_top.png" in home
    assert (site / "images" / "study_top.png").exists()


def test_the_site_needs_no_other_site(site):
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert not re.search(r'<(script|link|img)[^>]+(src|href)="(https?:)?//', text), path
    assert (site / "javascripts" / "mathjax" / "LICENSE").exists()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("page", ["choosing", "derivations"])
def test_every_formula_is_drawn_by_a_browser(site, page, tmp_path):
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=60000"]
    ran = subprocess.run(
        [*command, (site / page / "index.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    written = (site / page / "index.html").read_text().count('class="arithmatex"')
    assert written == ran.stdout.count("<mjx-container") >= 1, ran.stderr[-500:]
    assert "data-mjx-error" not in ran.stdout
