"""SIGKILL of one of two processes that fit together: the other ends soon, and both, started again, find the same."""

import pathlib
import shutil
import time

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
CASE = "SIGKILL"


def count(quick: bool) -> int:
    return 1 if quick else 20


def run(plan: Plan) -> Tally:
    """Kill process 0 or 1 at a random moment of a fit with checkpoints, and start both again."""
    tally, began = Tally("pair_kills", count(plan.quick)), time.monotonic()
    home = plan.home / "pair_kills"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    wanted = fitted(plan, home, "undisturbed")
    for number in range(tally.planned):
        if time.monotonic() - began > plan.budget:
            break
        rng = np.random.default_rng([plan.seed, number])
        outcome = attempt(plan, home, rng, str(number), wanted)
        tally.add(outcome, str(number), plan.again("pair_kills"))
    tally.seconds = time.monotonic() - began
    return tally


def fitted(plan: Plan, home: pathlib.Path, name: str) -> list[dict]:
    """What both processes find in the folder of this name, if nobody disturbs them."""
    both = disagreements.started(plan, home, (1, 1))
    for child in both:
        child.tell({"case": CASE, "name": name})
    said = [child.hear(NOTICE) for child in both]
    disagreements.ended(both)
    return said


def attempt(
    plan: Plan, home: pathlib.Path, rng: np.random.Generator, name: str, wanted: list[dict]
) -> Outcome:
    """One kill, and how the pair ended after it was started again."""
    both = disagreements.started(plan, home, (1, 1))
    for child in both:
        child.tell({"case": CASE, "name": name})
    victim = int(rng.integers(2))
    time.sleep(float(rng.uniform(0.05, 3.0)))
    both[victim].kill()
    other = both[1 - victim].hear(NOTICE)
    disagreements.ended(both)
    if other.get("end") == "hung":
        return Outcome(HUNG, f"process {1 - victim} did not notice within {NOTICE:.0f} s")
    again = fitted(plan, home, name)
    if any("end" in said for said in again):
        return Outcome(CRASHED, f"started again: {again}")
    if again != wanted:
        return Outcome(SILENT, f"started again: {again}, undisturbed: {wanted}")
    left = left_over(home / name)
    return Outcome(PARTIAL, f"left behind: {left[0]}") if left else Outcome(EQUAL)
