"""Settings: frozen objects whose fields say default, bounds, help and kind in one declaration.

    class Minibatch(Solver):
        learning_rate: float = number(0.3, above=0, help="α")
        num_neg: int = size(20, least=1, help="negatives drawn per user")

Validation at construction, nested parameter names, command-line flags, the tables of the documentation and
"may this be swept?" all follow from the declaration. A Settings is a pytree: numbers and counts are leaves, so that a
sweep over them compiles once; sizes, flags, names and functions are static and shape the program.
"""

import dataclasses
import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import jax
import numpy as np
from jax.core import Tracer

from mfauc_jax._core import registry

LARGEST = 2**31 - 1  # of a whole number
SPEC = "spec"
GIVE_AGAIN = "give again"  # marks what a file cannot hold: a function of one's own


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
    identity: bool = (
        True  # a fit with another value is another fit, which no checkpoint goes on with
    )
    choices: Mapping[str, Any] | None = None  # by name, of a choice
    base: "type[Settings] | None" = None  # of a part
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
    return dataclasses.field(default=default, metadata={SPEC: Spec(**spec)})


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


def part(default: Any, base: "type[Settings]", *, help: str, others: tuple[str, ...] = ()) -> Any:
    """An object of the family `base`, or the name of one with its defaults."""
    return _field(default, kind="part", help=help, base=base, others=others)


class Declared:
    """A dataclass whose fields were made by the functions above."""

    @classmethod
    def specs(cls) -> dict[str, Spec]:
        """What was declared of each field."""
        return {f.name: f.metadata[SPEC] for f in dataclasses.fields(cls)}  # pyright: ignore

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The default of each field."""
        return {f.name: f.default for f in dataclasses.fields(cls)}  # pyright: ignore

    @classmethod
    def refuse_unknown(cls, given: Mapping[str, Any]) -> None:
        """A TypeError for a field that this object does not have, with the object that has it."""
        for name in given:
            if name not in cls.specs():
                homes = [
                    f"{other.__name__}({name}={given[name]!r})"
                    for other in FAMILIES
                    if name in other.specs() and other is not cls
                ]
                hint = f"it belongs to {', '.join(homes)}" if homes else ""
                hint = hint or registry.choose_from(tuple(cls.specs()), name)
                raise TypeError(
                    f"{cls.__name__} has no field {name!r} ({name}={given[name]!r}): {hint}"
                )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every field by its name and, if `deep`, the fields of parts as part__field."""
        found = {name: getattr(self, name) for name in self.specs()}
        if deep:
            for name, value in list(found.items()):
                if isinstance(value, Settings):
                    found |= {f"{name}__{k}": v for k, v in value.get_params().items()}
        return found

    def changed(self) -> dict[str, Any]:
        """The fields whose values are not the defaults."""
        usual = {
            name: spec.check(type(self).__name__, name, self.defaults()[name])
            for name, spec in self.specs().items()
        }
        return {k: v for k, v in self.get_params(deep=False).items() if not _same(v, usual[k])}

    def describe(self, identity: bool = False) -> dict[str, Any]:
        """Every field as JSON: a part as a dictionary with its `name`, a function as {"function": its name}.

        Args:
            identity: leave out what does not make it another fit, such as the number of iterations.
        """
        kept = {n: getattr(self, n) for n, s in self.specs().items() if s.identity or not identity}
        return {n: _described(value, identity) for n, value in kept.items()}

    def __repr__(self) -> str:
        """What differs from the defaults, to paste back."""
        shown = (
            f"{k}={getattr(v, '__name__', None) or repr(v)}" for k, v in self.changed().items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"


D = TypeVar("D", bound=Declared)
FAMILIES: list[type[Declared]] = []  # every class of settings


@dataclass_transform(frozen_default=True)
class Settings(Declared):
    """A frozen dataclass that checks its fields and is a pytree.

    A family is a subclass with a registry of its own, `class Loss(Settings, registry=LOSSES)`; its subclasses
    enter themselves under their names in snake case.
    """

    registry: ClassVar[dict[str, Any]] = {}
    name: ClassVar[str] = ""
    is_absent: ClassVar[bool] = False  # a place holder, see `absent`
    prefixed: ClassVar[bool] = False  # its flags on the command line begin with the part's name

    def __init_subclass__(
        cls, registry: dict[str, Any] | None = None, listed: bool = True, **rest: Any
    ):
        super().__init_subclass__(**rest)
        dataclasses.dataclass(frozen=True, repr=False, eq=False)(cls)
        refuse_unknown_arguments(cls)
        jax.tree_util.register_pytree_with_keys(cls, _flatten, functools.partial(_unflatten, cls))
        cls.name = _snake(cls.__name__)
        if registry is not None:
            cls.registry = registry
        elif listed:
            FAMILIES.append(cls)
            if cls.registry is not Settings.registry:
                cls.registry[cls.name] = cls

    def __post_init__(self) -> None:
        for name, spec in self.specs().items():
            object.__setattr__(
                self, name, spec.check(type(self).__name__, name, getattr(self, name))
            )

    @classmethod
    def coerce(cls, value: Any) -> "Settings | None":
        """An object of this family from an object, a class, a name or a function; None if it is none of them."""
        if isinstance(value, str):
            value = cls.registry.get(value)
        if isinstance(value, cls):
            return value
        if isinstance(value, type):
            return value() if issubclass(value, cls) and value is not cls else None
        if isinstance(value, Settings) or not callable(value):
            return None
        return cls.from_function(value)

    @classmethod
    def from_function(cls, function: Callable) -> "Settings | None":
        """An object of this family that is one function, where the family has such."""
        del function
        return None

    def replace(self, **changes: Any) -> Self:
        """A copy with other values."""
        return dataclasses.replace(self, **changes)  # pyright: ignore

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            _same(a, getattr(other, name)) for name, a in self.get_params(deep=False).items()
        )

    def __hash__(self) -> int:
        return hash((type(self), *(v for _, v in _static(self))))


