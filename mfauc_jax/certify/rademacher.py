"""Certificates from Rademacher averages, as in Section 3 (docs/derivations.md#certificate-rademacher).

    E[L] ≤ Ê[L] + (2 B R_l / m) E‖·‖₂ + 3 w ε(δ′)   with probability ≥ 1 − δ, for all factors at once

The random signs multiply users or single draws; `Symmetrisation` holds what differs between the two.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Key

from mfauc_jax._core import registry
from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds, spectral
from mfauc_jax.certify.certificate import SAMPLING, Certificate, at_least, register
from mfauc_jax.certify.spectral import Rows
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.losses import Loss

ASSUMPTIONS = (
    "uniform weights on items and users, φ = identity",
    "uniform over all factors, so rank, λ and scale may be tuned on the same data",
)


class Symmetrisation(NamedTuple):
    """The ingredients of a bound, which depend on what its random signs multiply."""

    matrix: Callable[[np.random.Generator, Rows], Any]  # draws the random matrix of E‖·‖₂
    largest_norm: Callable[[Rows], float]  # the largest norm that the matrix can have
    reference: str  # of `bounds.user_risks`: the items that positives are compared with
    deviation: Callable[[Rows, float], float]  # ε(δ)
    risk: str  # which risk is bounded, in words
    has_floor: bool  # Ê + R̂ ≥ max(L(0), 2 L(0) − Ê) for every model (docs/derivations.md#floor)


SYMMETRISATIONS = {
    "rademacher_users": Symmetrisation(
        matrix=spectral.one_pair_each,  # G
        largest_norm=lambda rows: float(np.sqrt(2 * len(rows.users))),
        reference="negatives",
        deviation=lambda rows, delta: bounds.mcdiarmid(rows.num_pos, rows.num_items, delta),
        risk="the risk is that of a fresh sample: new positives against all items not in it",
        has_floor=True,
    ),
    "rademacher_draws": Symmetrisation(
        matrix=spectral.signed_pairs,  # H
        largest_norm=lambda rows: float(np.sqrt(np.square(1 + 1 / np.sqrt(rows.num_pos)).sum())),
        reference="others",
        deviation=lambda rows, delta: bounds.hoeffding(
            1 / (len(rows.users) * np.sqrt(rows.num_pos)), delta
        ),
        risk="the risk compares a fresh positive with every other item, relevant or not",
        has_floor=False,
    ),
}


def _certified(
    kind: str,
    factors: Factors,
    train: Interactions,
    held_out: Interactions | None,
    delta: float,
    *,
    loss: Loss | str = "sigmoid",
    draws: int = 1500,
    key: Key[Array, ""] | None = None,
) -> Certificate:
    """A bound on the risk that holds for all factors, from random signs over users or over draws.

    With signs over users it is the repaired Theorem 3.8, which is always vacuous (docs/derivations.md#floor).

    Args:
        kind: a name in SYMMETRISATIONS.
        factors: the fitted model.
        train: the positives that it was fitted on.
        held_out: not used.
        delta: δ in (0, 1).
        loss: one of the paper's four losses, whose constants are known, or its name.
        draws: number of random matrices from which the expected norm is estimated.
        key: for the random matrices; it must be given.
    """
    del held_out
    if key is None:
        raise ValueError(f"certificate {kind} draws random matrices: pass key=jax.random.key(0)")
    loss = bounds.loss_with_constants(loss)
    norm = expected_norm(key, train, kind, delta=delta, draws=draws)
    return from_terms(norm, bound_terms(norm, factors, train, loss), loss)


rademacher_users = register(partial(_certified, "rademacher_users"), "rademacher_users")
rademacher_draws = register(partial(_certified, "rademacher_draws"), "rademacher_draws")


class ExpectedNorm(NamedTuple):
    """E‖·‖₂ of the random matrix of a symmetrisation: a sample mean, and an upper bound at level δ/20."""

    kind: str
    delta: float
    mean: float
    bound: float


def expected_norm(
    key: Key[Array, ""],
    train: Interactions,
    kind: str = "rademacher_users",
    *,
    delta: float = 0.05,
    draws: int = 1500,
) -> ExpectedNorm:
    """E‖·‖₂ and its empirical-Bernstein upper bound, from `draws` random matrices; it depends on X alone.

    The matrix G of `rademacher_users` has one random pair per user, and H of `rademacher_draws` has a sign and a random
    pair per positive. Their norms are at most √(2m) and √(Σ (1 + 1/√N_i)²).
    """
    signs = registry.lookup("certificate", SYMMETRISATIONS, kind)
    if draws < 1:
        raise ValueError(f"draws = {draws} must be ≥ 1: it is the number of random matrices")
    largest = signs.largest_norm(spectral.defined_rows(train))
    norms = spectral.sampled_norms(key, train, signs.matrix, draws)
    half_width = bounds.bernstein(norms, np.full(draws, 1 / draws), 0.05 * delta, largest)
    bound = float(min(norms.mean() + half_width, largest))
    return ExpectedNorm(kind, delta, float(norms.mean()), bound)


def bound_terms(
    norm: ExpectedNorm, factors: Factors, train: Interactions, loss: Loss | str = "sigmoid"
) -> dict[str, float]:
    """The terms of E[L] ≤ Ê[L] + (2 B R_l / m) E‖·‖₂ + 3 w ε(δ′); one norm serves many models.

    R = ‖UVᵀ‖_* and Γ = max |γ| are rounded up to a grid (`bounds.peel`), which turns δ into δ′. The term `floor` is
    max(L(0), 2 L(0) − Ê) ≤ Ê + R̂, for every bound whose signs multiply users (theory.rademacher).
    """
    signs, rows = SYMMETRISATIONS[norm.kind], spectral.defined_rows(train)
    loss = bounds.loss_with_constants(loss)
    l_norm, nuclear = bounds.peel(spectral.nuclear_norm(factors), 1.0)
    l_margin, gamma = bounds.peel(spectral.margin_range(factors), 0.25)
    B, w, zero = bounds.constants(loss, gamma)
    peeled = 0.9 * norm.delta / ((l_norm + 1) * (l_norm + 2) * (l_margin + 1) * (l_margin + 2))
    risk = float(bounds.user_risks(loss, factors, train, signs.reference).mean())
    terms = {
        "empirical_risk": risk,
        "complexity": 2 * B * nuclear * norm.bound / len(rows.users),
        "deviation": 3 * w * signs.deviation(rows, peeled),
        "risk_of_zero": zero,
        "nuclear_norm_ceiling": nuclear,
        "margin_ceiling": gamma,
        "expected_norm": norm.mean,
        "expected_norm_bound": norm.bound,
    }
    return terms | ({"floor": max(zero, 2 * zero - risk)} if signs.has_floor else {})


def from_terms(norm: ExpectedNorm, terms: dict[str, float], loss: Loss | str) -> Certificate:
    """The certificate from the terms of `bound_terms`."""
    signs = SYMMETRISATIONS[norm.kind]
    zero = terms["risk_of_zero"]
    bound = terms["empirical_risk"] + terms["complexity"] + terms["deviation"]
    auc, vacuous = max(0.0, 1 - bound / zero), bound >= zero
    claim = at_least("the true AUC", auc)
    if vacuous:
        never = ", as no bound of this form can be" if signs.has_floor else ""
        claim = (
            f"the true risk is at most {bound:.3g}, not below the {zero:.3g} of the all-zero "
            f"model{never}"
        )
    return Certificate(
        kind=norm.kind,
        bound=bound,
        auc=auc,
        vacuous=vacuous,
        delta=norm.delta,
        method=f"{bounds.loss_with_constants(loss).name} loss",
        terms=terms,
        assumptions=(SAMPLING, signs.risk, *ASSUMPTIONS),
        claim=claim,
    )
