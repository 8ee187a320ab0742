"""A new user's u from the fitted V: each user's own minimum of Eq. 3, everything else held.

    f_i(u) = θ_i(u) + ½ (λ_i/w_i) |u|²,     θ_i = Σ_p g φ(Σ_q g′ L(γ)) + ½ (σ_i − 1) Var_g′(s)

by Newton's method with halved steps, all pairs counted. For the square loss f is a quadratic and one
step solves its k × k system; its θ comes from moments (SPEC 4.1) and costs O(N_i k²), not N_i n. For
a convex L and φ = identity, f is λ_i/w_i-strongly convex, so f(u) − min f ≤ |∇f|² / (2 λ_i/w_i):
that is the `gap` told. Otherwise the step is a gradient preconditioned by the curvature's convex part.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax import losses, weightings
from mfauc_jax import objective as objectives
from mfauc_jax.interactions import Interactions
from mfauc_jax.item_weights import Weights
from mfauc_jax.objective import Objective, Reg

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
    weights: Weights,
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
        tolerance: stop when every gap is at most this.
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
        name = getattr(objective.loss.func, "__name__", "the loss")
        warnings.warn(
            f"{name} with {objective.weighting.func.__name__} is not convex: fold-in descends from "
            "u = 0 to a local minimum, with no bound on what is missed", stacklevel=2,
        )  # fmt: skip
    square = (
        objective.loss.func is losses.square and objective.weighting.func is weightings.identity
    )
    alone = objective._replace(reg=0.0, spread=0.0)  # a block has its users' own
    local = _by_moments if square else partial(_by_pairs, alone)
    b = weights.b
    V = V - (b @ V / b.sum())[None, :]  # margins do not change; Σ b v is now 0
    second = V.T @ (b[:, None] * V)
    U, gap = np.zeros((m, V.shape[1]), V.dtype), np.zeros(m, V.dtype)
    for users, block in _blocks(objective, new_users, weights, usable_share, V.shape, square):
        at = partial(local, V, second, b, block)
        found, left = _newton(at, np.asarray(block.ridge), V.shape[1], tolerance, steps)
        U[users], gap[users] = found[: len(users)], left[: len(users)] if convex else np.nan
    return Folded(U, gap)


def is_convex(objective: Objective) -> bool:
    """Whether φ is the identity and L″ ≥ 0, judged on a grid of margins."""
    if objective.weighting.func is not weightings.identity:
        return False
    return bool((_second(objective.loss)(jnp.linspace(-30.0, 30.0, 601)) >= -1e-6).all())


def _second(loss: Callable) -> Callable:
    return jnp.vectorize(jax.grad(jax.grad(loss)))


def _blocks(
    objective, X: Interactions, weights: Weights, share: float, shape, square: bool
) -> Iterator[tuple[np.ndarray, Block]]:
    """(users, their padded rows) with P and b powers of two; a short block repeats its first user."""
    n, k = shape
    lengths, indptr = np.asarray(X.row_lengths), np.asarray(X.indptr)
    items, g, b, w = (np.asarray(a) for a in (X.indices, weights.g, weights.b, weights.user))
    mass = np.asarray(weights.neg_mass)
    reg = np.asarray(objectives.by_row(objective.reg, *X.shape).user)
    spread = np.broadcast_to(np.asarray(objective.spread), lengths.shape)
    usable = np.flatnonzero(w > 0)
    widths = np.maximum(8, 1 << np.ceil(np.log2(lengths[usable])).astype(int))
    for P in np.unique(widths):
        group = usable[widths == P]
        most = max(1, BUDGET // int(P * (k if square else n)))
        size = 1 << min(len(group).bit_length() - 1, most.bit_length() - 1)
        for start in range(0, len(group), size):
            users = group[start : start + size]
            rows = np.concatenate([users, np.repeat(users[:1], size - len(users))])
            offset = np.arange(P)[None, :]
            real = offset < lengths[rows][:, None]
            slots = indptr[rows][:, None] + np.where(real, offset, 0)
            found = items[slots]
            ridge = share * reg[rows] / w[rows]
            numbers = (g[slots] * real, b[found] * real, mass[rows], spread[rows], ridge)
            yield users, Block(jnp.asarray(found), *(jnp.asarray(a, g.dtype) for a in numbers))


@jax.jit
def _by_moments(V, second, b, block: Block, u: Float[Array, "b k"]) -> Local:
    """The square loss: C_p = ½[(1 − s_p)² + 2 (1 − s_p) μ′ + Q′] needs the positives alone."""
    del b

    def risk(u, V_pos, block: Block):
        s = V_pos @ u
        mean = -(block.b_pos @ s) / block.neg_mass  # μ′; Σ_j b_j s_j is 0
        square = (u @ second @ u - block.b_pos @ s**2) / block.neg_mass  # Q′
        rank_loss = 0.5 * ((1 - s) ** 2 + 2 * (1 - s) * mean + square)
        value = block.g @ rank_loss + 0.5 * block.spread * (square - mean**2)
        return value + 0.5 * block.ridge * (u @ u)

    def one(u, block: Block):
        V_pos = V[block.items]
        value, gradient = jax.value_and_grad(risk)(u, V_pos, block)
        return Local(value, gradient, jax.hessian(risk)(u, V_pos, block))

    return jax.vmap(one)(u, block)


@jax.jit
def _by_pairs(objective, V, second, b, block: Block, u: Float[Array, "b k"]) -> Local:
    """Any loss and φ. ∇²f has Σ_pq M_pq (v_p − v_q)(v_p − v_q)ᵀ with M = g φ′ L″ g′.

    L″ is taken where it is ≥ 0, and φ″ (≤ 0 for tanh) is left out: what remains is the convex part.
    """
    del second

    def risk(u, V_pos, g_neg, block: Block):
        data = objectives.user_risk(objective, u, V_pos, V, block.g, g_neg, block.spread)
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
        gradient, hessian = here.gradient.astype(np.float64), here.hessian.astype(np.float64)
        hessian = hessian + 1e-9 * np.eye(rank) * np.abs(hessian).max((1, 2), keepdims=True)
        direction = -np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        fall = -(direction * gradient).sum(1)  # twice what a full step should gain
        rounding = noise * (1 + np.abs(here.value))
        if ((_gap(here, ridge) <= tolerance) | (fall <= rounding) | (length < 1e-4)).all():
            break
        trial = (u + length[:, None] * direction).astype(u.dtype)
        there = _host(at(trial))
        good = there.value <= here.value - 1e-4 * length * fall + rounding
        u = np.where(good[:, None], trial, u)
        pairs = zip(there, here, strict=True)
        here = Local(*(np.where(good.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))
        length = np.where(good, 1.0, length / 2)
    return u, _gap(here, ridge)


def _gap(here: Local, ridge: np.ndarray) -> np.ndarray:
    """|∇f|²/2λ; nan without a λ."""
    return (here.gradient**2).sum(1) / np.where(ridge > 0, 2 * ridge, np.nan)


def _host(local: Local) -> Local:
    return Local(*map(np.asarray, local))
