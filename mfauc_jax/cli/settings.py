"""One flag per setting of a model, without nesting, made from the declarations of its parts.

`--solver minibatch --learning_rate 0.1` sets the field of the chosen solver. A flag that belongs to a solver, loss or
penalty other than the chosen one is an error that names it.
"""

import argparse
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from mfauc_jax._core import registry
from mfauc_jax._core.fields import Spec
from mfauc_jax._core.settings import Declared, Settings
from mfauc_jax.cli.output import UsageError
from mfauc_jax.model import MFAUC
from mfauc_jax.solvers.base import DECIDES, default_solver

PRESETS = {"default": MFAUC, "paper": MFAUC.paper, "authors": MFAUC.authors}


class Home(NamedTuple):
    """A field that a flag sets."""

    part: str  # the field of the model that holds the part, or "" for the model's own fields
    owner: type[Declared]
    field: str
    spec: Spec
    default: Any


def homes(
    owner: type[Declared] = MFAUC, part: str = "", prefix: str = "", level: int = 0
) -> Iterator[tuple[str, Home]]:
    """Every flag of a model with each field that it can set, over all alternatives of each part."""
    defaults = owner.defaults()
    for name, spec in owner.specs().items():
        if (owner, name) == (MFAUC, "seed"):  # every command has it
            continue
        if spec.base is None or spec.base.registry is not Settings.registry:
            yield prefix + name, Home(part, owner, name, spec, defaults[name])
        if spec.base is None or level > 1:
            continue
        alternatives = [c for c in spec.base.registry.values() if isinstance(c, type)] or [
            spec.base
        ]
        for alternative in alternatives:
            part_prefix = f"{name}_" if alternative.prefixed else ""
            yield from homes(alternative, part or name, part_prefix, level + 1)


def table() -> dict[str, list[Home]]:
    """The fields that each flag can set."""
    by_flag: dict[str, list[Home]] = {}
    for flag, home in homes():
        if all(home[:3] != other[:3] for other in by_flag.setdefault(flag, [])):
            by_flag[flag].append(home)
    return by_flag


def value(spec: Spec, text: str) -> Any:
    """The value of a field from text; its bounds are checked when the object is made."""
    if spec.optional and text.lower() == "none":
        return None
    try:
        if spec.kind == "series":
            return tuple(float(one) for one in text.split(","))
        if spec.kind == "number":
            return float(text)
        if spec.kind in ("count", "size"):
            return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {spec.bounds}") from None
    if spec.kind == "flag":
        return registry.lookup("value", {"true": True, "false": False}, text.lower())
    return text


def add_model(parser: argparse.ArgumentParser, everything: bool) -> None:
    """Add one flag per setting; the short help has lines only for the model's own fields."""
    add = parser.add_argument_group("model").add_argument
    text = "settings to start from: default, paper or authors"
    add("--preset", choices=PRESETS, default="default", metavar="X", help=text)
    add("--params", metavar="JSON", help="settings from a file, as `mfauc select` writes")
    rare = []
    for flag, owners in table().items():
        is_own = owners[0].owner is MFAUC
        shown = [shown_default(home) for home in owners]
        spec = owners[0].spec
        text = ", ".join(spec.names()) if is_own and spec.base else spec.help.replace("%", "%%")
        text += f" ({' or '.join(dict.fromkeys(shown))})"
        if everything and not is_own:
            text += f"; of {', '.join(dict.fromkeys(home.owner.__name__ for home in owners))}"
        if not everything and not is_own:
            rare.append(f"--{flag}")
            text = argparse.SUPPRESS
        add_field(add, flag, spec, text)
    if rare:
        parser.epilog = f"also {', '.join(rare)}; --help_all explains them; {parser.epilog}"


def add_settings(
    add: Callable[..., Any],
    settings: type[Settings],
    prefix: str,
    everything: bool,
    short: tuple = (),
) -> None:
    """Add one flag per field of one class; the short help has lines only for those named in `short`."""
    for name, spec in settings.specs().items():
        default = settings.defaults()[name]
        text = spec.help + ("" if default is None else f" ({default})")
        add_field(
            add, prefix + name, spec, text if everything or name in short else argparse.SUPPRESS
        )


def add_field(add: Callable[..., Any], flag: str, spec: Spec, text: str) -> None:
    """Add one flag, which is absent from the parsed arguments unless it is given."""
    if spec.kind == "flag":
        action = argparse.BooleanOptionalAction
        add(f"--{flag}", action=action, default=argparse.SUPPRESS, help=text)
    else:
        add(
            f"--{flag}",
            type=lambda text: value(spec, text),
            default=argparse.SUPPRESS,
            metavar="X",
            help=text,
        )


def shown_default(home: Home) -> str:
    """A default as a user would type it."""
    return str(getattr(home.default, "name", home.default)).lower()


