"""Fold-in of items for any convex loss with φ = identity: v_j by Newton steps, with a bound on what is missing.

With t_i = u_i·v, the part of m₊ θ that depends on v_j is (docs/derivations.md#fold-in-items)

    f_j(v) = Σ_i w_i ψ_i(t_i) + ½ λ_j |v − A f_j|²       (A f_j = 0 without features)
    ψ_i(t) = g_ij Σ_q g′_iq L(t − s_iq)                                              for the users who have item j,
    ψ_i(t) = g′_ij Σ_p g_ip L(s_ip − t) + ½ (σ_i − 1) g′_ij (1 − g′_ij) (t − m_ij)²   for the others,

where m_ij is the mean of the scores of the user's other negatives. So an item is compared with all negatives of the
users who have it, and with all positives of the users who have not. Every ψ_i is convex if L is, f_j is λ_j-strongly
convex, and f_j(v) − min f_j ≤ |∇f_j|² / (2 λ_j) is the gap. One evaluation costs O(nnz + |ω_j| n + m k²).
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax._core import host, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import dislikes, losses, weightings
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Reg, Sphere
from mfauc_jax.problem import Problem
from mfauc_jax.serving import descent, fold_in

CHUNK = 2**20  # margins that are evaluated at a time


class FoldedItems(NamedTuple):
    """The factors of items, and a bound on how far each f_j(v_j) is above its minimum."""

    V: Float[np.ndarray, "some k"]
    gap: Float[np.ndarray, " some"]  # nan where λ_j is 0


class _Pairs(NamedTuple):
    """Pairs of item j with other items: weight · L(sign · (t_user − score)), the weights of w and both g included."""

    user: Int[np.ndarray, " pairs"]
    score: Float[np.ndarray, " pairs"]  # s of the other item
    weight: Float[np.ndarray, " pairs"]
    sign: int  # 1: j is the positive of the pair; −1: the negative


def check(objective: Objective) -> None:
    """Raise ValueError unless f_j is convex: φ = identity, a convex loss, rows of any length."""
    plain = isinstance(objective.weighting, weightings.Identity)
    if not plain or isinstance(objective.reg, Sphere) or not fold_in.is_convex(objective):
        raise ValueError(
            "items are folded in for a convex loss with φ = identity and rows of any length, not for "
            f"{objective.loss.name} with {objective.weighting.name}: use partial_fit"
        )


def solve(
    problem: Problem,
    factors: Factors,
    items: Int[np.ndarray, " some"],
    prior: Float[np.ndarray, "n k"] | None = None,
    tolerance: float = 1e-6,
    steps: int = 50,
) -> FoldedItems:
    """The v_j of `items` that minimise θ, each while U and all other rows of V stay as they are.

    Args:
        problem: the training set, its weights and its objective, which passes `check`.
        factors: U and V, for the users and items of the problem; a new item may have any v_j.
        items: columns of X, all different.
        prior: A f_j of every item, which λ_j pulls v_j to (docs/derivations.md#features); None: 0.
        tolerance: stop when the gap is at most this, or when a step gains less than float rounding.
        steps: largest number of evaluations per item.
    """
    objective, (m, n) = problem.objective, problem.X.shape
    U, V = (np.asarray(F, np.float64) for F in factors)
    weights = problem.weights
    w, b, g = (np.asarray(a, np.float64) for a in (weights.user, weights.b, weights.g))
    mass = np.asarray(weights.neg_mass, np.float64)
    extra = w * np.broadcast_to(np.asarray(objective.spread, np.float64), (m,))  # w_i (σ_i − 1)
    reg = objective.reg.item if isinstance(objective.reg, Reg) else objective.reg
    reg = np.broadcast_to(np.asarray(reg, np.float64), (n,)) * (len(weights.usable) / n)

    X, g, removed = dislikes.entries(problem.X, g, b, weights.disliked)
    rows, columns, _ = X.on_host()
    scores = np.concatenate(
        [
            np.einsum("pk,pk->p", U[rows[a : a + CHUNK]], V[columns[a : a + CHUNK]])
            for a in range(0, len(rows), CHUNK)
        ]
    )
    mean = (U @ (b @ V) - np.bincount(rows, removed * scores, minlength=m)) / mass  # μ′_i
    real = jax.dtypes.canonicalize_dtype(float)
    result, gap = np.empty((len(items), V.shape[1]), V.dtype), np.empty(len(items))
    for place, j in enumerate(items):
        own = columns == j
        left = np.full(m, b[j])
        left[rows[own]] -= removed[own]  # b_ij: 0 for the users who have item j
        g_neg = left / mass
        has = own & (g > 0)
        holders, g_own = rows[has], g[has]
        pairs = [
            _as_positive(X, removed, U, V, b, mass, w, i, c)
            for i, c in zip(holders, g_own, strict=True)
        ]
        others = (g > 0) & (g_neg[rows] > 0)
        weight = (w * g_neg)[rows] * g
        pairs.append(_Pairs(rows[others], scores[others], weight[others], -1))
        rest = np.maximum(1 - g_neg, 0)
        centre = (mean - g_neg * (U @ V[j])) / np.where(rest > 1e-12, rest, 1.0)
        bowl = extra * g_neg * rest * (rest > 1e-12)

        mean_j = np.zeros(V.shape[1]) if prior is None else np.asarray(prior[j], np.float64)

        def evaluate(
            v: np.ndarray, pairs=tuple(pairs), centre=centre, bowl=bowl, ridge=reg[j], mean_j=mean_j
        ):
            v = np.asarray(v[0], np.float64)
            t, away = U @ v, v - mean_j
            value, slope, bend = _risks(objective.loss, pairs, t)
            value = value.sum() + 0.5 * (bowl @ (t - centre) ** 2 + ridge * (away @ away))
            slope, bend = slope + bowl * (t - centre), bend + bowl
            hessian = host.product(U.T, bend[:, None] * U) + ridge * np.eye(len(v))
            gradient = slope @ U + ridge * away
            return descent.Local(value[None], gradient[None], hessian[None])

        ridge = np.array([reg[j]], real)
        v, missing = descent.newton(evaluate, ridge, V.shape[1], tolerance, steps)
        result[place], gap[place] = v[0], missing[0]
    return FoldedItems(result, gap)


def _as_positive(X, removed, U, V, b, mass, w, i: Any, g: Any) -> _Pairs:
    """Item j as a positive of user i, against all negatives of the user."""
    own = slice(int(X.indptr[i]), int(X.indptr[i + 1]))
    g_neg = b.copy()
    g_neg[np.asarray(X.indices)[own]] -= removed[own]
    negative = np.flatnonzero(g_neg)
    weight = w[i] * g * g_neg[negative] / mass[i]
    return _Pairs(np.full(len(negative), i), V[negative] @ U[i], weight, 1)


def _risks(loss: losses.Loss, pairs: tuple[_Pairs, ...], t: np.ndarray) -> list[np.ndarray]:
    """Σ weight · L and its first and second derivatives by t_i, summed by user, [m] each."""
    sums = [np.zeros(len(t)) for _ in range(3)]
    margins = [p.sign * (t[p.user] - p.score) for p in pairs]
    margin, user, weight, sign = (
        np.concatenate(parts)
        for parts in (
            margins,
            [p.user for p in pairs],
            [p.weight for p in pairs],
            [np.full(len(p.user), p.sign) for p in pairs],
        )
    )
    for start in range(0, len(margin), CHUNK):
        part = slice(start, start + CHUNK)
        x = margin[part]
        padded = np.zeros(programs.power(len(x)))
        padded[: len(x)] = x
        found = _derivatives(loss, host.floats(padded))
        for order, values in enumerate(found):
            own = np.asarray(values, np.float64)[: len(x)] * weight[part] * sign[part] ** order
            sums[order] += np.bincount(user[part], own, minlength=len(t))
    return sums


@programs.jit
def _derivatives(
    loss: losses.Loss, x: Float[Array, "pairs"]
) -> tuple[Float[Array, "pairs"], Float[Array, "pairs"], Float[Array, "pairs"]]:
    """L, L′ and L″ of each margin."""
    slope = jax.grad(loss)
    return loss(x), jax.vmap(slope)(x), jax.vmap(jax.grad(slope))(x)
