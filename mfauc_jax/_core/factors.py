"""U and V: the parameters."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Factors(NamedTuple):
    """Scores are U Vᵀ. optax, grad and tree.map work on it as it is."""

    U: Float[Array, "m k"]
    V: Float[Array, "n k"]
