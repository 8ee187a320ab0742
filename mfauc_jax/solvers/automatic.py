"""The choice of solver="auto", which follows from the types of the objective's parts."""

from mfauc_jax.objective import equation
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.losses import Loss, Square
from mfauc_jax.objective.penalties import Penalty
from mfauc_jax.objective.weightings import Weighting
from mfauc_jax.solvers.alternating import Alternating
from mfauc_jax.solvers.base import Solver
from mfauc_jax.solvers.dense import Dense
from mfauc_jax.solvers.minibatch import Minibatch

DECIDES = ("loss", "weighting", "penalty")  # the fields of a model that the choice follows from
EXACT, DENSE, SAMPLED = Alternating(), Dense(), Minibatch()


def default_solver(loss: Loss, weighting: Weighting, penalty: Penalty) -> Solver:
    """Alternation for the square loss, dense for the softmax loss and for unit rows, else minibatches."""
    if penalty.sphere or equation.is_softmax(Objective(loss, weighting)):
        return DENSE
    return EXACT if isinstance(loss, Square) else SAMPLED
