"""Q_h = {(i, p, q) ↦ h(u_iᵀ(v_p − v_q))}: Lipschitz constants, ranges, norms (E39, E42–E44).

The formulas that a certificate uses are `mfauc_jax.certify.bounds.constants`; here they are measured.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from mfauc_jax._core.factors import Factors
from mfauc_jax.objective.losses import PAPER_LOSSES, Loss


def paper_losses(beta: float = 1.0) -> dict[str, Loss]:
    """The losses that the paper's statements are about, by name; those that have a β, with this one."""
    return {
        name: kind(**({"beta": beta} if "beta" in kind.specs() else {}))
        for name, kind in PAPER_LOSSES.items()
    }


def grid(gamma: float, size: int = 20001) -> jax.Array:
    """Margins in [−Γ, Γ], both ends and zero included."""
    return jnp.linspace(-gamma, gamma, size)


def measured_slope(loss: Callable, gamma: float) -> float:
    """sup |L′| on |γ| ≤ Γ by automatic differentiation on a grid."""
    return float(jnp.abs(jax.vmap(jax.grad(loss))(grid(gamma))).max())


def measured_range(loss: Callable, gamma: float) -> tuple[float, float]:
    """(min L, max L) on |γ| ≤ Γ."""
    values = loss(grid(gamma))
    return float(values.min()), float(values.max())


def extended(loss: Loss, gamma: float) -> Callable:
    """L on |γ| ≤ Γ, continued by its tangents: Lipschitz on the whole line with the constant of [−Γ, Γ].

    The square and the square hinge have no Lipschitz constant on the line, which Theorem 3.7 asks for. Where only
    margins in [−Γ, Γ] occur, nothing changes.
    """
    slope = jax.grad(loss)

    def h(x):
        inside = jnp.clip(x, -gamma, gamma)
        tangent = jnp.where(x > 0, slope(gamma), slope(-gamma))
        return loss(inside) + tangent * (x - inside)

    return h


def margin_of_rows(norm: float) -> float:
    """|u_i|, |v_j| ≤ D gives |γ| ≤ 2D², the paper's last paragraph."""
    return 2 * norm**2


PRINTED_RADIUS = 0.5  # D = 1/√4: margins in [−½, ½]


def unit_radius() -> float:
    """D² = (√2 − 1)/2, the largest D with square hinge ≤ 1; its Lipschitz constant is √2 (E43)."""
    return float(np.sqrt((np.sqrt(2) - 1) / 2))


def norm_rate(row_norm_u: float, row_norm_v: float, m: int, n: int) -> float:
    """R_U R_V / m for rows of norms r_u, r_v: r_u r_v √(n/m), which need not vanish (E39)."""
    return row_norm_u * np.sqrt(m) * row_norm_v * np.sqrt(n) / m


def penalty(factors: Factors, lam: float) -> float:
    """(λ/2)(‖U‖²/m + ‖V‖²/n)."""
    U, V = (np.asarray(F) for F in factors)
    return float(lam / 2 * (np.square(U).sum() / len(U) + np.square(V).sum() / len(V)))


def balanced(factors: Factors) -> Factors:
    """The factorisation of the same scores with the least penalty, ‖U‖²/m = ‖V‖²/n.

    Its penalty is (λ/√(mn)) ‖UVᵀ‖_*: the paper's regulariser is a nuclear norm in disguise.
    """
    U, V = (np.asarray(F) for F in factors)
    (Q_u, R_u), (Q_v, R_v) = np.linalg.qr(U), np.linalg.qr(V)
    left, s, right = np.linalg.svd(R_u @ R_v.T)
    ratio = (len(U) / len(V)) ** 0.25
    P, Q = Q_u @ left * np.sqrt(s) * ratio, Q_v @ right.T * np.sqrt(s) / ratio
    return Factors(jnp.asarray(P), jnp.asarray(Q))
