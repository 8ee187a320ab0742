"""One process for months: nightly `partial_fit`s, and mixed requests; memory maps and resident memory stay flat."""

import json
import os
import pathlib
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.torture import children, samples
from experiments.torture.children import Child, Plan
from experiments.torture.tally import CRASHED, EQUAL, HUNG, LARGEST, SILENT, Outcome, Tally, is_flat

EVERY = 10  # turns between two samples
WARM = 50  # turns after which the process must be flat
LEAKS = {
    "maps": (0.1, 600),
    "rss": (0.1, 48),
}  # share and slack: two late compilations, not one per turn
MODULE = "experiments.torture.long_runs"
SIZES = {"nights": (60, 500), "requests": (300, 5_000)}  # quick, full


def count(quick: bool) -> int:
    return sum(sizes[not quick] for sizes in SIZES.values())


def run(plan: Plan) -> Tally:
    """Both long runs, one after the other; every turn counts as a case, a leak as one more."""
    tally, began = Tally("long_runs", count(plan.quick)), time.monotonic()
    for name, sizes in SIZES.items():
        child = Child(plan.home, MODULE, (name, str(sizes[not plan.quick]), str(plan.seed)))
        samples_, turn, limit = [], 0, began + plan.budget
        while "end" not in (said := child.hear(60, largest=2 * LARGEST)):
            turn += EVERY
            tally.counts[EQUAL] += EVERY
            samples_.append(said)
            if time.monotonic() > limit:
                child.kill()
        tally.peak = max([tally.peak, *(s["rss"] for s in samples_)])
        outcome = judged(name, samples_, said["end"], child.last_words())
        tally.notes.append(f"{turn} {name}: {_course(samples_)}")
        if outcome.what != EQUAL:
            tally.add(outcome, f"{name}, turn {turn}", plan.again("long_runs"))
    tally.seconds = time.monotonic() - began
    return tally


def judged(name: str, found: list[dict[str, float]], end: Any, words: str) -> Outcome:
    """How a long run ended, from its samples and its exit code."""
    if end not in (0, -9):
        return Outcome(HUNG if end == "hung" else CRASHED, f"ended with {end}: {words}")
    for field, (share, slack) in LEAKS.items():
        course = [sample[field] for sample in found]
        if len(course) * EVERY > WARM and not is_flat(course, WARM // EVERY, share, slack):
            return Outcome(SILENT, f"{name} leak {field}: {_course(found, field)}")
    return Outcome(EQUAL)


def _course(found: list[dict[str, float]], field: str = "maps") -> str:
    chosen = found[:: max(len(found) // 6, 1)] + found[-1:]
    return f"{field} " + " ".join(f"{s[field]:.0f}" for s in chosen)


def nights(seed: int) -> Callable[[int], None]:
    """One night: new positives of known users, now and then a new user and a new item."""
    import mfauc_jax as mf

    rng = np.random.default_rng(seed)
    m, n = 400, 150
    users, items = np.nonzero(rng.random((m, n)) < 0.08)
    model = mf.MFAUC(rank=4).fit(mf.Interactions.from_pairs(users, items))

    def night(turn: int) -> None:
        size = int(rng.integers(5, 30))
        new_users, new_items = (
            rng.integers(m + turn, size=size),
            rng.integers(n + turn // 5, size=size),
        )
        model.partial_fit(mf.Interactions.from_pairs(new_users, new_items), iterations=1)

    return night


def requests(seed: int) -> Callable[[int], None]:
    """One request of any kind, of any size."""
    import mfauc_jax as mf

    rng = np.random.default_rng(seed)
    X = samples.matrix(4, 200, 120)
    held_out = samples.held_out(X)
    model = mf.MFAUC(rank=4).fit(X)

    def kinds(users: np.ndarray, n: int) -> list[Callable[[], Any]]:
        return [
            lambda: model.recommend(users, n),
            lambda: model.recommend(users, n, filter_items=rng.integers(120, size=n)),
            lambda: model.similar_items(users % 120, n),
            lambda: model.predict(users, users % 120),
            lambda: model.fold_in(X[users]),
            lambda: model.evaluate(held_out * (rng.random(X.shape) < 0.9)),
        ]

    def request(turn: int) -> None:
        largest = turn % 6 if turn < WARM else None  # at first each kind in its extremes
        size, n = (int(rng.integers(1, top)) for top in (190, 110))
        if largest is not None and turn < WARM // 2:
            size, n = (1, 1) if turn % 12 < 6 else (189, 109)
        chosen = kinds(rng.choice(200, size, replace=False), n)
        chosen[turn % 6 if turn < WARM else int(rng.integers(len(chosen)))]()

    return request


def main(name: str, turns: str, seed: str) -> None:
    """Turn after turn in one process; a sample of maps and memory every so often."""
    pipe = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    act = {"nights": nights, "requests": requests}[name](int(seed))
    for turn in range(int(turns)):
        act(turn)
        if (turn + 1) % EVERY == 0:
            maps = pathlib.Path("/proc/self/maps").read_bytes().count(b"\n")
            pipe.write(json.dumps({"maps": maps, "rss": children.memory()}) + "\n")
    pipe.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
