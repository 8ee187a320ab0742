"""φ(C): the weighting of one positive's rank loss, C_ip = Σ_q g′_q L(γ_ipq) ≥ 0."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from mfauc_jax._core import functions
from mfauc_jax._core.fields import number
from mfauc_jax._core.settings import Settings

WEIGHTINGS: dict[str, Any] = {}


class Weighting(Settings, registry=WEIGHTINGS):
    """The family of weightings: a scalar function of the rank loss C, with its own numbers."""

    def __call__(self, x: Any) -> Any:
        """φ(x)."""
        raise TypeError(f"{type(self).__name__} has no formula: write __call__(self, x)")

    @classmethod
    def from_function(cls, function: Callable) -> "Weighting":
        """The weighting that is this function of C."""
        weighting = functions.from_function(cls, function, functions.check_scalar)
        assert isinstance(weighting, Weighting)
        return weighting


class Identity(Weighting):
    """φ(x) = x: the plain AUC surrogate."""

    def __call__(self, x):
        """The rank loss itself."""
        return x


class Tanh(Weighting):
    """φ(x) = tanh(ρx), x ≥ 0: positives already near the top have the larger slope.

    φ is applied to an expectation, so a sampled inner sum biases it downwards (docs/derivations.md#tanh-bias);
    the exact evaluation of `exact` has no such bias. Not consistent with AUC in general (theory/README.md, E31).
    """

    rho: float = number(1.0, above=0, help="ρ, the steepness")

    def __call__(self, x):
        """tanh(ρx)."""
        return jnp.tanh(self.rho * x)


identity, tanh = Identity(), Tanh()
