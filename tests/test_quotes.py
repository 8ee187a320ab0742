"""Numbers that pages quote are those of the records, and the check can fail."""

import json

import pytest

from experiments import quotes
from theory import verify_gradients


@pytest.mark.parametrize("page", quotes.pages(), ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_no_number_of_a_page_is_stale(page):
    assert not quotes.stale(page), "python -m experiments.quotes --update writes them anew"


@pytest.mark.parametrize(
    ("page", "least"),
    [("theory/README.md", 40), ("docs/derivations.md", 12), ("docs/tutorial.md", 2)],
)
def test_a_page_quotes(page, least):
    text = (quotes.ROOT / page).read_text()
    found = [*quotes.NUMBER.finditer(text), *quotes.BLOCK.finditer(text)]
    assert len(found) >= least
    assert len(found) == text.count("<!-- = ") + text.count(
        "<!-- begin "
    )  # a comment without a number


@pytest.fixture
def folder(tmp_path, monkeypatch):
    lines = [{"name": "a", "x": 0.9178, "terms": {"y": -2.5}}, {"name": "b c", "x": 2e-9, "n": [7]}]
    (tmp_path / "made.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))
    (tmp_path / "other.json").write_text(
        json.dumps({"part": [{"x": 1}, {"x": 3}], "one": {"x": 4}})
    )
    monkeypatch.setattr(quotes.results, "COMMITTED", tmp_path)
    quotes.records.cache_clear()
    yield tmp_path
    quotes.records.cache_clear()


@pytest.mark.parametrize(
    ("text", "source", "written"),
    [
        (".5", "made; name=a; x", ".9"),
        ("0.500", "made; name=a; x", "0.918"),
        (".500", "made; name=a; floor x", ".917"),
        ("−1.0", "made; name=a; terms.y", "−2.5"),
        ("1e-3", "made; name~c; x", "2e-9"),
        ("5", "made; name!=a; n.0", "7"),
        ("5", "made; count records", "2"),
        ("5.0", "other.part; mean x", "2.0"),
        ("5", "other.part; max x", "3"),
        ("5", "other.one; x", "4"),
        ("5.0", "made; name=a; terms.y/x", "−2.7"),
    ],
)
def test_a_number_is_written_as_the_text_has_it(folder, text, source, written):
    page = f"before {text}<!-- = {source} --> after"
    assert quotes.updated(page) == f"before {written}<!-- = {source} --> after"


@pytest.mark.parametrize("source", ["made; name=z; x", "other.part; x"])
def test_what_no_single_record_says_is_refused(folder, source):
    with pytest.raises(LookupError, match="fit"):
        quotes.value(source)


def test_a_stale_number_and_a_stale_block_are_found(folder, monkeypatch):
    monkeypatch.setattr(quotes, "ROOT", folder)
    monkeypatch.setitem(quotes.BLOCKS, "table", lambda: "| new |\n")
    page = folder / "page.md"
    page.write_text(
        "x\n.91<!-- = made; name=a; x -->\n<!-- begin table -->\n| old |\n<!-- end -->\n"
    )
    first, second = quotes.stale(page)
    assert first.startswith("page.md:2") and ".92" in first
    assert second.startswith("page.md:3") and "new" in second
    page.write_text(quotes.updated(page.read_text()))
    assert not quotes.stale(page)


def test_the_committed_misprints_are_those_of_the_code():
    """Without the sampling, which takes long: `python -m theory.verify_gradients --json=FILE` writes all of it."""
    X, at = verify_gradients.toy(0)
    kept = {
        (r["loss"], r["weighting"], r["tau"]): r
        for r in quotes.records("verify_gradients.gradients")
    }
    for loss, weighting, tau in verify_gradients.cases()[8::4]:
        row = verify_gradients.check(loss, weighting, tau, X, at)
        assert row["misprints"] == pytest.approx(kept[loss.name, weighting.name, tau]["misprints"])
