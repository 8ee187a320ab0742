"""R̂^AUC of Q_h, Lemma 3.1 and Theorems 3.5–3.7: as printed, where it is false, and as corrected.

    R̂(Q_h) = 2 E_ν sup (1/m) Σ_i ν_i T_i,   T_i = mean over p ∈ ω_i, q ∉ ω_i of h(u_iᵀ(v_p − v_q))

Printed: R̂ ≤ (2 B ρ / m) ‖E − Ē‖₂ with ρ = R_U R_V. True for linear h, with equality; false for
general Lipschitz h, because T_i is not a function of the mean margin (E38). Correct: E‖G‖₂.
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.linalg

from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds, spectral
from mfauc_jax.data.interactions import Interactions

# --- Lemma 3.1, Theorems 3.5 and 3.6 ----------------------------------------------------------


def sup_trace(A: np.ndarray, C: np.ndarray) -> tuple[float, Factors]:
    """max tr(UᵀAV) over ‖U‖_F = ‖V‖_F = 1 is σ₁, at U = P C, V = Q C for any ‖C‖_F = 1.

    P, Q are bases of the top left and right singular spaces, C has as many rows as σ₁ has copies
    and k columns. Paper: U of right and V of left vectors (E36); that does not even fit a
    rectangular A.
    """
    P, s, Qt = np.linalg.svd(A)
    copies = int((s > s[0] * (1 - 1e-9)).sum())
    if C.shape[0] != copies:
        raise ValueError(f"C has {C.shape[0]} rows but σ₁ has {copies} copies")
    C = C / np.linalg.norm(C)
    return float(s[0]), Factors(jnp.asarray(P[:, :copies] @ C), jnp.asarray(Qt[:copies].T @ C))


def trace_value(A: np.ndarray, factors: Factors) -> float:
    """tr(UᵀAV)."""
    U, V = (np.asarray(F) for F in factors)
    return float(np.trace(U.T @ A @ V))


def printed_sup_trace(A: np.ndarray, k: int) -> float:
    """tr(UᵀAV) at Lemma 3.1's printed point, U = [q₁ … q₁]/√k and V = [p₁ … p₁]/√k, A square."""
    P, _, Qt = np.linalg.svd(A)
    U, V = np.tile(Qt[:1].T, k) / np.sqrt(k), np.tile(P[:, :1], k) / np.sqrt(k)
    return abs(trace_value(A, Factors(jnp.asarray(U), jnp.asarray(V))))


def contraction_sides(F: np.ndarray, phis: list[Callable], constants: np.ndarray):
    """Theorem 3.5 for a finite class, F[f, i] = f(x_i): both sides, all 2^n signs listed."""
    signs = sign_vectors(F.shape[1])
    composed = np.stack([phi(F[:, i]) for i, phi in enumerate(phis)], axis=1)
    left = (signs @ composed.T).max(1).mean()
    return float(left), float((signs @ (F * constants).T).max(1).mean())


def sign_vectors(size: int) -> np.ndarray:
    """All ν ∈ {−1, 1}^size."""
    return np.array(list(itertools.product([-1.0, 1.0], repeat=size)))


def perturbed_singular_values(B: np.ndarray, left: np.ndarray, right: np.ndarray):
    """Theorem 3.6: (lower, σ̃, upper) with σ / (‖D_L⁻¹‖‖D_R⁻¹‖) ≤ σ̃ ≤ σ ‖D_L‖‖D_R‖."""
    s, moved = (np.linalg.svd(M, compute_uv=False) for M in (B, left @ B @ right))
    shrink = np.linalg.norm(np.linalg.inv(left), 2) * np.linalg.norm(np.linalg.inv(right), 2)
    stretch = np.linalg.norm(left, 2) * np.linalg.norm(right, 2)
    return s / shrink, moved, s * stretch


# --- Theorem 3.7 ------------------------------------------------------------------------------


def printed_bound(X: Interactions, lipschitz: float, rho: float) -> float:
    """(2 B ρ / m) ‖E − Ē‖₂: an equality for h(x) = B x, refuted for general h (E37, E38)."""
    operator = spectral.mean_difference(X)
    return 2 * lipschitz * rho * spectral.spectral_norm(operator) / operator.shape[1]


def corrected_bound(key, X: Interactions, lipschitz: float, rho: float, draws: int = 30) -> float:
    """(2 B ρ / m) E‖G‖₂, E‖G‖₂ by Monte Carlo, G = Σ_i (e_p − e_q) e_iᵀ of one random pair each.

    T_i is the mean over random pairs, a supremum of means is at most the mean of suprema, and for
    fixed pairs Theorem 3.5 applies. E[G] = E − Ē, so the printed bound has Jensen backwards.
    """
    norms = spectral.sampled_norms(key, X, spectral.one_pair_each, draws)
    return 2 * lipschitz * rho * float(norms.mean()) / len(spectral.defined_rows(X).users)


def crude_bound(num_users: int, lipschitz: float, rho: float) -> float:
    """2√2 B ρ / √m, since ‖G‖₂ ≤ ‖G‖_F = √(2m)."""
    return 2 * np.sqrt(2) * lipschitz * rho / np.sqrt(num_users)


