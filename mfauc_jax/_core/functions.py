"""Members of a family made at run time: from a user's function, or as a placeholder for a missing one."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax

from mfauc_jax._core.fields import number
from mfauc_jax._core.settings import Settings


def from_function(
    base: type[Settings], function: Callable, probe: Callable[[Callable], None]
) -> Settings:
    """A member of the family `base` that calls `function`; the arguments that have defaults become its fields.

    `def soft(x, beta=1.0)` becomes a loss with the number `beta`; a `functools.partial` changes a default.
    """
    inner = function.func if isinstance(function, functools.partial) else function
    given = function.keywords if isinstance(function, functools.partial) else {}
    member_class = _class_of(base, inner, probe)
    return member_class(**given)


@functools.lru_cache(maxsize=256)
def _class_of(
    base: type[Settings], function: Callable, probe: Callable[[Callable], None]
) -> type[Settings]:
    probe(function)
    numbers = {
        name: p.default
        for name, p in list(inspect.signature(function).parameters.items())[1:]
        if isinstance(p.default, int | float) and not isinstance(p.default, bool)
    }

    def call(self, x):
        return function(x, **{name: getattr(self, name) for name in numbers})

    def shown(self) -> str:  # valid Python where the function's name is in scope
        given = "".join(f", {n}={value!r}" for n, value in self.changed().items())
        return f"partial({name}{given})" if given else name

    name = getattr(function, "__name__", type(function).__name__)
    body: dict[str, Any] = {n: number(float(v), help=f"{n} of {name}") for n, v in numbers.items()}
    body |= {
        "__annotations__": dict.fromkeys(numbers, float),
        "__call__": call,
        "__repr__": shown,
        "__module__": function.__module__,
        "__doc__": function.__doc__,
        "function": staticmethod(function),
    }
    made: Any = type(base)(name, (base,), body, listed=False)  # pyright: ignore
    made.name = name
    return made


def check_scalar(function: Callable) -> None:
    """Raise TypeError unless `function` maps one real number to one real number."""
    named = getattr(function, "__name__", repr(function))
    try:
        # inside a lambda: jax 0.10 crashes on callables without weak references, such as str.upper
        answer = jax.eval_shape(lambda x: function(x), 0.0)  # noqa: PLW0108
    except Exception as error:
        raise TypeError(f"{named} cannot be evaluated on a number: {error}") from error
    if getattr(answer, "shape", None) != () or answer.dtype.kind != "f":
        raise TypeError(f"{named}(0.0) is {answer!r}: it must be one real number")


def absent(base: type[Settings], name: str, remedy: str) -> Settings:
    """A placeholder for a part of which only the name is known: every method raises ValueError(remedy)."""

    def refuse(self, *args: Any, **rest: Any) -> Any:
        raise ValueError(remedy)

    methods = [n for n, v in vars(base).items() if inspect.isfunction(v) and not n.startswith("__")]
    refusing = dict.fromkeys([*methods, "__call__"], refuse)
    made: Any = type(base)(name, (base,), refusing, listed=False)  # pyright: ignore
    made.name, made.is_absent = name, True
    return made()
