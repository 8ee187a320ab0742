"""A new user's u from the fitted V: each user's own minimum of Eq. 3, everything else held.

    f_i(u) = θ_i(u) + ½ (λ_i/w_i) |u|²,     θ_i = Σ_p g φ(Σ_q g′ L(γ)) + ½ (σ_i − 1) Var_g′(s)

all pairs counted. For the square loss f is a quadratic, and its k × k system is made from moments
(docs/derivations.md#moments) in O(N_i k²) and solved. Other losses take Newton steps, halved where f would rise. For a
convex L and φ = identity, f is λ_i/w_i-strongly convex, so f(u) − min f ≤ |∇f|² / (2 λ_i/w_i): that is
the `gap` told. Otherwise a step is the gradient, preconditioned by the convex part of the curvature.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax.data import ragged
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation, losses, weightings
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Reg, by_row
from mfauc_jax.objective.weights import PairWeights

BUDGET = 2**21  # numbers in the largest temporary of a block: 8 MB in float32


class Folded(NamedTuple):
    """Users' factors, and how far each is from its own minimum at the most."""

    U: Float[np.ndarray, "m k"]
    gap: Float[np.ndarray, "m"]  # of f_i; nan where it is not known: λ = 0, or not convex


class Block(NamedTuple):
    """Users with about the same N_i; sizes are powers of two, so that few programs serve all."""

    items: Int[Array, "b P"]
    g: Float[Array, "b P"]  # 0 for padding
    b_pos: Float[Array, "b P"]  # 0 for padding
    neg_mass: Float[Array, "b"]
    spread: Float[Array, "b"]
    ridge: Float[Array, "b"]  # λ_i/w_i


class Local(NamedTuple):
    """f, ∇f and the convex part of ∇²f at some u, for the users of a block."""

    value: Any  # [b]
    gradient: Any  # [b, k]
    hessian: Any  # [b, k, k]


def fold_in(
    objective: Objective,
    V: Float[Array, "n k"],
    new_users: Interactions,
    weights: PairWeights,
    *,
    usable_share: float = 1.0,
    tolerance: float = 1e-6,
    steps: int = 50,
) -> Folded:
    """u_i for every row of `new_users`; 0 for a user without a usable pair.

    Args:
        objective: what V was fitted to, with λ and σ of the new users.
        V: items' factors.
        new_users: their positives, over the columns of V.
        weights: g, g′ and w of the new users, with training's constants.
        usable_share: training's usable users over m: λ is divided by m, the risk by their number.
        tolerance: stop when every gap is at most this (or float rounding hides what a step gains).
        steps: the most evaluations of a block.
    """
    m, n = new_users.shape
    if n != V.shape[0]:
        raise ValueError(f"the new users' matrix has {n} columns, the model {V.shape[0]} items")
    reg = objective.reg.user if isinstance(objective.reg, Reg) else objective.reg
    for name, number in (("reg", reg), ("spread", objective.spread)):
        if np.size(number) not in (1, m):
            raise ValueError(f"{name} was given by user, and is not known for the new ones")
    convex = is_convex(objective)
    if not convex:
        warnings.warn(
            f"{objective.loss.name} with {objective.weighting.name} is not convex: fold-in descends from "
            "u = 0 to a local minimum, with no bound on what is missed",
            stacklevel=2,
        )
    square = isinstance(objective.loss, losses.Square) and isinstance(
        objective.weighting, weightings.Identity
    )
    alone = objective._replace(reg=0.0, spread=0.0)  # a block has its users' own
    b = weights.b
    V = V - (b @ V / b.sum())[None, :]  # margins do not change; Σ b v is now 0
    second = V.T @ (b[:, None] * V)
    U, gap = np.zeros((m, V.shape[1]), V.dtype), np.zeros(m, V.dtype)
    for users, block in _blocks(objective, new_users, weights, usable_share, V.shape, square):
        ridge = np.asarray(block.ridge)
        if square:
            H, r = _systems(V, second, block)
            found, left = _solve(np.asarray(H), np.asarray(r), ridge)
        else:
            at = partial(_by_pairs, alone, V, b, block)
            found, left = _newton(at, ridge, V.shape[1], tolerance, steps)
        U[users], gap[users] = found[: len(users)], left[: len(users)] if convex else np.nan
    return Folded(U, gap)


