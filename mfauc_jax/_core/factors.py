"""Factors: the matrices U and V that a fit learns."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Factors(NamedTuple):
    """The factors U and V; the scores are U Vᵀ. A pytree, so optax, jax.grad and jax.tree.map accept it."""

    U: Float[Array, "m k"]
    V: Float[Array, "n k"]
