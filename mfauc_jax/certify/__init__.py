"""Certificates: bounds on the true AUC of a fitted model. To register a module of certificates, import it here."""

from mfauc_jax.certify import held_out as held_out
from mfauc_jax.certify import rademacher as rademacher
