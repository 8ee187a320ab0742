"""The table covers every numbered statement, its verdicts are borne out, and it can fail."""

import json
import re

import jax.numpy as jnp
import pytest

from experiments import quotes
from mfauc_jax.objective import losses
from theory import verify_bounds, verify_consistency, verify_generalisation, verify_rademacher
from theory.statement import BEYOND, CORRECTED, HOLDS, REFUTED, Statement, at_most, below, equal

NUMBERED = [
    "Def 3.1",
    "Thm 3.1",
    "Thm 3.2",
    "Thm 3.3",
    "Thm 3.4",
    "Thm 3.5",
    "Thm 3.6",
    "Lemma 3.1",
    "Thm 3.7",
    "Cor 3.1",
    "Lemma 3.2",
    "Lemma 3.3",
    "Thm 3.8",
    *(f"E{k}" for k in range(25, 46)),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("bounds") / "bounds.json"
    code = verify_bounds.main([f"--json={path}"])
    return code, json.loads(path.read_text())


def test_every_verdict_is_borne_out(table):
    code, records = table
    assert [r["claim"] for r in records if not r["stands"]] == []
    assert code == 0


def test_the_committed_numbers_are_those_of_the_code(table):
    """theory/README.md quotes them (`experiments/quotes.py`); `python -m theory.verify_bounds --json=FILE` makes them."""
    committed = quotes.records("verify_bounds")
    assert [(r["number"], r["verdict"]) for r in table[1]] == [
        (r["number"], r["verdict"]) for r in committed
    ]
    for new, old in zip(table[1], committed, strict=True):
        sides = [(r["left"], r["right"]) for r in (new, old)]
        assert sides[0] == pytest.approx(sides[1], rel=5e-3, abs=1e-6), new["claim"]


def test_every_numbered_statement_is_there(table):
    covered = {n for r in table[1] for n in re.split(r",\s*", r["number"])}
    assert [n for n in NUMBERED if n not in covered] == []


def test_what_is_known_to_be_false_is_refuted(table):
    refuted = {n for r in table[1] if r["verdict"] == REFUTED for n in r["number"].split(", ")}
    assert {"Thm 3.7", "Cor 3.1", "Lemma 3.1", "Thm 3.2", "E33", "E38", "E42", "E43"} <= refuted


def test_what_is_not_the_papers_is_not_counted_as_the_papers(table):
    beyond = {r["number"] for r in table[1] if r["verdict"] == BEYOND}
    assert beyond == {"E45", "softmax", "floor", "Certificate"}
    assert not any(r["number"] in beyond for r in table[1] if r["verdict"] != BEYOND)


@pytest.mark.parametrize("number", ["Thm 3.3", "Thm 3.4", "Lemma 3.2", "Lemma 3.3", "Thm 3.8"])
def test_each_bound_has_a_world_in_which_half_of_it_would_be_too_small(number, table):
    rows = [r for r in table[1] if r["number"] == number and "bound ÷ measured" in r["claim"]]
    assert rows and all(1 <= r["left"] < r["right"] == 2 for r in rows)


@pytest.mark.parametrize(
    ("statement", "stands"),
    [
        (at_most("x", "", 1, 2), True),
        (at_most("x", "", 2, 1), False),
        (at_most("x", "", 2, 1, REFUTED), True),
        (at_most("x", "", 1, 2, REFUTED), False),
        (below("x", "", 1, 1), False),
        (equal("x", "", 1, 1 + 1e-12, CORRECTED), True),
        (equal("x", "", 1, 1.1, HOLDS), False),
        (equal("x", "", float("nan"), 1.0), False),
    ],
)
def test_a_statement_stands_only_when_its_verdict_is_right(statement, stands):
    assert statement.stands is stands


def test_one_false_statement_fails_the_script(monkeypatch, capsys):
    false = Statement("Thm 0", "two is at most one", 2.0, "≤", 1.0, HOLDS)
    monkeypatch.setattr(verify_bounds, "CHECKS", [lambda: [false]])
    assert verify_bounds.main([]) == 1
    assert "NOT BORNE OUT" in capsys.readouterr().out


@pytest.mark.parametrize(
    "check",
    [
        verify_consistency.theorem_3_1,
        verify_rademacher.floor,
        verify_generalisation.function_classes,
        verify_generalisation.rademacher_certificates,
    ],
    ids=lambda check: check.__name__,
)
def test_a_fifth_loss_breaks_no_statement(check, monkeypatch):
    """What goes through the losses is about the paper's four, whatever else is registered."""
    monkeypatch.setitem(losses.LOSSES, "boosting", lambda x: jnp.exp(-x))
    found = check()
    assert found and all(s.stands for s in found)
    assert not any("boosting" in s.claim for s in found)
    for name in losses.PAPER_LOSSES:
        assert any(name in s.claim for s in found), name
