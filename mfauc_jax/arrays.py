"""Arrays from the host to the device, cast on the host.

`jnp.asarray` compiles a program for every shape it meets (jax 0.10.2), at 15 ms each: a fit of small data
would spend more time there than on learning. `device_put` compiles nothing.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int


def floats(values: Any) -> Float[Array, "..."]:
    """`values` in JAX's float type."""
    return jax.device_put(np.asarray(values, jax.dtypes.canonicalize_dtype(float)))


def ints(values: Any) -> Int[Array, "..."]:
    """`values` as int32."""
    return jax.device_put(np.asarray(values, np.int32))
