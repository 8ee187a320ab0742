"""Records of what was run: JSON lines that carry config, seed, commit, device and versions.

`write` keeps the records of a run as a whole; `Cells` keeps each piece of a long one as it finishes. A piece
is known by its job; of a model a job says the objects it consists of (`described`), and nothing about objects
that it does not use.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax

from mfauc_jax import MFAUC
from mfauc_jax._core import atomic, settings

COMMITTED = (
    pathlib.Path(__file__).resolve().parent / "results"
)  # a record here names a commit that has its code
VERSIONED = (
    "jax",
    "optax",
    "numpy",
    "scipy",
    "libtpu",
    "implicit",
    "irspack",
    "lightfm-next",
    "recometrics",
)


def provenance() -> dict[str, Any]:
    """Where and with what a number was made."""
    commit = _git("describe", "--always", "--abbrev=12")
    versions = {}
    for name in VERSIONED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "commit": (commit or "unknown") + ("-dirty" if changed_files() else ""),
        "device": f"{jax.device_count()} × {jax.devices()[0].device_kind}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": versions,
        "time": now(),
    }


def _git(*words: str) -> str:
    """What git says about the tree of this file; nothing where there is no git or no repository."""
    git = ["git", "-C", str(COMMITTED.parent.parent), *words]
    try:
        done = subprocess.run(git, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.rstrip("\n") if done.returncode == 0 else ""


def changed_files() -> list[str]:
    """The files, besides the committed results, that are not as they were committed; new ones included."""
    listed = _git("status", "--porcelain", "--", ".", ":(exclude)experiments/results")
    return [line[3:] for line in listed.splitlines()]


class DirtyTreeError(RuntimeError):
    """Records for experiments/results would name a commit that does not have the code that made them."""


def check_clean(path: str | os.PathLike) -> None:
    """Raise DirtyTreeError if `path` is in experiments/results and the tree has uncommitted changes elsewhere."""
    if not pathlib.Path(path).resolve().is_relative_to(COMMITTED):
        return
    changed = changed_files()
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise DirtyTreeError(
            f"{path}: records in experiments/results must name the commit of their code, but {changed[0]}{more} is "
            "not committed: commit or stash it first, or write to another folder, such as out/"
        )


def commits(records: Iterable[dict]) -> str:
    """The commits of the records, shortened: what a row of a table was made by."""
    found = dict.fromkeys(r["commit"] for r in records if "commit" in r)
    short = (
        c.removesuffix("-dirty")[:7] + ("-dirty" if c.endswith("-dirty") else "") for c in found
    )
    return ", ".join(sorted(set(short)))


def now() -> str:
    """Now, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write(path: str | os.PathLike, config: Any, records: Iterable[dict]) -> None:
    """Write records beside `path` and rename: a reader sees the old file or the new one."""
    check_clean(path)
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"config": dataclasses.asdict(config), **provenance()}
    with atomic.text_file(path) as file:
        for record in records:
            file.write(json.dumps({**record, **header}, sort_keys=True) + "\n")


def read(path: str | os.PathLike) -> list[dict]:
    """The records of a file; a last line that a kill cut short is not one."""
    whole = pathlib.Path(path).read_bytes().rpartition(b"\n")[0]
    records = []
    for number, line in enumerate(whole.split(b"\n"), 1):
        try:
            records += [json.loads(line)] if line else []
        except ValueError as error:
            raise ValueError(
                f"{path}: line {number} is no record ({error}): mend or delete it"
            ) from None
    return records


class Enough(Exception):  # noqa: N818  # not an error: what was wanted
    """As many new cells as were wanted are done."""


