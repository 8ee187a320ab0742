"""Alternating minimisation of the square loss over all pairs (SPEC 4.2, 4.5): no sampling, no step size.

One iteration solves the k × k system of every u_i by conjugate gradients from where it stands, then
takes a few such steps on V, whose rows are coupled through every (positive, negative) pair. A product
with either Hessian costs O(nnz k + (m + n) k²) and lists no pair.

Conjugate gradients, not batched Cholesky: two batched LAPACK calls at once take both threads of a
two-core pool and wait for a third for ever (jaxlib 0.10.2); and a few steps are cheaper than the
nnz k² of forming the systems. With `user_steps` ≥ k the solve is exact.

With φ = tanh each positive's exact loss C_ip gives its weight φ′(C_ip): φ is concave, so its tangent
majorises it and the objective still never rises.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, Key

from mfauc_jax import losses, padded, weightings
from mfauc_jax import objective as objectives
from mfauc_jax.factors import Factors
from mfauc_jax.interactions import Interactions
from mfauc_jax.item_weights import Weights
from mfauc_jax.objective import Objective
from mfauc_jax.padded import Tiles
from mfauc_jax.solvers import base

BUDGET = 2**13  # positives of a chunk: their gathered factors are 2 MB in float32 at k = 64


class Data(NamedTuple):
    """X and its weights, laid out both ways."""

    X: Interactions
    rows: Int[Array, "nnz"]  # the user of every positive
    weights: Weights
    users: Tiles  # each user's items
    items: Tiles  # each item's users


def make(objective: Objective, user_steps: Any = 4, item_steps: Any = 2) -> base.Solver:
    """The solver for `objective`, whose loss must be the square.

    Args:
        objective: square loss; any φ that is concave, reg and spread as numbers or by row.
        user_steps: conjugate-gradient steps on each u_i in an iteration.
        item_steps: conjugate-gradient steps on V in an iteration.
    """
    if objective.loss.func is not losses.square:
        raise ValueError(
            f"the alternating solver minimises the square loss, not {objective.loss.func.__name__}:"
            " use solver='minibatch' or 'full_batch'"
        )
    return base.Solver(prepare, base.start, Partial(step, objective, user_steps, item_steps))


def prepare(X: Interactions, weights: Weights) -> Data:
    """Rows and columns in tiles."""
    rows, items, _ = X.on_host()
    to_csr = np.lexsort((rows, items))  # CSC place → CSR slot
    users = padded.tiles(X, BUDGET)
    return Data(
        X,
        jnp.asarray(rows, X.indices.dtype),
        weights,
        users,
        padded.tiles(X.transpose(), BUDGET, to_csr),
    )


def step(
    objective: Objective,
    user_steps: Any,
    item_steps: Any,
    key: Key[Array, ""],
    state: base.State,
    data: Data,
) -> tuple[base.State, base.Info]:
    """One sweep: all of U, then V. `key` is not used."""
    del key
    U = solve_users(objective, state.factors, data, user_steps)
    factors = Factors(U, state.factors.V)
    factors = Factors(U, improve_items(objective, factors, data, item_steps))
    after = state._replace(factors=factors, average=factors, iteration=state.iteration + 1)
    return after, base.change(state.factors, factors)


def _over_chunks(tiles: Tiles, target, function):
    """`target` with what `function(chunk)` finds for each local system set at its row."""

    def body(target, chunk):
        return target.at[chunk.rows].set(function(chunk), mode="drop"), None

    return jax.lax.scan(body, target, tiles)[0]


def _total(chunk: Tiles, values):
    """Sums over the tiles of each local system of a chunk."""
    count = chunk.local.shape[0]
    return jax.ops.segment_sum(values, chunk.local, count, indices_are_sorted=True)


def _strengths(objective: Objective, data: Data):
    """w_i, σ_i − 1, λ_i and λ_j of m θ (m the usable users)."""
    m, n = data.X.shape
    count = data.weights.usable.shape[0]
    dtype = data.weights.g.dtype
    spread = jnp.broadcast_to(jnp.asarray(objective.spread, dtype), (m,))
    reg = objectives.by_row(objective.reg, m, n)
    by_user, by_item = reg.user.astype(dtype) * count / m, reg.item.astype(dtype) * count / n
    return data.weights.user, spread, by_user, by_item


def _slope(objective: Objective, s, mean, square):
    """φ′(C), C from a positive's score and the negatives' moments (SPEC 4.1)."""
    rank_loss = 0.5 * ((1 - s) ** 2 + 2 * (1 - s) * mean + square)
    return jnp.vectorize(jax.grad(objective.weighting))(rank_loss)


def solve_users(
    objective: Objective, factors: Factors, data: Data, steps: Any
) -> Float[Array, "m k"]:
    """(A_i + (λ_i/w_i) I) u_i = v̇_i − G_i v̈_i for every usable user; the others get 0.

    A_i = Σ_p ĝ v vᵀ + (G_i + σ_i − 1) Σ_q g′ v vᵀ − v̇ v̈ᵀ − v̈ v̇ᵀ − (σ_i − 1) v̈ v̈ᵀ, where v̇ = Σ ĝ v_p,
    v̈ = Σ g′ v_q, G_i = Σ ĝ, and sums over the complement are all items' minus the positives'.
    """
    weights, U = data.weights, factors.U
    w, spread, by_user, _ = _strengths(objective, data)
    b = weights.b
    V = factors.V - (b @ factors.V / b.sum())[None, :]  # margins do not change; Σ b v is now 0
    second = V.T @ (b[:, None] * V)

    def solve(chunk: Tiles):
        rows, local = jnp.minimum(chunk.rows, U.shape[0] - 1), chunk.local
        v, u = V[chunk.items], U[rows]  # [c, T, k], [c, k]

        def weighted(c, v):  # Σ_p c_p v_p of each system
            return _total(chunk, jnp.einsum("ct,ctk->ck", c, v))

        def scores(x):
            return jnp.einsum("ctk,ck->ct", v, x[local])

        g, inv = weights.g[chunk.slots] * chunk.real, (1 / weights.neg_mass[rows])[:, None]
        b_pos = b[chunk.items] * chunk.real
        far = -weighted(b_pos, v) * inv  # v̈
        if objective.weighting.func is not weightings.identity:
            s, mean = scores(u), (far * u).sum(1)
            taken = _total(chunk, (b_pos * s**2).sum(1))
            square = (((u @ second) * u).sum(1) - taken) * inv[:, 0]
            g = g * _slope(objective, s, mean[local][:, None], square[local][:, None])
        G, more = _total(chunk, g.sum(1))[:, None], spread[rows][:, None]
        near = weighted(g, v)  # v̇
        flat = (G + more) * inv  # weight of b v vᵀ over the complement
        own = g - flat[local] * b_pos  # weight of v_p v_pᵀ
        ridge = (by_user[rows] / jnp.maximum(w[rows], 1e-30))[:, None]

        rhs = near - G * far

        def gradient(x, target):
            along_near, along_far = ((a * x).sum(1, keepdims=True) for a in (near, far))
            common = flat * (x @ second) - near * along_far - far * (along_near + more * along_far)
            return weighted(own * scores(x), v) + common + ridge * x - target * rhs

        diagonal = weighted(own, v**2) + flat * jnp.diagonal(second)[None, :]
        diagonal = diagonal - 2 * near * far - more * far**2 + ridge
        solved = _descend(gradient, u, jnp.maximum(diagonal, ridge), steps, axis=1)
        return jnp.where(w[rows][:, None] > 0, solved, 0.0)

    return _over_chunks(data.users, jnp.zeros_like(U), solve)


def _descend(gradient, x, diagonal, steps, axis):
    """`steps` of Jacobi-preconditioned conjugate gradients from x.

    gradient(x, 1) is the gradient of a quadratic, gradient(x, 0) its Hessian's product with x. The loop's
    turn 0 finds the residual, so that the product is compiled once. Along `axis` (None: all of it) lie
    the coordinates of one system; other axes are separate systems.
    """

    def dot(a, b):
        return (a * b).sum(axis, keepdims=axis is not None)

    def safe(a):
        return jnp.where(a > 0, a, 1.0)

    def body(turn, carry):
        x, residual, direction, rho = carry
        image = gradient(jnp.where(turn == 0, x, direction), jnp.where(turn == 0, 1.0, 0.0))
        curvature = dot(direction, image)  # 0 in turn 0
        length = jnp.where(curvature > 0, rho / safe(curvature), 0.0)
        residual = residual - jnp.where(turn == 0, 1.0, length) * image
        z = residual / diagonal
        fresh = dot(residual, z)
        return x + length * direction, residual, z + fresh / safe(rho) * direction, fresh

    zero = jnp.zeros_like(x)
    return jax.lax.fori_loop(0, steps + 1, body, (x, zero, zero, dot(zero, zero)))[0]


class _Fixed(NamedTuple):
    """What V's quadratic needs of U, computed once a sweep."""

    g: Float[Array, "nnz"]  # w_i ĝ_ip
    b_pos: Float[Array, "nnz"]  # w_i b_p / b(ω̄_i)
    G: Float[Array, "m"]  # Σ ĝ
    a: Float[Array, "m"]  # w_i / b(ω̄_i)
    gram: Float[Array, "k k"]  # Σ_i a_i (G_i + σ_i − 1) u_i u_iᵀ


