"""Finding a function by its name, kindly, and binding its hyper-parameter."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

from jax.core import Tracer
from jax.tree_util import Partial

T = TypeVar("T")


def lookup(kind: str, registry: Mapping[str, T], name: str) -> T:
    """`registry[name]`, or a ValueError that names the nearest entry and lists them all."""
    if name in registry:
        return registry[name]
    near = difflib.get_close_matches(str(name), registry, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown {kind} {name!r}: {hint}choose from {', '.join(registry)}")


def bind(kind: str, registry: Mapping[str, Callable], choice: str | Callable, **hyper) -> Partial:
    """`choice` (a name or a function) as a Partial with those of `hyper` that it takes.

    The function stays static and the hyper-parameters become traced leaves, so that a sweep
    over them compiles once. Each must be > 0.
    """
    function = lookup(kind, registry, choice) if isinstance(choice, str) else choice
    if isinstance(function, Partial):
        return function
    if not callable(function):
        raise TypeError(f"{kind} {choice!r} is neither a name nor a function")
    taken = {k: v for k, v in hyper.items() if k in inspect.signature(function).parameters}
    for name, value in taken.items():
        if not (isinstance(value, Tracer) or value > 0):
            raise ValueError(f"{name} = {value} of {kind} {choice!r} must be > 0")
    return Partial(function, **taken)
