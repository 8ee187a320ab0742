"""Parquet files. Each is first decoded on trial in another process, because polars aborts on some damaged files.

A changed byte can make polars ask for 2⁶⁰ bytes of memory, and then it ends its process. The trial costs the start of a
Python process for all files of one reading, and a second decoding of the columns that are read.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import polars as pl

from mfauc_jax.data import compressed, reading
from mfauc_jax.data.compressed import Content
from mfauc_jax.data.delimited import Panic
from mfauc_jax.data.reading import Report, Request

SECONDS, BYTES_PER_SECOND = 20.0, 10**7  # a trial may take: at least, and for a larger file
CHILD = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
import polars as pl
try:
    import resource
except ImportError:  # Windows
    resource = None
print("ready", flush=True)
for line in sys.stdin:
    path, columns, most = json.loads(line)
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        if columns is None:
            names = list(pl.read_parquet_schema(path))
            rows = pl.scan_parquet(path, hive_partitioning=False).select(pl.len()).collect().item()
            answer = {"names": names, "rows": rows}
        else:
            answer = {"rows": pl.read_parquet(path, columns=columns, hive_partitioning=False).height}
    except BaseException as error:
        answer = {"error": str(error).partition(chr(10))[0]}
    print(json.dumps(answer), flush=True)
"""


class Trial:
    """Another process that decodes parquet files, started by the first of them."""

    def __init__(self) -> None:
        self.child: subprocess.Popen | None = None

    def ask(
        self, path: pathlib.Path, columns: list[str] | None, size: int
    ) -> dict[str, Any] | None:
        """The names of the columns and the number of rows of a file or, if `columns` are given, a decoding of them.

        Returns:
            {"error": what is wrong} for a file that cannot be decoded; None if no process can be started here.
        """
        if self.child is None:
            self.child = self._started()
        if self.child is None:
            return None
        most = 2**31 + 128 * size  # of address space; rows of ratings take far less
        limit = max(SECONDS, size / BYTES_PER_SECOND)
        with contextlib.suppress(BrokenPipeError):
            assert self.child.stdin is not None
            self.child.stdin.write(json.dumps([str(path.absolute()), columns, most]) + "\n")
            self.child.stdin.flush()
        answer = _line(self.child, limit)
        if answer.endswith("\n"):
            return json.loads(answer)
        self.close()
        return {"error": f"decoding it ends the process, or takes more than {limit:.0f} s"}

    def _started(self) -> subprocess.Popen | None:
        """The process, when it is ready; None if it does not become ready."""
        words = [sys.executable or "", "-I", "-c", CHILD, json.dumps(sys.path)]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        try:
            child = subprocess.Popen(
                words, stdin=pipe, stdout=pipe, stderr=nowhere, text=True, encoding="utf-8"
            )
        except OSError:
            return None
        if _line(child, SECONDS) == "ready\n":
            return child
        _end(child)
        return None

    def close(self) -> None:
        """End the other process."""
        if self.child is not None:
            _end(self.child)
            self.child = None


def _line(child: subprocess.Popen, seconds: float) -> str:
    """The next line that a process writes; "" if it ends, as it does when the time is over."""
    assert child.stdout is not None
    timer = threading.Timer(seconds, child.kill)
    timer.start()
    try:
        return child.stdout.readline()
    finally:
        timer.cancel()


def _end(child: subprocess.Popen) -> None:
    child.kill()
    child.communicate()


@contextlib.contextmanager
def trial() -> Iterator[Trial]:
    """A `Trial` for the files of one reading."""
    made = Trial()
    try:
        yield made
    finally:
        made.close()


def read(
    source: str, content: Content, request: Request, report: Report, trial: Trial
) -> pl.DataFrame:
    """The frame of a parquet file with named columns: of the file `source`, or of its unpacked content."""
    if not content.data:
        return _file(source, pathlib.Path(source), content.packed, request, report, trial)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "content.parquet"
        path.write_bytes(content.data)
        return _file(source, path, content.packed, request, report, trial)


def _file(
    source: str, path: pathlib.Path, packed: int, request: Request, report: Report, trial: Trial
) -> pl.DataFrame:
    size = path.stat().st_size
    found = _sound(source, trial.ask(path, None, size))
    try:
        names = found["names"] if found else list(pl.read_parquet_schema(path))
        compressed.check_rows(source, found["rows"] if found else 0, packed)
        chosen = reading.choose(source, names, request, report)
        wanted = names if request.whole else list(chosen.values())
        _sound(source, trial.ask(path, wanted, size))
        frame = pl.read_parquet(path, columns=wanted, hive_partitioning=False)
    except (pl.exceptions.PolarsError, Panic, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        _sound(source, {"error": error})
        raise
    if request.whole:
        return frame
    return frame.select(pl.col(column).alias(kind) for kind, column in chosen.items())


def _sound(source: str, answer: dict[str, Any] | None) -> dict[str, Any]:
    """The answer of a trial, or {} without one; a ValueError if the file is not sound."""
    if answer and "error" in answer:
        raise ValueError(f"{source} is not sound parquet ({answer['error']}): get it again")
    return answer or {}
