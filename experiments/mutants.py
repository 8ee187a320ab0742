"""One-line mutations of the mathematics, each of which some test must notice.

    python -m experiments.mutants [--only=TEXT] [--jobs=1] [--json=FILE]

Each mutation is applied to a copy of the tree in a temporary folder, and the nearest test files are run there until the
first failure. The exit code is 0 only if every mutant is dead. It is 1 if one lives (then write the test that is
missing), if a mutation no longer matches its source (then bring it up to date), or if the tests fail without a
mutation. The list is `experiments/mutations.py`.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from experiments.mutations import MUTANTS, Mutant
from mfauc_jax._core import atomic

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("mfauc_jax", "theory", "experiments", "tests", "docs")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "mkdocs.yml")
FAILED, BROKEN = 1, 2  # pytest's exit codes: a test fails, a module cannot be imported
SECONDS = 900  # a mutant that hangs is stopped, and counts as dead


class Fate(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    fate: str  # "dead", "ALIVE" or "NO MATCH"
    killer: str  # the test that failed first
    seconds: float

    @property
    def good(self) -> bool:
        """Whether the mutant is dead."""
        return self.fate == "dead"


def mutated(mutant: Mutant, text: str) -> str | None:
    """The text of the mutant's file after the mutation; None if `old` does not occur exactly once."""
    return text.replace(mutant.old, mutant.new) if text.count(mutant.old) == 1 else None


def copied(folder: pathlib.Path) -> pathlib.Path:
    """A copy of the tree, as it is now, without its results and caches."""
    ignored = shutil.ignore_patterns("__pycache__", "out", "*.pdf")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in FILES:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    return folder


def node(name: str) -> str:
    """What pytest calls it: "exact::test_a" is tests/test_exact.py::test_a."""
    file, _, test = name.partition("::")
    return f"tests/test_{file}.py" + (f"::{test}" if test else "")


def tested(folder: pathlib.Path, tests: str) -> str | None:
    """None if the tests pass in this copy, else the first that failed, or what went wrong."""
    nodes = [node(name) for name in tests.split()]
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", *nodes]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"stopped after {SECONDS} s"
    if done.returncode == 0:
        return None
    if done.returncode not in (FAILED, BROKEN):
        raise RuntimeError(f"no test was run in {', '.join(nodes)}: {done.stdout}{done.stderr}")
    first = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return first.group(1) if first else f"pytest ended with {done.returncode}"


def tried(folder: pathlib.Path, mutant: Mutant) -> Fate:
    """Apply the mutation in a copy of the tree, run the nearest tests, take it back."""
    begun, path = time.perf_counter(), folder / mutant.file
    text = path.read_text()
    changed = mutated(mutant, text)
    if changed is None:
        return Fate(mutant, "NO MATCH", f"occurs {text.count(mutant.old)} times", 0.0)
    try:
        path.write_text(changed)
        killer = tested(folder, mutant.tests)
    finally:
        path.write_text(text)
    fate = "ALIVE" if killer is None else "dead"
    return Fate(mutant, fate, killer or f"after {mutant.tests}", time.perf_counter() - begun)


def main(argv: list[str] | None = None) -> int:
    """Try every mutant and print its fate; 0 if all are dead."""
    parser = argparse.ArgumentParser(prog="python -m experiments.mutants", description=__doc__)
    parser.add_argument(
        "--only", default="", help="only mutants whose file or change has this text"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--json", type=pathlib.Path, help="also write the fates here")
    arguments = parser.parse_args(argv)
    chosen = [m for m in MUTANTS if arguments.only in m.name]
    if not chosen:
        parser.error(f"--only={arguments.only}: no mutation has this text")
    jobs = max(1, arguments.jobs)
    with tempfile.TemporaryDirectory() as scratch:
        copies: queue.Queue[pathlib.Path] = queue.Queue()
        for place in range(jobs):
            copies.put(copied(pathlib.Path(scratch) / str(place)))
        needed = " ".join(dict.fromkeys(name for m in chosen for name in m.tests.split()))

        def with_copy(work, *values):
            folder = copies.get()
            try:
                return work(folder, *values)
            finally:
                copies.put(folder)

        failed = with_copy(tested, needed)
        if failed:
            print(f"without any mutation {failed} fails: mend it first")
            return 1
        fates = []
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for fate in pool.map(lambda m: with_copy(tried, m), chosen):
                fates.append(fate)
                print(f"{fate.fate:8} {fate.seconds:4.0f} s  {fate.mutant.name}", flush=True)
                print(f"{'':17}{fate.killer}", flush=True)
    dead = sum(f.good for f in fates)
    print(f"\n{len(fates)} mutants, {dead} dead, {len(fates) - dead} not")
    if arguments.json:
        rows = [{**f.mutant._asdict(), **f._asdict(), "mutant": f.mutant.name} for f in fates]
        atomic.write_text(arguments.json, json.dumps(rows, indent=1, ensure_ascii=False))
    return 0 if dead == len(fates) else 1


if __name__ == "__main__":
    sys.exit(main())