def improve_items(
    objective: Objective, factors: Factors, data: Data, steps: Any
) -> Float[Array, "n k"]:
    """A few conjugate-gradient steps on V from where it stands, for fixed U.

    The gradient is affine in V: m ∂θ/∂V = H V − r.
    """
    U, V = factors
    X, weights = data.X, data.weights
    w, spread, _, by_item = _strengths(objective, data)
    rows = data.rows
    a = w / weights.neg_mass
    g = weights.g
    if objective.weighting.func is not weightings.identity:
        s, mean, square = _score_moments(U, V, data)
        g = g * _slope(objective, s, mean[rows], square[rows])
    G = jax.ops.segment_sum(g, rows, X.num_users, indices_are_sorted=True)
    gram = U.T @ ((a * (G + spread))[:, None] * U)
    fixed = _Fixed(w[rows] * g, a[rows] * weights.b[X.indices], G, a, gram)

    def gradient(V, target):
        return _item_gradient(fixed, spread, by_item, U, V, data, target)

    diagonal = _item_diagonal(fixed, spread, by_item, U, data)
    return _descend(gradient, V, diagonal, steps, axis=None)


def _positives(U, V, data: Data) -> Float[Array, "nnz"]:
    """s_ip on the positives, in CSR order."""

    def body(s, chunk: Tiles):
        u = U[jnp.minimum(chunk.rows, U.shape[0] - 1)][chunk.local]
        found = jnp.einsum("ctk,ck->ct", V[chunk.items], u) * chunk.real
        return s.at[chunk.slots].add(found), None  # padding adds 0

    return jax.lax.scan(body, jnp.zeros(data.X.nnz, V.dtype), data.users)[0]


