"""Exact ∇θ with L-BFGS: for small data, and the yardstick others' objective values are held to."""

import jax
import jax.numpy as jnp
import optax

from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import count
from mfauc_jax.objective import exact
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import base

OPTIMISER = optax.lbfgs(memory_size=10)


class FullBatch(base.Solver):
    """L-BFGS on the exact objective over all pairs; any loss, any φ."""

    iterations: int = count(
        150, least=1, identity=False, help="T, directions with their line searches"
    )

    def prepare(self, problem: Problem) -> exact.Plan:
        """The data in blocks."""
        return exact.plan(problem.objective, problem.X, problem.weights)

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The start, with an empty memory."""
        del problem
        return base.begin(factors, (OPTIMISER.init(factors), jnp.asarray(jnp.inf, factors.U.dtype)))

    def step(self, objective, key, state, data) -> tuple[base.State, base.Info]:
        """One direction and its line search. `key` is not used."""
        del key

        def value(factors):  # m θ: gradients of size one, which the first line searches need
            return factors.U.shape[0] * exact.value(objective, factors, data)

        memory, best = state.extra
        theta, grads = optax.value_and_grad_from_state(value)(state.factors, state=memory)
        updates, memory = OPTIMISER.update(
            grads, memory, state.factors, value=theta, grad=grads, value_fn=value
        )
        factors = Factors(*optax.apply_updates(state.factors, updates))  # type: ignore[misc]
        better = theta <= best  # of the point we leave: a failed search does not spoil the answer
        keep = jax.tree.map(lambda a, b: jnp.where(better, a, b), state.factors, state.average)
        last = optax.tree_utils.tree_get(memory, "value", default=theta)
        keep = jax.tree.map(lambda a, b: jnp.where(last <= theta, a, b), factors, keep)
        after = base.State(factors, keep, state.iteration + 1, (memory, jnp.minimum(best, theta)))
        return after, base.change(state.factors, factors)