class Cells:
    """Finished pieces of work in one file, one line per piece, appended the moment it finishes.

    A cell is known by its job: plain values that say all that decides its outcome. A finished cell
    is read back; one with a changed setting is another cell.
    """

    def __init__(self, path: str | os.PathLike, limit: int = 0):
        """Args: path: the file. limit: new cells after which `Enough` is raised; 0: no limit."""
        self.path, self.limit, self.fresh = pathlib.Path(path), limit, 0
        self._about: dict[str, Any] | None = None
        self._kept: dict[str, dict] = {}
        if self.path.exists():
            records = read(self.path)
            self._kept = {r["cell"]: r for r in records if "cell" in r}

    def run(self, jobs: Sequence[dict], work: Callable[[dict], dict]) -> list[dict]:
        """The record of each job: its own values, those of `work(job)`, seconds and provenance."""
        return self.run_together(jobs, lambda alone: [work(job) for job in alone], id)

    def run_together(
        self,
        jobs: Sequence[dict],
        work: Callable[[list[dict]], list[dict]],
        group: Callable[[dict], Any],
    ) -> list[dict]:
        """As `run`, but jobs that agree in `group(job)` are computed by one call of `work`."""
        todo = [job for job in jobs if not self._has(job)]
        if todo:
            check_clean(self.path)
        groups: dict[Any, list[dict]] = {}
        for job in todo:
            groups.setdefault(group(job), []).append(job)
        done = len(jobs) - len(todo)
        for jobs_of_group in groups.values():
            part = jobs_of_group
            if self.limit:
                part = part[: max(self.limit - self.fresh, 0)]
            if not part:
                raise Enough(f"{self.fresh} new cells in {self.path}")
            left = sum(self._expected(job) or 0.0 for job in todo if not self._has(job))
            _tell(self.path.stem, f"{done + 1}/{len(jobs)}", part, left)
            begun = time.perf_counter()
            found = work(part)
            seconds = (time.perf_counter() - begun) / len(part)
            for job, values in zip(part, found, strict=True):
                self._append(job, values, seconds)
            done += len(part)
        if not all(map(self._has, jobs)):
            raise Enough(f"{self.fresh} new cells in {self.path}")
        return [self._kept[identity(job)] for job in jobs]

    def _has(self, job: dict) -> bool:
        return identity(job) in self._kept

    def _append(self, job: dict, found: dict, seconds: float) -> None:
        self._about = self._about or provenance()
        about = self._about | {"time": now()}
        record = {"cell": identity(job), **job, **found, "seconds": round(seconds, 3), **about}
        line = json.dumps(record, sort_keys=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        atomic.append_line(self.path, line)
        self._kept[record["cell"]] = json.loads(line)
        self.fresh += 1

    def _expected(self, job: dict) -> float | None:
        """Seconds of cells like this one: the same in most respects that a cell is called by."""
        alike: dict[int, list[float]] = {}
        for record in self._kept.values():
            same = sum(record.get(name) == job.get(name) for name in CALLED)
            alike.setdefault(same, []).append(record["seconds"])
        return statistics.median(alike[max(alike)]) if alike else None


CALLED = ("kind", "dataset", "setting", "method", "loss", "seed")


PARTS = ("loss", "weighting", "weights", "penalty", "solver", "start")


def described(model: MFAUC) -> dict[str, Any]:
    """The objects of a model with every number of theirs, as JSON: what a cell of the model is known by.

    "auto" is described as the solver that it stands for. The rank and the seed are the job's own.
    """
    return {
        k: v
        for k, v in model.with_params(solver=model.chosen_solver).describe().items()
        if k in PARTS
    }


def rebuilt(parts: dict[str, Any], rank: int, seed: int = 0) -> MFAUC:
    """The model that `described` described."""
    specs = MFAUC.specs()
    objects = {name: settings.from_description(specs[name], parts[name]) for name in PARTS}
    return MFAUC(rank=rank, seed=seed, **objects)


def identity(job: dict) -> str:
    """A fingerprint of the job. None and False go without saying: a new field that is off makes no other cell."""
    return hashlib.sha256(json.dumps(_said(job), sort_keys=True).encode()).hexdigest()[:16]


def _said(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {k: _said(v) for k, v in value.items() if v is not None and v is not False}


def latest(records: Iterable[dict], by: Sequence[str]) -> list[dict]:
    """Of the records that agree in `by` the last one: settings may have changed between runs."""
    return list({tuple(str(r.get(name)) for name in by): r for r in records}.values())


def _tell(name: str, count: str, jobs: list[dict], left: float) -> None:
    called = " ".join(str(jobs[0][key]) for key in CALLED if key in jobs[0])
    called += f" and {len(jobs) - 1} more with it" if len(jobs) > 1 else ""
    about = f"about {left / 60:.1f} min left" if left else "no estimate yet"
    print(f"{name} {count}  {called}  ({about})", file=sys.stderr, flush=True)


def keep(config: Any, records: list[dict]) -> None:
    """Write the records of a whole run; cells have kept themselves."""
    if not any("cell" in r for r in records):
        write(config.results, config, records)


def artefact(
    run: Callable[[Any], list[dict]],
    draw: Callable[[list[dict], str], list[pathlib.Path]],
    config: Any,
) -> int:
    """What an artefact's command does: run, keep, draw from what was kept, say where."""
    keep(config, run(config))
    for path in draw(read(config.results), config.out):
        print(path)
    return 0


def judged(
    run: Callable[[Any], list[dict]],
    draw: Callable[[list[dict]], None],
    met: Callable[[dict], bool],
    config: Any,
) -> int:
    """What a benchmark's command does: run, keep, print; the exit code is 1 if a record misses its targets."""
    records = run(config)
    write(config.results, config, records)
    draw(records)
    return 0 if all(map(met, records)) else 1


def the(records: Iterable[dict], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The latest record that has these values."""
    fitting = [r for r in records if all(r.get(k) == v for k, v in wanted.items())]
    if not fitting:
        raise LookupError(f"no record of {dict(wanted)}: run the experiment that makes it first")
    return fitting[-1]


def tell(config: Any, records: Iterable[dict], draw: Callable[[list[dict]], str]) -> int:
    """What the command of a study does at its end: keep the records, print their table."""
    write(config.results, config, records)
    print(draw(read(config.results)))
    return 0