def refuse_unknown_arguments(cls: type[D]) -> type[D]:
    """The class, whose constructor says where an unknown argument belongs."""
    made = cls.__init__

    @functools.wraps(made)
    def init(self, *args: Any, **given: Any) -> None:
        cls.refuse_unknown(given)
        made(self, *args, **given)

    cls.__init__ = init
    return cls


def with_params(name: str, settings: Any, changes: Mapping[str, Any]) -> Any:
    """Settings with other values, those of parts as part__field; `name` is what the settings are called."""
    if not isinstance(settings, Settings):
        raise TypeError(
            f"{name} = {settings!r} has no fields of its own to set ({', '.join(changes)})"
        )
    plain = {n: value for n, value in changes.items() if "__" not in n}
    settings.refuse_unknown(plain)
    settings = settings.replace(**plain)
    nested: dict[str, dict[str, Any]] = {}
    for path in changes.keys() - plain.keys():
        head, _, rest = path.partition("__")
        settings.refuse_unknown({head: changes[path]})
        nested.setdefault(head, {})[rest] = changes[path]
    parts = {h: with_params(h, getattr(settings, h), inner) for h, inner in nested.items()}
    return settings.replace(**parts)


def _flatten(settings: Settings):
    leaves = [n for n, spec in settings.specs().items() if spec.leaf]
    keyed = [(jax.tree_util.GetAttrKey(n), getattr(settings, n)) for n in leaves]
    return keyed, tuple(_static(settings))


def _static(settings: Settings) -> list[tuple[str, Any]]:
    return [(n, getattr(settings, n)) for n, spec in settings.specs().items() if not spec.leaf]


def _unflatten(cls: type[Settings], static: tuple, leaves: Any) -> Settings:
    """Without checks: JAX puts all sorts of things in the place of leaves."""
    made = object.__new__(cls)
    names = (n for n, spec in cls.specs().items() if spec.leaf)
    for name, value in (*static, *zip(names, leaves, strict=True)):
        object.__setattr__(made, name, value)
    return made


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray | jax.Array) or isinstance(b, np.ndarray | jax.Array):
        return np.array_equal(a, b)
    return type(a) is type(b) and bool(a == b)


def _described(value: Any, identity: bool) -> Any:
    if isinstance(value, Settings):
        home = value.registry.get(value.name)
        if home is None and value.registry is not Settings.registry:
            return {GIVE_AGAIN: value.name}
        return {"name": value.name, **value.describe(identity)}
    if callable(value):
        return {GIVE_AGAIN: getattr(value, "__name__", type(value).__name__)}
    return list(value) if isinstance(value, tuple) else value


def from_description(spec: Spec, described: Any) -> Any:
    """What `Declared.describe` described, by the declaration of the field that held it."""
    if isinstance(described, list):
        return tuple(described)
    if spec.base is None or not isinstance(described, dict):
        return described
    rest = {n: value for n, value in described.items() if n != "name"}
    known = (
        spec.base.registry
        if spec.base.registry is not Settings.registry
        else {spec.base.name: spec.base}
    )
    made: Any = registry.lookup(spec.base.__name__, known, described["name"])
    if not isinstance(made, type):
        made = type(spec.base.coerce(made))
    made.refuse_unknown(rest)
    return made(**{n: from_description(made.specs()[n], value) for n, value in rest.items()})


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def from_function(
    base: type[Settings], function: Callable, probe: Callable[[Callable], None]
) -> Settings:
    """A Settings of the family `base` that calls `function`, whose further arguments with defaults are its fields.

    `def soft(x, beta=1.0)` becomes a loss with the number `beta`; a `functools.partial` changes a default.
    """
    inner = function.func if isinstance(function, functools.partial) else function
    given = function.keywords if isinstance(function, functools.partial) else {}
    made = _class_of(base, inner, probe)
    return made(**given)


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

    name = getattr(function, "__name__", type(function).__name__)
    body: dict[str, Any] = {n: number(float(v), help=f"{n} of {name}") for n, v in numbers.items()}
    body |= {
        "__annotations__": dict.fromkeys(numbers, float),
        "__call__": call,
        "__module__": function.__module__,
        "__doc__": function.__doc__,
        "function": staticmethod(function),
    }
    made: Any = type(base)(name, (base,), body, listed=False)  # pyright: ignore
    made.name = name
    return made


def check_scalar(function: Callable) -> None:
    """Refuse what is not a function of one number that returns one number."""
    named = getattr(function, "__name__", repr(function))
    try:
        answer = jax.eval_shape(function, 0.0)
    except Exception as error:
        raise TypeError(f"{named} cannot be evaluated on a number: {error}") from error
    if getattr(answer, "shape", None) != () or answer.dtype.kind != "f":
        raise TypeError(f"{named}(0.0) is {answer!r}: it must be one real number")


def absent(base: type[Settings], name: str, remedy: str) -> Settings:
    """A place holder for a part that is known by name only: whatever is asked of it raises `remedy`."""

    def refuse(self, *args: Any, **rest: Any) -> Any:
        raise ValueError(remedy)

    methods = [n for n, v in vars(base).items() if inspect.isfunction(v) and not n.startswith("__")]
    made: Any = type(base)(
        name, (base,), dict.fromkeys([*methods, "__call__"], refuse), listed=False
    )  # pyright: ignore
    made.name, made.is_absent = name, True
    return made()
