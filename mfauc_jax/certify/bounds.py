"""Constants, deviation terms and complexities: what turns an average into a bound on its mean."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from mfauc_jax._core import registry
from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import spectral
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.ragged import buckets
from mfauc_jax.objective import exact, losses


class Constants(NamedTuple):
    """What a bound needs to know of L on [−Γ, Γ]."""

    lipschitz: float  # B
    width: float  # w = max L − min L
    at_zero: float  # L(0), the risk of the all-zero model


def _square(gamma: float, beta: float) -> Constants:
    width = 2 * gamma if gamma <= 1 else (1 + gamma) ** 2 / 2
    return Constants(1 + gamma, width, 0.5)


def _square_hinge(gamma: float, beta: float) -> Constants:
    return _square(gamma, beta)  # the two agree on γ ≤ 1, where both the slope and the range are


def _sigmoid(gamma: float, beta: float) -> Constants:
    return Constants(beta / 4, float(np.tanh(beta * gamma / 2)), 0.5)


def _logistic(gamma: float, beta: float) -> Constants:
    steepest = beta / (1 + np.exp(-beta * gamma))
    return Constants(float(steepest), beta * gamma, float(np.log(2)))


CONSTANTS: dict[str, Callable[[float, float], Constants]] = {
    "square_hinge": _square_hinge,
    "square": _square,
    "sigmoid": _sigmoid,
    "logistic": _logistic,
}


def constants(loss: str, gamma: float, beta: float = 1.0) -> Constants:
    """B, w and L(0) of the loss on |γ| ≤ Γ (SPEC 6.3; E42–E44)."""
    return registry.lookup("loss", CONSTANTS, loss)(gamma, beta)


def mcdiarmid(num_pos: np.ndarray, num_items: int, delta: float) -> float:
    """ε₁ = √((ln(1/δ)/2) (1/m²) Σ_i (n−1)² / (N_i (n−N_i)²)): Lemma 3.2's deviation, range one."""
    num_pos = np.asarray(num_pos, np.float64)
    spread = ((num_items - 1) / (num_items - num_pos)) ** 2 / num_pos
    return float(np.sqrt(np.log(1 / delta) / 2 * spread.sum()) / len(num_pos))


def hoeffding(weights: np.ndarray, delta: float) -> float:
    """√((ln(1/δ)/2) Σ_a w_a²): how far Σ w_a X_a falls below its mean, X_a ∈ [0, 1]."""
    return float(np.sqrt(np.log(1 / delta) / 2 * np.square(weights).sum()))


def bernstein(values: np.ndarray, weights: np.ndarray, delta: float, width: float = 1.0) -> float:
    """Maurer and Pontil's (2009, Thm 11) empirical Bernstein width for E Σ_a w_a X_a − Σ_a w_a X_a.

    For independent, not necessarily identical X_a ∈ [0, R] put Z_a = X_a w_a / (R max w) ∈ [0, 1]:

        N R max(w) [ √(2 V_N(Z) ln(2/δ) / N) + 7 ln(2/δ) / (3 (N − 1)) ]

    V_N is the sample variance. Their proof needs only (1/N) Σ Var(Z_a) ≤ E V_N, which holds
    whatever the means: differing D_i and weights may widen the bound but not break it.
    """
    size, top = len(values), width * np.max(weights)
    if size < 2:
        return float("inf")
    Z = np.asarray(values, np.float64) * weights / top
    log = np.log(2 / delta)
    root = np.sqrt(2 * Z.var(ddof=1) * log / size)
    return float(size * top * (root + 7 * log / (3 * (size - 1))))


def peel(value: float, unit: float) -> tuple[int, float]:
    """The smallest l ≥ 0 with value ≤ unit 2^(l/4), and that ceiling.

    A bound for each ceiling, at level δ / ((l + 1)(l + 2)), holds for all of them at once at
    level δ; so the norm of a fitted model, which depends on the data, may be used.
    """
    level = max(0, int(np.ceil(4 * np.log2(max(value, 1e-300) / unit))) - 1)
    while unit * 2 ** (level / 4) < value:
        level += 1
    return level, unit * 2 ** (level / 4)


def user_risks(
    loss, factors: Factors, X: Interactions, reference: str = "negatives"
) -> Float[Array, " m"]:
    """T_i = the mean of L(γ_ipq) over user i's positives p and a reference q, for defined users.

    Reference: the irrelevant items ("negatives": Eq. 3's data term, uniform g and g′) or all
    items but p ("others": certificate B).
    """
    users = spectral.defined_rows(X).users
    U, V = (jnp.asarray(F) for F in factors)
    risks = jnp.zeros(X.num_users, V.dtype)
    for b in buckets(X, users):
        rows = U[b.users], b.items, b.real.astype(V.dtype)
        risks = risks.at[b.users].set(_risks(loss, V, rows, reference))
    return risks[users]


