"""Why an item has its score: the score split into the user's own positives.

u minimises f = Σ_p f_p + ½ (σ − 1) Var_g′(s) + ½ (λ/w) |u|² (see `fold_in`), where f_p is the risk of the positive p.
With H the Hessian of f at u, H_p that of f_p, and r_p = H_p u − ∇f_p, the gradient is ∇f = H u − Σ_p r_p, so that

    v_j·u = Σ_p v_j·H⁻¹ r_p + v_j·H⁻¹ ∇f.

The summands are the contributions of the positives; the last term, the rest, is 0 where u is the minimum. For the
square loss r_p = g_p (v_p − v̈) does not depend on u, and the split is that of a linear system; for another convex loss
it is the system of the last Newton step, which is of first order in what a positive changes. Dislikes are among the
negatives: they change H and v̈, and so every contribution, but have none of their own.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from mfauc_jax._core import host, programs
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import dislikes, losses, weightings
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Sphere
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.serving import fold_in


class Explanation(NamedTuple):
    """A score, and what each of the user's positives adds to it: score = contributions.sum() + rest."""

    items: np.ndarray  # the caller's ids of the user's positives, the largest contribution first
    contributions: Float[np.ndarray, " positives"]
    score: float
    rest: float  # what the positives do not explain: 0 where u is the minimum, as after `fold_in`


def check(objective: Objective) -> None:
    """Raise ValueError unless f is convex as a sum over the positives: φ = identity, a convex loss, free rows."""
    plain = isinstance(objective.weighting, weightings.Identity)
    if not plain or isinstance(objective.reg, Sphere) or not fold_in.is_convex(objective):
        raise ValueError(
            f"a score is explained for a convex loss with φ = identity and rows of any length, not for "
            f"{objective.loss.name} with {objective.weighting.name}"
        )


def splits(
    objective: Objective,
    V: Float[np.ndarray, "n k"],
    users: Interactions,
    weights: PairWeights,
    U: Float[np.ndarray, "m k"],
    usable_share: float,
) -> Iterator[Float[np.ndarray, "k P"]]:
    """H⁻¹ r_p of each positive of one user after the other, as columns; v_j times them are its contributions to item j.

    Args:
        objective: that of the fit, with λ and σ of these users.
        V: the factors of the items.
        users: the positives of the users.
        weights: g, g′ and w of the users, with the constants of the training set.
        U: the factors of the users.
        usable_share: as in `fold_in.fold_in`.
    """
    m, k = U.shape
    bounds, indices = np.asarray(users.indptr), np.asarray(users.indices)
    g, b, w, mass = (
        np.asarray(a, np.float64) for a in (weights.g, weights.b, weights.user, weights.neg_mass)
    )
    known = dislikes.entries(users, g, b, weights.disliked)  # positives and dislikes
    known_bounds, known_items = np.asarray(known.X.indptr), np.asarray(known.X.indices)
    spread = np.broadcast_to(np.asarray(objective.spread, np.float64), (m,))
    reg, square = fold_in.by_user(objective, m), isinstance(objective.loss, losses.Square)
    V = V.astype(np.float64)
    V = V - b @ V / b.sum()  # Σ b v = 0; margins do not change
    gram = V.T @ (b[:, None] * V) if square else np.zeros((k, k))
    for i in range(m):
        own, both = (slice(ends[i], ends[i + 1]) for ends in (bounds, known_bounds))
        items, entries = indices[own], known_items[both]
        if not w[i] > 0 or not 0 < len(items) < len(V):
            yield np.zeros((k, len(items)))
            continue
        removed = known.removed[both]
        if square:
            H, _ = fold_in.system(V[entries], known.g[both], removed, gram, mass[i], spread[i])
            far = -(removed @ V[entries]) / mass[i]
            targets = g[own, None] * (V[items] - far)
        else:
            g_neg = b / mass[i]
            np.add.at(g_neg, entries, -removed / mass[i])
            u = U[i].astype(np.float64)
            H, targets = _by_pairs(objective, V, items, u, g[own], g_neg, spread[i])
        ridge = usable_share * float(reg[i]) / w[i]
        yield np.linalg.solve(H + (ridge + 1e-9 * np.abs(H).max()) * np.eye(k), targets.T)


def _by_pairs(objective, V, items, u, g, g_neg, spread) -> tuple[np.ndarray, np.ndarray]:
    """H without λ, [k, k], and r_p, [P, k], from all pairs of the user."""
    V_pos, mean = V[items], g_neg @ V
    margin = (V_pos @ u)[:, None] - (V @ u)[None, :]  # γ [P, n]
    padded = np.zeros(programs.power(margin.size))
    padded[: margin.size] = margin.ravel()
    slopes = _slopes(objective.loss, host.floats(padded))
    first, second = (np.asarray(a, float)[: margin.size].reshape(margin.shape) for a in slopes)
    pairs = g[:, None] * g_neg[None, :]
    M, pull = pairs * second, pairs * (second * margin - first)
    cross = V_pos.T @ (M @ V)
    H = V_pos.T @ (M.sum(1)[:, None] * V_pos) - cross - cross.T
    H += V.T @ ((M.sum(0) + spread * g_neg)[:, None] * V) - spread * np.outer(mean, mean)
    return H, pull.sum(1)[:, None] * V_pos - pull @ V


@programs.jit
def _slopes(
    loss: losses.Loss, x: Float[Array, "pairs"]
) -> tuple[Float[Array, "pairs"], Float[Array, "pairs"]]:
    """L′ and L″ of each margin."""
    slope = jax.grad(loss)
    return jax.vmap(slope)(x), jax.vmap(jax.grad(slope))(x)
