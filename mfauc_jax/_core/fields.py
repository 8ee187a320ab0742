"""One declaration of a field: default, bounds, help and kind.

    class Minibatch(Solver):
        learning_rate: float = number(0.3, above=0, help="α")
        num_neg: int = size(20, least=1, help="negatives drawn per user")

Validation at construction, nested parameter names, command-line flags, the tables of the documentation and
"may this be swept?" all follow from it; see `settings`.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from mfauc_jax._core import registry

LARGEST = 2**31 - 1  # of a whole number
DECLARED = "declared"  # where a dataclass field keeps its Spec


@dataclasses.dataclass(frozen=True)
class Spec:
    """What one declaration says about a field."""

    kind: str  # number, count, size, flag, choice, series or part
    help: str
    least: float | None = None
    above: float | None = None
    most: float | None = None
    optional: bool = False  # None is allowed
    swept: bool = False  # values that differ only here can run as one program
    identity: bool = True  # a fit with another value is another fit, for its checkpoints
    choices: Mapping[str, Any] | None = None  # by name, of a choice
    base: Any = None  # the family of a part, a subclass of `settings.Settings`
    others: tuple[str, ...] = ()  # names a part may have besides those of its registry
    probe: Callable[[Any], str | None] | None = None  # what is wrong with a function, if anything

    @property
    def leaf(self) -> bool:
        """Whether JAX traces the value."""
        return self.kind in ("number", "count", "series", "part")

    @property
    def bounds(self) -> str:
        """What a value must be, in words."""
        if self.kind == "flag":
            return "True or False"
        if self.kind == "text":
            return "a path"
        if self.kind in ("choice", "part"):
            return f"one of {', '.join(self.names())}"
        kind = "a whole number" if self.kind in ("count", "size") else "a finite number"
        limits = [
            f"{sign} {limit:g}"
            for sign, limit in (("≥", self.least), (">", self.above), ("≤", self.most))
            if limit is not None and abs(limit) < LARGEST
        ]
        said = " and ".join([f"{kind} {limits[0]}" if limits else kind, *limits[1:]])
        if self.kind == "series":
            return f"a rising tuple, each {said}"
        return said + (" or None" if self.optional else "")

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
        whole = self.kind in ("count", "size")
        kinds = "iu" if whole else "iuf"
        if not isinstance(value, int | float | np.generic | np.ndarray | jax.Array):
            raise _Refused(TypeError)
        array = np.asarray(value)
        if array.ndim or array.dtype.kind not in kinds:
            raise _Refused(TypeError)
        plain = array.item()
        if not np.isfinite(plain) or not self._inside(plain):
            raise _Refused(ValueError)
        return int(plain) if whole else float(plain)

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
                raise _Refused(ValueError, self._near(value))
            return value
        for name, function in choices.items():
            if function is value:
                return name
        if self.probe is None or not callable(value):
            raise _Refused(TypeError)
        wrong = self.probe(value)
        if wrong:
            raise _Refused(TypeError, wrong)
        return value

    def _near(self, value: str) -> str:
        near = registry.nearest(self.names(), value)
        return f"did you mean {near!r}?" if near else ""

    def _series(self, value: Any) -> tuple[float, ...]:
        if not isinstance(value, tuple | list) or not value:
            raise _Refused(TypeError)
        found = tuple(self._number(one) for one in value)
        if any(a >= b for a, b in zip(found, found[1:], strict=False)):
            raise _Refused(ValueError)
        return found

    def _part(self, value: Any) -> Any:
        assert self.base is not None
        if isinstance(value, str) and value in self.others:
            return value
        if isinstance(value, str) and value not in self.base.registry:
            raise _Refused(ValueError, self._near(value))
        try:
            found = self.base.coerce(value)
        except TypeError as error:
            raise _Refused(TypeError, str(error)) from None
        if found is None:
            raise _Refused(TypeError, f"or an object of the family {self.base.__name__}")
        return found


class _Refused(Exception):  # noqa: N818  # becomes a TypeError or a ValueError
    """A value that does not fit, and why where the bounds do not say it."""

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
    """A real number: a leaf, so that another value does not compile again."""
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
    """A whole number that only loops and comparisons read: a leaf."""
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
    """A whole number that shapes the program."""
    spec = {"least": least, "most": most, "optional": optional, "identity": identity}
    return _field(default, kind="size", help=help, **spec)


def text(default: str | None, *, help: str) -> Any:
    """A path."""
    return _field(default, kind="text", help=help)


def flag(default: bool, *, help: str) -> Any:
    """True or False; shapes the program."""
    return _field(default, kind="flag", help=help)


def choice(
    default: str,
    choices: Mapping[str, Any],
    *,
    help: str,
    probe: Callable[[Any], str | None] | None = None,
) -> Any:
    """One of several functions by its name, or with `probe` a function of one's own.

    `probe` answers what is wrong with a function, or None. A known function is kept by its name.
    """
    return _field(default, kind="choice", help=help, choices=choices, probe=probe)


def series(default: tuple[float, ...], *, help: str, above: float | None = None) -> Any:
    """A rising tuple of numbers."""
    return _field(default, kind="series", help=help, above=above, most=1e6)


def part(default: Any, base: Any, *, help: str, others: tuple[str, ...] = ()) -> Any:
    """An object of the family `base`, or the name of one with its defaults."""
    return _field(default, kind="part", help=help, base=base, others=others)
