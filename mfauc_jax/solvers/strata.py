"""The data of the dense solver: its strata of users, the layout of a batch, and how both are split over devices."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int

from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.slopes import Batch
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import mesh as meshes
from mfauc_jax.solvers import replicated
from mfauc_jax.solvers.mesh import AXIS, Devices
from mfauc_jax.solvers.sampled_features import OnRows


class Data(NamedTuple):
    """X, its weights, and the layout of a batch."""

    X: Interactions
    weights: PairWeights
    strata: Int[Array, "b s"]  # the usable users by falling N_i; m where there is none
    row: Int[
        Array, "L"
    ]  # the place in the batch, or in its device's part, that each positive belongs to
    offset: Int[Array, "L"]  # its place among the user's positives, if there are so many
    # row and offset of the dislikes of a batch; None: there are none
    disliked: tuple[Int[Array, "D"], Int[Array, "D"]] | None = None
    devices: Devices | None = None  # None: one device
    places: Int[Array, "b"] | None = (
        None  # on several devices: the number of each row among all strata; −1 for one without users
    )
    sides: OnRows | None = None  # the features; then there is one device

    def over(self, sums):
        """The sum over devices."""
        return sums if self.devices is None else jax.lax.psum(sums, AXIS)

    def gathered(self, rows):
        """The rows of all devices, one device after the other."""
        if self.devices is None:
            return rows
        return jax.tree.map(lambda a: jax.lax.all_gather(a, AXIS, tiled=True), rows)


def layout(strata: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row of a batch, and the place in that row, of each entry that a batch has room for."""
    width = np.append(lengths, 0)[strata].max(1)
    row = np.repeat(np.arange(len(strata)), width)
    return row, np.arange(len(row)) - (np.cumsum(width) - width)[row]


def on_mesh(
    mesh: Mesh,
    problem: Problem,
    strata: np.ndarray,
    lengths: np.ndarray,
    disliked: np.ndarray | None,
) -> Data:
    """The data with the strata dealt to the devices in turn, so that each has about as many positives.

    Args:
        mesh: the devices.
        problem: the data.
        strata: users, [b, s].
        lengths: numbers of positives, [m].
        disliked: numbers of dislikes, [m]; None: there are none.
    """
    b, devices = len(strata), mesh.size
    places = np.arange(-(-b // devices) * devices).reshape(-1, devices).T  # [devices, b per device]
    extra = ((0, places.size - b), (0, 0))  # strata without users
    strata = np.pad(strata, extra, constant_values=problem.X.num_users)

    def put(values):
        return meshes.on_mesh(mesh, values.astype(np.int32))

    def laid_out(lengths):
        parts = [layout(strata[rows], lengths) for rows in places]
        longest = max(1, *(len(row) for row, _ in parts))
        fill = places.shape[1] - 1, np.iinfo(np.int32).max  # no user has so many
        row, offset = (
            [
                np.pad(part[i], (0, longest - len(part[i])), constant_values=fill[i])
                for part in parts
            ]
            for i in range(2)
        )
        return put(np.concatenate(row)), put(np.concatenate(offset))

    X, weights = replicated.everywhere(mesh, (problem.X, problem.weights))
    row, offset = laid_out(lengths)
    others = None if disliked is None else laid_out(disliked)
    order = places.ravel()
    numbers = put(np.where(order < b, order, -1))
    return Data(X, weights, put(strata[order]), row, offset, others, Devices(mesh), numbers)


class Columns(NamedTuple):
    """The items that a batch is scored against: a window of a random order of all, or simply all."""

    order: Any  # [n], or None for all items
    inverse: Any  # [n], the place of each item in `order`
    start: Any
    width: int

    def items(self, num_items: int) -> Int[Array, "Q"]:
        """The items of the columns."""
        return self.order[(self.start + jnp.arange(self.width)) % num_items]

    def of(self, items: Int[Array, "L"], num_items: int) -> Int[Array, "L"]:
        """The column of each item; `width` for those that have none."""
        if self.order is None:
            return items
        column = (self.inverse[jnp.minimum(items, num_items - 1)] - self.start) % num_items
        return jnp.where(items < num_items, jnp.minimum(column, self.width), self.width)


def batch_of(data: Data, users: Int[Array, "b"]) -> Batch:
    """The users of one batch with all their positives."""
    X, weights, row = data.X, data.weights, data.row
    real = users < X.num_users
    users = jnp.minimum(users, X.num_users - 1)
    items, slot, has = entries(X, users, real, row, data.offset)
    return Batch(users, weights.user[users] * real, real, row, items, weights.g[slot] * has)


def entries(X: Interactions, users, real, row, offset):
    """The items of a layout, n where there is none; their places in `X.indices`; and whether they exist."""
    start, length = X.indptr[users], jnp.where(real, X.indptr[users + 1] - X.indptr[users], 0)
    has = offset < length[row]
    slot = jnp.where(has, start[row] + offset, 0)
    return jnp.where(has, X.indices[slot], X.num_items), slot, has
