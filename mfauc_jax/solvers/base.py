"""What a solver is: three pure functions and what they pass on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float, Key

from mfauc_jax.factors import Factors
from mfauc_jax.interactions import Interactions
from mfauc_jax.item_weights import Weights


class Info(NamedTuple):
    """What a person wants to see of one iteration."""

    step_size: Float[Array, ""]  # ‖change of the factors‖ / ‖factors‖


class State(NamedTuple):
    """What the next iteration needs."""

    factors: Factors
    average: Factors  # what the caller keeps
    iteration: jax.Array  # s, completed iterations
    extra: Any = ()  # the solver's own


class Solver(NamedTuple):
    """prepare once, init, then step, step, …

    `step` is a `Partial` over hyper-parameters, all traced leaves: a sweep compiles once.
    """

    prepare: Callable[[Interactions, Weights], Any]  # the data as the step wants it, on the host
    init: Callable[[Factors], State]
    step: Callable[[Key[Array, ""], State, Any], tuple[State, Info]]
    # the averages over this process's users and all items, shaped as the start was
    read: Callable[[State, Factors], Factors] = lambda state, like: state.average


def start(factors: Factors, extra: Any = ()) -> State:
    """The state before the first iteration; the average gets buffers of its own."""
    return State(factors, jax.tree.map(lambda a: a + 0, factors), jax.numpy.zeros((), int), extra)


def change(before: Factors, after: Factors) -> Info:
    """How far an iteration went."""
    moved = sum(((a - b) ** 2).sum() for a, b in zip(after, before, strict=True))
    size = sum((a**2).sum() for a in after)
    return Info(jax.numpy.sqrt(moved / (size + 1e-30)))


@jax.jit
def run(step, key: Key[Array, ""], state: State, data: Any) -> tuple[State, Info]:
    """One iteration, compiled; `key` is the fit's, the iteration's own is folded from it."""
    return step(jax.random.fold_in(key, state.iteration), state, data)
