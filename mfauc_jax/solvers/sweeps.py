"""One sweep of alternating minimisation: all of U for fixed V, then a few steps on V (docs/derivations.md#alternating).

A product with either Hessian costs O(nnz k + (m + n) k²) and lists no pair. Conjugate gradients replace a batched
Cholesky for two reasons. Two batched LAPACK calls at the same time take both threads of a two-core pool and wait
forever for a third (jaxlib 0.10.2). And a few steps are cheaper than forming the systems, which costs nnz k². With
`user_steps` ≥ k the solution is exact.

With φ = tanh, each positive's exact loss C_ip gives its weight φ′(C_ip). φ is concave, so its tangent majorises it,
and the objective still never rises.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mfauc_jax._core.factors import Factors
from mfauc_jax.data import ragged
from mfauc_jax.objective import weightings
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Reg, by_row
from mfauc_jax.solvers.mesh import SPLIT, WHOLE, Devices


class Data(NamedTuple):
    """The rows of X in tiles, with the g and b of their positives, and the other numbers that a sweep reads.

    There are M ≥ m users and N ≥ n items, sizes from a grid, so that data of similar size share one program. Padding
    has weight 0, and its factors stay 0. On a mesh, tiles and users are split, and items too if `devices.by_items`.
    """

    users: ragged.Tiles
    user: Float[Array, "M"]  # w_i
    inverse: Float[Array, "M"]  # 1/b(ω̄_i)
    b: Float[Array, "N"]
    weight: Float[Array, "N"]  # Σ_i w_i g_ij
    num_users: Float[Array, ""]  # m
    num_items: Float[Array, ""]  # n
    num_usable: Float[Array, ""]  # m₊
    devices: Devices
    sides: Any = None  # `features.OnDevice`, or None; then there is one device


def totals(chunk: ragged.Tiles, *values):
    """The sums of each of `values`, [c, …], over the tiles of each system of a chunk."""
    count, widths = chunk.rows.shape[0], np.cumsum([v.shape[1] for v in values])[:-1]
    joined = jnp.concatenate(values, 1)
    sums = jax.ops.segment_sum(joined, chunk.local, count, indices_are_sorted=True)
    return jnp.split(sums, widths, 1)


def _per_user(objective: Objective, data: Data) -> Float[Array, "M_plus_1 4"]:
    """w_i, σ_i − 1, 1/b(ω̄_i) and the λ_i of m₊ θ, with m₊ the number of usable users; zeros for the padding, row M."""
    M, N = data.user.shape[0], data.b.shape[0]
    by_user = by_row(objective.reg, M, N).user * (data.num_usable / data.num_users)
    spread = jnp.broadcast_to(objective.spread, (M,))
    columns = (data.user, spread, data.inverse, by_user)
    return jnp.pad(jnp.stack([c.astype(data.b.dtype) for c in columns], 1), ((0, 1), (0, 0)))


class _Local(NamedTuple):
    """The numbers of a chunk: of its r users, each a system to solve, and of the positives in its c tiles."""

    weight: Float[Array, "r 1"]  # w_i
    extra_spread: Float[Array, "r 1"]  # σ_i − 1
    inverse: Float[Array, "r 1"]  # 1/b(ω̄_i)
    reg: Float[Array, "r 1"]  # λ_i
    g: Float[Array, "c T"]  # 0 for padding, and so is b
    b: Float[Array, "c T"]


def _local(per_user: Float[Array, "M_plus_1 4"], chunk: ragged.Tiles) -> _Local:
    return _Local(*jnp.split(per_user[chunk.rows], 4, 1), *chunk.values)


def _scores(chunk: ragged.Tiles, u, v):
    """s_ip of a chunk's positives, [c, T]."""
    return jnp.einsum("ctk,ck->ct", v, u[chunk.local])


