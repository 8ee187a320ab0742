"""Solvers whose data and state are whole on every device, of one process or of many: devices share the work.

In several processes each gives the rows of its own users; here every process gets those of all, one process after the
other, and gives back the factors of its own.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import joining
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.dislikes import Disliked
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.problem import Problem
from mfauc_jax.solvers.base import State
from mfauc_jax.solvers.mesh import WHOLE, on_host, on_mesh, ring


def usual(devices: int | None) -> Mesh:
    """The mesh of so many devices; None: all of them or, as its products use all cores, one CPU device."""
    if devices is None and jax.default_backend() == "cpu" and jax.process_count() == 1:
        devices = 1
    return ring(devices)


def everywhere(mesh: Mesh, tree: Any) -> Any:
    """A pytree with every array on every device of the mesh; as it is on a mesh of one device."""
    if mesh.size == 1:
        return tree
    return jax.tree.map(lambda leaf: on_mesh(mesh, on_host(leaf), spec=WHOLE), tree)


def alone(tree: Any) -> Any:
    """The inverse of `everywhere`: arrays that every device has, on one device."""

    def one(leaf):
        placed = isinstance(leaf, jax.Array) and len(leaf.devices()) > 1
        return jax.device_put(on_host(leaf)) if placed else leaf

    return jax.tree.map(one, tree)


class Replicated:
    """What a solver does whose state is whole on every one of its `devices`, such as `Dense` and `FullBatch`."""

    in_processes = True
    devices: Any

    def mesh(self, problem: Problem) -> Mesh:
        """The devices of a fit; one, if the problem has features."""
        return ring(1) if problem.sides is not None else usual(self.devices)

    def seen_by_step(self, problem: Problem) -> Objective:
        """The objective with λ and σ − 1 of the users of all processes."""
        return _objective_of_all(problem.objective)

    def portable(self, problem: Problem, state: State) -> State:
        """The state on one device; in several processes it is the same state, on every device."""
        del problem
        return alone(state) if jax.process_count() == 1 else state

    def placed(self, problem: Problem, state: State) -> State:
        """The state on every device."""
        return everywhere(self.mesh(problem), state)

    def read(self, state: State, like: Factors) -> Factors:
        """The averages, or the best factors of a solver that keeps those there, of this process's users."""
        factors = alone(state.average)
        if jax.process_count() == 1:
            return factors
        return factors._replace(U=jax.device_put(host.own(np.asarray(factors.U), len(like.U))))


def factors_of_all(factors: Factors) -> Factors:
    """The factors of the users of all processes; in one process as they are."""
    if jax.process_count() == 1:
        return factors
    return factors._replace(U=host.put(host.everybody(np.asarray(factors.U))))


def problem_of_all(problem: Problem) -> Problem:
    """The problem of the users of all processes; in one process as it is."""
    if jax.process_count() == 1:
        return problem
    X = joining.of_all(problem.X)
    weights = _weights_of_all(problem.weights, problem.X.num_users, X)
    objective = _objective_of_all(problem.objective)
    return dataclasses.replace(problem, X=X, weights=weights, objective=objective)


def _rows(values: Any) -> Any:
    """Numbers of this process's rows or positives, as those of all processes; one number, or None, as it is."""
    return host.put(host.everybody(np.asarray(values))) if np.ndim(values) else values


def _objective_of_all(objective: Objective) -> Objective:
    if jax.process_count() == 1:
        return objective
    reg = objective.reg
    if isinstance(reg, Reg):
        reg = reg._replace(user=_rows(reg.user))
    return objective._replace(reg=reg, spread=_rows(objective.spread))


def _weights_of_all(weights: PairWeights, num_users: int, X: Interactions) -> PairWeights:
    """The weights of X, the positives of all processes; `num_users` are this process's."""
    counts = host.everyone(np.int64(num_users)).ravel()
    first = int(counts[: jax.process_index()].sum())
    of_users = {name: _rows(getattr(weights, name)) for name in ("neg_mass", "user")}
    tables = {name: _rows(getattr(weights, name)) for name in ("g", "pos_table", "row_table")}
    usable = _rows(np.asarray(weights.usable) + first)
    disliked = _disliked_of_all(weights, num_users, X)
    return weights._replace(**of_users, **tables, usable=usable, disliked=disliked)


def _disliked_of_all(weights: PairWeights, num_users: int, X: Interactions) -> Disliked | None:
    """The dislikes of all processes, of which some may have none."""
    own = weights.disliked
    factor = host.everyone(0.0 if own is None else np.float64(own.factor)).max()
    if not factor or X.dislikes is None:
        return None
    coin = np.zeros(num_users, np.int32) if own is None else own.coin
    table = None
    if weights.neg_table is not None:
        table = _rows(np.zeros(0, np.int32) if own is None else own.table)
    return Disliked(X.dislikes, host.floats(factor), _rows(coin), table)
