"""What the benchmarks measure with: the least of several times, and memory."""

import contextlib
import ctypes
import dataclasses
import gc
import os
import pathlib
import resource
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Lists:
    """The Config of a benchmark that ranks held-out positives and makes lists: what such have in common."""

    data_dir: str = "data"
    rank: int = 64
    held_out: int = 5
    list_length: int = 10
    repeats: int = 3
    seed: int = 0


def timed(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The least of the wall times, and the last result."""
    times, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return min(times), result


def warm_seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """The least of the wall times after one call that does not count, since it may compile."""
    jax.block_until_ready(function())
    return timed(function, repeats)[0]


@contextlib.contextmanager
def peak_memory() -> Iterator[list[float]]:
    """The largest resident size above the present one, in MB, sampled every 2 ms."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # or freed memory would hide what is used next
    page = os.sysconf("SC_PAGE_SIZE") / 1e6

    def resident() -> float:
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * page

    start, done, peak = resident(), threading.Event(), [0.0]

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], resident() - start)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def peak_resident() -> float:
    """The largest resident size of this program so far, in MB: `ru_maxrss` would begin with its parent's."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6  # kB
