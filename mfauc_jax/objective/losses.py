"""L(γ): the surrogates for "the positive is not ranked above the negative"; γ = s_p − s_q.

Each is one scalar function that JAX differentiates and vectorises. To add one, write it
and give it a line in `LOSSES`, or pass the function itself where a name is accepted.
All are ≥ 0, which the tanh weighting and the theory need.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from mfauc_jax._core import registry


def square_hinge(x):
    """½ max(0, 1 − x)². Consistent with AUC (Thm 3.1)."""
    return 0.5 * jnp.maximum(0.0, 1.0 - x) ** 2


def square(x):
    """½ (1 − x)². Not non-increasing, yet consistent (theory/README.md, E28)."""
    return 0.5 * (1.0 - x) ** 2


def sigmoid(x, beta=1.0):
    """σ(−βx), the smooth 0/1 loss.

    Paper: −σ(βx); here: plus one, the same gradient, so that tanh and the theory, which need a
    loss in [0, 1], apply to it (theory/README.md, E4 and E44).
    """
    return jax.nn.sigmoid(-beta * x)


def logistic(x, beta=1.0):
    """−ln σ(βx), the BPR surrogate. Consistent with AUC (Thm 3.2)."""
    return jax.nn.softplus(-beta * x)  # stable for large |βx|; log(sigmoid) is not


LOSSES: dict[str, Callable] = {
    "square_hinge": square_hinge,
    "square": square,
    "sigmoid": sigmoid,
    "logistic": logistic,
}


def get(loss: str | Callable, beta: float = 1.0) -> Partial:
    """The loss by name (or a function of γ), with slope β > 0 if it takes one."""
    return registry.bind("loss", LOSSES, loss, beta=beta)
