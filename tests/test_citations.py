"""Every citation resolves: anchors of docs/derivations.md, errata numbers of theory/README.md."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = [
    path
    for folder in ("mfauc_jax", "theory", "experiments", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md") and "results" not in path.parts
] + [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
HIDDEN = tuple(word.upper() for word in ("spec", "reproduction", "peers"))  # readers lack them


def anchors(page: str) -> set[str]:
    return set(re.findall(r"^#+ .*\{ *#([\w-]+) *\}", (ROOT / page).read_text(), re.MULTILINE))


def errata() -> set[int]:
    found = re.findall(r"^\| E(\d+) \|", (ROOT / "theory/README.md").read_text(), re.MULTILINE)
    return {int(number) for number in found}


def cited_anchors(text: str) -> list[str]:
    """What follows derivations.md#, also where several are listed: `#moments, with … of #spread`."""
    return re.findall(r"(?<!`docs/)derivations\.md#([\w-]+)", text)  # in `…` it is an example


def cited_errata(text: str) -> set[int]:
    """E7 as one, E12–E14 as three; a bare E is a letter."""
    ranges = re.findall(r"\bE(\d+)[–-]E?(\d+)\b", text)
    single = re.findall(r"\bE(\d{1,2})\b(?![\d.]*\})", text)
    return {int(n) for n in single} | {n for a, b in ranges for n in range(int(a), int(b) + 1)}


def test_there_is_something_to_cite():
    assert len(anchors("docs/derivations.md")) >= 20
    assert errata() == set(range(1, max(errata()) + 1)) and max(errata()) >= 52


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_citations_resolve(path):
    text = path.read_text()
    known = anchors("docs/derivations.md")
    for anchor in cited_anchors(text):
        assert anchor in known, (
            f"{path.name} cites docs/derivations.md#{anchor}, which is not there"
        )
    if path.suffix == ".py" and path != pathlib.Path(__file__):
        for number in cited_errata(text):
            assert number in errata(), f"{path.name} cites E{number}, which theory/README.md lacks"
    if path.name == "derivations.md":
        for anchor in re.findall(r"\]\(#([\w-]+)\)", text):
            assert anchor in known, f"derivations.md links to #{anchor}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_cites_what_readers_do_not_have(path):
    if path == pathlib.Path(__file__):
        return
    found = re.findall(rf"\b(?:{'|'.join(HIDDEN)})\b|\.\./shared", path.read_text())
    assert not found, f"{path.name} mentions {found[0]}"


def test_a_renamed_anchor_is_noticed(tmp_path, monkeypatch):
    """The mutation this file is for."""
    (tmp_path / "docs").mkdir()
    text = (ROOT / "docs/derivations.md").read_text()
    (tmp_path / "docs/derivations.md").write_text(text.replace("#moments }", "#momenta }"))
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    cited = cited_anchors(
        (pathlib.Path(__file__).parent.parent / "mfauc_jax/objective/exact.py").read_text()
    )
    assert "moments" in cited and "moments" not in anchors("docs/derivations.md")
