"""Matrix factorisation that maximises the AUC, from positive-only feedback."""

from mfauc_jax.factors import Factors
from mfauc_jax.interactions import Interactions

__version__ = "0.1.0"
__all__ = ["Factors", "Interactions"]
