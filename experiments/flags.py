"""absl flags generated from a Config dataclass: a default is written once. The only absl code."""

import dataclasses
from collections.abc import Callable
from typing import Any

from absl import app, flags

from experiments import results

_DEFINE = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float}


def option(default: Any, text: str) -> Any:
    """A field of a Config, and what `--help` says about it."""
    return dataclasses.field(default=default, metadata={"help": text})


def run(config_class: type, main: Callable[[Any], int | None]) -> None:
    """Parse the command line into `config_class` and call `main(config)`.

    A field's type decides its flag: bool, int, float, str, or a tuple of these (a comma list).
    `option` documents it.
    """
    for field in dataclasses.fields(config_class):
        default = field.default if field.default is not dataclasses.MISSING else None
        if default is None and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        text = field.metadata.get("help", field.name.replace("_", " "))
        if isinstance(default, tuple):
            flags.DEFINE_list(field.name, [str(x) for x in default], text)
        else:
            _DEFINE.get(type(default), flags.DEFINE_string)(field.name, default, text)

    def start(argv: list[str]) -> int | None:
        if len(argv) > 1:
            raise app.UsageError(f"unexpected argument {argv[1]!r}")
        values = {f.name: getattr(flags.FLAGS, f.name) for f in dataclasses.fields(config_class)}
        for field in dataclasses.fields(config_class):
            if isinstance(field.default, tuple):
                kind = type(field.default[0]) if field.default else str
                values[field.name] = tuple(kind(x) for x in values[field.name])
        if "results" in values:
            results.check_clean(values["results"])  # before hours of work, not after them
        return main(config_class(**values))

    app.run(start)
