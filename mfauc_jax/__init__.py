"""Matrix factorisation that maximises the AUC, from positive-only feedback."""

from mfauc_jax import baselines, data, distributed, plots
from mfauc_jax._core.cores import use_cores
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.features import Features
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation.metrics import evaluate
from mfauc_jax.explorer import explore
from mfauc_jax.model import MFAUC
from mfauc_jax.objective import losses, weightings
from mfauc_jax.objective.penalties import Auto, Fixed, UnitRows
from mfauc_jax.objective.weights import Weights
from mfauc_jax.problem import Problem
from mfauc_jax.serving import export
from mfauc_jax.serving.model_file import ModelFileError
from mfauc_jax.serving.rerank import diverse
from mfauc_jax.solvers import (
    Alternating,
    Averaging,
    Blockwise,
    Continuation,
    Dense,
    FullBatch,
    Gaussian,
    LeastSquares,
    Minibatch,
    Sequential,
    Svd,
)
from mfauc_jax.training import selection
from mfauc_jax.training.checkpoints import Checkpoints
from mfauc_jax.training.watch import Watch
from mfauc_jax.tuning import tune

__version__ = "0.1.0"
__all__ = [
    "MFAUC",
    "Alternating",
    "Auto",
    "Averaging",
    "Blockwise",
    "Checkpoints",
    "Continuation",
    "Dense",
    "Factors",
    "Features",
    "Fixed",
    "FullBatch",
    "Gaussian",
    "Interactions",
    "LeastSquares",
    "Minibatch",
    "ModelFileError",
    "Problem",
    "Sequential",
    "Svd",
    "UnitRows",
    "Watch",
    "Weights",
    "baselines",
    "data",
    "distributed",
    "diverse",
    "evaluate",
    "explore",
    "export",
    "losses",
    "plots",
    "selection",
    "tune",
    "use_cores",
    "weightings",
]
