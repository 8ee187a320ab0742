"""The table of gradients: rows that are right, misprints that show, and a check that can fail."""

import itertools

import jax.numpy as jnp
import pytest

from mfauc_jax.objective import losses, weightings
from theory import closed_form, verify_gradients

X, AT = verify_gradients.toy(0)


def key(case):
    loss, weighting, tau = case
    return f"{loss.name}-{weighting.name}-{tau}"


def spelled(case):
    return f"{key(case)}-{getattr(case[1], 'c', '')}"


@pytest.mark.parametrize("case", verify_gradients.further_cases(), ids=spelled)
def test_every_route_agrees_for_the_softmax_loss(case):
    row = verify_gradients.check(*case, X, AT)
    assert row["ok"] and row["verdict"] == "not in the paper", row


@pytest.mark.parametrize("case", verify_gradients.cases(), ids=key)
def test_every_route_to_the_gradient_agrees(case):
    row = verify_gradients.check(*case, X, AT)
    assert row["ok"], row
    printed_wrong = isinstance(case[0], closed_form.HAS_BETA) and case[1] is weightings.identity
    assert bool(row["misprints"]) == printed_wrong


def test_the_masses_show():
    assert verify_gradients.check_masses(X, AT)["ok"]


def test_a_wrong_derivative_is_noticed(monkeypatch):
    monkeypatch.setitem(closed_form.SLOPES, losses.Square, lambda loss, x: 1.0 - 1.001 * x)
    verify_gradients.all_gradients.clear_cache()
    row = verify_gradients.check(losses.square, weightings.identity, 0.0, X, AT)
    assert not row["ok"] and "FAILS" in row["verdict"]
    verify_gradients.all_gradients.clear_cache()


def test_a_fifth_loss_and_a_third_weighting_break_nothing(monkeypatch):
    """The table is about the paper's four and two, whatever else is registered."""
    before = [key(case) for case in verify_gradients.cases()]
    monkeypatch.setitem(losses.LOSSES, "boosting", lambda x: jnp.exp(-x))
    monkeypatch.setitem(weightings.WEIGHTINGS, "root", lambda x: jnp.sqrt(x + 1.0))
    assert [key(case) for case in verify_gradients.cases()] == before
    pairs = itertools.product(losses.PAPER_LOSSES, ("identity", "tanh"), ("0.0", "0.7"))
    assert before == ["-".join(pair) for pair in pairs]
    assert verify_gradients.check(*verify_gradients.cases()[0], X, AT)["ok"]
