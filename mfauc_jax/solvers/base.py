"""What a solver is: three pure functions and what they pass on."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float, Key

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.weights import Weights

OLDER_EMITTERS = {"xla_cpu_use_fusion_emitters": False}
SMALL = 2**20  # numbers in the data


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
    quick: bool = False  # OLDER_EMITTERS suit the step: half the compile time, a tenth slower


def start(factors: Factors, extra: Any = ()) -> State:
    """The state before the first iteration."""
    return State(factors, factors, host.ints(0), extra)


def change(before: Factors, after: Factors) -> Info:
    """How far an iteration went."""
    moved = sum(((a - b) ** 2).sum() for a, b in zip(after, before, strict=True))
    size = sum((a**2).sum() for a in after)
    return Info(jax.numpy.sqrt(moved / (size + 1e-30)))


def _iteration(step, key: Key[Array, ""], state: State, data: Any) -> tuple[State, Info]:
    """One iteration; `key` is the fit's, the iteration's own is folded from it."""
    return step(jax.random.fold_in(key, state.iteration), state, data)


run = jax.jit(_iteration)


def runner(solver: Solver, data: Any) -> Callable[..., tuple[State, Info]]:
    """`run`, or for small data and a solver that asks for it the same, compiled quickly."""
    numbers = sum(jax.numpy.size(leaf) for leaf in jax.tree.leaves(data))
    cpu = jax.default_backend() == "cpu"
    return _quick() if solver.quick and cpu and numbers < SMALL else run


@functools.cache
def _quick() -> Callable[..., tuple[State, Info]]:
    try:
        jax.jit(lambda: 0, compiler_options=OLDER_EMITTERS).lower().compile()
    except jax.errors.JaxRuntimeError:  # a jaxlib without this option
        return run
    return jax.jit(_iteration, compiler_options=OLDER_EMITTERS)
