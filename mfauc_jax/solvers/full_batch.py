"""L-BFGS with the exact ∇θ: for small data, and as the reference for the objective values of other solvers."""

import jax
import jax.numpy as jnp
import optax

from mfauc_jax._core import programs
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import count
from mfauc_jax.objective import exact
from mfauc_jax.objective.penalties import Sphere, unit_rows
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import base

OPTIMISER = optax.lbfgs(memory_size=10)


_memory = programs.jit(OPTIMISER.init)


class FullBatch(base.Solver):
    """L-BFGS on the exact objective over all pairs; any loss, any φ, and unit rows, which are u/|u| of free rows."""

    on_sphere = True
    takes_dislikes = True
    iterations: int = count(
        150, least=1, identity=False, help="T, search directions, each with its line search"
    )

    def prepare(self, problem: Problem) -> exact.Plan:
        """The data in blocks, as the exact evaluation reads them."""
        return exact.plan(problem.objective, problem.X, problem.weights)

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The start, with an empty L-BFGS memory and no best value yet."""
        memory = _memory(factors), jnp.asarray(jnp.inf, factors.U.dtype)
        return base.begin(factors, memory)._replace(average=_scored(problem.objective, factors))

    def step(self, objective, key, state, data) -> tuple[base.State, base.Info]:
        """One direction and its line search. `key` is not used."""
        del key

        def value(factors):  # m θ, whose gradients have size one, as the first line searches need
            return factors.U.shape[0] * exact.value(objective, _scored(objective, factors), data)

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
        kept = _scored(objective, kept)
        after = base.State(factors, kept, state.iteration + 1, (memory, jnp.minimum(best, theta)))
        return after, base.change(state.factors, factors)


def _scored(objective, factors: Factors) -> Factors:
    """The rows whose products are the scores: unit rows on the sphere."""
    return Factors(*map(unit_rows, factors)) if isinstance(objective.reg, Sphere) else factors