def _tilted(objective: Objective, chunk: ragged.Tiles, local: _Local, u, v, second):
    """ĝ = g φ′(C), with C from a positive's score and the negatives' moments (docs/derivations.md#moments).

    The items are centred: Σ b v = 0.
    """
    if isinstance(objective.weighting, weightings.Identity):
        return local.g
    s = _scores(chunk, u, v)
    mean, positives = totals(
        chunk, *((local.b * s**power).sum(1, keepdims=True) for power in (1, 2))
    )
    mean, square = -mean, ((u @ second) * u).sum(1, keepdims=True) - positives
    mean, square = ((a * local.inverse)[chunk.local] for a in (mean, square))
    rank_loss = 0.5 * ((1 - s) ** 2 + 2 * (1 - s) * mean + square)
    return local.g * jnp.vectorize(jax.grad(objective.weighting))(rank_loss)


def _solve_users(objective, chunk: ragged.Tiles, local: _Local, u, v, second, steps, prior):
    """(A_i + (λ_i/w_i) I) u_i = v̇_i − G_i v̈_i + (λ_i/w_i) B g_i for the users of a chunk; `prior` is B g_i, or None.

    A_i = Σ_p ĝ v vᵀ + (G_i + σ_i − 1) Σ_q g′ v vᵀ − v̇ v̈ᵀ − v̈ v̇ᵀ − (σ_i − 1) v̈ v̈ᵀ, where v̇ = Σ ĝ v_p,
    v̈ = Σ g′ v_q and G_i = Σ ĝ. A sum over the complement is the sum over all items minus that over the positives.
    """

    def weighted(*cs):  # Σ_p c_p v_p per system
        return totals(chunk, *(jnp.einsum("ct,ctk->ck", c, v) for c in cs))

    g, extra_spread = _tilted(objective, chunk, local, u, v, second), local.extra_spread
    (G,) = totals(chunk, g.sum(1, keepdims=True))
    near, far = weighted(g, local.b)
    far = -far * local.inverse  # near is v̇, far is v̈
    flat = (G + extra_spread) * local.inverse  # weight of b v vᵀ over the complement
    own = g - flat[chunk.local] * local.b  # weight of v_p v_pᵀ
    ridge = local.reg / jnp.maximum(local.weight, 1e-30)

    def gradient(x, target, _):
        along_near, along_far = ((a * x).sum(1, keepdims=True) for a in (near, far))
        common = (
            flat * (x @ second) - near * along_far - far * (along_near + extra_spread * along_far)
        )
        image = weighted(own * _scores(chunk, x, v))[0] + common + ridge * x
        if prior is not None:
            image = image - target * ridge * prior
        return image - target * (near - G * far), ()

    diagonal = flat * jnp.diagonal(second)[None, :] + ridge  # about that of A_i
    safe = jnp.maximum(diagonal, 1e-12)
    return conjugate_gradients(gradient, u, (), lambda _: safe, steps, axis=1)[0]


class _Pass(NamedTuple):
    """What a pass over the users finds besides the gradient of V."""

    U: Float[Array, "M k"]
    g: Float[Array, "chunks c_T"]  # ĝ
    gram: Float[Array, "k k"]  # Σ_i (w_i / b(ω̄_i)) (G_i + σ_i − 1) u_i u_iᵀ


def sweep(
    objective: Objective, factors: Factors, data: Data, user_steps: Any, item_steps: Any
) -> Factors:
    """All of U for fixed V, then a few conjugate-gradient steps on V from the present V, on all devices of the data."""
    args = objective, factors, data, user_steps, item_steps
    if data.devices.mesh.size == 1:
        return _sweep(*args)
    rows = Factors(SPLIT, data.devices.of_items)  # pyright: ignore
    specs = (_specs(objective, data.devices), rows, _specs_of_data(data), WHOLE, WHOLE)
    sharded = jax.shard_map(
        _sweep, mesh=data.devices.mesh, in_specs=specs, out_specs=rows, check_vma=False
    )
    return sharded(*args)


def _sweep(*args: Any) -> Factors:
    return sweep_here(*args)[0]


