"""Alternating minimisation of the square loss over all pairs: no sampling, no step size.

One iteration solves the k × k system of every u_i by conjugate gradients that start from the present u_i. It then
takes a few such steps on V, whose rows are coupled through every (positive, negative) pair (`sweeps.sweep`).

Users are split over the devices, of one process or of many, in runs with about equally many positives. V is on every
device; its gradient and the Gram matrix of U are sums over users, so each device adds up its own, and one sum over
devices per step on V completes them. Of many items each device keeps its own part of V and of all that the steps on V
carry along; then a pass over the users gathers V for its duration, and ends with each part of the gradient at home.
"""

import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from mfauc_jax._core import cores, host, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import count, flag, size
from mfauc_jax.data import dislikes, ragged
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import losses
from mfauc_jax.objective.dislikes import entries
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import base, features, range_finder, sweeps
from mfauc_jax.solvers import mesh as meshes
from mfauc_jax.solvers.mesh import Layout
from mfauc_jax.solvers.sweeps import Data

LOG = logging.getLogger("mfauc_jax")
BUDGET = 2**13  # positives per chunk: their gathered factors take 2 MB in float32 at k = 64
PER_DEVICE = 2**15  # positives for which one more device pays
MANY_ITEMS = 2**20  # with more, V is split over devices: at k = 64 it has 268 MB in float32


