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
from mfauc_jax.solvers.mesh import AXIS, Devices


class Data(NamedTuple):
    """X, its weights, and the layout of a batch."""

    X: Interactions
    weights: PairWeights
    strata: Int[Array, "b s"]  # the usable users by falling N_i; m where there is none
    row: Int[
        Array, "L"
    ]  # the place in the batch, or in its device's part, that each positive belongs to
    offset: Int[Array, "L"]  # its place among the user's positives, if there are so many
    devices: Devices | None = None  # None: one device
    places: Int[Array, "b"] | None = (
        None  # on several devices: the number of each row among all strata
    )

    def over(self, sums):
        """The sum over devices."""
        return sums if self.devices is None else jax.lax.psum(sums, AXIS)

    def gathered(self, rows):
        """The rows of all devices, one device after the other."""
        if self.devices is None:
            return rows
        return jax.tree.map(lambda a: jax.lax.all_gather(a, AXIS, tiled=True), rows)


def layout(width: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`row` and `offset` of `Data`, for rows of the given widths."""
    row = np.repeat(np.arange(len(width)), width)
    return row, np.arange(len(row)) - (np.cumsum(width) - width)[row]


def on_mesh(mesh: Mesh, problem: Problem, strata: np.ndarray, width: np.ndarray) -> Data:
    """The data with the strata dealt to the devices in turn, so that each has about as many positives."""
    b, devices = len(strata), mesh.size
    places = np.arange(-(-b // devices) * devices).reshape(-1, devices).T  # [devices, b per device]
    extra = places.size - b  # strata without users
    strata = np.pad(strata, ((0, extra), (0, 0)), constant_values=problem.X.num_users)
    parts = [layout(np.pad(width, (0, extra))[rows]) for rows in places]
    longest = max(len(row) for row, _ in parts)
    fill = places.shape[1] - 1, np.iinfo(np.int32).max  # no user has so many positives
    row, offset = (
        np.concatenate(
            [np.pad(p[i], (0, longest - len(p[i])), constant_values=fill[i]) for p in parts]
        )
        for i in range(2)
    )
    split = (strata[places.ravel()], row, offset, places.ravel())
    strata_, row_, offset_, own = (meshes.on_mesh(mesh, a.astype(np.int32)) for a in split)
    X, weights = meshes.everywhere(mesh, (problem.X, problem.weights))
    return Data(X, weights, strata_, row_, offset_, Devices(mesh), own)


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
    start, length = X.indptr[users], jnp.where(real, X.indptr[users + 1] - X.indptr[users], 0)
    has = data.offset < length[row]
    slot = jnp.where(has, start[row] + data.offset, 0)
    items = jnp.where(has, X.indices[slot], X.num_items)
    return Batch(users, weights.user[users] * real, real, row, items, weights.g[slot] * has)
