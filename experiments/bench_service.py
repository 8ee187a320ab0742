"""The service of docs/production.md under load: eight clients on loopback for half a minute.

    python -m experiments.bench_service --data_dir=DIR

A model of MovieLens 1M, with ids as text, is saved; `docs/service/app.py`, which the page prints, is started by uvicorn
in a process of its own. Each client keeps one connection and sends its next request when it has the last answer. Nine
in ten requests ask for the list of a user (one in twenty is unknown), the others for the list of a new basket or for
similar items. Half way the link to the model is changed, so the service loads another one while it answers. The exit
code says whether the targets hold: no errors, both versions seen, p99 at most 20 ms, and memory that does not grow by
more than 2 % between the load of the second model and the end.
"""

import asyncio
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from experiments import flags, results
from mfauc_jax import MFAUC, Interactions, data

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs" / "service"
P99, GROWTH = 20.0, 1.02  # ms; memory at the end over memory after the second load


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data, how many clients, for how long."""

    data_dir: str = flags.option(
        "data", "folder of the real data sets; empty: a small random matrix"
    )
    dataset: str = flags.option("ml-1m", "the data set that is fitted and served")
    rank: int = flags.option(64, "k")
    clients: int = flags.option(8, "connections, each with one request at a time")
    seconds: float = flags.option(30.0, "length of the load")
    reload_seconds: float = flags.option(1.0, "how often the service looks at its link")
    seed: int = flags.option(0, "of the fit and of the requests")
    results: str = flags.option("results/bench_service.jsonl", "file of the records")


def positives(config: Config) -> Interactions:
    """The data with text for ids, as a web service has them."""
    if config.data_dir:
        X = data.load(config.dataset, config.data_dir).to_scipy()
    else:
        X = np.random.default_rng(config.seed).random((300, 200)) < 0.2
    users, items = X.nonzero()
    return Interactions.of(([f"u{i}" for i in users], [f"i{j}" for j in items]))


@contextlib.contextmanager
def served(folder: pathlib.Path, reload_seconds: float) -> Iterator[tuple[int, int]]:
    """The service of the page on a free port, with `folder/current` for its model: (port, process id)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ours = str(FOLDER.parent.parent)  # this tree, wherever the command is run
    env = os.environ | {
        "MODEL": str(folder / "current"),
        "RELOAD_SECONDS": str(reload_seconds),
        "PYTHONPATH": os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")])),
        "OPENBLAS_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "uvicorn", "app:app", "--no-access-log", "--port", str(port)]
    with open(folder / "log.txt", "w") as log:
        process = subprocess.Popen(command, cwd=FOLDER, env=env, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while not _healthy(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no service: {(folder / 'log.txt').read_text()[-2000:]}")
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(30)


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


async def client(seed: int, port: int, X: Interactions, until: float, found: list[tuple]) -> None:
    """Requests one after the other until a time: (milliseconds, status, version) of each; −1: an empty list."""
    rng = np.random.default_rng(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        message = request(rng, X)
        begun = time.perf_counter()
        writer.write(message)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            status = int(head.split()[1])
            length = int(head.partition(b"content-length:")[2].split()[0])
            answer = json.loads(await reader.readexactly(length)) if length else {}
        except (OSError, EOFError, ValueError, IndexError):
            found.append((1000 * (time.perf_counter() - begun), 0, None))
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            continue
        taken = 1000 * (time.perf_counter() - begun)
        found.append((taken, status if answer.get("items") else -1, answer.get("version")))
    writer.close()


def request(rng: np.random.Generator, X: Interactions) -> bytes:
    """A request of HTTP/1.1."""
    kind, n, body = rng.random(), int(rng.integers(1, 101)), b""
    if kind < 0.9:
        user = f"u{rng.integers(0, X.num_users)}" if rng.random() < 0.95 else "nobody"
        line = f"GET /users/{user}?n={n}"
    elif kind < 0.95:
        size = min(int(rng.integers(1, 31)), X.num_items)
        basket = [f"i{j}" for j in rng.choice(X.num_items, size, replace=False)]
        line, body = f"POST /baskets?n={n}", json.dumps(basket).encode()
    else:
        line = f"GET /items/i{rng.integers(0, X.num_items)}?n={n}"
    head = "Host: 127.0.0.1\r\nContent-Type: application/json"
    return f"{line} HTTP/1.1\r\n{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def load(config: Config, port: int, pid: int, X: Interactions, folder: pathlib.Path) -> tuple:
    """All clients at once, in one thread: what they found, the memory at times, and the seconds."""
    found, begun = [], time.monotonic()
    until = begun + config.seconds
    clients = [
        asyncio.create_task(client(config.seed + c, port, X, until, found))
        for c in range(config.clients)
    ]
    sizes = [(0.0, memory(pid))]
    for step in range(30):
        await asyncio.sleep(max(0.0, begun + (step + 1) * config.seconds / 30 - time.monotonic()))
        if step == 14:
            switch(folder, 1)
        sizes.append((time.monotonic() - begun, memory(pid)))
    await asyncio.gather(*clients)
    return found, sizes, time.monotonic() - begun


def memory(pid: int) -> float:
    """Resident memory of a process in MB."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def run(config: Config) -> list[dict[str, Any]]:
    """One record."""
    X = positives(config)
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home)
        for version in range(2):
            model = MFAUC(rank=config.rank, seed=config.seed + version).fit(X, progress=False)
            model.save(folder / f"{version}.model")
        switch(folder, 0)
        with served(folder, config.reload_seconds) as (port, pid):
            found, sizes, seconds = asyncio.run(load(config, port, pid, X, folder))
    taken = np.array([ms for ms, *_ in found])
    after = [size for at, size in sizes if at >= 0.7 * config.seconds]
    quantiles = {f"p{q}": float(np.percentile(taken, q)) for q in (50, 90, 99)}
    return [
        {
            "kind": "service",
            "requests": len(found),
            "per_second": len(found) / seconds,
            "errors": sum(status != 200 for _, status, _ in found),
            "versions": sorted({version for *_, version in found if version}),
            **quantiles,
            "largest": float(taken.max()),
            "memory": sizes,
            "growth": after[-1] / after[0],
        }
    ]


def switch(folder: pathlib.Path, version: int) -> None:
    """Point `current` to a model, as the page does."""
    link = folder / "next"
    link.symlink_to(f"{version}.model")
    link.replace(folder / "current")


def draw(records: list[dict]) -> None:
    """Print the record."""
    for r in records:
        print(
            f"{r['requests']} requests, {r['per_second']:.0f} per second, {r['errors']} errors; "
            f"versions {', '.join(r['versions'])}; "
            f"ms: p50 {r['p50']:.1f}, p90 {r['p90']:.1f}, p99 {r['p99']:.1f}, largest {r['largest']:.1f}; "
            f"memory {r['memory'][0][1]:.0f} MB at first, {r['memory'][-1][1]:.0f} MB at the end, "
            f"grown by {100 * (r['growth'] - 1):.1f} % after the second load"
        )


def met(r: dict) -> bool:
    """Whether the targets hold."""
    whole = r["errors"] == 0 and len(r["versions"]) == 2
    return whole and r["p99"] <= P99 and r["growth"] <= GROWTH


if __name__ == "__main__":
    sys.exit(flags.run(Config, partial(results.judged, run, draw, met)))
