"""Placement of a blockwise fit on devices: blocks of users on one device each, vectors over items on all.

Everything here runs on the host, once per fit. A process sees its own users only.
"""

import dataclasses
import itertools
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.solvers import base
from mfauc_jax.solvers import mesh as meshes
from mfauc_jax.solvers.blockwise import design
from mfauc_jax.solvers.mesh import WHOLE, on_mesh


class Users(NamedTuple):
    """The data of the row blocks, which stay on their devices; the first axis is over the d blocks."""

    items: Int[Array, "d E"]  # the positives row by row; padding has the number of items
    rows: Int[Array, "d E"]  # the user within the block; padding has the number of users
    g: Float[Array, "d E"] | None  # None: 1/N_i
    length: Int[Array, "d u"]  # N_i
    neg_mass: Float[Array, "d u"]
    weight: Float[Array, "d u"]  # w_i; 0 for users who are not usable, and for padding
    reg: Float[Array, "d u"] | None  # λ_i; None: the same for all users
    spread: Float[Array, "d u"] | None  # σ_i − 1; None: the same for all users
    ranked: Int[
        Array, "d u"
    ]  # the users of the home block by number of positives, see `design.ranked`


class Items(NamedTuple):
    """The vectors over all items that every device has, padded to full strata."""

    b: Float[Array, "n"]  # 0 for padding, which is drawn but has no weight
    ranked: Int[Array, "n"]  # see `design.ranked`
    stratum: Int[Array, "n"]
    reg: Float[Array, "n"] | None  # λ_j; None: the same for all items


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Data:
    """The data of a blockwise fit, on the devices."""

    users: Users
    items: Items
    scale: Float[Array, ""]  # n over the number of usable users
    row_bits: int = dataclasses.field(metadata={"static": True})


def mesh(num_blocks: int, devices: int | None = None) -> Mesh:
    """The first `devices` devices as a ring; None: the largest number of devices that divides d."""
    if devices is None and jax.process_count() == 1:
        devices = max(c for c in range(1, len(jax.devices()) + 1) if num_blocks % c == 0)
    ring = meshes.ring(devices)
    if num_blocks % ring.size:
        raise ValueError(f"blocks = {num_blocks} must be a multiple of the {ring.size} devices")
    return ring


def start(
    key: Key[Array, ""], num_users: int, num_items: int, rank: int, scale: float, num_blocks: int
) -> Factors:
    """N(0, scale²) entries, drawn block by block, so that a process draws the rows of its own users only."""
    users = Rows(num_users, num_blocks)
    key_users, key_items = jax.random.split(key)
    keys = [jax.random.fold_in(key_users, users.first + a) for a in range(len(users.sizes))]
    drawn = (base.gaussian(k, users.most, 1, rank, scale).U for k in keys)
    parts = [np.asarray(F)[:size] for F, size in zip(drawn, users.sizes, strict=True)]
    return Factors(
        jax.device_put(np.concatenate(parts)), base.gaussian(key_items, 1, num_items, rank, scale).V
    )


class Rows:
    """The blocks of users of this process: their sizes as `design.sizes` gives them, padded to the largest."""

    def __init__(self, num_users: int, d: int):
        count, me = jax.process_count(), jax.process_index()
        by_process = host.everyone(np.int32(num_users))
        sizes = design.sizes(int(by_process.sum()), d)
        self.most = design.padded(int(sizes.max()), d)  # equal parts go to every block
        self.sizes = np.split(sizes, count)[me]
        self.first = me * d // count
        self.all = d * self.most
        if self.sizes.sum() != num_users:
            raise ValueError(
                f"process {me} holds {num_users} users, but its {d // count} of the {d} blocks of "
                f"{by_process.sum()} users have {self.sizes.sum()}: load the rows that distributed.users gives"
            )

    def real(self) -> np.ndarray:
        """The places of this process's padded blocks that hold a user, in ascending order."""
        return np.flatnonzero((np.arange(self.most)[None, :] < self.sizes[:, None]).reshape(-1))

    def blocked(self, values: np.ndarray, fill: Any = 0) -> np.ndarray:
        """Values with one row per user as an array [blocks of this process, users per block, …]."""
        shape = (len(self.sizes) * self.most, *values.shape[1:])
        padded = np.full(shape, fill, values.dtype)
        padded[self.real()] = values
        return padded.reshape(len(self.sizes), self.most, *values.shape[1:])


def prepare(
    d: int, ring: Mesh, objective: Objective, X: Interactions, weights: PairWeights
) -> Data:
    """The data, the weights and the penalties, placed on the devices of `ring`.

    Args:
        d: number of blocks.
        ring: as from `mesh`.
        objective: its `reg` must be a Reg.
        X: the positives of this process's users.
        weights: of X's pairs.
    """
    place = partial(on_mesh, ring)
    total = host.total(np.int32(X.num_users))
    design.check(d, int(total), X.num_items)
    rows, padded = Rows(X.num_users, d), design.padded(X.num_items, d)
    indptr, indices = np.asarray(X.indptr), np.asarray(X.indices)
    ends = indptr[np.concatenate([[0], np.cumsum(rows.sizes)])]
    longest = host.everyone(np.array([np.diff(ends).max(), X.row_bits], np.int32)).max(0)
    num_blocks = len(rows.sizes)
    items = np.full((num_blocks, longest[0]), padded, np.int32)
    users = np.full((num_blocks, longest[0]), rows.most, np.int32)
    uniform = weights.pos_table is None
    g = None if uniform else np.zeros((num_blocks, longest[0]), weights.g.dtype)
    owner, start = np.asarray(X.rows), 0
    for a, (low, high) in enumerate(itertools.pairwise(ends)):
        items[a, : high - low], users[a, : high - low] = indices[low:high], owner[low:high] - start
        start += rows.sizes[a]
        if g is not None:
            g[a, : high - low] = np.asarray(weights.g)[low:high]

    def in_blocks(values: Any, fill: Any = 0) -> Any:
        return place(rows.blocked(np.asarray(values), fill), d)

    def by_user(values: Any) -> Any:
        return in_blocks(values) if np.ndim(values) else None

    def by_item(values: Any) -> Any:
        return place(np.pad(np.asarray(values), (0, padded - X.num_items)), spec=WHOLE)

    blocked = rows.blocked(np.asarray(X.row_lengths), -1)  # padding comes after everybody
    counts = host.total(np.bincount(indices, minlength=X.num_items).astype(np.int32))
    ranked = design.ranked(counts, d)
    stratum = np.empty_like(ranked)
    stratum[ranked] = np.arange(padded) // design.stratum_size(d)
    usable = host.total(np.int32(len(weights.usable)))
    float_ = np.asarray(weights.user).dtype
    return Data(
        Users(
            place(items, d),
            place(users, d),
            None if g is None else place(g, d),
            in_blocks(X.row_lengths),
            in_blocks(weights.neg_mass, 1),
            in_blocks(weights.user),
            by_user(objective.reg.user),
            by_user(objective.spread),
            place(np.stack([design.ranked(lengths, d) for lengths in blocked]), d),
        ),
        Items(
            by_item(weights.b),
            place(ranked, spec=WHOLE),
            place(stratum, spec=WHOLE),
            by_item(objective.reg.item) if np.ndim(objective.reg.item) else None,
        ),
        place(np.asarray(X.num_items / usable, float_), spec=WHOLE),
        int(longest[1]),
    )
