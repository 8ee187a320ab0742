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
    """X and its weights, the rows in tiles."""

    X: Interactions
    weights: Weights
    users: Tiles  # each user's items


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
    """Rows in tiles."""
    return Data(X, weights, padded.tiles(X, BUDGET))


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
    U, quadratic = solve_users(objective, state.factors, data, user_steps)
    V = improve_items(objective, Factors(U, state.factors.V), data, quadratic, item_steps)
    factors = Factors(U, V)
    after = state._replace(factors=factors, average=factors, iteration=state.iteration + 1)
    return after, base.change(state.factors, factors)


def _total(chunk: Tiles, values):
    """Sums over the tiles of each local system of a chunk."""
    count = chunk.rows.shape[0]
    return jax.ops.segment_sum(values, chunk.local, count, indices_are_sorted=True)


class _Strengths(NamedTuple):
    """What counts how much in m θ (m the usable users)."""

    w: Float[Array, "m"]
    spread: Float[Array, "m"]  # σ_i − 1
    by_user: Float[Array, "m"]  # λ_i
    by_item: Float[Array, "n"]  # λ_j


def _strengths(objective: Objective, data: Data) -> _Strengths:
    m, n = data.X.shape
    count = data.weights.usable.shape[0]
    dtype = data.weights.g.dtype
    spread = jnp.broadcast_to(jnp.asarray(objective.spread, dtype), (m,))
    reg = objectives.by_row(objective.reg, m, n)
    by_user, by_item = reg.user.astype(dtype) * count / m, reg.item.astype(dtype) * count / n
    return _Strengths(data.weights.user, spread, by_user, by_item)


class _Local(NamedTuple):
    """A chunk's positives and its users, the local systems."""

    rows: Int[Array, "r"]  # padding has the last user, and weight 0
    weight: Float[Array, "r 1"]  # w_i
    more: Float[Array, "r 1"]  # σ_i − 1
    inverse: Float[Array, "r 1"]  # 1/b(ω̄_i)
    g: Float[Array, "c T"]  # 0 for padding, as b_pos
    b_pos: Float[Array, "c T"]


def _local(data: Data, strengths: _Strengths, g: Float[Array, "nnz"], chunk: Tiles) -> _Local:
    weights, rows = data.weights, jnp.minimum(chunk.rows, data.X.num_users - 1)
    weight = jnp.where(chunk.rows < data.X.num_users, strengths.w[rows], 0.0)
    b_pos, inverse = weights.b[chunk.items] * chunk.real, 1 / weights.neg_mass[rows]
    of_user = (a[:, None] for a in (weight, strengths.spread[rows], inverse))
    return _Local(rows, *of_user, g[chunk.slots] * chunk.real, b_pos)


def _scores(chunk: Tiles, u, v):
    """s_ip of a chunk."""
    return jnp.einsum("ctk,ck->ct", v, u[chunk.local])


def _tilted(objective: Objective, chunk: Tiles, local: _Local, u, v, second):
    """ĝ = g φ′(C), C from a positive's score and the negatives' moments (SPEC 4.1); Σ b v is 0."""
    if objective.weighting.func is weightings.identity:
        return local.g
    s = _scores(chunk, u, v)
    mean, taken = (_total(chunk, (local.b_pos * s**power).sum(1)) for power in (1, 2))
    mean, square = -mean, ((u @ second) * u).sum(1) - taken
    mean, square = ((a[:, None] * local.inverse)[chunk.local] for a in (mean, square))
    rank_loss = 0.5 * ((1 - s) ** 2 + 2 * (1 - s) * mean + square)
    return local.g * jnp.vectorize(jax.grad(objective.weighting))(rank_loss)


def _centred(V, b):
    """V with Σ b v = 0, which changes no margin, and Σ b v vᵀ."""
    V = V - (b @ V / b.sum())[None, :]
    return V, V.T @ (b[:, None] * V)


