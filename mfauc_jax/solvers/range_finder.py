"""A spectral start: the leading right singular vectors of X, about, by a randomised range finder.

A pass multiplies an orthonormal Q, [n, k], by XᵀX: each device adds up its own users' Σ_p v_p and hands the sum back to
their items, at about the cost of one conjugate-gradient step on V (Halko, Martinsson and Tropp 2011, algorithm 4.4;
docs/derivations.md#spectral-start).
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mfauc_jax._core import programs
from mfauc_jax.data import ragged
from mfauc_jax.data.ragged import Tiles
from mfauc_jax.solvers.mesh import SPLIT, WHOLE, Devices
from mfauc_jax.solvers.sweeps import totals

OVERSAMPLE = 16  # columns of the random start beyond k: the last of the k are found better
NEWTON = 14  # iterations of `inverse_root`: 2.25^14 is 1e5
JACOBI = 8  # rounds of all pairs; the couplings that are left by then are tiny
NOISE = 0.01  # of the size of the start, in the columns beyond the rank of X


@programs.jit
def singular_vectors(
    V: Float[Array, "N k"], tiles: Tiles, devices: Devices, passes
) -> Float[Array, "N k"]:
    """The leading right singular vectors of X, each times the root of its singular value, in the size of the start V.

    So the columns are orthogonal, and the scores of a user are like those of X: every axis of the factor space has a
    curvature of its own, which the preconditioners of a sweep rely on. Columns beyond the rank of X keep `NOISE`
    times the start, because zeros would be a saddle of Eq. 3.

    Args:
        V: the start, whose columns span a random subspace.
        tiles: the positives of X, with 1 as their value, on the devices.
        devices: where the tiles are; V is on each, or split by items.
        passes: number of passes over X, ≥ 1.
    """
    found = partial(_singular_vectors, devices)
    if devices.mesh.size > 1:
        items = devices.of_items
        in_specs = (items, jax.tree.map(lambda _: SPLIT, tiles), WHOLE)
        found = jax.shard_map(
            found, mesh=devices.mesh, in_specs=in_specs, out_specs=items, check_vma=False
        )
    return found(V, tiles, passes)


def _singular_vectors(devices: Devices, V, tiles: Tiles, passes):
    def multiply(_, last):
        Q = last[0] @ inverse_root(devices.over_items(last[0].T @ last[0]))
        return _product(devices, tiles, Q), Q

    image, Q = jax.lax.fori_loop(0, passes, multiply, (V, V))  # XᵀX Q and Q
    within = devices.over_items(Q.T @ image)
    squares, axes = eigenvectors(within)  # σ² of the axes within the span of Q
    columns = image @ axes
    length = jnp.sqrt(devices.over_items((columns**2).sum(0)))
    known = squares > 10 * jnp.finfo(V.dtype).eps * squares[0]
    roots = jnp.sqrt(jnp.where(known, length * jnp.sqrt(squares), 1.0))  # |column| / √σ
    columns = jnp.where(known[None, :], columns / roots[None, :], 0.0)
    peak = _peak(devices.all_items(_peak(columns)))  # of each device's items, then of all
    start, found = devices.over_items(((V**2).sum(), (columns**2).sum()))
    size = jnp.sqrt(start / jnp.maximum(found, 1e-30))
    return jnp.where(known[None, :], size * jnp.sign(peak) * columns, NOISE * V)


def _peak(columns: Float[Array, "rows k"]) -> Float[Array, "1 k"]:
    """The entry of the largest size in each column; of equals the first."""
    return jnp.take_along_axis(columns, jnp.abs(columns).argmax(0)[None, :], 0)


def inverse_root(G: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """About G^−½ of a positive matrix by Newton's iteration, in which directions below 1e-5 of the largest stay short.

    Matrix products only: LAPACK, called from several devices at once, waits for its own threads.
    """
    one = jnp.eye(len(G), dtype=G.dtype)
    scale = jnp.abs(G).sum(1).max() + 1e-30  # no eigenvalue is larger

    def improve(_, pair):
        Y, Z = pair
        step = 1.5 * one - 0.5 * Z @ Y
        return Y @ step, step @ Z

    return jax.lax.fori_loop(0, NEWTON, improve, (G / scale, one))[1] / jnp.sqrt(scale)


def eigenvectors(H: Float[Array, "k k"]) -> tuple[Float[Array, "k"], Float[Array, "k k"]]:
    """The eigenvalues of a symmetric matrix, largest first, and its eigenvectors as columns, by Jacobi's rotations.

    A round rotates the k/2 disjoint pairs (i, k/2 + i); then the indices move on as in a tournament, so that every
    pair has met after k − 1 rounds. k must be even.
    """
    h = len(H) // 2
    top, bottom = jnp.arange(h), jnp.arange(h, 2 * h)
    turns = jnp.concatenate([top[:1], bottom[:1], top[1:-1], bottom[1:], top[-1:]])

    def rotate(_, pair):
        A, W = pair
        diagonal, beside = jnp.diagonal(A), jnp.diagonal(A[:h, h:])
        theta = (diagonal[h:] - diagonal[:h]) / (2 * jnp.where(beside == 0, 1.0, beside))
        tangent = jnp.where(theta < 0, -1.0, 1.0) / (jnp.abs(theta) + jnp.sqrt(theta**2 + 1))
        tangent = jnp.where(beside == 0, 0.0, tangent)
        c = (1 / jnp.sqrt(tangent**2 + 1))[:, None]
        s = tangent[:, None] * c

        def turned(M):
            return jnp.concatenate([c * M[:h] - s * M[h:], s * M[:h] + c * M[h:]])[turns]

        return turned(turned(A).T), turned(W)

    start = (H + H.T) / 2, jnp.eye(2 * h, dtype=H.dtype)
    A, W = jax.lax.fori_loop(0, JACOBI * (2 * h - 1), rotate, start)
    order = jnp.argsort(-jnp.diagonal(A))
    return jnp.diagonal(A)[order], W[order].T


def _product(devices: Devices, tiles: Tiles, Q):
    """XᵀX Q, over the users of all devices."""
    of_all = devices.all_items(Q)

    def body(t, rows):
        chunk = ragged.chunk(tiles, t)
        (real,) = chunk.values
        (sums,) = totals(chunk, jnp.einsum("ct,ctk->ck", real, of_all[chunk.items]))
        return rows.at[chunk.items].add(real[:, :, None] * sums[chunk.local][:, None, :])

    rows = jax.lax.fori_loop(0, tiles.count[0], body, jnp.zeros_like(of_all))
    return devices.completed(rows)[0]
