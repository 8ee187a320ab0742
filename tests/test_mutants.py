"""The list of mutations fits the source of today, and a mutant is judged by its tests."""

import pathlib

import pytest

from experiments import mutants
from experiments.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_mutation_matches_its_source_once_and_its_tests_exist(mutant):
    text = (mutants.ROOT / mutant.file).read_text()
    changed = mutants.mutated(mutant, text)
    assert changed is not None, f"occurs {text.count(mutant.old)} times: bring it up to date"
    assert changed != text
    compile(changed, mutant.file, "exec")
    for name in mutant.tests.split():
        file, _, test = mutants.node(name).partition("::")
        assert f"def {test}" in (mutants.ROOT / file).read_text(), name


def test_there_are_at_least_forty_and_no_two_alike():
    assert len(MUTANTS) >= 40
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)


@pytest.fixture
def tree(tmp_path):
    """A package of one function and its test."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "formula.py").write_text(
        "def twice(x):\n    return 2 * x\n\n\ndef idle():\n    return 7\n"
    )
    (tmp_path / "tests/test_formula.py").write_text(
        "import formula\n\n\ndef test_twice():\n    assert formula.twice(3) == 6\n"
    )
    return pathlib.Path(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "fate", "said"),
    [
        ("2 * x", "3 * x", "dead", "tests/test_formula.py::test_twice"),
        ("return 7", "return 8", "ALIVE", "after formula"),
        ("5 * x", "6 * x", "NO MATCH", "occurs 0 times"),
        ("return", "yield", "NO MATCH", "occurs 2 times"),
    ],
)
def test_a_mutant_is_dead_only_if_a_test_fails(tree, old, new, fate, said):
    before = (tree / "formula.py").read_text()
    found = mutants.tried(tree, Mutant("formula.py", old, new, "formula"))
    assert (found.fate, found.killer) == (fate, said)
    assert found.good is (fate == "dead")
    assert (tree / "formula.py").read_text() == before


def test_tests_that_are_not_there_are_an_error_and_not_a_death(tree):
    (tree / "tests/test_empty.py").write_text("")
    for name in ("empty", "gone", "formula::test_gone"):
        with pytest.raises(RuntimeError, match="no test was run"):
            mutants.tried(tree, Mutant("formula.py", "2 * x", "3 * x", name))


def test_a_module_that_cannot_be_imported_is_a_death(tree):
    found = mutants.tried(tree, Mutant("formula.py", "def twice(x)", "def thrice(x) 1", "formula"))
    assert found.good and "test_formula.py" in found.killer


def test_a_living_mutant_fails_the_script(monkeypatch, capsys, tree):
    monkeypatch.setattr(mutants, "copied", lambda folder: tree)
    kept = [Mutant("formula.py", "2 * x", "3 * x", "formula")]
    monkeypatch.setattr(mutants, "MUTANTS", kept)
    assert mutants.main([]) == 0
    kept.append(Mutant("formula.py", "return 7", "return 8", "formula"))
    assert mutants.main([]) == 1
    out = capsys.readouterr().out
    assert "ALIVE" in out and "2 mutants, 1 dead, 1 not" in out
    (tree / "tests/test_formula.py").write_text("def test_false():\n    assert False\n")
    assert mutants.main([]) == 1
    assert "without any mutation" in capsys.readouterr().out