def _coefficients(chunk: Tiles, local: _Local, s, target):
    """The gradient's c_ij for margins that should be t: 1 is the gradient, 0 the product with H.

        c_ip = −w ĝ (t − s_p + μ′),   c_iq = w g′_q (l_i + (G + σ − 1) s_q),   l = G t − Σ ĝ s − (σ − 1) μ′,

    the latter taken back on the positives, since it is summed over all items; and w l / b(ω̄_i), [r, 1].
    """
    G, near, far = (
        _total(chunk, a.sum(1))[:, None] for a in (local.g, local.g * s, local.b_pos * s)
    )
    mean = -far * local.inverse  # μ′
    level = G * target - near - local.more * mean
    per_user = jnp.concatenate([local.weight, mean, level, G + local.more, local.inverse], 1)
    weight, mean, constant, flat, inverse = jnp.split(per_user[chunk.local], 5, 1)
    c = local.g * (target - s + mean) + local.b_pos * inverse * (flat * s + constant)
    return -weight * c, local.weight * local.inverse * level


def _add_rows(table, chunk: Tiles, c, u):
    """Σ_i c_ij u_i onto the rows of a chunk's items."""
    return table.at[chunk.items].add(c[:, :, None] * u[chunk.local][:, None, :])


def _all_items(gram, b, by_item, sums, common, V):
    """Rows of V's gradient or of a product with H: the positives' sums, all items' and λ's part."""
    V0, _ = _centred(V, b)
    return sums + b[:, None] * (common[None, :] + V0 @ gram) + by_item[:, None] * V


class Quadratic(NamedTuple):
    """m θ as a function of V for fixed U: what V's step needs of a pass over the users."""

    g: Float[Array, "nnz"]  # ĝ
    gradient: Float[Array, "n k"]  # m ∂θ/∂V where V stands
    gram: Float[Array, "k k"]  # Σ_i (w_i / b(ω̄_i)) (G_i + σ_i − 1) u_i u_iᵀ
    curvature: Float[Array, "n"]  # the mean of the Hessian's diagonal over each v_j


def solve_users(
    objective: Objective, factors: Factors, data: Data, steps: Any
) -> tuple[Float[Array, "m k"], Quadratic]:
    """(A_i + (λ_i/w_i) I) u_i = v̇_i − G_i v̈_i for every usable user; the others get 0.

    A_i = Σ_p ĝ v vᵀ + (G_i + σ_i − 1) Σ_q g′ v vᵀ − v̇ v̈ᵀ − v̈ v̇ᵀ − (σ_i − 1) v̈ v̈ᵀ, where v̇ = Σ ĝ v_p,
    v̈ = Σ g′ v_q, G_i = Σ ĝ, and sums over the complement are all items' minus the positives'.

    While a chunk's v are at hand, what the solved u_i mean for V is added up.
    """
    b, strengths = data.weights.b, _strengths(objective, data)
    tilts = objective.weighting.func is not weightings.identity
    V, second = _centred(factors.V, b)

    def solve(chunk: Tiles, local: _Local, u, v):
        def weighted(c):  # Σ_p c_p v_p of each system
            return _total(chunk, jnp.einsum("ct,ctk->ck", c, v))

        g = _tilted(objective, chunk, local, u, v, second)
        G, more = _total(chunk, g.sum(1))[:, None], local.more
        near, far = weighted(g), -weighted(local.b_pos) * local.inverse  # v̇, v̈
        flat = (G + more) * local.inverse  # weight of b v vᵀ over the complement
        own = g - flat[chunk.local] * local.b_pos  # weight of v_p v_pᵀ
        ridge = strengths.by_user[local.rows][:, None] / jnp.maximum(local.weight, 1e-30)

        def product(x):
            along_near, along_far = ((a * x).sum(1, keepdims=True) for a in (near, far))
            common = flat * (x @ second) - near * along_far - far * (along_near + more * along_far)
            return weighted(own * _scores(chunk, x, v)) + common + ridge * x

        change = _descend(product, near - G * far - product(u), 1.0, steps, axis=1)
        return jnp.where(local.weight > 0, u + change, 0.0)

    def body(carry, chunk: Tiles):
        U, sums, common = carry
        local = _local(data, strengths, data.weights.g, chunk)
        v = V[chunk.items]  # [c, T, k]
        u = solve(chunk, local, factors.U[local.rows], v)
        local = local._replace(g=_tilted(objective, chunk, local, u, v, second))
        c, level = _coefficients(chunk, local, _scores(chunk, u, v), 1.0)
        G = _total(chunk, local.g.sum(1))[:, None]
        flat = local.weight * local.inverse * (G + local.more)
        own = local.weight[chunk.local] * local.g - flat[chunk.local] * local.b_pos
        size = (u**2).mean(1)[chunk.local][:, None]
        sums = Quadratic(
            sums.g.at[chunk.slots].add(local.g) if tilts else sums.g,  # padding adds 0
            _add_rows(sums.gradient, chunk, c, u),
            sums.gram + (flat * u).T @ u,
            sums.curvature.at[chunk.items].add(own * size),
        )
        U = U.at[chunk.rows].set(u, mode="drop")
        return (U, sums, common + (level * u).sum(0)), None

    g = jnp.zeros_like(data.weights.g) if tilts else data.weights.g
    nothing = Quadratic(g, *map(jnp.zeros_like, (V, second, b)))
    start = jnp.zeros_like(factors.U), nothing, jnp.zeros_like(V[0])
    (U, sums, common), _ = jax.lax.scan(body, start, data.users)
    gradient = _all_items(sums.gram, b, strengths.by_item, sums.gradient, common, factors.V)
    curvature = sums.curvature + b * jnp.trace(sums.gram) / V.shape[1] + strengths.by_item
    return U, sums._replace(gradient=gradient, curvature=jnp.maximum(curvature, 1e-12))


