"""A certificate for items fitted on all positives: PAC-Bayes, the prior learnt on half (docs/derivations.md#pac-bayes).

    ln dρ/dπ(V) = ‖Ũ(V − V_A)ᵀ‖² / 2σ² − ‖Ũ(V − V̂)ᵀ‖² / 2σ²,     Ũ = U_A / √m
    kl(R̂(V) ‖ R(V)) ≤ (ln dρ/dπ(V) + ln(2 √K G / δ)) / K     with probability ≥ 1 − δ, for each of G values of σ

V is one draw from a Gaussian ρ around V̂, which was fitted on both halves; π is the same Gaussian around V_A, which saw
the first half only. R̂ is the AUC loss on the K positives of the second half, R its mean.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds
from mfauc_jax.certify.certificate import SAMPLING, Certificate, at_least, check_delta

ASSUMPTIONS = (
    SAMPLING,
    "which of a user's positives are in the first half was decided without looking at them",
    "the prior's factors, the rule that solves users, σ's grid and all hyper-parameters come from the first half alone",
    "users are solved from V and their positives of the first half; the fit of V may have used both halves",
    "the AUC is that of a user's next item outside the first half, among all other such items, and users count by "
    "their number of positives in the second half",
)


class Drawn(NamedTuple):
    """One draw from the posterior, and ln dρ/dπ at it."""

    V: Float[Array, "n k"]
    log_ratio: float
    divergence: float  # KL(ρ ‖ π), the mean of log_ratio


def draw(key: Key[Array, ""], prior: Factors, V: Float[Array, "n k"], sigma: float) -> Drawn:
    """V̂ + noise that moves every score of the prior's users by σ √k in the mean square.

    Each row of the noise is N(0, σ² (U_AᵀU_A / m)⁻¹), so an axis which the users hardly look along is shaken more, and
    KL(ρ ‖ π) = Σ_j mean_i (u_i · (v̂_j − v_j))² / 2σ² is the squared change of all scores, as the prior's users see it.

    Args:
        key: randomness of the one draw.
        prior: U_A and V_A, fitted on the first half.
        V: V̂, fitted on both halves, in the prior's coordinates: continue from V_A.
        sigma: σ > 0.
    """
    if not sigma > 0:
        raise ValueError(f"sigma = {sigma} must be > 0: without noise ln dρ/dπ is infinite")
    U, before, mean = (np.asarray(F, np.float64) for F in (*prior, V))
    if before.shape != mean.shape:
        raise ValueError(f"V has the shape {mean.shape}, the prior's {before.shape}")
    _, root = np.linalg.qr(U / np.sqrt(len(U)))  # RᵀR = U_AᵀU_A / m
    if np.linalg.cond(root) > 1e7:
        raise ValueError(
            "the prior's U has dependent columns, so the noise is not defined: lower the rank"
        )
    noise = np.asarray(jax.random.normal(key, mean.shape), np.float64)
    moved = (mean - before) @ root.T / sigma
    drawn = mean + sigma * np.linalg.solve(root, noise.T).T
    divergence = 0.5 * float((moved**2).sum())
    return Drawn(jnp.asarray(drawn, V.dtype), divergence + float((moved * noise).sum()), divergence)


def from_ranks(
    ranks: np.ndarray,
    log_ratio: float,
    delta: float,
    *,
    num_sigmas: int = 1,
    divergence: float = 0.0,
) -> Certificate:
    """The certificate of one drawn model.

    Args:
        ranks: F_i(y) of the K positives of the second half, by the drawn V and the users solved from it
            (`held_out.held_out_ranks(factors, first, second)`).
        log_ratio: ln dρ/dπ at the draw.
        delta: δ in (0, 1).
        num_sigmas: G, how many values of σ were tried; the best certificate of them may be kept.
        divergence: KL(ρ ‖ π), for the record.
    """
    check_delta(delta)
    size, risk = len(ranks), float(1 - np.mean(ranks))
    complexity = (log_ratio + np.log(2 * np.sqrt(size) * num_sigmas / delta)) / size
    bound = 1 - bounds.kl_inverse(risk, max(complexity, 0.0))
    vacuous = bound <= 0.5
    return Certificate(
        kind="pac_bayes",
        bound=bound,
        auc=bound,
        vacuous=vacuous,
        delta=delta,
        method="kl",
        terms={
            "second_half_auc": 1 - risk,
            "log_ratio": float(log_ratio),
            "divergence": float(divergence),
            "complexity": float(complexity),
            "num_second": float(size),
        },
        assumptions=ASSUMPTIONS,
        claim=at_least("the true AUC", bound) + (", no better than chance" if vacuous else ""),
    )


def budget(risk: float, risk_of_prior: float, size: int, delta: float) -> float:
    """The largest KL at which a posterior of this risk could still be certified beyond the prior's own model.

    The held-out certificate of the prior's model is R ≤ q with kl(R̂_A ‖ q) = ln(1/δ) / K. The posterior's is below q
    only if kl(R̂_ρ ‖ q) > (KL + ln(2 √K / δ)) / K; 0 if no KL is small enough.
    """
    ceiling = bounds.kl_inverse(risk_of_prior, np.log(1 / delta) / size)
    if risk >= ceiling:
        return 0.0
    spare = size * bounds.kl(risk, ceiling) - np.log(2 * np.sqrt(size) / delta)
    return max(float(spare), 0.0)
