"""Child processes that try the cases of a room: started again after a crash, ended when they hang.

A room is a module with `count(quick)`, the number of its cases; `prepare(home)`, called once in each child; and
`attempt(bench, seed, case)`, which returns an `Outcome` for one case. The child writes one line before and one after
each case, so the parent knows which case a dead or silent child was trying.
"""

import contextlib
import importlib
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from experiments.torture.tally import CRASHED, HUNG, LARGEST, MEMORY, Outcome, Tally

ROOT = pathlib.Path(__file__).parent.parent.parent
LIMIT = 30.0  # seconds that a case may take
START = 120.0  # seconds that a child may take to start
SERVED = 1000  # cases that one child tries; a new one starts with little memory
HERE = "experiments.torture.children"


class Plan(NamedTuple):
    """What all rooms are told."""

    home: pathlib.Path  # scratch
    seed: int
    quick: bool
    budget: float  # seconds per room

    def again(self, kind: str, case: int | str | None = None) -> str:
        """The line that repeats one case, or the whole kind where cases depend on each other."""
        which = "" if case is None else f" --case={case}"
        quick = " --quick" if self.quick else ""
        return f"python -m experiments.torture --only={kind} --seed={self.seed}{which}{quick}"


def environment(home: pathlib.Path, **changes: str) -> dict[str, str]:
    """The environment of a child: on the CPU, with a compilation cache that all children share."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MFAUC_", "XLA_"))}
    return inherited | {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(home / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "MPLBACKEND": "Agg",
        "XDG_CACHE_HOME": str(home / "xdg"),
        **changes,
    }


class Child:
    """One child process: `python -m MODULE ARGUMENTS`, the lines it writes, and its end."""

    def __init__(
        self, home: pathlib.Path, module: str, arguments: Sequence[str], **changes: str
    ) -> None:
        """Start the child; its standard error goes to a file of its own."""
        logs = home / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.log = logs / f"{module.rpartition('.')[2]}-{time.monotonic_ns()}.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=home,
                env=environment(home, **changes),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C of the parent is the parent's
            )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def tell(self, message: Any) -> None:
        """Send one line of JSON."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def hear(self, seconds: float, largest: float = 2 * LARGEST) -> dict[str, Any]:
        """The next line, or {"end": "hung" | "memory" | the exit code} if there is none."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(queue.Empty):
                line = self.lines.get(timeout=0.1)
                if line is None:
                    return {"end": self.process.wait()}
                if line.startswith("{"):
                    return json.loads(line)
                continue
            if (taken := memory(self.process.pid)) > largest:
                self.kill()
                return {"end": "memory", "peak": taken}
            if time.monotonic() > until:
                self.kill()
                return {"end": "hung"}

    def kill(self) -> None:
        """End the child at once."""
        self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        """The last line of what the child wrote to standard error."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing was said"


def memory(pid: int | str = "self", field: str = "VmRSS") -> float:
    """The resident memory of a process in MB, or its peak for the field VmHWM."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    return 0.0


def run(plan: Plan, kind: str) -> Tally:
    """Try all cases of a room, in order, until they or the budget end."""
    room = importlib.import_module(f"experiments.torture.{kind}")
    tally, began = Tally(kind, room.count(plan.quick)), time.monotonic()
    first, child = 0, None
    while first < tally.planned and time.monotonic() - began < plan.budget:
        if child is None:
            last = min(first + getattr(room, "SERVED", SERVED), tally.planned)
            child = Child(
                plan.home, HERE, (kind, str(plan.home), str(plan.seed), *map(str, (first, last)))
            )
            if "ready" not in (said := child.hear(START)):
                tally.add(Outcome(CRASHED, f"no start: {child.last_words()}"), "start", str(said))
                break
        said = child.hear(LIMIT)
        if "end" not in said:
            tally.peak = max(tally.peak, said["peak"])
            outcome = Outcome(said["what"], said["detail"])
            if outcome.what not in (CRASHED, HUNG) and said["peak"] > LARGEST:
                outcome = Outcome(MEMORY, f"{said['peak']:.0f} MB; {said['detail']}")
            first = said["case"] + 1
            tally.add(outcome, str(said["case"]), plan.again(kind, said["case"]))
            continue
        if said["end"] == 0:
            child = None
            continue
        tally.peak = max(tally.peak, said.get("peak", 0.0))
        ended = {"hung": HUNG, "memory": MEMORY}.get(said["end"], CRASHED)
        detail = f"the process ended ({said['end']}): {child.last_words()}"
        tally.add(Outcome(ended, detail), str(first), plan.again(kind, first))
        first, child = first + 1, None
    if child is not None:
        child.kill()
    tally.seconds = time.monotonic() - began
    return tally


def attempts(kind: str, home: pathlib.Path, seed: int, cases: range) -> Iterator[dict[str, Any]]:
    """Try cases in this process; one dictionary per case, the first one for the start."""
    room = importlib.import_module(f"experiments.torture.{kind}")
    bench = room.prepare(home)
    yield {"ready": True}
    for case in cases:
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        what, detail = room.attempt(bench, seed, case)
        peak = memory(field="VmHWM")
        yield {"case": case, "what": what, "detail": detail[:2000], "peak": peak}


def main(kind: str, home: str, seed: str, first: str, last: str) -> None:
    """The child: what it tries may print as it likes, so it keeps the parent's pipe to itself."""
    pipe = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for said in attempts(kind, pathlib.Path(home), int(seed), range(int(first), int(last))):
        pipe.write(json.dumps(said) + "\n")
    pipe.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
