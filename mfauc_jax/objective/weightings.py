"""φ(C): the weighting of one positive's rank loss, C_ip = Σ_q g′_q L(γ_ipq) ≥ 0."""

from collections.abc import Callable
from typing import Any

import jax
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


class Log(Weighting):
    """φ(x) = log(1 + cx), or the pure log x without c: positives near the top have much the larger slope.

    As c → 0, φ(x)/c becomes the identity; as c → ∞, φ(x) − log c becomes log x.
    With the loss `exponential` the pure log is the softmax loss, Σ_p g (log Σ_q g′ exp(βs_q) − βs_p)
    (docs/derivations.md#softmax). The pure log needs a loss that is never 0, and is not bounded below.
    """

    c: float | None = number(None, above=0, optional=True, help="c of log(1 + cx); None: log x")

    def __call__(self, x):
        """log(1 + cx), or log x."""
        return jnp.log(x) if self.c is None else jnp.log1p(self.c * x)

    def of_log(self, z):
        """φ(eᶻ), which does not overflow: z, or softplus(z + log c)."""
        return z if self.c is None else jax.nn.softplus(z + jnp.log(self.c))


identity, tanh = Identity(), Tanh()