def is_convex(objective: Objective) -> bool:
    """Whether φ is the identity and L″ ≥ 0, judged on a grid of margins."""
    if not isinstance(objective.weighting, weightings.Identity):
        return False
    return bool((_second(objective.loss)(jnp.linspace(-30.0, 30.0, 601)) >= -1e-6).all())


def _second(loss: Callable) -> Callable:
    return jnp.vectorize(jax.grad(jax.grad(loss)))


def _blocks(
    objective, X: Interactions, weights: PairWeights, share: float, shape, square: bool
) -> Iterator[tuple[np.ndarray, Block]]:
    """(users, their padded rows) with P and b powers of two; a short block repeats its first user."""
    n, k = shape
    lengths = X.on_host()[2]
    g, b, w = (np.asarray(a) for a in (weights.g, weights.b, weights.user))
    mass = np.asarray(weights.neg_mass)
    reg = np.asarray(by_row(objective.reg, *X.shape).user)
    spread = np.broadcast_to(np.asarray(objective.spread), lengths.shape)
    usable = np.flatnonzero(w > 0)
    width = 2 if square else 1  # padding is cheap without pairs: fewer programs
    octaves = np.ceil(np.log2(np.maximum(lengths[usable], 8)) / width - 3 / width).astype(int)
    widths = 8 << (width * octaves)
    for P in np.unique(widths):
        group = usable[widths == P]
        most = max(1, BUDGET // int(P * (k if square else n)))
        size = 1 << min(len(group).bit_length() - 1, most.bit_length() - 1)
        for start in range(0, len(group), size):
            users = group[start : start + size]
            rows = np.concatenate([users, np.repeat(users[:1], size - len(users))])
            found, slots, real = ragged.padded(X, rows, int(P))
            ridge = share * reg[rows] / w[rows]
            numbers = (g[slots] * real, b[found] * real, mass[rows], spread[rows], ridge)
            yield users, Block(jnp.asarray(found), *(jnp.asarray(a, g.dtype) for a in numbers))


@jax.jit
def _systems(V, second, block: Block) -> tuple[Float[Array, "b k k"], Float[Array, "b k"]]:
    """H_i and r_i of the square loss, f_i(u) = ½ − r_i·u + ½ uᵀ H_i u, from the positives alone.

    H = Σ_p g v vᵀ + σ Σ_q g′ v vᵀ − v̇ v̈ᵀ − v̈ v̇ᵀ − (σ − 1) v̈ v̈ᵀ + (λ/w) I and r = v̇ − v̈, where
    v̇ = Σ g v_p, v̈ = Σ g′ v_q, and sums over the complement are all items' minus the positives'.
    """

    def one(block: Block):
        V_pos, flat = V[block.items], (1 + block.spread) / block.neg_mass
        near, far = block.g @ V_pos, -(block.b_pos @ V_pos) / block.neg_mass  # v̇, v̈
        H = V_pos.T @ ((block.g - flat * block.b_pos)[:, None] * V_pos) + flat * second
        H = H - jnp.outer(near, far) - jnp.outer(far, near) - block.spread * jnp.outer(far, far)
        return H + block.ridge * jnp.eye(len(near), dtype=V.dtype), near - far

    return jax.vmap(one)(block)


def _solve(H: np.ndarray, r: np.ndarray, ridge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """H⁻¹ r for each user, and |H u − r|²/2λ.

    On the host, in float64: numpy solves one small system after the other (see `solvers.alternating`
    for what several at once do to XLA's threads).
    """
    H, r = H.astype(np.float64), r.astype(np.float64)[:, :, None]
    u = np.linalg.solve(H + _damping(H), r)
    return u[:, :, 0], _gap((H @ u - r)[:, :, 0], ridge)


@jax.jit
def _by_pairs(objective, V, b, block: Block, u: Float[Array, "b k"]) -> Local:
    """Any loss and φ. ∇²f has Σ_pq M_pq (v_p − v_q)(v_p − v_q)ᵀ with M = g φ′ L″ g′.

    L″ is taken where it is ≥ 0, and φ″ (≤ 0 for tanh) is left out: what remains is the convex part.
    """

    def risk(u, V_pos, g_neg, block: Block):
        data = equation.user_risk(objective, u, V_pos, V, block.g, g_neg, block.spread)
        return data + 0.5 * block.ridge * (u @ u)

    def one(u, block: Block):
        V_pos = V[block.items]
        g_neg = b.at[block.items].set(0.0) / block.neg_mass
        value, gradient = jax.value_and_grad(risk)(u, V_pos, g_neg, block)
        margin = (V_pos @ u)[:, None] - (V @ u)[None, :]  # γ [P, n]
        slope = jnp.vectorize(jax.grad(objective.weighting))(objective.loss(margin) @ g_neg)
        curvature = jnp.maximum(_second(objective.loss)(margin), 0.0)
        M = (block.g * slope)[:, None] * curvature * g_neg[None, :]
        cross, mean = V_pos.T @ (M @ V), g_neg @ V
        hessian = V_pos.T @ (M.sum(1)[:, None] * V_pos) - cross - cross.T
        hessian = hessian + V.T @ ((M.sum(0) + block.spread * g_neg)[:, None] * V)
        hessian = hessian - block.spread * jnp.outer(mean, mean) + block.ridge * jnp.eye(len(u))
        return Local(value, gradient, hessian)

    return jax.vmap(one)(u, block)


def _newton(
    at: Callable[[Any], Local], ridge: np.ndarray, rank: int, tolerance: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """u for each user of a block from 0, and |∇f|²/2λ. Plain Python; the small solves in float64.

    On the host, since numpy solves one k × k system after the other (see `solvers.alternating`).
    """
    u = np.zeros((len(ridge), rank), ridge.dtype)
    here, length = _host(at(u)), np.ones(len(u))
    noise = 32 * np.finfo(u.dtype).eps
    for _ in range(steps):
        if ((_gap(here.gradient, ridge) <= tolerance) | (length < 1e-4)).all():
            break
        gradient, hessian = here.gradient.astype(np.float64), here.hessian.astype(np.float64)
        direction = -np.linalg.solve(hessian + _damping(hessian), gradient[:, :, None])[:, :, 0]
        fall = -(direction * gradient).sum(1)  # twice what a full step should gain
        rounding = noise * (1 + np.abs(here.value))
        if (fall <= rounding).all():
            break
        trial = (u + length[:, None] * direction).astype(u.dtype)
        there = _host(at(trial))
        good = there.value <= here.value - 1e-4 * length * fall + rounding
        u = np.where(good[:, None], trial, u)
        here = there if good.all() else Local(*map(partial(_choose, good), there, here))
        length = np.where(good, 1.0, length / 2)
    return u, _gap(here.gradient, ridge)


def _gap(gradient: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """|∇f|²/2λ; nan without a λ."""
    return (gradient**2).sum(1) / np.where(ridge > 0, 2 * ridge, np.nan)


def _damping(H: np.ndarray) -> np.ndarray:
    """A little on the diagonal: without λ, H may be singular."""
    return 1e-9 * np.eye(H.shape[1]) * np.abs(H).max((1, 2), keepdims=True)


def _choose(good: np.ndarray, there: np.ndarray, here: np.ndarray) -> np.ndarray:
    return np.where(good.reshape(-1, *[1] * (here.ndim - 1)), there, here)


def _host(local: Local) -> Local:
    return Local(*map(np.asarray, local))
