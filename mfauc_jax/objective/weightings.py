"""φ: what one positive's rank loss, C_ip = Σ_q g′_q L(γ_ipq) ≥ 0, counts for."""

from collections.abc import Callable

import jax.numpy as jnp
from jax.tree_util import Partial

from mfauc_jax._core import registry


def identity(x):
    """φ(x) = x: the plain AUC surrogate."""
    return x


def tanh(x, rho=1.0):
    """φ(x) = tanh(ρx), x ≥ 0: positives already near the top have the larger slope.

    Outside an expectation, so a sampled inner sum biases it downwards (SPEC 3.4); the
    `exact` routes have no such bias. Not consistent with AUC in general (E31).
    """
    return jnp.tanh(rho * x)


WEIGHTINGS: dict[str, Callable] = {"identity": identity, "tanh": tanh}


def get(weighting: str | Callable, rho: float = 1.0) -> Partial:
    """The weighting by name (or a function of C_ip), with steepness ρ > 0 if it takes one."""
    return registry.bind("weighting", WEIGHTINGS, weighting, rho=rho)
