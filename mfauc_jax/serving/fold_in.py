"""Fold-in: the u of a new user from the fitted V, which minimises the user's part of Eq. 3 while V is fixed.

    f_i(u) = θ_i(u) + ½ (λ_i/w_i) |u − B g_i|²,     θ_i = Σ_p g φ(Σ_q g′ L(γ)) + ½ (σ_i − 1) Var_g′(s)

over all pairs, with B g_i = 0 unless users have features. For the square loss f is a quadratic, and its k × k system
is made from moments (docs/derivations.md#moments) in O(N_i k²) and solved, in NumPy: nothing is compiled. Other losses
take Newton steps, which are halved where f would rise. For a convex L and φ = identity, f is λ_i/w_i-strongly convex,
so f(u) − min f ≤ |∇f|² / (2 λ_i/w_i): this bound is the returned `gap`. The softmax loss is convex in u too. Otherwise
a step is the gradient, preconditioned by the convex part of the curvature.

Where the rows have unit length, u moves on the sphere, where f is not convex: gradient steps from the direction of
−∇f(0), each back to length one, longer after a fall and shorter after a rise (docs/derivations.md#unit-rows). There is
no bound, and `gap` is nan.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax._core import host, programs
from mfauc_jax.data import ragged
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import dislikes, equation, losses, weightings
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Reg, Sphere
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.serving import descent

BUDGET = 2**21  # numbers in the largest temporary array of a block: 8 MB in float32


class Folded(NamedTuple):
    """The factors of users, and a bound on how far each f_i(u_i) is above its minimum."""

    U: Float[np.ndarray, "m k"]
    gap: Float[np.ndarray, "m"]  # nan where it is not known: λ = 0, or f_i is not convex


class Block(NamedTuple):
    """Users with similar numbers of entries, positives and dislikes; P and b are powers of two: few programs."""

    items: Int[Array, "b P"]
    g: Float[Array, "b P"]  # 0 for padding and for dislikes
    b_pos: Float[Array, "b P"]  # what an entry takes from b (`dislikes.Entries`); 0 for padding
    neg_mass: Float[Array, "b"]
    spread: Float[Array, "b"]
    ridge: Float[Array, "b"]  # λ_i/w_i
    prior: Float[Array, "b k"] | None = None  # B g_i; None: 0


def fold_in(
    objective: Objective,
    V: Float[Array, "n k"],
    new_users: Interactions,
    weights: PairWeights,
    *,
    usable_share: float = 1.0,
    prior: Float[np.ndarray, "m k"] | None = None,
    tolerance: float = 1e-6,
    steps: int = 50,
) -> Folded:
    """The minimiser u_i of f_i for every row of `new_users`; B g_i, or 0, for a user without a usable pair.

    Args:
        objective: the objective that V was fitted to, with λ and σ of the new users.
        V: the factors of the items.
        new_users: the positives of the new users, over the rows of V.
        weights: g, g′ and w of the new users, with the constants of the training set.
        usable_share: usable users of the training set over all its users; λ is divided by the latter, the risk by
            the former.
        prior: B g_i of every new user (docs/derivations.md#features); None: 0.
        tolerance: stop when every gap is at most this, or when a step gains less than float rounding.
        steps: largest number of evaluations per block.
    """
    m, n = new_users.shape
    if n != V.shape[0]:
        raise ValueError(f"the new users' matrix has {n} columns, the model {V.shape[0]} items")
    sphere = isinstance(objective.reg, Sphere)
    reg = objective.reg.user if isinstance(objective.reg, Reg) else objective.reg
    for name, number in (("reg", reg), ("spread", objective.spread)):
        if not sphere and np.size(number) not in (1, m):
            raise ValueError(
                f"{name} was given by user, and is not known for the new users: use one number"
            )
    square = (
        isinstance(objective.loss, losses.Square)
        and isinstance(objective.weighting, weightings.Identity)
        and not sphere
    )
    if square:
        return _solve(objective, V, new_users, weights, usable_share, prior)
    convex = is_convex(objective) and not sphere
    if not convex and not sphere:
        warnings.warn(
            f"{objective.loss.name} with {objective.weighting.name} is not convex: fold-in descends from "
            "u = 0 to a local minimum, with no bound on what is missed",
            stacklevel=2,
        )
    alone = objective._replace(reg=0.0, spread=0.0)  # a block holds the numbers of its users
    N = programs.item_rows(n)
    b = host.padded(weights.b, N)  # padding has weight 0
    V = _centred(host.padded_once(V, N), b)
    U, gap = begun(prior, m, V), np.zeros(m, V.dtype)
    for users, block in _blocks(objective, new_users, weights, usable_share, prior, V.shape):
        ridge = np.asarray(block.ridge)
        if sphere:
            u = descent.on_sphere(
                partial(_first_order, alone, V, b, block),
                np.zeros((len(ridge), V.shape[1]), V.dtype),
                steps,
            )
            distance = np.full(len(u), np.nan)
        else:
            evaluate = partial(_by_pairs, alone, V, b, block)
            u, distance = descent.newton(evaluate, ridge, V.shape[1], tolerance, steps)
        U[users], gap[users] = u[: len(users)], distance[: len(users)] if convex else np.nan
    return Folded(U, gap)


def padded_lengths(lengths: np.ndarray) -> np.ndarray:
    """P ≥ N_i, a power of two from 8 on: the number of positives that the program for a user is compiled for."""
    return 8 << np.ceil(np.log2(np.maximum(lengths, 8)) - 3).astype(int)


def is_convex(objective: Objective) -> bool:
    """Whether f is convex: the softmax loss, or φ = identity and L″ ≥ 0 on a grid of margins in [−30, 30]."""
    if equation.is_softmax(objective):
        return True  # a log-sum-exp of linear functions, minus one; softplus keeps it convex
    if not isinstance(objective.weighting, weightings.Identity):
        return False
    return bool(_least_curvature(objective.loss) >= -1e-6)


@programs.jit
def _least_curvature(loss: losses.Loss) -> Float[Array, ""]:
    return _second(loss)(jnp.linspace(-30.0, 30.0, 601)).min()


@programs.jit
def _centred(V: Float[Array, "N k"], b: Float[Array, "N"]) -> Float[Array, "N k"]:
    """V with Σ b v = 0, which does not change margins."""
    return V - (b @ V / b.sum())[None, :]


def _second(loss: Callable) -> Callable:
    return jnp.vectorize(jax.grad(jax.grad(loss)))


def _blocks(
    objective, X: Interactions, weights: PairWeights, share: float, prior, shape
) -> Iterator[tuple[np.ndarray, Block]]:
    """(users, their padded rows), with P a power of two and b one of four; the last block repeats its first user."""
    n = shape[0]
    g, b, w = (np.asarray(a) for a in (weights.g, weights.b, weights.user))
    X, g, removed = dislikes.entries(X, g, b, weights.disliked)
    lengths = X.on_host()[2]
    mass = np.asarray(weights.neg_mass)
    reg = by_user(objective, X.num_users)
    spread = np.broadcast_to(np.asarray(objective.spread), lengths.shape)
    usable = np.flatnonzero(w > 0)
    widths = padded_lengths(lengths[usable])
    for P in np.unique(widths):
        group = usable[widths == P]
        most = max(1, BUDGET // int(P * n))
        size = min(1 << (len(group).bit_length() - 1) // 2 * 2, 1 << most.bit_length() - 1)
        for start in range(0, len(group), size):
            users = group[start : start + size]
            rows = np.concatenate([users, np.repeat(users[:1], size - len(users))])
            items, slots, real = ragged.padded(X, rows, int(P))
            ridge = share * reg[rows] / w[rows]
            numbers = (g[slots] * real, removed[slots] * real, mass[rows], spread[rows], ridge)
            if prior is not None:
                numbers = (*numbers, prior[rows])
            on_device = (jax.device_put(np.asarray(a, g.dtype)) for a in numbers)
            yield users, Block(host.ints(items), *on_device)


def begun(prior: np.ndarray | None, num_users: int, V: Any) -> np.ndarray:
    """U before the first step: B g_i, or 0."""
    shape = (num_users, V.shape[1])
    return np.zeros(shape, V.dtype) if prior is None else np.array(prior, V.dtype)


def _solve(objective, V, X: Interactions, weights: PairWeights, share: float, prior) -> Folded:
    """u_i of the square loss: one k × k system per user, in NumPy, so that nothing is compiled."""
    b = np.asarray(weights.b)
    centred, second = host.remembered(V, f"moments {hash(b.tobytes())}", partial(_moments, b=b))
    g, mass, w = (np.asarray(a) for a in (weights.g, weights.neg_mass, weights.user))
    X, g, removed = dislikes.entries(X, g, b, weights.disliked)
    indptr, items = np.asarray(X.indptr), np.asarray(X.indices)
    reg = by_user(objective, X.num_users)
    spread = np.broadcast_to(np.asarray(objective.spread, g.dtype), mass.shape)
    (m, _), k = X.shape, V.shape[1]
    U, gap = begun(prior, m, V), np.zeros(m, V.dtype)
    for block in _runs(np.flatnonzero(w > 0), max(1, BUDGET // k**2)):
        ridge = share * reg[block] / w[block]
        H, r = np.empty((len(block), k, k)), np.empty((len(block), k))
        for place, i in enumerate(block):
            own = slice(indptr[i], indptr[i + 1])
            V_pos, b_pos = centred[items[own]], removed[own]
            H[place], r[place] = system(V_pos, g[own], b_pos, second, mass[i], spread[i])
        H += ridge[:, None, None] * np.eye(k)
        if prior is not None:
            r += ridge[:, None] * prior[block]
        U[block], gap[block] = descent.solve(H, r, ridge)
    return Folded(U, gap)


def by_user(objective: Objective, num_users: int) -> np.ndarray:
    """λ_i, [m], by NumPy: JAX would compile for each m."""
    reg = 0.0 if isinstance(objective.reg, Sphere) else objective.reg
    reg = reg.user if isinstance(reg, Reg) else reg
    return np.broadcast_to(np.asarray(reg), (num_users,))


def _runs(users: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (users[start : start + size] for start in range(0, len(users), size))


def _moments(V: Any, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V with Σ b v = 0, which does not change margins, and Σ b v vᵀ; in NumPy."""
    V = np.asarray(V)
    V = V - (b @ V / b.sum())[None, :]
    return V, host.product(V.T, b[:, None] * V)


def system(
    V_pos: Float[np.ndarray, "P k"],
    g: Float[np.ndarray, "P"],
    b_pos: Float[np.ndarray, "P"],
    second: Float[np.ndarray, "k k"],
    neg_mass: Any,
    spread: Any,
) -> tuple[Float[np.ndarray, "k k"], Float[np.ndarray, "k"]]:
    """H_i − (λ/w) I and r_i of the square loss, f_i(u) = ½ − r_i·u + ½ uᵀ H_i u, from the positives and dislikes.

    H = Σ_p g v vᵀ + σ Σ_q g′ v vᵀ − v̇ v̈ᵀ − v̈ v̇ᵀ − (σ − 1) v̈ v̈ᵀ + (λ/w) I and r = v̇ − v̈, where
    v̇ = Σ g v_p and v̈ = Σ g′ v_q. A sum over the complement is the sum over all items minus that over the positives;
    the items are centred, Σ b v = 0.
    """
    flat = (1 + spread) / neg_mass
    near, far = g @ V_pos, -(b_pos @ V_pos) / neg_mass  # v̇, v̈
    H = host.product(V_pos.T, (g - flat * b_pos)[:, None] * V_pos) + flat * second
    cross = np.outer(near, far)
    return H - cross - cross.T - spread * np.outer(far, far), near - far


def _risk(objective, V, b, u, block: Block):
    """f of one user."""
    g_neg = b.at[block.items].add(-block.b_pos) / block.neg_mass
    data = equation.user_risk(objective, u, V[block.items], V, block.g, g_neg, block.spread)
    away = u if block.prior is None else u - block.prior
    return data + 0.5 * block.ridge * (away @ away)


@programs.jit
def _first_order(objective, V, b, block: Block, u: Float[Array, "b k"]):
    """f and ∇f."""
    return jax.vmap(jax.value_and_grad(partial(_risk, objective, V, b)))(u, block)


@programs.jit
def _by_pairs(objective, V, b, block: Block, u: Float[Array, "b k"]) -> descent.Local:
    """f, ∇f and the convex part of ∇²f for any loss and φ; ∇²f has Σ_pq M_pq (v_p − v_q)(v_p − v_q)ᵀ, M = g φ′ L″ g′.

    Only L″ ≥ 0 is taken, and φ″ (≤ 0 for tanh) is left out: what remains is the convex part.
    """
    risk = partial(_risk, objective, V, b)

    def one(u, block: Block):
        value, gradient = jax.value_and_grad(risk)(u, block)
        if equation.is_softmax(objective):
            return descent.Local(value, gradient, jax.hessian(risk)(u, block))
        V_pos = V[block.items]
        g_neg = b.at[block.items].add(-block.b_pos) / block.neg_mass
        margin = (V_pos @ u)[:, None] - (V @ u)[None, :]  # γ [P, n]
        slope = jnp.vectorize(jax.grad(objective.weighting))(objective.loss(margin) @ g_neg)
        curvature = jnp.maximum(_second(objective.loss)(margin), 0.0)
        M = (block.g * slope)[:, None] * curvature * g_neg[None, :]
        cross, mean = V_pos.T @ (M @ V), g_neg @ V
        hessian = V_pos.T @ (M.sum(1)[:, None] * V_pos) - cross - cross.T
        hessian = hessian + V.T @ ((M.sum(0) + block.spread * g_neg)[:, None] * V)
        hessian = hessian - block.spread * jnp.outer(mean, mean) + block.ridge * jnp.eye(len(u))
        return descent.Local(value, gradient, hessian)

    return jax.vmap(one)(u, block)
