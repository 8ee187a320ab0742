"""Bounds on the true AUC of a fitted model; a module of certificates is entered by its line here."""

from mfauc_jax.certify import held_out as held_out
from mfauc_jax.certify import rademacher as rademacher
