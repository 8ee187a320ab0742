"""Features in the routes that descend on batches: steps on (d, A) and (e, B) (docs/derivations.md#features).

A batch scores some rows of V = F A + D and of U = G B + E. The route finds the slopes ∂V and ∂U of its data term for
these rows, as without features, and the chain rule gives those of what the optimiser moves:

    ∂D = ∂V + λ_j d_j,     ∂A = Fᵀ ∂V + λ_c a_c,     ∂E = ∂U + λ_i e_i,     ∂B = Gᵀ ∂U + λ_c b_c.

Fᵀ ∂V is `jax.vjp` of A ↦ F A over the rows of the batch, so only their features are read.

A coefficient has the units of its feature, and counts in every row that has it. So A is stored in units in which
a step on A moves a row about as far as a step on d does (`Side.in_own_units`), and its gradient is divided by the
number of rows that have the feature. Neither changes the objective or its minimum.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective.sides import Side, Sides
from mfauc_jax.solvers import features
from mfauc_jax.solvers.features import Placed


class Rows(NamedTuple):
    """The features of one side on the device, row by row."""

    placed: Placed  # F and λ_c, in the units of the optimiser
    bounds: Int[Array, "n_plus_1"]  # where the entries of each row begin, and end
    slots: Int[Array, "w"]  # 0, 1, … up to the largest number of features of a row
    inverse: Float[Array, "p"]  # 1 over the number of rows that have the feature

    @classmethod
    def of(cls, side: Side) -> "Rows":
        """The rows of a side in the units of the optimiser."""
        matrix = side.matrix
        slots = np.arange(max(1, np.diff(matrix.indptr).max(initial=0)))
        numbers = np.bincount(matrix.indices, minlength=matrix.shape[1])
        inverse = host.floats(1 / np.maximum(numbers, 1))
        return cls(Placed.of(side), host.ints(matrix.indptr), host.ints(slots), inverse)

    def parts(
        self, A: Float[Array, "p k"], index: Int[Array, "..."] | None = None
    ) -> Float[Array, "... k"]:
        """The rows A f_j of F A for the items j of `index`; None: all rows.

        Row by row, one feature of every row at a time; or of the whole table, where that has fewer entries to read.
        """
        n, (entries,) = self.bounds.shape[0] - 1, self.placed.value.shape
        if index is None or index.size * self.slots.shape[0] >= entries:
            whole = self.placed.times(A, n)
            return whole if index is None else whole[index]
        start, end = self.bounds[index], self.bounds[index + 1]

        def add(sums, slot):
            place = jnp.minimum(start + slot, entries - 1)
            value = jnp.where(start + slot < end, self.placed.value[place], 0.0)
            return sums + value[..., None] * A[self.placed.feature[place]], None

        zeros = jnp.zeros((*index.shape, A.shape[1]), A.dtype)
        return jax.lax.scan(add, zeros, self.slots)[0]

    def gradient(self, A, index, slope, reg) -> Float[Array, "p k"]:
        """Fᵀ ∂V + reg λ_c a_c over the number of rows that have the feature, from ∂V of the rows of `index`."""
        (own,) = jax.vjp(lambda A: self.parts(A, index), A)[1](slope)
        return self.inverse[:, None] * (own + reg * self.placed.reg[:, None] * A)


class Learning(NamedTuple):
    """A and B in the units of the optimiser, and its states for them; () for a side without features."""

    items: Any
    users: Any
    memory: tuple[Any, Any]  # of items, of users


class Slopes(NamedTuple):
    """What a step knows about one side: which rows it scored, ∂ of the data term for them, and the factor of λ_c."""

    index: Any  # None: all rows
    slope: Any
    reg: Any


class OnRows(NamedTuple):
    """The features of both sides; None where there are none."""

    items: Rows | None
    users: Rows | None

    def own(self, factors: Factors, learning: Learning) -> Factors:
        """E = U − G B and D = V − F A."""
        return self._shifted(factors, learning, -1)

    def whole(self, own: Factors, learning: Learning) -> Factors:
        """U = E + G B and V = D + F A."""
        return self._shifted(own, learning, 1)

    def _shifted(self, factors: Factors, learning: Learning, sign: int) -> Factors:
        U, V = factors
        U = U if self.users is None else U + sign * self.users.parts(learning.users)
        V = V if self.items is None else V + sign * self.items.parts(learning.items)
        return Factors(U, V)

    def scored(self, u, v, learning: Learning, users, items) -> tuple[Any, Any]:
        """The rows of U and V that a batch scores, from rows `u` of E and `v` of D; `users` and `items` say which."""
        u = u if self.users is None else u + self.users.parts(learning.users, users)
        v = v if self.items is None else v + self.items.parts(learning.items, items)
        return u, v

    def moved(self, optimiser: Any, learning: Learning, items: Slopes, users: Slopes) -> Learning:
        """A and B after one step of the optimiser, and its states."""
        found = []
        for rows, A, memory, at in zip(
            self, learning[:2], learning.memory, (items, users), strict=True
        ):
            if rows is None:
                found.append(((), ()))
                continue
            updates, after = optimiser.update(rows.gradient(A, *at), memory, A)
            found.append((A + updates, after))
        (A, first), (B, second) = found
        return Learning(A, B, (first, second))


def placed(sides: Sides | None) -> OnRows | None:
    """The features of a problem on the device; None if it has none."""
    if sides is None:
        return None
    return OnRows(*(None if side is None else Rows.of(side.in_own_units()) for side in sides))


def begun(sides: Sides | None, factors: Factors, optimiser: Any, memory: tuple) -> tuple:
    """`extra` of the state before the first step: the optimiser's states for U and V and, with features, `Learning`."""
    if sides is None:
        return memory
    scaled = Sides(*(None if side is None else side.in_own_units() for side in sides))
    A, B = features.start(scaled, factors)
    states = [() if isinstance(C, tuple) else optimiser.init(C) for C in (A, B)]
    return (*memory, Learning(A, B, (states[0], states[1])))


def opened(sides: OnRows | None, factors: Factors, extra: tuple) -> tuple[Factors, tuple, Any]:
    """What the optimiser moves, its states, and A and B: from the factors and the `extra` of a state."""
    if sides is None:
        return factors, extra, ()
    *memory, learning = extra
    return sides.own(factors, learning), tuple(memory), learning


def closed(sides: OnRows | None, own: Factors, memory: tuple, learning: Any) -> tuple:
    """The inverse of `opened`: the factors and `extra`."""
    if sides is None:
        return own, memory
    return sides.whole(own, learning), (*memory, learning)
