"""Features on the device, and the steps on A and B that a sweep takes (docs/derivations.md#features)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax._core import host
from mfauc_jax.objective.sides import Side, Sides
from mfauc_jax.solvers.sweeps import conjugate_gradients

REGRESSION = 8  # conjugate-gradient steps on B per sweep, from the present B


class Placed(NamedTuple):
    """The features of one side: the entries of a sparse matrix, by rows, and λ_c."""

    row: Int[Array, "entries"]
    feature: Int[Array, "entries"]
    value: Float[Array, "entries"]
    reg: Float[Array, "p"]

    @classmethod
    def of(cls, side: Side) -> "Placed":
        """The features of a problem on the device."""
        entries = side.matrix.tocoo()
        numbers = host.floats(entries.data), host.floats(side.reg)
        return cls(host.ints(entries.row), host.ints(entries.col), *numbers)

    def times(self, A: Float[Array, "p k"], rows: int) -> Float[Array, "rows k"]:
        """F A."""
        summands = self.value[:, None] * A[self.feature]
        return jax.ops.segment_sum(summands, self.row, rows, indices_are_sorted=True)

    def transposed(self, G: Float[Array, "rows k"], power: int = 1) -> Float[Array, "p k"]:
        """Fᵀ G, with the entries of F to the given power."""
        summands = (self.value**power)[:, None] * G[self.row]
        return jax.ops.segment_sum(summands, self.feature, self.reg.shape[0])

    def split(self, V: Float[Array, "N k"], A: Float[Array, "p k"]) -> Float[Array, "N_plus_p k"]:
        """The rows of d = V − F A, and below them A."""
        return jnp.concatenate([V - self.times(A, V.shape[0]), A])

    def rows_of(self, x: Float[Array, "N_plus_p k"], rows: int) -> Float[Array, "rows k"]:
        """V = d + F A of `split`."""
        return x[:rows] + self.times(x[rows:], rows)

    def gradient(self, image, x, by_row, per_row) -> Float[Array, "N_plus_p k"]:
        """The gradient in (d, A), from that of the data term in V; λ is `by_row` and `per_row` λ_c."""
        reg = jnp.concatenate([by_row, self.reg * per_row])
        return jnp.concatenate([image, self.transposed(image)]) + reg[:, None] * x

    def curvature(self, bends, by_row, per_row) -> Float[Array, "N_plus_p k"]:
        """About the diagonal of the Hessian in (d, A), from that of the data term in V."""
        reg = jnp.concatenate([by_row, self.reg * per_row])
        both = jnp.concatenate([bends, self.transposed(bends, 2)])
        return jnp.maximum(both + reg[:, None], 1e-12)

    def regression(
        self, U: Float[Array, "M k"], B: Float[Array, "p k"], row_reg: Float[Array, "M"]
    ) -> Float[Array, "p k"]:
        """Steps from B towards the minimum of Σ λ_i |u_i − B g_i|² + Σ λ_c |b_c|²."""

        def gradient(B, target, _):
            away = self.times(B, U.shape[0]) - target * U
            return self.transposed(row_reg[:, None] * away) + self.reg[:, None] * B, ()

        bends = self.transposed(row_reg[:, None], 2) + self.reg[:, None]
        safe = jnp.maximum(bends, 1e-12)
        return conjugate_gradients(gradient, B, (), lambda _: safe, REGRESSION, axis=0)[0]


class OnDevice(NamedTuple):
    """The features of both sides; None where there are none."""

    items: Placed | None
    users: Placed | None


def placed(sides: Sides) -> OnDevice:
    """The features of a problem on the device."""
    return OnDevice(*(None if side is None else Placed.of(side) for side in sides))


def start(sides: Sides, factors: Any) -> tuple[Any, Any]:
    """A and B of the factors before the first iteration; () where there are no features."""
    items, users = [
        () if side is None else host.floats(side.coefficients(np.asarray(F)))
        for side, F in zip(sides, reversed(factors), strict=True)
    ]
    return items, users