def model(args: argparse.Namespace) -> MFAUC:
    """The unfitted model: the preset, changed by --params, then by the flags."""
    given = {} if args.params is None else from_file(args.params)
    given |= {flag: getattr(args, flag) for flag in table() if hasattr(args, flag)}
    return apply(PRESETS[args.preset](seed=args.seed), given)


def built_from(args: argparse.Namespace, kind: type[Settings], prefix: str = "") -> Any:
    """The object of one class, made from its flags."""
    flags = {name: prefix + name for name in kind.specs()}
    return built(kind, {n: getattr(args, flag) for n, flag in flags.items() if hasattr(args, flag)})


def built(kind: Any, given: Mapping[str, Any]) -> Any:
    """`kind(**given)`; a wrong value is a UsageError."""
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None


def apply(base: MFAUC, given: Mapping[str, Any]) -> MFAUC:
    """The model with the values of flags applied to it and to its parts."""
    unused = dict(given)
    try:
        changes = _taken(base, unused, "")
        for flag, given_value in unused.items():
            _refuse(base.with_params(**changes), flag, given_value)
        return base.with_params(**changes)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None


def _taken(owner: Any, unused: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The fields of `owner` that flags in `unused` set, in its parts too; these flags are removed from `unused`."""
    changes: dict[str, Any] = {}
    for name, spec in owner.specs().items():
        flag = prefix + name
        if flag in unused:
            changes[name] = spec.check(type(owner).__name__, name, unused.pop(flag))
        if spec.base is None:
            continue
        part = changes.get(name, getattr(owner, name))
        if part == "auto":
            part = default_solver(*(changes.get(n, getattr(owner, n)) for n in DECIDES))
        part_changes = _taken(part, unused, f"{name}_" if part.prefixed else "")
        if part_changes:
            changes[name] = part.replace(**part_changes)
    return changes


def _refuse(model: MFAUC, flag: str, given: Any) -> None:
    fields = registry.lookup("setting", table(), flag)
    part = fields[0].part
    chosen = model.chosen_solver if part == "solver" else getattr(model, part)
    owners = list(dict.fromkeys(home.owner.__name__ for home in fields))
    named = [home.owner.name for home in fields if issubclass(home.owner, Settings)]
    remedy = (
        f": add --{part} {named[0]}" if part in model.specs() and named[0] in _names(part) else ""
    )
    raise ValueError(
        f"--{flag} {given} belongs to {', '.join(owners)}, and the {part} is {type(chosen).__name__}{remedy}"
    )


def _names(part: str) -> tuple[str, ...]:
    return MFAUC.specs()[part].names()


def path(model: MFAUC, flag: str) -> tuple[str, Spec]:
    """The nested name of a flat setting in this model, and its declaration."""
    paths = dict(_paths(model, "", ""))
    if flag not in paths:
        fields = registry.lookup("setting", table(), flag)
        if fields[0].part:
            _refuse(model, flag, "…")
    return paths[flag]


def _paths(owner: Any, nested: str, prefix: str) -> Iterator[tuple[str, tuple[str, Spec]]]:
    for name, spec in owner.specs().items():
        yield prefix + name, (nested + name, spec)
        if spec.base is not None:
            part = getattr(owner, name)
            part = owner.chosen_solver if part == "auto" else part
            yield from _paths(part, f"{nested}{name}__", f"{name}_" if part.prefixed else "")


def flat(model: MFAUC) -> dict[str, Any]:
    """The settings of a model that differ from the defaults, by flag, for `--params`."""
    values: dict[str, Any] = {}
    for name, given in model.changed().items():
        if isinstance(given, Settings):
            _flatten(name, given, type(MFAUC.defaults()[name]), values)
        elif name != "seed":
            values[name] = given
    return values


def _flatten(name: str, part: Settings, default_type: type, values: dict[str, Any]) -> None:
    if type(part) is not default_type:
        values[name] = part.name
    for field, given in part.changed().items():
        if isinstance(given, Settings):
            _flatten(field, given, type(part.defaults()[field]), values)
        else:
            values[(f"{name}_" if part.prefixed else "") + field] = given


def from_file(path: str) -> dict[str, Any]:
    """The values of flags from a JSON file, as `flat` gives them."""
    try:
        values = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f'{path} must hold an object such as {{"rank": 32, "strength": 0.8}}')
    return {name: _from_json(path, name, given) for name, given in values.items()}


def _from_json(path: str, name: str, given: Any) -> Any:
    spec = registry.lookup(f"setting in {path}", table(), name)[0].spec
    if isinstance(given, list):
        return tuple(given)
    if not isinstance(given, str) or spec.kind in ("part", "choice", "text"):
        return given
    try:
        return value(spec, given)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise ValueError(f"{path}: {name}: {error}") from None
