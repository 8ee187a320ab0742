"""absl flags generated from a Config dataclass: a default is written once. The only absl code.

`--help` lists every flag with its meaning. `--out=DIR` moves everything that a command writes: files that are not given
themselves go to that folder under their usual names.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from absl import app, flags

from experiments import results

_DEFINE = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float}
MEANINGS = {  # of fields that mean the same in every Config; others carry an `option`
    "alphas": "learning rates to choose from",
    "beta": "β, the slope of sigmoid and logistic",
    "blocks": "number of blocks of users, and of items",
    "data_dir": "folder of the real data sets",
    "dataset": "name of the data set",
    "datasets": "names of the data sets",
    "delta": "chance that a bound may fail",
    "devices": "numbers of simulated devices",
    "gowalla_ranks": "values of k on Gowalla",
    "held_out": "positives held out per user",
    "iterations": "iterations of the solver",
    "lambdas": "penalties λ to choose from",
    "large_splits": "splits of the large data sets",
    "large_stops": "iterations to choose from on the large data sets",
    "lever_datasets": "data sets on which each lever is changed by itself",
    "list_length": "length of the lists",
    "losses": "names of the losses",
    "matrix": "users, items and positives of the matrix",
    "methods": "names of the methods",
    "negatives": "negatives drawn per positive",
    "new_users": "number of users who are folded in",
    "nights": "number of updates, one per night",
    "nnz": "numbers of positives",
    "num_items": "number of items",
    "num_neg": "negatives per user",
    "num_pos": "positives per user",
    "out": "folder for everything this command writes",
    "parts": "which parts of the benchmark to run",
    "peer_repeats": "repetitions of each timing of a peer",
    "per_user": "positives held out per user",
    "points": "points of a curve",
    "positives": "number of positives",
    "rank": "k, the number of factors",
    "ranks": "values of k",
    "repeats": "repetitions",
    "requests": "number of requests",
    "results": "file of the records",
    "routes": "names of the solvers",
    "seed": "of every random draw",
    "seeds": "number of random starts",
    "settings": "authors: the paper's protocol; ours: the library's",
    "splits": "number of random splits",
    "stream_items": "items of the streamed matrix",
    "stream_positives": "positives per user of the streamed matrix",
    "stream_users": "users of the streamed matrix",
}
FILES, FOLDERS = ("results", "figure"), ("images",)  # fields that `--out` moves


def option(default: Any, text: str) -> Any:
    """A field of a Config, and what `--help` says about it."""
    return dataclasses.field(default=default, metadata={"help": text})


def meaning(field: dataclasses.Field) -> str:
    """What `--help` says about a field: its name where nobody said more, which `tests/test_flags.py` finds."""
    return field.metadata.get("help") or MEANINGS.get(field.name, field.name.replace("_", " "))


def run(config_class: type, main: Callable[[Any], int | None]) -> None:
    """Parse the command line into `config_class` and call `main(config)`.

    A field's type decides its flag: bool, int, float, str, or a tuple of these (a comma list).
    """
    fields = dataclasses.fields(config_class)
    for field in fields:
        default = field.default if field.default is not dataclasses.MISSING else None
        if default is None and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if isinstance(default, tuple):
            flags.DEFINE_list(field.name, [str(x) for x in default], meaning(field))
        else:
            _DEFINE.get(type(default), flags.DEFINE_string)(field.name, default, meaning(field))
    names = {field.name for field in fields}
    if "out" not in names and names & {*FILES, *FOLDERS}:
        flags.DEFINE_string("out", None, MEANINGS["out"])
    for name in names | ({"out"} & set(flags.FLAGS)):  # so that --help lists them
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])

    def start(argv: list[str]) -> int | None:
        if len(argv) > 1:
            raise app.UsageError(f"unexpected argument {argv[1]!r}")
        given = {name for name in names if flags.FLAGS[name].present}
        values = {name: getattr(flags.FLAGS, name) for name in names}
        for field in fields:
            if isinstance(field.default, tuple):
                kind = type(field.default[0]) if field.default else str
                values[field.name] = tuple(kind(x) for x in values[field.name])
        if "out" in flags.FLAGS and flags.FLAGS["out"].present:
            values |= moved({n: v for n, v in values.items() if n not in given}, flags.FLAGS.out)
        if "results" in values:
            results.check_clean(values["results"])  # before hours of work, not after them
        return main(config_class(**values))

    app.run(start)


def moved(values: dict[str, Any], out: str) -> dict[str, str]:
    """The paths among the values, in the folder `out`; what is empty stays empty."""
    files = {
        n: str(pathlib.Path(out, pathlib.Path(values[n]).name)) for n in FILES if values.get(n)
    }
    return files | {n: out for n in FOLDERS if values.get(n)}
