"""Data larger than a host: positives on disk, several processes, each of which reads and fits its own users.

    python -m experiments.bench_host --folder=/scratch/shards --positives=100000000

The generator writes the positives in chunks, users' counts with a long tail and items by Zipf's law, into files by
users (`mfauc_jax.data.shards`); it never holds them all. Then `--processes` processes read the folder and fit the
default route. A record has the seconds and the peak of the resident memory of each process; the exit code says whether
the sum of the peaks is below `--limit` GB.
"""

import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import polars as pl

from experiments import flags, results
from experiments.torture import children
from mfauc_jax.data import shards

CHUNK = 2**21  # positives that are generated at a time


@dataclasses.dataclass(frozen=True)
class Config:
    """The defaults are a tenth of the issue's 10⁸."""

    folder: str = flags.option("", "for the positives; one that exists is used as it is")
    positives: int = 10_000_000
    users: int = flags.option(0, "0: one per 50 positives")
    items: int = flags.option(100_000, "number of items")
    parts: int = 64
    processes: int = flags.option(2, "number of processes")
    rank: int = 64
    sweeps: int = flags.option(4, "sweeps of the alternating solver")
    limit: float = flags.option(16.0, "GB that all processes together may hold at their peaks")
    process: int = flags.option(-1, "internal: this is that process of the fit")
    coordinator: str = flags.option("", "internal: where process 0 listens")
    results: str = "results/bench_host.jsonl"


def chunks(config: Config) -> Iterator[pl.DataFrame]:
    """Positives user by user: N_i from a log-normal, items by Zipf's law with exponent ¾."""
    m = config.users or config.positives // 50
    rng = np.random.default_rng(0)
    weight = rng.lognormal(0.0, 1.0, m)
    lengths = np.maximum(1, np.floor(weight * (config.positives / weight.sum()))).astype(np.int64)
    lengths = np.minimum(lengths, config.items // 4)
    share = np.cumsum(np.arange(1, config.items + 1) ** -0.75)
    ends, first = np.cumsum(lengths), 0
    while first < m:
        last = int(np.searchsorted(ends, ends[first] + CHUNK)) + 1
        users = np.repeat(np.arange(first, min(last, m)), lengths[first:last])
        items = np.searchsorted(share, rng.random(len(users)) * share[-1])
        yield pl.DataFrame({"user": users, "item": items.astype(np.int32)}).unique()
        first = last


def peak() -> float:
    """GB of this process's largest resident memory, from Linux."""
    return children.memory(field="VmHWM") / 1e3


def one(config: Config) -> None:
    """One process: read, fit, and print what it took."""
    import mfauc_jax as mf

    mf.distributed.initialize(config.coordinator, config.processes, config.process, timeout=600)
    began = time.perf_counter()
    X = shards.read(config.folder)
    read, at_read = time.perf_counter(), peak()
    model = mf.MFAUC(config.rank, solver=mf.Alternating(config.sweeps)).fit(X)
    seconds = {"read": read - began, "fit": time.perf_counter() - read}
    told = {
        "users": X.num_users,
        "items": X.num_items,
        "positives": X.nnz,
        "seconds": seconds,
        "last sweep": model.history_[-1]["seconds"] - model.history_[-2]["seconds"],
        "GB after reading": at_read,
        "GB": peak(),
    }
    sys.stdout.write(json.dumps(told) + "\n")


def run(config: Config) -> dict:
    """Generate what is not there, start the processes, and gather what they say."""
    began = time.perf_counter()
    if not pathlib.Path(config.folder).exists():
        shards.write(chunks(config), config.folder, config.parts)
    generated = time.perf_counter() - began
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{free.getsockname()[1]}"
    words = [sys.executable, "-m", "experiments.bench_host", f"--coordinator={where}"]
    words += [f"--{n}={getattr(config, n)}" for n in ("folder", "processes", "rank", "sweeps")]
    env = os.environ | {"JAX_PLATFORMS": "cpu"}
    started = [
        subprocess.Popen([*words, f"--process={i}"], stdout=subprocess.PIPE, text=True, env=env)
        for i in range(config.processes)
    ]
    said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"the processes ended with {[p.returncode for p in started]}")
    told = [json.loads(text.splitlines()[-1]) for text in said]
    return {
        "positives": sum(each["positives"] for each in told),
        "generated": generated,
        "GB": sum(each["GB"] for each in told),
        "GB of the generator": peak(),
        "limit": config.limit,
        "processes": told,
    }


def main(config: Config) -> int:
    """0 if the processes stayed below the limit."""
    if config.process >= 0:
        one(config)
        return 0
    if not config.folder:
        raise ValueError("--folder is needed: about 6 bytes per positive are written there")
    record = run(config)
    results.write(config.results, config, [record])
    sys.stdout.write(json.dumps(record, indent=1) + "\n")
    return int(record["GB"] > config.limit)


if __name__ == "__main__":
    flags.run(Config, main)
