"""Matrix factorisation that maximises the AUC, from positive-only feedback."""

from mfauc_jax import data, plots
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation.metrics import evaluate
from mfauc_jax.model import MFAUC
from mfauc_jax.serving import export
from mfauc_jax.serving.model_file import ModelFileError
from mfauc_jax.training import selection

__version__ = "0.1.0"
__all__ = [
    "MFAUC",
    "Factors",
    "Interactions",
    "ModelFileError",
    "data",
    "evaluate",
    "export",
    "plots",
    "selection",
]
