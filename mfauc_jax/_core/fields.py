"""Declarations of fields: each gives a default, bounds, a help text and a kind.

    class Minibatch(Solver):
        learning_rate: float = number(0.3, above=0, help="α")
        num_neg: int = size(20, least=1, help="negatives drawn per user")

Validation at construction, nested parameter names, command-line flags, the tables of the documentation and
"may this be swept?" all follow from the declaration; see `settings`.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from mfauc_jax._core import registry

LARGEST = 2**31 - 1  # the largest whole number that a field accepts
DECLARED = "declared"  # the key of the Spec in a dataclass field's metadata


@dataclasses.dataclass(frozen=True)
class Spec:
    """The declaration of one field."""

    kind: str  # number, count, size, flag, text, choice, series or part
    help: str
    least: float | None = None
    above: float | None = None
    most: float | None = None
    optional: bool = False  # None is allowed
    swept: bool = False  # values that differ only here can run as one program
    identity: bool = True  # checkpoints of a fit with another value are refused
    choices: Mapping[str, Any] | None = None  # what a choice may be, by name
    base: Any = None  # the family of a part, a subclass of `settings.Settings`
    others: tuple[str, ...] = ()  # names that a part accepts besides those of its registry
    probe: Callable[[Any], str | None] | None = None  # what is wrong with a given function, or None

    @property
    def leaf(self) -> bool:
        """Whether JAX traces the value."""
        return self.kind in ("number", "count", "series", "part")

    @property
    def bounds(self) -> str:
        """What a value must be, in words."""
        if self.kind == "flag":
            return "True or False" + (" or None" if self.optional else "")
        if self.kind == "text":
            return "a path"
        if self.kind in ("choice", "part"):
            names = ", ".join(self.names())
            return f"one of {names}" if names else f"an object of the class {self.base.__name__}"
        kind = "a whole number" if self.kind in ("count", "size") else "a finite number"
        limits = [
            f"{sign} {limit:g}"
            for sign, limit in (("≥", self.least), (">", self.above), ("≤", self.most))
            if limit is not None and abs(limit) < LARGEST
        ]
        text = " and ".join([f"{kind} {limits[0]}" if limits else kind, *limits[1:]])
        if self.kind == "series":
            return f"a rising tuple, each {text}"
        return text + (" or None" if self.optional else "")

    def names(self) -> tuple[str, ...]:
        """The names that may be given in place of an object."""
        known = self.choices if self.base is None else self.base.registry
        return (*self.others, *(known or ()))

    def check(self, owner: str, name: str, value: Any) -> Any:
        """The value as the owner keeps it, or an error that names the field, the value and the bound."""
        if value is None and self.optional:
            return None
        if isinstance(value, Tracer):
            return value
        try:
            return getattr(self, f"_{self.kind}")(value)
        except _Refused as error:
            why = f" ({error})" if str(error) else ""
            raise error.kind(f"{owner}: {name} = {value!r} must be {self.bounds}{why}") from None

    def _number(self, value: Any) -> float:
        wanted = int if self.kind in ("count", "size") else float
        plain = value if type(value) in (int, float) else _scalar(value)
        if wanted is int and not isinstance(plain, int):
            raise _Refused(TypeError)
        if not (-math.inf < plain < math.inf and self._inside(plain)):
            beyond = (
                self.most is not None and plain > self.most >= LARGEST
            )  # `bounds` leaves it out
            raise _Refused(ValueError, f"and ≤ {self.most}" if beyond else "")
        return plain if type(plain) is wanted else wanted(plain)

    _count = _size = _number

    def _inside(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
        )

    def _flag(self, value: Any) -> bool:
        if not isinstance(value, bool | np.bool_):
            raise _Refused(TypeError)
        return bool(value)

    def _text(self, value: Any) -> str:
        if not isinstance(value, str | os.PathLike) or not os.fspath(value):
            raise _Refused(TypeError)
        return str(os.fspath(value))

    def _choice(self, value: Any) -> Any:
        choices = self.choices or {}
        if isinstance(value, str):
            if value not in choices:
                raise _Refused(ValueError, self._suggestion(value))
            return value
        for name in choices:
            if (
                name in choices and choices[name] is value
            ):  # `name in`: "metric@ℓ" is listed but cannot be looked up
                return name
        if self.probe is None or not callable(value):
            raise _Refused(TypeError)
        complaint = self.probe(value)
        if complaint:
            raise _Refused(TypeError, complaint)
        return value

    def _suggestion(self, value: str) -> str:
        nearest = registry.nearest(self.names(), value)
        return f"did you mean {nearest!r}?" if nearest else ""

    def _series(self, value: Any) -> tuple[float, ...]:
        if not isinstance(value, tuple | list) or not value:
            raise _Refused(TypeError)
        numbers = tuple(self._number(one) for one in value)
        if any(a >= b for a, b in itertools.pairwise(numbers)):
            raise _Refused(ValueError)
        if type(value) is tuple and all(a is b for a, b in zip(numbers, value, strict=True)):
            return value  # scikit-learn's `clone` wants the same object back
        return numbers

    def _part(self, value: Any) -> Any:
        assert self.base is not None
        if isinstance(value, str) and value in self.others:
            return value
        if isinstance(value, str) and value not in self.base.registry:
            raise _Refused(ValueError, self._suggestion(value))
        try:
            member = self.base.coerce(value)
        except TypeError as error:
            raise _Refused(TypeError, str(error)) from None
        if member is None:
            also = f"or an object of the family {self.base.__name__}" if self.names() else ""
            raise _Refused(TypeError, also)
        return member


def _scalar(value: Any) -> Any:
    """A NumPy or JAX number as a Python number."""
    arrays = np.generic | np.ndarray | jax.Array
    if not isinstance(value, arrays) or value.ndim:
        raise _Refused(TypeError)
    if getattr(value.dtype, "kind", "key") not in ("i", "u", "f"):  # a random key has no kind
        raise _Refused(TypeError)
    return np.asarray(value).item()


class _Refused(Exception):  # noqa: N818  # becomes a TypeError or a ValueError
    """A refused value: the kind of error to raise, and the reason where the bounds do not give it."""

    def __init__(self, kind: type[Exception], why: str = ""):
        super().__init__(why)
        self.kind = kind


def _field(default: Any, **spec: Any) -> Any:
    return dataclasses.field(default=default, metadata={DECLARED: Spec(**spec)})


def number(
    default: float | None,
    *,
    help: str,
    least: float | None = None,
    above: float | None = None,
    most: float | None = 1e6,
    optional: bool = False,
    swept: bool = True,
) -> Any:
    """A real number. It is a pytree leaf: a new value does not compile again."""
    spec = {"least": least, "above": above, "most": most, "optional": optional, "swept": swept}
    return _field(default, kind="number", help=help, **spec)


def count(
    default: int | None,
    *,
    help: str,
    least: int = 0,
    most: int = LARGEST,
    optional: bool = False,
    swept: bool = False,
    identity: bool = True,
) -> Any:
    """A whole number that only loops and comparisons read. It is a pytree leaf: a new value does not compile again."""
    spec = {
        "least": least,
        "most": most,
        "optional": optional,
        "swept": swept,
        "identity": identity,
    }
    return _field(default, kind="count", help=help, **spec)


def size(
    default: int | None,
    *,
    help: str,
    least: int = 1,
    most: int = LARGEST,
    optional: bool = False,
    identity: bool = True,
) -> Any:
    """A whole number that decides shapes. It is static: a new value compiles again."""
    spec = {"least": least, "most": most, "optional": optional, "identity": identity}
    return _field(default, kind="size", help=help, **spec)


def text(default: str | None, *, help: str) -> Any:
    """A path."""
    return _field(default, kind="text", help=help)


def flag(default: bool | None, *, help: str, optional: bool = False, identity: bool = True) -> Any:
    """True or False. It is static: the other value compiles again."""
    return _field(default, kind="flag", help=help, optional=optional, identity=identity)


def choice(
    default: str,
    choices: Mapping[str, Any],
    *,
    help: str,
    probe: Callable[[Any], str | None] | None = None,
) -> Any:
    """One of several functions, given by name; with `probe`, a user's own function too.

    `probe(function)` returns what is wrong with the function, or None. A function that is among the choices is
    stored as its name.
    """
    return _field(default, kind="choice", help=help, choices=choices, probe=probe)


def series(default: tuple[float, ...], *, help: str, above: float | None = None) -> Any:
    """A rising tuple of numbers."""
    return _field(default, kind="series", help=help, above=above, most=1e6)


def part(default: Any, base: Any, *, help: str, others: tuple[str, ...] = ()) -> Any:
    """An object of the family `base`, or the name of a member, which stands for it with its defaults."""
    return _field(default, kind="part", help=help, base=base, others=others)
