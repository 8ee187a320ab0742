"""Solvers, which minimise an objective behind one interface (`base.Solver`), and their starts."""

from mfauc_jax.solvers.alternating import Alternating
from mfauc_jax.solvers.averaging import Averaging
from mfauc_jax.solvers.base import SOLVERS, STARTS, Gaussian, Solver, Start, Svd
from mfauc_jax.solvers.blockwise.solver import Blockwise
from mfauc_jax.solvers.continuation import Continuation
from mfauc_jax.solvers.dense import Dense
from mfauc_jax.solvers.full_batch import FullBatch
from mfauc_jax.solvers.least_squares import LeastSquares
from mfauc_jax.solvers.minibatch import Minibatch
from mfauc_jax.solvers.sequential import Sequential

__all__ = [
    "SOLVERS",
    "STARTS",
    "Alternating",
    "Averaging",
    "Blockwise",
    "Continuation",
    "Dense",
    "FullBatch",
    "Gaussian",
    "LeastSquares",
    "Minibatch",
    "Sequential",
    "Solver",
    "Start",
    "Svd",
]
