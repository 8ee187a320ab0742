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
    U = solve_users(objective, state.factors, data, user_steps)
    factors = Factors(U, state.factors.V)
    factors = Factors(U, improve_items(objective, factors, data, item_steps))
    after = state._replace(factors=factors, average=factors, iteration=state.iteration + 1)
    return after, base.change(state.factors, factors)


def _total(chunk: Tiles, values):
    """Sums over the tiles of each local system of a chunk."""
    count = chunk.rows.shape[0]
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


class _Local(NamedTuple):
    """What a chunk of tiles says of its positives and of its users, the local systems."""

    rows: Int[Array, "r"]  # padding has the last user
    g: Float[Array, "c T"]  # 0 for padding, as b_pos
    b_pos: Float[Array, "c T"]
    inverse: Float[Array, "r 1"]  # 1/b(ω̄_i)


def _local(data: Data, g: Float[Array, "nnz"], chunk: Tiles) -> _Local:
    weights, rows = data.weights, jnp.minimum(chunk.rows, data.X.num_users - 1)
    b_pos = weights.b[chunk.items] * chunk.real
    return _Local(rows, g[chunk.slots] * chunk.real, b_pos, (1 / weights.neg_mass[rows])[:, None])


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


def solve_users(
    objective: Objective, factors: Factors, data: Data, steps: Any
) -> Float[Array, "m k"]:
    """(A_i + (λ_i/w_i) I) u_i = v̇_i − G_i v̈_i for every usable user; the others get 0.

    A_i = Σ_p ĝ v vᵀ + (G_i + σ_i − 1) Σ_q g′ v vᵀ − v̇ v̈ᵀ − v̈ v̇ᵀ − (σ_i − 1) v̈ v̈ᵀ, where v̇ = Σ ĝ v_p,
    v̈ = Σ g′ v_q, G_i = Σ ĝ, and sums over the complement are all items' minus the positives'.
    """
    weights, U = data.weights, factors.U
    w, spread, by_user, _ = _strengths(objective, data)
    V, second = _centred(factors.V, weights.b)

    def solve(chunk: Tiles):
        local = _local(data, weights.g, chunk)
        rows, inverse = local.rows, local.inverse
        v, u = V[chunk.items], U[rows]  # [c, T, k], [r, k]

        def weighted(c, v):  # Σ_p c_p v_p of each system
            return _total(chunk, jnp.einsum("ct,ctk->ck", c, v))

        far = -weighted(local.b_pos, v) * inverse  # v̈
        g = _tilted(objective, chunk, local, u, v, second)
        G, more = _total(chunk, g.sum(1))[:, None], spread[rows][:, None]
        near = weighted(g, v)  # v̇
        flat = (G + more) * inverse  # weight of b v vᵀ over the complement
        own = g - flat[chunk.local] * local.b_pos  # weight of v_p v_pᵀ
        ridge = (by_user[rows] / jnp.maximum(w[rows], 1e-30))[:, None]
        rhs = near - G * far

        def gradient(x, target):
            along_near, along_far = ((a * x).sum(1, keepdims=True) for a in (near, far))
            common = flat * (x @ second) - near * along_far - far * (along_near + more * along_far)
            return weighted(own * _scores(chunk, x, v), v) + common + ridge * x - target * rhs

        diagonal = weighted(own, v**2) + flat * jnp.diagonal(second)[None, :]
        diagonal = diagonal - 2 * near * far - more * far**2 + ridge
        solved = _descend(gradient, u, jnp.maximum(diagonal, ridge), steps, axis=1)
        return jnp.where(w[rows][:, None] > 0, solved, 0.0)

    def body(found, chunk):
        return found.at[chunk.rows].set(solve(chunk), mode="drop"), None

    return jax.lax.scan(body, jnp.zeros_like(U), data.users)[0]


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


def improve_items(
    objective: Objective, factors: Factors, data: Data, steps: Any
) -> Float[Array, "n k"]:
    """A few conjugate-gradient steps on V from where it stands, for fixed U.

    m ∂θ/∂V = H V − r is affine in V, with the rows Σ_i c_ij u_i + λ_j v_j and, for margins that should
    be t (1 gives the gradient, 0 the product with H),

        c_ip = −w ĝ (t − s_p + μ′),   c_iq = w g′_q (G t − Σ ĝ s + (G + σ − 1) s_q − (σ − 1) μ′),

    the latter summed over all items and taken back on the positives. One pass over the users: a chunk's
    scores are read from V, its c u_i added to the rows of its items.
    """
    U, V = factors
    weights, num_users = data.weights, data.X.num_users
    w, spread, _, by_item = _strengths(objective, data)
    b = weights.b
    g = _all_tilted(objective, factors, data)

    def over_users(terms, extra):  # Σ_i c_ij x_i, and the sum of what else `terms` gives
        def body(sums, chunk):
            local = _local(data, g, chunk)
            c, x, more = terms(chunk, local, U[local.rows])
            rows = sums[0].at[chunk.items].add(c[:, :, None] * x[chunk.local][:, None, :])
            return (rows, sums[1] + more), None

        return jax.lax.scan(body, (jnp.zeros_like(V), extra), data.users)[0]

    def of_user(chunk: Tiles, local: _Local):  # w_i, G_i, σ_i − 1; weight 0 for padding
        weight = jnp.where(chunk.rows < num_users, w[local.rows], 0.0)[:, None]
        return weight, _total(chunk, local.g.sum(1))[:, None], spread[local.rows][:, None]

    def of_hessian(chunk: Tiles, local: _Local, u):
        weight, G, more = of_user(chunk, local)
        flat = weight * local.inverse * (G + more)
        own = weight[chunk.local] * local.g - flat[chunk.local] * local.b_pos
        return own, u**2, (flat * u).T @ u

    own, gram = over_users(of_hessian, jnp.zeros_like(V, shape=(V.shape[1],) * 2))
    diagonal = own + b[:, None] * jnp.diagonal(gram)[None, :] + by_item[:, None]

    def gradient(V, target):
        V0, _ = _centred(V, b)

        def of_gradient(chunk: Tiles, local: _Local, u):
            weight, G, more = of_user(chunk, local)
            s = _scores(chunk, u, V0[chunk.items])
            mean = -_total(chunk, (local.b_pos * s).sum(1))[:, None] * local.inverse  # μ′
            level = G * target - _total(chunk, (local.g * s).sum(1))[:, None] - more * mean
            far = local.inverse[chunk.local] * (((G + more)[chunk.local]) * s + level[chunk.local])
            c = local.g * (target - s + mean[chunk.local]) + local.b_pos * far
            return -weight[chunk.local] * c, u, (weight * local.inverse * level * u).sum(0)

        product, common = over_users(of_gradient, jnp.zeros_like(V[0]))
        return product + b[:, None] * (common[None, :] + V0 @ gram) + by_item[:, None] * V

    return _descend(gradient, V, jnp.maximum(diagonal, 1e-12), steps, axis=None)


def _all_tilted(objective: Objective, factors: Factors, data: Data) -> Float[Array, "nnz"]:
    """ĝ of every positive."""
    weights = data.weights
    if objective.weighting.func is weightings.identity:
        return weights.g
    V, second = _centred(factors.V, weights.b)

    def body(found, chunk):
        local = _local(data, weights.g, chunk)
        g = _tilted(objective, chunk, local, factors.U[local.rows], V[chunk.items], second)
        return found.at[chunk.slots].add(g), None  # padding adds 0

    return jax.lax.scan(body, jnp.zeros_like(weights.g), data.users)[0]
