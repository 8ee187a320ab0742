"""L-BFGS with the exact ∇θ: for small data, and as the reference for the objective values of other solvers.

On several devices, of one process or of many, each evaluates a part of the users, or for the square loss of the
positives; sums are over devices, and the factors are on every device.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from mfauc_jax._core import programs
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import count, size
from mfauc_jax.objective import exact, losses
from mfauc_jax.objective.equation import Objective, penalty
from mfauc_jax.objective.penalties import scored_rows
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import base, replicated
from mfauc_jax.solvers import mesh as meshes
from mfauc_jax.solvers.mesh import AXIS, SPLIT, WHOLE, Devices

OPTIMISER = optax.lbfgs(memory_size=10)


_memory = programs.jit(OPTIMISER.init)


class FullBatch(replicated.Replicated, base.Solver):
    """L-BFGS on the exact objective over all pairs; any loss, any φ, and unit rows, which are u/|u| of free rows u."""

    on_sphere = True
    takes_dislikes = True
    iterations: int = count(
        150, least=1, identity=False, help="T, search directions, each with its line search"
    )

    devices: int | None = size(
        None, optional=True, identity=False, help="how many devices to use; None: all, but one CPU"
    )

    def prepare(self, problem: Problem) -> "exact.Plan | Parts":
        """The data in blocks, as the exact evaluation reads them."""
        mesh, problem = self.mesh(problem), replicated.problem_of_all(problem)
        plan = exact.plan(problem.objective, problem.X, problem.weights)
        return plan if mesh.size == 1 else _parts(mesh, plan)

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The start, with an empty L-BFGS memory and no best value yet."""
        factors = replicated.factors_of_all(factors)
        memory = _memory(factors), jnp.asarray(jnp.inf, factors.U.dtype)
        begun = base.begin(factors, memory)
        begun = begun._replace(average=scored_rows(problem.objective.reg, factors))
        return replicated.everywhere(self.mesh(problem), begun)

    def step(self, objective, key, state, data) -> tuple[base.State, base.Info]:
        """One direction and its line search. `key` is not used."""
        del key

        def value(factors):  # m θ, whose gradients have size one, as the first line searches need
            return factors.U.shape[0] * _value(objective, scored_rows(objective.reg, factors), data)

        memory, best = state.extra
        theta, grads = optax.value_and_grad_from_state(value)(state.factors, state=memory)
        updates, memory = OPTIMISER.update(
            grads, memory, state.factors, value=theta, grad=grads, value_fn=value
        )
        factors = Factors(*optax.apply_updates(state.factors, updates))  # type: ignore[misc]
        better = (
            theta <= best
        )  # at the old point; so a failed line search cannot lose the best point
        kept = jax.tree.map(lambda a, b: jnp.where(better, a, b), state.factors, state.average)
        reached = optax.tree_utils.tree_get(memory, "value", default=theta)
        kept = jax.tree.map(lambda a, b: jnp.where(reached <= theta, a, b), factors, kept)
        kept = scored_rows(objective.reg, kept)
        after = base.State(factors, kept, state.iteration + 1, (memory, jnp.minimum(best, theta)))
        return after, base.change(state.factors, factors)


class Parts(NamedTuple):
    """A plan whose blocks, and for the square loss positives, are split over devices."""

    plan: exact.Plan  # blocks: split along their first axis
    positives: exact.Positives  # split
    devices: Devices


def _parts(mesh: Mesh, plan: exact.Plan) -> Parts:
    X, weights = replicated.everywhere(mesh, (plan.X, plan.weights))

    def split(values, fill=0):
        values = np.asarray(values)
        padding = ((0, -len(values) % mesh.size), *((0, 0),) * (values.ndim - 1))
        return meshes.on_mesh(mesh, np.pad(values, padding, constant_values=fill))

    blocks, removed = jax.tree.map(split, (plan.blocks, plan.removed))  # padding has g = 0
    rows, items, _ = plan.X.on_host()
    rows = split(rows.astype(np.int32), fill=X.num_users)
    positives = exact.Positives(rows, split(items), split(plan.weights.g), removed)
    return Parts(exact.Plan(X, weights, blocks), positives, Devices(mesh))


def _value(objective: Objective, factors: Factors, data: exact.Plan | Parts) -> Any:
    """θ, on the devices of the data."""
    if isinstance(data, exact.Plan):
        return exact.value(objective, factors, data)
    specs = exact.Plan(WHOLE, WHOLE, SPLIT, None)  # pyright: ignore
    risk = jax.shard_map(
        _risk,
        mesh=data.devices.mesh,
        in_specs=(WHOLE, WHOLE, specs, SPLIT),
        out_specs=WHOLE,
        check_vma=False,
    )
    return risk(objective, factors, data.plan, data.positives) + penalty(objective, factors)


def _risk(
    objective: Objective, factors: Factors, plan: exact.Plan, positives: exact.Positives
) -> Any:
    """The data term, from one device's part of the data and a sum over devices."""

    def over(sums):
        return jax.lax.psum(sums, AXIS)

    if isinstance(objective.loss, losses.Square):
        return exact.moments(objective, factors, plan, positives, over)
    return over(exact.value(objective._replace(reg=0.0), factors, plan))
