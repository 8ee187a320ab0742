"""Records of what was run: JSON lines that carry config, seed, commit, device and versions."""

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterable
from typing import Any

import jax

VERSIONED = ("jax", "optax", "numpy", "scipy", "implicit", "lightfm-next", "recometrics")


def provenance() -> dict[str, Any]:
    """Where and with what a number was made."""
    here = pathlib.Path(__file__).parent
    git = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    versions = {}
    for name in VERSIONED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "commit": done.stdout.strip() or "unknown",
        "device": f"{jax.device_count()} × {jax.devices()[0].device_kind}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": versions,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def write(path: str | os.PathLike, config: Any, records: Iterable[dict]) -> None:
    """Write records beside `path` and rename: a reader sees the old file or the new one."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"config": dataclasses.asdict(config), **provenance()}
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        for record in records:
            file.write(json.dumps({**record, **header}, sort_keys=True) + "\n")
    os.replace(file.name, path)


def read(path: str | os.PathLike) -> list[dict]:
    """The records of a file."""
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line]
