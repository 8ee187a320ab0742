"""SIGKILL of one of two processes that fit together: the other ends soon, and both, started again, find the same.

Every second kill is one of the default route, whose states then go on in two processes and in one.
"""

import pathlib
import shutil
import time
from typing import Any

import numpy as np

from experiments.torture import disagreements
from experiments.torture.children import Plan
from experiments.torture.tally import (
    CRASHED,
    EQUAL,
    HUNG,
    PARTIAL,
    SILENT,
    Outcome,
    Tally,
    left_over,
)

NOTICE = 60.0  # seconds after which the other process must have noticed
WHOLE = 240.0  # seconds that an undisturbed fit may take on a busy machine
CASES = ("SIGKILL", "SIGKILL, default route")
LATEST = (3.0, 6.0)  # seconds after which the kill comes at the latest
CLOSE = 1e-9  # of the factors in another number of processes


def count(quick: bool) -> int:
    return 2 if quick else 20


def run(plan: Plan) -> Tally:
    """Kill process 0 or 1 at a random moment of a fit with checkpoints, and start both again."""
    tally, began = Tally("pair_kills", count(plan.quick)), time.monotonic()
    home = plan.home / "pair_kills"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    wanted = [fitted(plan, home, case, f"undisturbed {case}") for case in CASES]
    waited = []
    for number in range(tally.planned):
        if time.monotonic() - began > plan.budget:
            break
        rng, route = np.random.default_rng([plan.seed, number]), number % 2
        outcome, seconds = attempt(plan, home, rng, str(number), route, wanted[route])
        waited.append(seconds)
        tally.add(outcome, f"{number}: {CASES[route]}", plan.again("pair_kills"))
    tally.notes.append(f"the other process ended after at most {max(waited, default=0.0):.1f} s")
    tally.seconds = time.monotonic() - began
    return tally


def fitted(plan: Plan, home: pathlib.Path, case: str, name: str, processes: int = 2) -> list[dict]:
    """What the processes find in the folder of this name, if nobody disturbs them."""
    children = disagreements.started(plan, home, (1,) * processes)
    for child in children:
        child.tell({"case": case, "name": name})
    said = [child.hear(WHOLE) for child in children]
    disagreements.ended(children)
    return said


def attempt(
    plan: Plan, home: pathlib.Path, rng: np.random.Generator, name: str, route: int, wanted: list
) -> tuple[Outcome, float]:
    """One kill, how the pair ended after it was started again, and how long the other process lived on."""
    both = disagreements.started(plan, home, (1, 1))
    for child in both:
        child.tell({"case": CASES[route], "name": name})
    victim = int(rng.integers(2))
    time.sleep(float(rng.uniform(0.05, LATEST[route])))
    both[victim].kill()
    killed = time.monotonic()
    other = both[1 - victim].hear(NOTICE)
    seconds = time.monotonic() - killed
    disagreements.ended(both)
    if other.get("end") == "hung":
        hung = f"process {1 - victim} did not notice within {NOTICE:.0f} s"
        return Outcome(HUNG, hung), seconds
    if route == 1 and (home / name).exists():
        shutil.copytree(home / name, home / f"{name} alone")
    again = fitted(plan, home, CASES[route], name)
    alone = fitted(plan, home, CASES[route], f"{name} alone", 1) if route == 1 else []
    return judged(again, alone, wanted, home / name), seconds


def judged(again: list[dict], alone: list[dict], wanted: list[dict], folder: Any) -> Outcome:
    """Both processes must find the same bits as undisturbed ones, and one process the same up to `CLOSE`."""
    if any("end" in said or "error" in said for said in again + alone):
        return Outcome(CRASHED, f"started again: {again}, {alone}")
    if again != wanted:
        return Outcome(SILENT, f"started again: {again}, undisturbed: {wanted}")
    if not all(np.allclose(said["V"], wanted[0]["V"], rtol=0, atol=CLOSE) for said in alone):
        return Outcome(SILENT, f"one process: {alone}, undisturbed: {wanted[0]}")
    left = left_over(folder)
    return Outcome(PARTIAL, f"left behind: {left[0]}") if left else Outcome(EQUAL)
