"""L(γ): the surrogates for "the positive is not ranked above the negative"; γ = s_p − s_q.

Each loss is one scalar formula that JAX differentiates and vectorises, and holds its own numbers. To add one, write a
subclass of `Loss`, or put a function of γ into `LOSSES`, or pass the function itself where a name is accepted: its
arguments with a default become numbers that can be set and swept. All losses here are ≥ 0, which the tanh weighting
and the theory need.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from mfauc_jax._core import functions
from mfauc_jax._core.fields import number
from mfauc_jax._core.settings import Settings

LOSSES: dict[str, Any] = {}


class Loss(Settings, registry=LOSSES):
    """The family of losses: a scalar function of the margin γ, with its own numbers."""

    def __call__(self, x: Any) -> Any:
        """L(x)."""
        raise TypeError(f"{type(self).__name__} has no formula: write __call__(self, x)")

    @classmethod
    def from_function(cls, function: Callable) -> "Loss":
        """The loss that is this function of γ."""
        loss = functions.from_function(cls, function, functions.check_scalar)
        assert isinstance(loss, Loss)
        return loss


class SquareHinge(Loss):
    """½ max(0, 1 − x)². Consistent with AUC (Thm 3.1)."""

    def __call__(self, x):
        """½ max(0, 1 − x)²."""
        return 0.5 * jnp.maximum(0.0, 1.0 - x) ** 2


class Square(Loss):
    """½ (1 − x)². It increases for x > 1 and is consistent with AUC all the same (theory/README.md, E28)."""

    def __call__(self, x):
        """½ (1 − x)²."""
        return 0.5 * (1.0 - x) ** 2


class Sigmoid(Loss):
    """σ(−βx), the smooth 0/1 loss.

    Paper: −σ(βx); here: one is added, which keeps the gradient, because tanh and the theory need a loss in
    [0, 1] (theory/README.md, E4 and E44).
    """

    beta: float = number(1.0, above=0, help="β, the slope at 0")

    def __call__(self, x):
        """σ(−βx)."""
        return jax.nn.sigmoid(-self.beta * x)


class Logistic(Loss):
    """−ln σ(βx), the BPR surrogate. Consistent with AUC (Thm 3.2)."""

    beta: float = number(1.0, above=0, help="β, the slope at 0")

    def __call__(self, x):
        """−ln σ(βx)."""
        return jax.nn.softplus(-self.beta * x)  # stable for large |βx|; log(sigmoid) is not


class Exponential(Loss):
    """exp(−βx), β the inverse of softmax's temperature. Consistent with AUC (Thm 3.1).

    Under the weighting `log` it is the softmax loss, which is evaluated through a log-sum-exp
    (docs/derivations.md#softmax). Under any other weighting float32 overflows for βx < −88.
    """

    beta: float = number(1.0, above=0, help="β, the inverse temperature")

    def __call__(self, x):
        """exp(−βx)."""
        return jnp.exp(-self.beta * x)


square_hinge, square, sigmoid, logistic = SquareHinge(), Square(), Sigmoid(), Logistic()
PAPER_LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (SquareHinge, Square, Sigmoid, Logistic)
}  # the losses of the paper's statements; losses that a user adds are not among them