def _specs(objective: Objective, devices: Devices) -> Objective:
    """Where the numbers of an objective are: those per user are split over the devices."""

    def place(values, spec=SPLIT):
        return spec if jnp.ndim(values) else WHOLE

    everywhere, reg = jax.tree.map(lambda _: WHOLE, objective), objective.reg
    if isinstance(reg, Reg):
        reg = Reg(place(reg.user), place(reg.item, devices.of_items))
        everywhere = everywhere._replace(reg=reg)
    return everywhere._replace(spread=place(objective.spread))


def _specs_of_data(data: Data) -> Data:
    items, tiles = data.devices.of_items, jax.tree.map(lambda _: SPLIT, data.users)
    everywhere = jax.tree.map(lambda _: WHOLE, data)
    return everywhere._replace(users=tiles, user=SPLIT, inverse=SPLIT, b=items, weight=items)


def sweep_here(
    objective: Objective,
    factors: Factors,
    data: Data,
    user_steps: Any,
    item_steps: Any,
    known: tuple[Any, Any] = ((), ()),
) -> tuple[Factors, tuple[Any, Any]]:
    """A sweep of the users of one device, with sums over users taken over all devices, and sums over items too.

    m ∂θ/∂V = H V − r is affine in V. Its rows are Σ_i c_ij u_i + λ_j v_j where, for margins that should be t
    (t = 1 gives the gradient, t = 0 the product with H),

        c_ip = −w ĝ (t − s_p + μ′),   c_iq = w g′_q (G t − Σ ĝ s − (σ − 1) μ′ + (G + σ − 1) s_q).

    The second term is added for all items and then subtracted on the positives. A gradient or a product is one
    pass over the users: the scores of a chunk are computed from V, and its c u_i are added to the rows of its
    items. The first pass finds the gradient, and also solves for u_i, because the chunk's v are gathered anyway.
    If devices have their own items, a pass gathers all of V, and each device gets the sums of its items.

    With features the steps on V are steps on (d, A) together, with V = F A + d (docs/derivations.md#features). `known`
    is A and B; it is returned as it is after the sweep.
    """
    on_items, on_users = (None, None) if data.sides is None else data.sides
    prior = None
    if on_users is not None:  # B g_i; zeros for the padding
        prior = jnp.pad(on_users.times(known[1], data.user.shape[0]), ((0, 1), (0, 0)))
    b, per_user, devices = data.b, _per_user(objective, data), data.devices
    reg = by_row(objective.reg, data.user.shape[0], b.shape[0])
    per_item = data.num_usable / data.num_items
    by_item = reg.item * per_item
    tilts = not isinstance(objective.weighting, weightings.Identity)

    def gradient(x, target, before: _Pass):
        V = x if on_items is None else on_items.rows_of(x, b.shape[0])
        mean, mass = devices.over_items((b @ V, b.sum()))
        centred = V - (mean / mass)[None, :]  # Σ b v = 0; margins do not change
        second = devices.over_items(centred.T @ (b[:, None] * centred))  # Σ b v vᵀ
        of_all = devices.all_items(centred)  # a device needs its own users' items, which may be any

        def body(t, sums):
            U, rows, gram, common, all_g = sums
            chunk = ragged.chunk(data.users, t)
            g = all_g[t].reshape(chunk.items.shape)
            local, v = _local(per_user, chunk), of_all[chunk.items]  # v: [c, T, k]

            def solve(u):
                means = None if prior is None else prior[chunk.rows]
                u = _solve_users(objective, chunk, local, u, v, second, user_steps, means)
                return u, _tilted(objective, chunk, local, u, v, second)

            u = U.at[chunk.rows].get(mode="clip")
            u, g = jax.lax.cond(target > 0, solve, lambda u: (u, g), u)
            s = _scores(chunk, u, v)
            summands = (a.sum(1, keepdims=True) for a in (g, g * s, local.b * s))
            G, near, far = totals(chunk, *summands)
            mean, scale = -far * local.inverse, local.weight * local.inverse  # μ′, w/b(ω̄)
            level, flat = (
                scale * (G * target - near - local.extra_spread * mean),
                scale * (G + local.extra_spread),
            )
            by_tile = jnp.concatenate([local.weight, mean, level, flat], 1)
            weight, mean, tile_level, tile_flat = jnp.split(by_tile[chunk.local], 4, 1)
            c = -weight * g * (target - s + mean) - local.b * (tile_level + tile_flat * s)
            return (
                U.at[chunk.rows].set(u, mode="drop"),
                rows.at[chunk.items].add(c[:, :, None] * u[chunk.local][:, None, :]),
                gram + (flat * u).T @ u,
                common + level.T @ u,
                all_g.at[t].set(g.ravel()) if tilts else all_g,
            )

        zeros = map(jnp.zeros_like, (of_all, second, V[:1]))
        sums = (before.U, *zeros, before.g)
        U, *sums, g = jax.lax.fori_loop(0, data.users.count[0], body, sums)
        rows, gram, common = devices.completed(*sums)
        image = rows + b[:, None] * (common + centred @ gram)
        if on_items is not None:
            return on_items.gradient(image, x, by_item, per_item), _Pass(U, g, gram)
        return image + by_item[:, None] * V, _Pass(U, g, gram)

    def curvature(last: _Pass):  # about the Hessian's diagonal
        size = devices.over(data.user @ (last.U**2)) / data.num_users
        own, common = data.weight[:, None] * size[None, :], jnp.diagonal(last.gram)[None, :]
        bends = own + b[:, None] * common
        if on_items is not None:
            return on_items.curvature(bends, by_item, per_item)
        return jnp.maximum(bends + by_item[:, None], 1e-12)

    k = factors.V.shape[1]
    U = jnp.where(data.user[:, None] > 0, factors.U, 0.0)  # a user without a pair has u_i = 0
    start = _Pass(U, data.users.values[0], jnp.zeros_like(factors.V, shape=(k, k)))
    x = factors.V if on_items is None else on_items.split(factors.V, known[0])
    over = devices.over_items
    x, after = conjugate_gradients(gradient, x, start, curvature, item_steps, over=over)
    (U, *_), V, (A, B) = after, x, known
    if on_items is not None:
        V, A = on_items.rows_of(x, b.shape[0]), x[b.shape[0] :]
    if on_users is not None:
        B = on_users.regression(U, B, reg.user * (data.user > 0))
        U = jnp.where(data.user[:, None] > 0, U, on_users.times(B, U.shape[0]))
    return Factors(U, V), (A, B)