def improve_items(
    objective: Objective, factors: Factors, data: Data, quadratic: Quadratic, steps: Any
) -> Float[Array, "n k"]:
    """A few conjugate-gradient steps on V from where it stands, for fixed U.

    m ∂θ/∂V = H V − r is affine in V, with the rows Σ_i c_ij u_i + λ_j v_j (`_coefficients`). A product
    with H is one pass over the users: a chunk's scores are read from V, its c u_i added to its items.
    """
    U, b, strengths = factors.U, data.weights.b, _strengths(objective, data)

    def product(V):
        V0, _ = _centred(V, b)

        def body(carry, chunk: Tiles):
            local = _local(data, strengths, quadratic.g, chunk)
            u = U[local.rows]
            c, level = _coefficients(chunk, local, _scores(chunk, u, V0[chunk.items]), 0.0)
            return (_add_rows(carry[0], chunk, c, u), carry[1] + (level * u).sum(0)), None

        start = jnp.zeros_like(V), jnp.zeros_like(V[0])
        (sums, common), _ = jax.lax.scan(body, start, data.users)
        return _all_items(quadratic.gram, b, strengths.by_item, sums, common, V)

    return factors.V + _descend(product, -quadratic.gradient, quadratic.curvature[:, None], steps)


def _descend(product, residual, curvature, steps, axis=None):
    """`steps` of preconditioned conjugate gradients on H x = residual, from 0.

    Along `axis` (None: all of it) lie the coordinates of one system; other axes are separate systems.
    The axes of the factor space are alike, so a preconditioner of one number a row is enough.
    """

    def dot(a, b):
        return (a * b).sum(axis, keepdims=axis is not None)

    def safe(a):
        return jnp.where(a > 0, a, 1.0)

    def body(_, carry):
        x, residual, direction, rho = carry
        z = residual / curvature
        fresh = dot(residual, z)
        direction = z + fresh / safe(rho) * direction  # the first direction is 0
        image = product(direction)
        bend = dot(direction, image)
        length = jnp.where(bend > 0, fresh / safe(bend), 0.0)
        return x + length * direction, residual - length * image, direction, fresh

    zero = jnp.zeros_like(residual)
    return jax.lax.fori_loop(0, steps, body, (zero, residual, zero, dot(zero, zero)))[0]
