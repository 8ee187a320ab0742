"""WRMF, or implicit ALS (Hu, Koren, Volinsky 2008; Pan et al. 2008): least squares over all cells of X.

    Σ_ij C_ij (X_ij − u_i·v_j)² + Σ_i λ_i |u_i|² + Σ_j λ_j |v_j|²,   C = 1 + α X

Paper: the target is printed as 1 for every cell, whose best fit is the all-ones matrix; here: X_ij
(theory/README.md, E46). The library `implicit` has C = α on the positives, so its `alpha` is 1 + ours.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from mfauc_jax._core import programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import ragged
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.ragged import Walk
from mfauc_jax.solvers import base
from mfauc_jax.solvers.sweeps import conjugate_gradients


def fit(
    key: Key[Array, ""],
    X: Interactions,
    *,
    rank: int = 32,
    reg: ArrayLike = 1.0,
    alpha: ArrayLike = 1.0,
    sweeps: ArrayLike = 15,
    cg_steps: int | None = None,
    reg_power: ArrayLike = 0.0,
    reg_offset: ArrayLike = 1.0,
) -> Factors:
    """WRMF by alternating least squares over all users and all items.

    Args:
        key: for the start.
        X: the positives; `confidence`, if any, multiplies α.
        rank: k ≥ 1.
        reg: λ ≥ 0.
        alpha: α, by which the confidence of a positive exceeds that of a zero. The authors ran α = 1.
        sweeps: number of updates of U and V.
        cg_steps: None solves the k × k systems by Cholesky; a number takes that many conjugate-gradient steps from
            the last solution instead (implicit takes 3), which is cheaper for large k.
        reg_power: ν in λ_i = λ (N_i + α₀ n)^ν of "Revisiting iALS" (Rendle et al. 2021): with 0 every row has λ,
            with 1 λ counts once per cell of the row.
        reg_offset: α₀.
    """
    start = base.gaussian(key, *X.shape, rank, 0.1)
    regs = scaled_reg(X, reg, reg_power, reg_offset)
    return _alternate(
        start, ragged.walk(X), ragged.walk(X.transpose()), regs, alpha, sweeps, cg_steps
    )


def scaled_reg(
    X: Interactions, reg: ArrayLike, power: ArrayLike = 0.0, offset: ArrayLike = 1.0
) -> tuple[Float[Array, "m"], Float[Array, "n"]]:
    """λ (N_i + α₀ n)^ν of each user and λ (n_j + α₀ m)^ν of each item."""
    m, n = X.shape

    def scaled(counts, other):
        lam, alpha0, nu = (jnp.asarray(x, float) for x in (reg, offset, power))
        return lam * (counts + alpha0 * other) ** nu

    return scaled(X.row_lengths, n), scaled(jnp.bincount(X.indices, length=n), m)


def half_sweep(
    U: Float[Array, "m k"],
    V: Float[Array, "n k"],
    by_user: Walk,
    reg: Float[Array, "m"],
    alpha: ArrayLike,
    cg_steps: int | None = None,
) -> Float[Array, "m k"]:
    """argmin over U with V fixed: (VᵀV + Vᵀ(C_i − I)V + λ_i I) u_i = Vᵀ C_i x_i for each user.

    All users share VᵀV, so a user costs N_i k² instead of n k².
    """
    X, gram = by_user.X, V.T @ V

    def solve(rows):
        lam = reg.at[rows].get(mode="fill", fill_value=1.0)

        def over_positives(add, initial):
            """Fold `add(total, V_pos [b, w, k], C − 1 [b, w], C x [b, w])` over the rows."""

            def with_confidence(total, slots, real):
                strength = 1.0 if X.confidence is None else X.confidence[slots]
                excess = jnp.where(real, alpha * strength, 0.0).astype(V.dtype)
                return add(total, V[X.indices[slots]], excess, excess + real.astype(V.dtype))

            return ragged.fold(by_user, rows, with_confidence, initial)

        if cg_steps is None:
            return _cholesky(gram, lam, over_positives)
        u = U.at[rows].get(mode="clip")
        return _conjugate_gradients(u, gram, lam, over_positives, cg_steps)

    return ragged.map_rows(by_user, solve)


def _cholesky(gram, lam, over_positives) -> Float[Array, "b k"]:
    """The exact solutions of b systems."""

    def add(total, V_pos, excess, target):
        A, rhs = total
        A = A + jnp.einsum("bwk,bwl->bkl", V_pos * excess[:, :, None], V_pos)
        return A, rhs + jnp.einsum("bw,bwk->bk", target, V_pos)

    A = gram[None] + lam[:, None, None] * jnp.eye(gram.shape[0], dtype=gram.dtype)[None]
    A, rhs = over_positives(add, (A, jnp.zeros_like(A[:, 0])))
    factor = jnp.linalg.cholesky(A)
    return jax.scipy.linalg.cho_solve((factor, True), rhs[:, :, None])[:, :, 0]


def _conjugate_gradients(u, gram, lam, over_positives, steps: int) -> Float[Array, "b k"]:
    """`steps` steps from u on b systems at once, without forming their matrices.

    Takács, Pilászy, Tikk 2011: a step costs O(N_i k + k²), and two or three steps are enough, because the u of the
    last sweep is near the solution.
    """

    def gradient(x, t, aux):  # A x − t · rhs, with A = VᵀV + λI + Σ_p excess v vᵀ
        def add(total, V_pos, excess, target):
            score = jnp.einsum("bwk,bk->bw", V_pos, x)
            return total + jnp.einsum("bw,bwk->bk", excess * score - t * target, V_pos)

        return over_positives(add, x @ gram + lam[:, None] * x), aux

    return conjugate_gradients(gradient, u, (), lambda _: 1.0, steps, axis=1)[0]


@partial(programs.jit, static_argnames="cg_steps")
def _alternate(start, by_user, by_item, regs, alpha, sweeps, cg_steps) -> Factors:
    def sweep(_, factors):
        U, V = factors
        U = half_sweep(U, V, by_user, regs[0], alpha, cg_steps)
        return Factors(U, half_sweep(V, U, by_item, regs[1], alpha, cg_steps))

    return jax.lax.fori_loop(0, sweeps, sweep, start)


def objective(
    factors: Factors,
    X: Interactions,
    *,
    reg: ArrayLike = 1.0,
    alpha: ArrayLike = 1.0,
    reg_power: ArrayLike = 0.0,
    reg_offset: ArrayLike = 1.0,
) -> Float[Array, ""]:
    """The objective of `fit`, in O(nnz k + (m + n) k²): Σ s² = tr(UᵀU VᵀV), corrected on the positives."""
    U, V = factors
    s = (U[X.rows] * V[X.indices]).sum(1)
    C = 1.0 + alpha * (jnp.ones_like(s) if X.confidence is None else X.confidence)
    on_zeros = ((U.T @ U) * (V.T @ V)).sum() - (s * s).sum()
    users, items = scaled_reg(X, reg, reg_power, reg_offset)
    penalty = (users * (U * U).sum(1)).sum() + (items * (V * V).sum(1)).sum()
    return (C * (1.0 - s) ** 2).sum() + on_zeros + penalty