@partial(jax.jit, static_argnames="reference")
def _risks(loss, V, rows, reference):
    n = V.shape[0]

    def one(row):
        u, items, real = row
        s, q = V @ u, jnp.ones(n, V.dtype)
        if reference == "negatives":
            q = q.at[items].set(0.0)
            risks = exact.pair_rank_losses(loss, s[items], s, q / q.sum())
        else:  # all items, minus p against itself
            risks = exact.pair_rank_losses(loss, s[items], s, q / (n - 1)) - loss(0.0) / (n - 1)
        return real @ risks / real.sum()

    return jax.lax.map(one, rows)


class ExpectedNorm(NamedTuple):
    """E‖G‖₂ (certificate A) or E‖H‖₂ (B): a sample mean, and an upper bound at level δ/20."""

    kind: str
    delta: float
    mean: float
    bound: float


def expected_norm(
    key: Key[Array, ""],
    train: Interactions,
    kind: str = "A",
    *,
    delta: float = 0.05,
    draws: int = 1500,
) -> ExpectedNorm:
    """An empirical-Bernstein upper bound from `draws` random matrices; it depends on X alone.

    G has one random pair of each user, H a sign and a random pair of every positive. Their norms
    are at most √(2m) and √(Σ (1 + 1/√N_i)²).
    """
    rows = spectral.defined_rows(train)
    if registry.lookup("certificate", {"A": True, "B": False}, kind):
        sampler, largest = spectral.one_pair_each, np.sqrt(2 * len(rows.users))
    else:
        sampler = spectral.signed_pairs
        largest = np.sqrt(np.square(1 + 1 / np.sqrt(rows.num_pos)).sum())
    norms = spectral.sampled_norms(key, train, sampler, draws)
    spread = bernstein(norms, np.full(draws, 1 / draws), 0.05 * delta, float(largest))
    return ExpectedNorm(
        kind, delta, float(norms.mean()), float(min(norms.mean() + spread, largest))
    )


def rademacher(
    norm: ExpectedNorm,
    factors: Factors,
    train: Interactions,
    *,
    loss: str = "sigmoid",
    beta: float = 1.0,
) -> dict[str, float]:
    """The terms of E[L] ≤ Ê[L] + (2 B ρ_l / m) E‖·‖₂ + 3 w ε(δ′): certificates A and B, SPEC 6.3.

    ρ = ‖UVᵀ‖_* and Γ = max |γ| are peeled over a grid, which makes δ′ of δ. A symmetrises over
    users (norm of G, ε = ε₁ of Lemma 3.2), B over single draws (norm of H, ε² ∝ Σ 1/N_i).
    `floor`: Ê + R̂ ≥ max(L(0), 2 L(0) − Ê) for every bound over users (theory.rademacher).
    """
    rows = spectral.defined_rows(train)
    num_pos, m, n = rows.num_pos, len(rows.users), rows.num_items
    l_norm, rho = peel(spectral.nuclear_norm(factors), 1.0)
    l_margin, gamma = peel(spectral.margin_range(factors), 0.25)
    B, w, zero = constants(loss, gamma, beta)
    peeled = 0.9 * norm.delta / ((l_norm + 1) * (l_norm + 2) * (l_margin + 1) * (l_margin + 2))
    over_users = norm.kind == "A"
    reference = "negatives" if over_users else "others"
    risk = float(
        user_risks(
            losses.PAPER_LOSSES[loss](
                **({"beta": beta} if loss in ("sigmoid", "logistic") else {})
            ),
            factors,
            train,
            reference,
        ).mean()
    )
    if over_users:
        deviation = mcdiarmid(num_pos, n, peeled)
    else:
        deviation = hoeffding(1 / (m * np.sqrt(num_pos)), peeled)
    terms = {
        "empirical_risk": risk,
        "complexity": 2 * B * rho * norm.bound / m,
        "deviation": 3 * w * deviation,
        "risk_of_zero": zero,
        "nuclear_norm_ceiling": rho,
        "margin_ceiling": gamma,
        "expected_norm": norm.mean,
        "expected_norm_bound": norm.bound,
    }
    return terms | ({"floor": max(zero, 2 * zero - risk)} if over_users else {})