def _column_sums(K: Float[Array, "nnz"], U, data: Data) -> Float[Array, "n k"]:
    """Kᵀ U for K on the positives."""

    def sums(chunk: Tiles):
        weights = K[chunk.slots] * chunk.real
        return _total(chunk, jnp.einsum("ct,ctk->ck", weights, U[chunk.items]))

    return _over_chunks(data.items, jnp.zeros((data.X.num_items, U.shape[1]), U.dtype), sums)


def _score_moments(U, V, data: Data):
    """s on the positives, and the negatives' mean and mean square of each user."""
    X, weights = data.X, data.weights
    b, rows = weights.b, data.rows
    V = V - (b @ V / b.sum())[None, :]
    s = _positives(U, V, data)

    def row(values):
        return jax.ops.segment_sum(values, rows, X.num_users, indices_are_sorted=True)

    second = ((U @ (V.T @ (b[:, None] * V))) * U).sum(1)
    mean = -row(b[X.indices] * s) / weights.neg_mass
    square = (second - row(b[X.indices] * s**2)) / weights.neg_mass
    return s, mean, square


def _item_gradient(fixed: _Fixed, spread, by_item, U, V, data: Data, target) -> Float[Array, "n k"]:
    """m ∂θ/∂V for margins that should be `target`: 1 gives the gradient, 0 the Hessian product.

    c_ip = −w ĝ (target − s_p + μ′),  c_iq = w g′_q (G target − Σ ĝ s + (G + σ − 1) s_q − (σ − 1) μ′),
    the latter summed over all items and taken back on the positives.
    """
    X, weights = data.X, data.weights
    rows = data.rows
    V0 = V - (weights.b @ V / weights.b.sum())[None, :]
    s = _positives(U, V0, data)

    def row(values):
        return jax.ops.segment_sum(values, rows, X.num_users, indices_are_sorted=True)

    mean = -row(weights.b[X.indices] * s) / weights.neg_mass  # μ′
    unit = jnp.where(weights.user > 0, weights.user, 1.0)
    constant = fixed.G * target - row(fixed.g * s) / unit - spread * mean
    level = (fixed.G + spread)[rows] * s + constant[rows]
    K = -fixed.g * (target - s + mean[rows]) - fixed.b_pos * level

    product = _column_sums(K, U, data)
    common = (fixed.a * constant) @ U  # [k]
    return product + weights.b[:, None] * (common[None, :] + V0 @ fixed.gram) + by_item[:, None] * V


def _item_diagonal(fixed: _Fixed, spread, by_item, U, data: Data) -> Float[Array, "n k"]:
    """The diagonal of V's Hessian, for preconditioning."""
    weight = fixed.g - fixed.b_pos * (fixed.G + spread)[data.rows]
    total = data.weights.b[:, None] * jnp.diagonal(fixed.gram)[None, :] + by_item[:, None]
    return jnp.maximum(total + _column_sums(weight, U**2, data), 1e-12)
