"""Matrix factorisation that maximises the AUC, from positive-only feedback."""

from mfauc_jax import data, export, plots, selection
from mfauc_jax.factors import Factors
from mfauc_jax.interactions import Interactions
from mfauc_jax.metrics import evaluate
from mfauc_jax.model import MFAUC
from mfauc_jax.model_file import ModelFileError

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