def conjugate_gradients(gradient, x, aux, curvature, steps, axis=None, over=lambda sums: sums):
    """`steps` of preconditioned conjugate gradients from x: the last x, and the last `aux` of `gradient`.

    Step 0 of the loop finds the residual, so that `gradient` is compiled once.

    Args:
        gradient: gradient(x, 1.0, aux) is the gradient at x of a quadratic, gradient(x, 0.0, aux) the product of its
            Hessian with x; both return a new `aux` beside it.
        x: the start.
        aux: what the first call of `gradient` is given.
        curvature: curvature(aux) is about the diagonal of the Hessian: the preconditioner.
        steps: how many, ≥ 0.
        axis: the axis along which the coordinates of one system lie, the other axes being separate systems; None
            for one system.
        over: completes a sum over the coordinates that are here, if others are on other devices.
    """

    def dot(a, b):
        return over((a * b).sum(axis, keepdims=axis is not None))

    def safe(a):
        return jnp.where(a > 0, a, 1.0)

    def body(step, carry):
        x, residual, direction, rho, aux = carry
        z = residual / curvature(aux)
        new_rho = dot(residual, z)
        direction = z + new_rho / safe(rho) * direction  # 0 in step 0
        first = step == 0
        image, aux = gradient(jnp.where(first, x, direction), jnp.where(first, 1.0, 0.0), aux)
        bend = dot(direction, image)  # the curvature along the direction
        length = jnp.where(bend > 0, new_rho / safe(bend), 0.0)
        residual = residual - jnp.where(first, 1.0, length) * image
        return x + length * direction, residual, direction, new_rho, aux

    zero = jnp.zeros_like(x)
    last = jax.lax.fori_loop(0, steps + 1, body, (x, zero, zero, dot(zero, zero), aux))
    return last[0], last[-1]
