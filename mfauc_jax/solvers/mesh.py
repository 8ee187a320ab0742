"""A mesh of devices, of one process or of many: users are split over it, and items too or on every device."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from mfauc_jax._core import host, programs

AXIS = "devices"
SPLIT, WHOLE = PartitionSpec(AXIS), PartitionSpec()


def ring(devices: int | None = None) -> Mesh:
    """The first `devices` devices that JAX sees; None: all of them. In several processes it must be all of them."""
    known = jax.devices()
    if devices is not None and not 1 <= devices <= len(known):
        raise ValueError(
            f"devices = {devices} must be in 1 … {len(known)}, the number that JAX sees"
        )
    if devices not in (None, len(known)) and jax.process_count() > 1:
        raise ValueError(
            f"devices = {devices}, but {jax.process_count()} processes share all {len(known)}: leave it out"
        )
    return Mesh(np.array(known[:devices]), (AXIS,), axis_types=(AxisType.Auto,))


def on_mesh(
    mesh: Mesh, local: np.ndarray, whole: int | None = None, spec: PartitionSpec = SPLIT
) -> Array:
    """A host array placed on the mesh; if `whole` is given, `local` is this process's part of that many rows."""
    shape = local.shape if whole is None else (whole, *local.shape[1:])
    first = 0 if whole is None else jax.process_index() * (whole // jax.process_count())

    def part(index):
        if whole is None or not index:
            return local[index]
        low, high = index[0].start or 0, index[0].stop or whole
        return local[low - first : high - first]

    return jax.make_array_from_callback(shape, NamedSharding(mesh, spec), part)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Devices:
    """The mesh that data are on, as a part of them that shapes the program; its methods are for inside a `shard_map`.

    Arrays over users are split over the mesh; those over items are, if `by_items`, and otherwise are on every device.
    """

    mesh: Mesh
    by_items: bool = False

    @property
    def of_items(self) -> PartitionSpec:
        """Where an array over items is."""
        return SPLIT if self.by_items else WHOLE

    def over(self, sums: Any) -> Any:
        """Sums over the users of all devices, from each device's own."""
        return sums if self.mesh.size == 1 else jax.lax.psum(sums, AXIS)

    def over_items(self, sums: Any) -> Any:
        """Sums over all items, from those over the items that a device has."""
        return jax.lax.psum(sums, AXIS) if self.by_items else sums

    def all_items(self, rows: Array) -> Array:
        """The rows of all items, from those that a device has."""
        return jax.lax.all_gather(rows, AXIS, tiled=True) if self.by_items else rows

    def completed(self, rows: Array, *sums: Array) -> list[Array]:
        """Sums over the users of all devices: of `rows`, [N, …], those of the items that a device has; and `sums`."""
        if not self.by_items:
            return self.over([rows, *sums])
        own = jax.lax.psum_scatter(rows, AXIS, tiled=True)
        return [own, *self.over(list(sums))]


class Layout(NamedTuple):
    """Where the rows of a fit are: the users in runs, one run per device, padded to `size` rows; the items on every
    device or, if `by_items`, in as many equal parts.

    On a mesh of one device, arrays are as `jax.device_put` puts them.
    """

    mesh: Mesh
    counts: np.ndarray  # users of each of this process's devices, in order
    size: int  # the same for every device of every process
    by_items: bool = False

    @property
    def devices(self) -> Devices:
        """What the data of a program say about it."""
        return Devices(self.mesh, self.by_items)

    def split(self, local: Any) -> Array:
        """An array whose first axis is cut into equal parts for this process's devices, on the mesh."""
        if self.mesh.size == 1:
            return jax.device_put(local)
        local = np.asarray(local)
        return on_mesh(self.mesh, local, self.mesh.size // len(self.counts) * len(local))

    def whole(self, values: Any) -> Array:
        """An array on every device."""
        if self.mesh.size == 1:
            return jax.device_put(values)
        return on_mesh(self.mesh, np.asarray(values), spec=WHOLE)

    def users(self, values: Any) -> Array:
        """Values with one row per user of this process; padding is 0."""
        values, shape = np.asarray(values), (len(self.counts), self.size)
        out = np.zeros((*shape, *values.shape[1:]), values.dtype)
        for part, end, count in zip(out, np.cumsum(self.counts), self.counts, strict=True):
            part[:count] = values[end - count : end]
        return self.split(out.reshape(-1, *values.shape[1:]))

    def items(self, values: Any) -> Array:
        """Values with one row per item; padding is 0."""
        size = programs.item_rows(len(values))
        if not self.by_items:
            return self.whole(host.padded(values, size))
        values = np.asarray(values)
        out = np.zeros((size + -size % self.mesh.size, *values.shape[1:]), values.dtype)
        out[: len(values)] = values
        return on_mesh(self.mesh, out)


def on_host(values: Any) -> np.ndarray:
    """An array that every device has whole, on the host; a host array as it is."""
    return np.asarray(values.addressable_data(0) if isinstance(values, jax.Array) else values)


def items_on_host(values: Any) -> np.ndarray:
    """The inverse of `Layout.items`, but for the padding; a host array as it is. All processes must call it."""
    if not isinstance(values, jax.Array) or values.is_fully_replicated:
        return on_host(values)
    return host.everybody(np.concatenate([part for _, part in _parts(values)]))


def joined(values: Any, counts: np.ndarray) -> np.ndarray:
    """The inverse of `Layout.users`, on the host: the rows of this process's users.

    Args:
        values: the array on the mesh, or, in one process, a copy of it on the host.
        counts: users of each device of the whole mesh.
    """
    if not isinstance(values, jax.Array):
        parts = list(enumerate(np.split(values, len(counts))))
    else:
        size = len(values) // len(counts)
        parts = [(first // size, part) for first, part in _parts(values)]
    return np.concatenate([part[: counts[place]] for place, part in parts])


def _parts(values: jax.Array) -> list[tuple[int, np.ndarray]]:
    """The parts of an array that this process has, in order, each with the number of its first row."""
    parts = [(s.index[0].start or 0, np.asarray(s.data)) for s in values.addressable_shards]
    return sorted(parts, key=lambda part: part[0])
