"""Settings: frozen objects that check their declared fields, compose into parameters, and are pytrees.

Numbers and counts are leaves, so that a sweep over them compiles once; sizes, flags, names and functions are static and
shape the program.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, dataclass_transform

import jax
import numpy as np

from mfauc_jax._core import digests, host, registry
from mfauc_jax._core.fields import DECLARED, Spec

GIVE_AGAIN = "give again"  # marks what a file cannot hold: a user's own function


class Declared:
    """A dataclass whose fields are declared with the functions of `fields`."""

    @classmethod
    def specs(cls) -> dict[str, Spec]:
        """The declaration of each field, by name."""
        return {f.name: f.metadata[DECLARED] for f in dataclasses.fields(cls)}  # pyright: ignore

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The default of each field, by name."""
        return {f.name: f.default for f in dataclasses.fields(cls)}  # pyright: ignore

    @classmethod
    def refuse_unknown(cls, given: Mapping[str, Any]) -> None:
        """Raise TypeError for a name that is not a field here; the message names the class that has it."""
        for name in given:
            if name not in cls.specs():
                owners = [
                    f"{other.__name__}({name}={given[name]!r})"
                    for other in FAMILIES
                    if name in other.specs() and other is not cls
                ]
                hint = f"it belongs to {', '.join(owners)}" if owners else ""
                hint = hint or registry.choose_from(tuple(cls.specs()), name)
                raise TypeError(
                    f"{cls.__name__} has no field {name!r} ({name}={given[name]!r}): {hint}"
                )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The value of every field by name and, if `deep`, the fields of parts as part__field."""
        params = {name: getattr(self, name) for name in self.specs()}
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Settings):
                    params |= {f"{name}__{k}": v for k, v in value.get_params().items()}
        return params

    def changed(self) -> dict[str, Any]:
        """The fields whose values are not the defaults."""
        defaults = {
            name: None if default is None else self.specs()[name].check("", name, default)
            for name, default in self.defaults().items()
        }  # None: optional, or without a default
        return {k: v for k, v in self.get_params(deep=False).items() if not _same(v, defaults[k])}

    def describe(self, identity: bool = False) -> dict[str, Any]:
        """Every field as JSON: a part as a dictionary with its `name`, a user's function as {"give again": its name}.

        Args:
            identity: leave out the fields that may change when a fit is resumed, such as the number of iterations, and
                add a digest of every formula that is not the library's own.
        """
        values = {
            n: getattr(self, n) for n, s in self.specs().items() if s.identity or not identity
        }
        return {n: _described(value, identity) for n, value in values.items()}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            _same(a, getattr(other, name)) for name, a in self.get_params(deep=False).items()
        )

    __hash__ = None  # pyright: ignore  # MFAUC's fields may change

    def __repr__(self) -> str:
        """The fields that differ from their defaults, as Python that makes an equal object."""
        shown = (
            f"{k}={getattr(v, '__name__', None) or repr(v)}" for k, v in self.changed().items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"


D = TypeVar("D", bound=Declared)
S = TypeVar("S", bound="Settings")
FAMILIES: list[type[Declared]] = []  # every class of settings


@dataclass_transform(frozen_default=True)
class Settings(Declared):
    """A frozen dataclass that checks its fields and is a pytree.

    A family is a subclass with a registry of its own, `class Loss(Settings, registry=LOSSES)`; its subclasses
    enter themselves under their names in snake case.
    """

    registry: ClassVar[dict[str, Any]] = {}
    name: ClassVar[str] = ""
    _leaves: ClassVar[tuple[str, ...]] = ()
    _statics: ClassVar[tuple[str, ...]] = ()
    abstract: ClassVar[bool] = True  # a family: only its subclasses can be used
    is_absent: ClassVar[bool] = False  # a placeholder, see `functions.absent`
    prefixed: ClassVar[bool] = False  # its command-line flags begin with the part's name

    def __init_subclass__(
        cls, registry: dict[str, Any] | None = None, listed: bool = True, **rest: Any
    ):
        super().__init_subclass__(**rest)
        dataclasses.dataclass(frozen=True, repr=False, eq=False)(cls)
        refuse_unknown_arguments(cls)
        declared = cls.specs()
        cls._leaves = tuple(name for name, spec in declared.items() if spec.leaf)
        cls._statics = tuple(name for name in declared if name not in cls._leaves)
        host.register_pytree(cls, cls._leaves, cls._statics)
        cls.name = _snake(cls.__name__)
        cls.abstract = cls.__dict__.get("abstract", registry is not None)
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
        """A member of this family from an object, a class, a name or a function; None for anything else."""
        if isinstance(value, str):
            value = cls.registry.get(value)
        if isinstance(value, type):
            value = value() if issubclass(value, cls) and not value.abstract else None
        if isinstance(value, cls):
            return None if value.abstract else value
        if isinstance(value, Settings) or not callable(value):
            return None
        return cls.from_function(value)

    @classmethod
    def member(cls: type[S], value: Any) -> S:
        """A member of this family, as from `coerce`; an error lists the members."""
        member = cls.coerce(value)
        if member is None:
            known = registry.choose_from(cls.registry, str(value))
            kind = ValueError if isinstance(value, str) else TypeError
            raise kind(f"{value!r} is not a {cls.__name__}: {known}")
        return member  # pyright: ignore

    @classmethod
    def from_function(cls, function: Callable) -> "Settings | None":
        """A member of this family made from one function; None if the family takes no functions."""
        del function
        return None

    def replace(self: D, **changes: Any) -> D:
        """A copy with other values for the named fields."""
        return dataclasses.replace(self, **changes)  # pyright: ignore

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self._statics)))


def refuse_unknown_arguments(cls: type[D]) -> type[D]:
    """Make the constructor's TypeError for an unknown argument name the class that has it."""
    original = cls.__init__

    @functools.wraps(original)
    def init(self, *args: Any, **given: Any) -> None:
        cls.refuse_unknown(given)
        original(self, *args, **given)

    cls.__init__ = init
    return cls


