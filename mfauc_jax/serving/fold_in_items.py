"""Fold-in of items: the v_j of some items from the fitted U, the minimum of Eq. 3 over v_j while all the rest is fixed.

For the square loss with φ = identity the part of m₊ θ that depends on v_j is a quadratic
(docs/derivations.md#alternating):

    H_j = Σ_{i∈ω_j} w g u uᵀ + Σ_{i∉ω_j} w g′ (σ_i − (σ_i − 1) g′) u uᵀ + λ_j I
    ∇_j = −Σ_{i∈ω_j} w g (1 − s_ij + μ′_i) u_i + Σ_{i∉ω_j} w g′ (1 − S_i − (σ_i − 1) μ′_i + σ_i s_ij) u_i + λ_j v_j

with ω_j the users who have item j, S_i = Σ_p g s_ip and μ′_i = Σ_q g′ s_iq. One Newton step v_j − H_j⁻¹ ∇_j is the
minimum. A sum over the users who lack j is the sum over all users minus that over ω_j, with more for the users who
dislike j (`objective.dislikes`), so a pass costs
O(nnz k + m k²) for all items together, and O(|ω_j| k²) for each item. It is NumPy: nothing is compiled.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import dislikes, losses, weightings
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Reg, Sphere
from mfauc_jax.problem import Problem


def is_quadratic(objective: Objective) -> bool:
    """Whether v_j is found by one k × k system: the square loss with φ = identity, rows of any length."""
    square = isinstance(objective.loss, losses.Square)
    plain = isinstance(objective.weighting, weightings.Identity)
    return square and plain and not isinstance(objective.reg, Sphere)


def solve(
    problem: Problem,
    factors: Factors,
    items: Int[np.ndarray, " some"],
    prior: Float[np.ndarray, "n k"] | None = None,
) -> Float[np.ndarray, "some k"]:
    """The v_j of `items` that minimise θ, each while U and all other rows of V stay as they are.

    Args:
        problem: the training set, its weights and its objective, which `is_quadratic`.
        factors: U and V, for the users and items of the problem; a new item may have any v_j, such as 0.
        items: columns of X, all different.
        prior: A f_j of every item, which λ_j pulls v_j to (docs/derivations.md#features); None: 0.
    """
    X, weights, objective = problem.X, problem.weights, problem.objective
    (m, n), (U, V) = X.shape, (np.asarray(F) for F in factors)
    w, b, g = (np.asarray(a, np.float64) for a in (weights.user, weights.b, weights.g))
    mass = np.asarray(weights.neg_mass, np.float64)
    extra = np.broadcast_to(np.asarray(objective.spread, np.float64), (m,))  # σ_i − 1
    reg = objective.reg.item if isinstance(objective.reg, Reg) else objective.reg
    reg = np.broadcast_to(np.asarray(reg, np.float64), (n,)) * (len(weights.usable) / n)

    X, g, removed = dislikes.entries(X, g, b, weights.disliked)
    centred = V - (b @ V / b.sum()).astype(V.dtype)  # Σ b v = 0; margins do not change
    near, far = (_row_sums(X, c, centred) for c in (g, removed))
    mean_pos = np.einsum("ik,ik->i", near, U)  # S_i
    mean_neg = -np.einsum("ik,ik->i", far, U) / mass  # μ′_i
    level = w / mass * (1 - mean_pos - extra * mean_neg)
    flat, own_square = w / mass * (1 + extra), w * extra / mass**2
    common = level @ U
    grams = [host.product(U.T, c.astype(U.dtype)[:, None] * U) for c in (flat, own_square)]

    away = V if prior is None else V - prior

    result = np.empty((len(items), V.shape[1]), V.dtype)
    for place, (j, users, slots) in enumerate(_columns(X, items)):
        u, g_j, b_j, taken = U[users], g[slots] * w[users], b[j], removed[slots]
        s = u @ centred[j]
        bend = g_j - taken * flat[users] + (b_j**2 - (b_j - taken) ** 2) * own_square[users]
        slope = -g_j * (1 - s + mean_neg[users]) - taken * (level[users] + flat[users] * s)
        H = host.product(u.T, bend.astype(u.dtype)[:, None] * u).astype(np.float64)
        H += b_j * grams[0] - b_j**2 * grams[1] + reg[j] * np.eye(len(H))
        gradient = slope @ u + b_j * (common + grams[0] @ centred[j]) + reg[j] * away[j]
        result[place] = V[j] - np.linalg.solve(
            H + 1e-9 * np.abs(H).max() * np.eye(len(H)), gradient
        )
    return result


def _row_sums(X: Any, values: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Σ_p c_p v_p per user, [m, k]."""
    import scipy.sparse

    arrays = values.astype(V.dtype), np.asarray(X.indices), np.asarray(X.indptr)
    return scipy.sparse.csr_array(arrays, shape=X.shape) @ V


def _columns(X: Any, items: np.ndarray):
    """(item, its users, the places of its positives in `X.indices`) for each of `items`."""
    rows, columns, _ = X.on_host()
    place = np.full(X.num_items, -1)
    place[items] = np.arange(len(items))
    slots = np.flatnonzero(place[columns] >= 0)
    slots = slots[np.argsort(place[columns[slots]], kind="stable")]
    counts = np.bincount(place[columns[slots]], minlength=len(items))
    ends = np.cumsum(counts)
    for j, start, end in zip(items, ends - counts, ends, strict=True):
        yield j, rows[slots[start:end]], slots[start:end]


def with_solved(
    problem: Problem, factors: Factors, items: np.ndarray, prior: Any = None
) -> Factors:
    """The factors with the v_j of some items solved; λ_j pulls them to `prior`, A f_j, or to 0."""
    if not len(items):
        return factors
    solved = solve(problem, factors, items, prior)
    return factors._replace(V=replaced(factors.V, items, solved))


def replaced(F: Any, rows: np.ndarray, values: np.ndarray) -> Any:
    """F with other values in some rows, on the device."""
    F = np.array(F)
    F[rows] = values
    return host.put(F)
