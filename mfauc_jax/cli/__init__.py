"""The `mfauc` command: sub-commands, exit codes, one-line errors, and the set-up of JAX.

mfauc fit ratings.csv --out likes.model
mfauc recommend likes.model ann bob --n 5
"""

import argparse
import contextlib
import importlib.metadata
import os
import pathlib
import sys
import traceback
from collections.abc import Sequence

from mfauc_jax import distributed
from mfauc_jax._core import cores
from mfauc_jax.cli import (
    datasets,
    exploring,
    files,
    fitting,
    inputs,
    judging,
    options,
    processes,
    serving,
)
from mfauc_jax.cli.output import UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        everything = bool({"--help_all", "--help-all"} & set(argv))
        args = parser(everything=everything).parse_args(argv)
        with options.told(args):
            inputs.refuse_same(args)
            _set_up_jax(args)
            code = args.run(args) or 0
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse: 0 after --help, 2 after wrong usage
        return int(stop.code or 0)
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  the rest of the output is dropped
        return 0
    except KeyboardInterrupt:
        print("mfauc: interrupted", file=sys.stderr)
        return 130
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # a panic of polars is no Exception, but an error like others
        if "--debug" in argv:
            traceback.print_exc()
        print(f"mfauc: {_message(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def parser(everything: bool = False) -> argparse.ArgumentParser:
    """The parser of the whole command; with `everything` the help also shows rarely used options."""
    top = options.Parser(
        prog="mfauc",
        formatter_class=options.Compact,
        description="Recommendation from positive-only feedback that maximises each user's AUC.",
        epilog=f"`mfauc COMMAND --help` shows the options of a command. {options.EXIT_CODES}",
    )
    version = importlib.metadata.version("mfauc_jax")
    top.add_argument("--version", action="version", version=f"mfauc {version}")
    commands = top.add_subparsers(metavar="COMMAND [options]", required=True)
    for group in (fitting, serving, judging, files, exploring, datasets):
        group.add_to(commands, everything)
    return top


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    if isinstance(
        error, UsageError | ValueError | TypeError | OSError | ArithmeticError | ImportError
    ):
        return str(error) or type(error).__name__
    first = (str(error).splitlines() or [""])[0]
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in first or "Out of memory" in first:
        return f"not enough memory: {first or 'try a lower rank or fewer ratings'}"
    if isinstance(error, RuntimeError):
        return first
    return f"internal error, {type(error).__name__}: {first} (--debug tells where)"


def _set_up_jax(args: argparse.Namespace) -> None:
    """Set threads, precision and the compilation cache, before anything is computed."""
    import jax

    if args.threads is not None:
        os.environ["NPROC"] = str(args.threads)  # XLA takes the size of its thread pool from it
    if args.cpu_devices is not None:
        jax.config.update("jax_num_cpu_devices", args.cpu_devices)
    elif args.run is fitting.fit:
        with contextlib.suppress(RuntimeError):  # a program that has started JAX calls `main`
            cores.use_cores()
    if args.float64:
        jax.config.update("jax_enable_x64", True)
    if getattr(args, "distributed", False):
        processes.refuse_alone(args)
        distributed.initialize()
    folder = None if args.no_cache else cache_dir()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def cache_dir() -> pathlib.Path | None:
    """The folder of compiled programs between runs: $XDG_CACHE_HOME/mfauc, or ~/.cache/mfauc.

    None if there is no home, or nothing can be written there, as in a container: programs are then compiled anew.
    """
    try:
        home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        folder = pathlib.Path(home) / "mfauc"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None
