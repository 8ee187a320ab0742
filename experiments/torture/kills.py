"""SIGKILL at random moments of fits, saves and drawings; then the same again until it ends, and the bits compared."""

import json
import pathlib
import shutil
import threading
import time
from typing import Any

import numpy as np

from experiments.torture import children, fits
from experiments.torture.children import Child, Plan
from experiments.torture.tally import CRASHED, EQUAL, HUNG, PARTIAL, SILENT, Outcome, Tally

KILLS_EACH = 3  # kills of one job before it may end
SILENCE = 90.0  # seconds without a word that count as a hang
MODULE = "experiments.torture.fits"


def count(quick: bool) -> int:
    """The number of kills."""
    return 10 if quick else 300


def run(plan: Plan) -> Tally:
    """Kill jobs, resume them, and compare what they find with what they find undisturbed."""
    tally, began = Tally("kills", count(plan.quick)), time.monotonic()
    home = plan.home / "kills"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    rng = np.random.default_rng(plan.seed)
    names = list(fits.jobs())
    order = [names[i] for i in rng.permutation(len(names))][: 4 if plan.quick else None]
    known = undisturbed(plan, home, order, tally)
    kills, turn = 0, 0
    while kills < tally.planned and known and time.monotonic() - began < plan.budget:
        todo = [(name, f"{name}-{turn}") for name in order if name in known]
        kills += killed(plan, home, rng, todo, known, tally, tally.planned - kills, began)
        turn += 1
    tally.notes.append(f"{kills} kills")
    tally.seconds = time.monotonic() - began
    return tally


def undisturbed(plan: Plan, home: pathlib.Path, names: list[str], tally: Tally) -> dict[str, Any]:
    """What each job finds when nobody kills it, how long it takes and how many events it has."""
    _write_plan(home, [(name, f"undisturbed/{name}", 0) for name in names])
    child, known = Child(plan.home, MODULE, (str(home),)), {}
    while "end" not in (said := child.hear(SILENCE)):
        if "done" in said:
            name = said["done"].rpartition("/")[2]
            if "error" in said:
                tally.add(
                    Outcome(CRASHED, f"undisturbed: {said['error']}"), name, plan.again("kills")
                )
            else:
                known[name] = said
    if said["end"] != 0:
        tally.add(
            Outcome(CRASHED, f"undisturbed: {child.last_words()}"), "start", plan.again("kills")
        )
    return known


def killed(
    plan: Plan,
    home: pathlib.Path,
    rng: np.random.Generator,
    todo: list[tuple[str, str]],
    known: dict[str, Any],
    tally: Tally,
    most: int,
    began: float,
) -> int:
    """Run the jobs with kills until each has ended; returns how many kills there were."""
    kills, suffered = 0, dict.fromkeys((where for _, where in todo), 0)
    names = {where: name for name, where in todo}
    while todo:
        late = kills >= most or time.monotonic() - began > plan.budget
        free = {where for _, where in todo if late or suffered[where] >= KILLS_EACH}
        moments = {w: moment(rng, known[n]) for n, w in todo if w not in free}
        events = [(n, w, moments[w][0] if w in moments else 0) for n, w in todo]
        _write_plan(home, events)
        child, current = Child(plan.home, MODULE, (str(home),)), todo[0][1]
        timer = threading.Timer(0.0, child.process.kill)  # not started
        while "end" not in (said := child.hear(SILENCE)):
            tally.peak = max(tally.peak, children.memory(child.process.pid))
            if "begin" in said:
                current = said["begin"]
                delay = moments[current][1] if current in moments else 0.0
                timer = threading.Timer(delay, child.process.kill)
                if delay:
                    timer.start()
            if "done" in said:
                timer.cancel()
                todo = [pair for pair in todo if pair[1] != said["done"]]
                outcome = judged(said, known[names[said["done"]]])
                label = f"{said['done']} after {suffered[said['done']]} kills"
                hits = suffered[said["done"]]
                if hits or outcome.what != EQUAL:  # a job that nobody hit shows nothing
                    tally.add(outcome, label, plan.again("kills"))
                    tally.counts[outcome.what] += max(hits - 1, 0)  # one per kill
        timer.cancel()
        if said["end"] == -9:
            kills, suffered[current] = kills + 1, suffered[current] + 1
        elif said["end"] != 0:
            what = HUNG if said["end"] == "hung" else CRASHED
            tally.add(
                Outcome(what, f"{current}: {child.last_words()}"), current, plan.again("kills")
            )
            todo = [pair for pair in todo if pair[1] != current]
    return kills


def moment(rng: np.random.Generator, undisturbed: dict[str, Any]) -> tuple[int, float]:
    """When to kill: at an event in the job's folder, or else after a delay in seconds."""
    if rng.random() < 0.5:
        return 1 + int(rng.integers(max(undisturbed["events"], 1))), 0.0
    return 0, float(rng.uniform(0.001, max(undisturbed["seconds"], 0.02)))


def judged(said: dict[str, Any], wanted: dict[str, Any]) -> Outcome:
    """How a job ended that was killed before: equal to the undisturbed one, or refused."""
    if "error" in said:
        if "partial:" in said["error"]:
            return Outcome(PARTIAL, said["error"])
        return Outcome(said["refused"], said["error"])
    if said["found"] != wanted["found"]:
        differ = [key for key, value in wanted["found"].items() if said["found"].get(key) != value]
        return Outcome(SILENT, f"other {', '.join(differ)} than undisturbed")
    if said["left"]:
        return Outcome(PARTIAL, f"left behind: {', '.join(said['left'][:3])}")
    return Outcome(EQUAL)


def _write_plan(home: pathlib.Path, jobs: list[tuple[str, str, int]]) -> None:
    (home / "plan.json").write_text(json.dumps(jobs))