def changes(owner: Declared, params: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """The new values of an owner's fields, where `params` may name the fields of parts as part__field.

    Args:
        owner: the object whose fields are named.
        params: new values by field name.
        parts: the objects to change where the owner's field holds only a name, such as solver="auto".
    """
    plain = {n: value for n, value in params.items() if "__" not in n}
    nested: dict[str, dict[str, Any]] = {}
    for path in params.keys() - plain.keys():
        head, _, rest = path.partition("__")
        nested.setdefault(head, {})[rest] = params[path]
    owner.refuse_unknown(plain | {head: inner for head, inner in nested.items()})
    for head, inner in nested.items():
        part = parts.get(head, getattr(owner, head))
        if head in plain:
            part = owner.specs()[head].check(type(owner).__name__, head, plain[head])
        if not isinstance(part, Settings):
            raise TypeError(
                f"{head} = {part!r} has no fields of its own to set ({', '.join(inner)})"
            )
        plain[head] = part.replace(**changes(part, inner, {}))
    return plain


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray | jax.Array) or isinstance(b, np.ndarray | jax.Array):
        return np.array_equal(a, b)
    return type(a) is type(b) and bool(a == b)


def _described(value: Any, identity: bool) -> Any:
    if identity and callable(value) and not _is_ours(value):  # the same name may be another formula
        return _described(value, False) | {"formula": digests.function(value, 0.0)}
    if isinstance(value, Settings):
        by_name = value.coerce(value.name)  # a user's function may have the name of a known one
        if value.registry is not Settings.registry and type(by_name) is not type(value):
            return {GIVE_AGAIN: value.name}
        return {"name": value.name, **value.describe(identity)}
    if callable(value):
        return {GIVE_AGAIN: getattr(value, "__name__", type(value).__name__)}
    return list(value) if isinstance(value, tuple) else value


def _is_ours(value: Any) -> bool:
    owner = type(value) if isinstance(value, Settings) else value
    return str(getattr(owner, "__module__", "")).split(".")[0] == __name__.split(".")[0]


def from_description(spec: Spec, described: Any) -> Any:
    """The value that `Declared.describe` described; `spec` declares the field that held it."""
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
