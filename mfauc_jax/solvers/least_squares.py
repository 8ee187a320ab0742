"""A start for other losses: the minimum of the square loss over all pairs, which costs a few sweeps."""

import jax
import numpy as np

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import base
from mfauc_jax.solvers.alternating import Alternating


class LeastSquares(base.Start):
    """U and V of `MFAUC()`, plus one per cent of noise, so that no row and no direction is exactly zero.

    Softmax is the square loss to second order (docs/derivations.md#softmax), so a fit of softmax that begins here needs
    fewer iterations (docs/choosing.md#start).
    """

    def draw(self, key, X, rank) -> Factors:
        """The factors after the sweeps of the default model, whatever the model's own weights and penalty."""
        solver, problem = Alternating(), Problem.of(X)
        key_start, key_noise = jax.random.split(key)
        like = solver.start(base.Gaussian(), key_start, X, rank)
        state, data = solver.init(problem, like), solver.prepare(problem)
        objective = solver.seen_by_step(problem)
        for _ in range(solver.iterations):
            state, _ = base.run(solver, objective, key, state, data)
        noise = base.Gaussian(1.0).draw(key_noise, X, rank)
        return Factors(*map(_perturbed, solver.read(state, like), noise))


def _perturbed(rows: jax.Array, noise: jax.Array) -> jax.Array:
    """The rows and noise of a hundredth of their root mean square."""
    squares, entries = float((rows**2).sum()), np.prod(rows.shape)
    size = float(host.total(squares) / host.total(entries)) ** 0.5
    return rows + 0.01 * size * noise
