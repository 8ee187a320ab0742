"""The report is a page one can read: verdicts first, the best in bold, verdicts in colour, commits last, true minus signs."""

import pathlib
import re

import pytest

from experiments import report, report_page
from experiments.report_page import Section

RESULTS = pathlib.Path(__file__).parent.parent / "experiments" / "results"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("-.012 ± .003", "−.012 ± .003"),
        ("(-1.5)", "(−1.5)"),
        ("1e-09 > -1e-12", "1e-09 > −1e-12"),
        ("ml-100k, held-out, 2015-08-25, a--b", "ml-100k, held-out, 2015-08-25, a--b"),
        ("`python -m x --limit=-1`", "`python -m x --limit=−1`"),
    ],
)
def test_minus_signs_stand_before_numbers_only(text, shown):
    assert report_page.signed(text) == shown


def test_a_table_has_bold_and_colours_and_prose_that_wraps(tmp_path):
    rows = [["met", ".5 (.4)\n+.1 ± .2", "a <b> story"], ["MISSED", ".3", ""]]
    section = Section(
        "T", [], None, ["", "p@1", "why"], rows, best={(0, 1)}, wide={"why"}, notes=["a: so"]
    )
    page = report_page.page([Section("First", ["at https://arxiv.org/abs/1."]), section], tmp_path)
    assert "<td><b>.5</b> (.4)<br><small>+.1 ± .2</small></td>" in page
    assert '<span class="good">met</span>' in page and '<span class="bad">MISSED</span>' in page
    assert "<td class=wide>a &lt;b&gt; story</td>" in page and "<li>a: so</li>" in page
    assert '<a href="https://arxiv.org/abs/1">' in page and '<a href="#s1">T</a>' in page
    plain = report_page.markdown([Section("First", []), section], tmp_path)
    assert "| met | **.5** (.4) +.1 ± .2 | a &lt;b&gt; story |" in plain and "- a: so" in plain


def test_the_committed_report_begins_with_verdicts_and_ends_with_commits():
    text = (RESULTS / "RESULTS.md").read_text()
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles[0] == "The paper's claims, judged" and titles[-1] == "Commits"
    head = text[: text.index(f"## {titles[1]}")]
    assert "| verdict | the paper |" in head and "verified" in head
    page = (RESULTS / "report.html").read_text()
    assert page.index("<nav>") < page.index("<h1>") < page.index("judged</h2>")
    assert not re.search(r'(src|href)="(?!data:|#|https://arxiv\.org/)', page)  # needs nothing else
    assert (RESULTS / "tab_real.tex").read_text().count("\\begin{tabular}") == 7


def test_an_empty_folder_says_so(tmp_path):
    page, plain = report.write(tmp_path)
    assert "There are no records" in plain.read_text() and page.exists()
