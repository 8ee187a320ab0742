"""A fitted model as one HTML page that a person can look at, without a network or a server."""

from mfauc_jax.explorer.page import explore

__all__ = ["explore"]