class Alternating(base.Solver):
    """Exact alternating minimisation of the square loss, for any concave φ, with λ and spread as numbers or by row.

    The number of devices changes nothing but the order of sums. A fit with features uses one device.
    """

    in_processes = True
    takes_features = True
    takes_dislikes = True
    iterations: int = count(4, least=1, identity=False, help="T, sweeps over all of U and V")
    user_steps: int = count(2, least=1, help="conjugate-gradient steps on each u_i per sweep")
    item_steps: int = count(2, least=1, help="conjugate-gradient steps on V per sweep")
    passes: int = count(
        2, least=0, help="passes of a range finder that make a Gaussian start spectral; 0: none"
    )
    devices: int | None = size(
        None,
        optional=True,
        identity=False,
        help="how many devices to use; None: as many as have 2¹⁵ positives each",
    )
    shard_items: bool | None = flag(
        None,
        optional=True,
        identity=False,
        help="keep a part of V on each device, not all of it; None: above 2²⁰ items",
    )

    def mesh(self, X: Interactions) -> Mesh:
        """The devices of a fit to X; in several processes all of them."""
        devices = self.devices
        if devices is None and jax.process_count() == 1:
            devices = min(len(jax.devices()), max(1, X.nnz // PER_DEVICE))
        return meshes.ring(devices)

    def check(self, objective: Objective) -> None:
        """Raise ValueError unless the loss is the square and the rows may have any length."""
        super().check(objective)
        if not isinstance(objective.loss, losses.Square):
            raise ValueError(
                f"the alternating solver minimises the square loss, not {objective.loss.name}:"
                " use solver='minibatch' or 'full_batch'"
            )

    def _tiling(self, problem: Problem) -> tuple[ragged.Tiling, Layout]:
        """How the rows of X are cut, which have an entry for each positive and for each dislike."""
        X = problem.X if problem.X.dislikes is None else dislikes.union(problem.X).X
        return self._laid_out(X, meshes.ring(1) if problem.sides is not None else self.mesh(X))

    def _laid_out(self, X: Interactions, mesh: Mesh) -> tuple[ragged.Tiling, Layout]:
        tiling = ragged.tiling(X, BUDGET, len(mesh.local_devices))
        split = X.num_items > MANY_ITEMS if self.shard_items is None else self.shard_items
        return tiling, Layout(mesh, tiling.rows, tiling.size, split and mesh.size > 1)

    def start(self, start: base.Start, key, X: Interactions, rank: int) -> Factors:
        """Of a Gaussian start the singular vectors that V leads to, and U = 0; another start as it is."""
        if not isinstance(start, base.Gaussian) or not self.passes:
            return super().start(start, key, X, rank)
        X = dataclasses.replace(X, dislikes=None)
        tiling, layout = self._laid_out(X, self.mesh(X))
        usable = X.on_host()[2] < X.num_items  # a user who has everything tells nothing
        tiles = ragged.tiles(X, tiling, usable[X.on_host()[0]], put=layout.split)
        width = rank + range_finder.OVERSAMPLE + rank % 2  # an even number
        V = base.gaussian(key, 0, X.num_items, width, start.scale).V
        found = range_finder.singular_vectors(layout.items(V), tiles, layout.devices, self.passes)
        V = jax.device_put(meshes.items_on_host(found)[: X.num_items, :rank])
        return Factors(host.floats(np.zeros((X.num_users, rank))), V)

    def _say_if_idle(self, X: Interactions) -> None:
        """Say in one line how to use cores that this fit leaves idle, if any."""
        wanted = min(cores.count() // jax.process_count(), X.nnz // PER_DEVICE)
        used = jax.local_device_count()
        if self.devices is None and jax.default_backend() == "cpu" and used < wanted:
            _say_idle(used, wanted)

    def prepare(self, problem: Problem) -> Data:
        """The rows in tiles, with the weights that a sweep reads; a dislike has g = 0 and b = −(c − 1) b_q."""
        X, weights = problem.X, problem.weights
        self._say_if_idle(X)
        tiling, layout = self._tiling(problem)
        rows, items, _ = X.on_host()
        w, g, b = (np.asarray(a) for a in (weights.user, weights.g, weights.b))
        in_tiles = X, g, b[items]
        if weights.disliked is not None:
            in_tiles = entries(X, g, b, weights.disliked)
        weight = host.total(np.bincount(items, w[rows] * g, minlength=X.num_items))
        counts = (host.total(X.num_users), X.num_items, host.total(weights.usable.shape[0]))
        return Data(
            ragged.tiles(in_tiles[0], tiling, *in_tiles[1:], put=layout.split),
            *(layout.users(host.floats(a)) for a in (w, 1 / np.asarray(weights.neg_mass))),
            *(layout.items(host.floats(a)) for a in (b, weight)),
            *(layout.whole(host.floats(number)) for number in counts),
            devices=layout.devices,
            sides=problem.sides and features.placed(problem.sides),
        )

    def seen_by_step(self, problem: Problem) -> Objective:
        """The objective with each λ and σ − 1 that is given per row padded to the rows of the program."""
        objective, (_, layout) = problem.objective, self._tiling(problem)
        reg, spread = objective.reg, _by_row(layout.users, objective.spread)
        if isinstance(reg, Reg):
            reg = Reg(_by_row(layout.users, reg.user), _by_row(layout.items, reg.item))
        return objective._replace(reg=reg, spread=spread)

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The start, with rows of zeros after those of the data.

        `extra` has the users of each device of a mesh, or the coefficients of features.
        """
        layout = self._tiling(problem)[1]
        begun = base.begin(Factors(layout.users(factors.U), layout.items(factors.V)))
        if problem.sides is not None:
            return begun._replace(extra=features.start(problem.sides, factors))
        if layout.mesh.size == 1:
            return begun
        counts = host.everyone(layout.counts.astype(np.int32)).ravel()
        return begun._replace(iteration=layout.whole(begun.iteration), extra=layout.whole(counts))

    def read(self, state: base.State, like: Factors) -> Factors:
        """The factors without the padding."""
        U, V = state.average
        if not isinstance(state.extra, tuple):
            U = jax.device_put(meshes.joined(U, meshes.on_host(state.extra)))
            V = jax.device_put(meshes.items_on_host(V))
        return Factors(*(host.cut(F, len(G)) for F, G in zip((U, V), like, strict=True)))

    def portable(self, problem: Problem, state: base.State) -> base.State:
        """The state of one device, with the users of all processes."""
        if isinstance(state.extra, tuple):
            return state
        layout = self._tiling(problem)[1]
        put = layout.whole if jax.process_count() > 1 else jax.device_put
        U = host.everybody(meshes.joined(state.factors.U, meshes.on_host(state.extra)))
        U = host.padded(U, programs.user_rows(len(U)))
        V = meshes.items_on_host(state.factors.V)[: programs.item_rows(problem.X.num_items)]
        factors = Factors(put(U), put(V))
        return base.begin(factors)._replace(iteration=put(meshes.on_host(state.iteration)))

    def placed(self, problem: Problem, state: base.State) -> base.State:
        """The inverse of `portable`."""
        layout = self._tiling(problem)[1]
        if layout.mesh.size == 1:
            return state
        U, V = map(meshes.on_host, state.factors)
        begun = self.init(problem, Factors(host.own(U, problem.X.num_users), V))  # pyright: ignore
        return begun._replace(iteration=layout.whole(meshes.on_host(state.iteration)))

    def step(self, objective, key, state, data: Data) -> tuple[base.State, base.Info]:
        """One sweep: all of U, then V. `key` is not used."""
        del key
        args, extra = (
            (objective, state.factors, data, self.user_steps, self.item_steps),
            state.extra,
        )
        if data.sides is None:
            factors = sweeps.sweep(*args)
        else:
            factors, extra = sweeps.sweep_here(*args, extra)
        iteration = state.iteration + 1
        after = state._replace(factors=factors, average=factors, iteration=iteration, extra=extra)
        return after, base.change(state.factors, factors)


def _by_row(place: Callable[[Any], Any], values: Any) -> Any:
    """`values` of the rows on their devices; one number for all rows stays as it is."""
    return place(values) if np.ndim(values) else values


@functools.cache
def _say_idle(used: int, wanted: int) -> None:
    """Once per process: a search fits many times."""
    LOG.info(
        "this fit uses %d of %d cores: call mfauc_jax.use_cores() before any array exists",
        used,
        wanted,
    )