def linear_supremum(X: Interactions, nu: np.ndarray, rho: float) -> float:
    """sup Σ_i ν_i u_iᵀ(v̇_i − v̈_i) over ‖U‖_F‖V‖_F ≤ ρ: ρ ‖(E − Ē) diag(ν)‖₂, densely."""
    operator = spectral.mean_difference(X)
    return rho * float(np.linalg.norm(np.asarray(operator @ np.eye(len(nu))) * nu, 2))


# --- Lower bounds on R̂ ------------------------------------------------------------------------


def dense_risks(loss: Callable, S: jax.Array, X: jax.Array) -> jax.Array:
    """T_i for dense scores S and relevance X, [m]: small designs only."""
    weight = X[:, :, None] * (1 - X)[:, None, :]  # [m, p, q]
    margins = S[:, :, None] - S[:, None, :]
    return (weight * loss(margins)).sum((1, 2)) / weight.sum((1, 2))


def ascent(
    key, loss: Callable, X: jax.Array, nu: jax.Array, rho: float, *, rank=3, steps=300, starts=4
) -> jax.Array:
    """max Σ_i ν_i T_i over ‖U‖_F‖V‖_F ≤ ρ by Adam from random starts: a lower bound."""
    m, n = X.shape

    def score(factors: Factors, radius):
        U, V = factors
        S = rho * jax.nn.sigmoid(radius) * U @ V.T / (jnp.linalg.norm(U) * jnp.linalg.norm(V))
        return nu @ dense_risks(loss, S, X)

    adam = optax.adam(0.05)

    def climb(key):
        key_u, key_v = jax.random.split(key)
        U, V = jax.random.normal(key_u, (m, rank)), jax.random.normal(key_v, (n, rank))
        point = (Factors(U, V), jnp.asarray(3.0))

        def step(carry, _):
            point, state = carry
            gradient = jax.grad(lambda p: -score(*p))(point)
            update, state = adam.update(gradient, state)
            return (optax.apply_updates(point, update), state), None

        start = (point, adam.init(point))  # pyright: ignore
        (point, _), _ = jax.lax.scan(step, start, None, length=steps)
        return score(*point)  # pyright: ignore

    return jax.vmap(climb)(jax.random.split(key, starts)).max()


def lower_bound(key, loss: Callable, X: jax.Array, rho: float, nus: np.ndarray, **kwargs) -> float:
    """(2/m) mean over `nus` of the ascent's supremum: R̂ is at least this, if `nus` lists all signs.

    Each term may also use the all-zero scores, worth L(0) Σ ν.
    """
    keys = jax.random.split(key, len(nus))
    climb = jax.jit(jax.vmap(lambda key, nu: ascent(key, loss, X, nu, rho, **kwargs)))
    found = jnp.maximum(climb(keys, jnp.asarray(nus)), loss(0.0) * jnp.asarray(nus).sum(1))
    return float(2 * found.mean() / X.shape[0])


def half_and_half(seed: int, m: int, n: int) -> Interactions:
    """Every user likes a random half of the items: the design of E38's counterexamples."""
    rng = np.random.default_rng(seed)
    items = np.argpartition(rng.random((m, n)), n // 2, axis=1)[:, : n // 2]
    return Interactions.from_pairs(np.repeat(np.arange(m), n // 2), items.ravel(), shape=(m, n))


def two_valued_excess(loss: Callable, X: Interactions, gamma: float) -> float:
    """mean_i T_i(a) − L(0) ≤ R̂: the class may give u_i = a if ν_i = 1 and 0 if ν_i = −1.

    k = 1, v_j = +b on the first half of the items and −b on the rest, γ = 2ab; then T_i needs only
    the shares f, f′ of the first half among ω_i and its complement.
    """
    rows, n = spectral.defined_rows(X), X.num_items
    hits = np.bincount(rows.owner, rows.indices < n // 2)
    f, f_neg = hits / rows.num_pos, (n // 2 - hits) / (n - rows.num_pos)
    zero, up, down = (float(loss(jnp.asarray(x))) for x in (0.0, gamma, -gamma))
    T = f * (1 - f_neg) * up + (1 - f) * f_neg * down
    return float((T + (f * f_neg + (1 - f) * (1 - f_neg)) * zero).mean() - zero)


def hadamard_design() -> jax.Array:
    """7 users × 8 items: the rows of a Hadamard matrix but the constant one."""
    return jnp.asarray((scipy.linalg.hadamard(8)[1:] + 1) / 2)


# --- The structural floor ---------------------------------------------------------------------


def zeroed(loss: Callable, factors: Factors, X: Interactions) -> float:
    """(2/m) E_ν Σ ν_i T_i(u_i′) with u_i′ = u_i if ν_i = −1, else 0: it is L(0) − Ê.

    A member of every class closed under zeroing rows of U, so R̂ ≥ L(0) − Ê and Ê + R̂ ≥ L(0):
    no bound of the form Ê + R̂ can certify less than the loss of the all-zero model.
    """
    at_u = bounds.user_risks(loss, factors, X)
    at_zero = bounds.user_risks(loss, Factors(0 * factors.U, factors.V), X)
    return float((at_zero - at_u).mean())


def flipped(loss: Callable, factors: Factors, X: Interactions) -> float:
    """The same with u_i′ = −ν_i u_i: ≥ 2 (L(0) − Ê) for convex L, = 1 − 2 Ê for the sigmoid."""
    at_u = bounds.user_risks(loss, factors, X)
    at_minus = bounds.user_risks(loss, Factors(-factors.U, factors.V), X)
    return float((at_minus - at_u).mean())
