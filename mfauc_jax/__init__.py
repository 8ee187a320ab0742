"""Matrix factorisation that maximises the AUC, from positive-only feedback."""

from mfauc_jax import data
from mfauc_jax.factors import Factors
from mfauc_jax.interactions import Interactions
from mfauc_jax.metrics import evaluate
from mfauc_jax.model import MFAUC

__version__ = "0.1.0"
__all__ = ["MFAUC", "Factors", "Interactions", "data", "evaluate"]
