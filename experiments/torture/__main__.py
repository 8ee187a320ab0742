"""The whole torture: `python -m experiments.torture [--quick]`. See the package."""

import concurrent.futures
import contextlib
import dataclasses
import importlib
import json
import pathlib
import sys
import tempfile
import time
import traceback

from experiments import flags, results
from experiments.flags import option
from experiments.torture import children
from experiments.torture.children import Plan
from experiments.torture.tally import CRASHED, Outcome, Tally, into_page, table
from mfauc_jax._core import atomic

OWN = ("kills", "pair_kills", "disagreements", "long_runs")  # rooms that start their own children
CASES = (
    "states",
    "folders",
    "forks",
    "bombs",
    "readers",
    "models",
    "settings",
    "methods",
    "commands",
)
SHOWN = 8  # failures per kind that are printed
GROUPS = {
    "damages": ("readers", "models", "states", "folders"),
    "nonsense": ("settings", "methods", "commands"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything, with fixed seeds, in about an hour."""

    quick: bool = option(False, "three minutes instead of an hour")
    seed: int = option(0, "chooses moments, damages and nonsense")
    only: tuple[str, ...] = option((), "kinds or groups to run; empty: all")
    case: str = option("", "repeat one case of the kind in --only, in this process if it has one")
    budget: float = option(0.0, "seconds per kind; 0: 60 for quick, else 2400")
    jobs: int = option(2, "kinds that run at the same time")
    folder: str = option("", "scratch; empty: a temporary folder, removed at the end")
    out: str = option("", "file for the outcome as JSON")
    page: str = option(
        "", "a page with the markers of tally.BEGIN and END, whose table is replaced"
    )


def chosen(only: tuple[str, ...]) -> list[str]:
    """The kinds that are named, or all; groups stand for their members."""
    known = (*OWN, *CASES)
    kinds: list[str] = [kind for name in only for kind in GROUPS.get(name, (name,))] or list(known)
    for kind in kinds:
        if kind not in known:
            raise ValueError(f"{kind!r} is no kind: choose from {', '.join((*GROUPS, *known))}")
    return kinds


def one(plan: Plan, kind: str) -> Tally:
    """One kind of attack; an error of the room itself counts as a crash."""
    try:
        if kind in OWN:
            return importlib.import_module(f"experiments.torture.{kind}").run(plan)
        return children.run(plan, kind)
    except Exception as error:
        tally = Tally(kind, 1)
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{pathlib.Path(last.filename).name}:{last.lineno}"
        tally.add(Outcome(CRASHED, f"{type(error).__name__} in {where}: {error}"), "room", "")
        return tally


def run(config: Config, home: pathlib.Path) -> dict:
    """All chosen kinds; the outcome as JSON."""
    budget = config.budget or (60.0 if config.quick else 2400.0)
    plan, kinds = Plan(home, config.seed, config.quick, budget), chosen(config.only)
    began, records = time.monotonic(), {}
    with concurrent.futures.ThreadPoolExecutor(max(config.jobs, 1)) as pool:
        waiting = {pool.submit(one, plan, kind): kind for kind in kinds}
        for done in concurrent.futures.as_completed(waiting):
            record = records[waiting[done]] = done.result().as_record()
            state = "held" if record["held"] else "FAILED"
            say(f"{record['kind']}: {record['tried']} tried in {record['seconds']:.0f} s, {state}")
    return {
        "seed": config.seed,
        "quick": config.quick,
        "seconds": round(time.monotonic() - began, 1),
        **results.provenance(),
        "kinds": [records[kind] for kind in kinds],
        "held": all(record["held"] for record in records.values()),
    }


def repeat(config: Config, home: pathlib.Path) -> int:
    """One case again: its outcome and the whole detail."""
    (kind,) = chosen(config.only)
    plan = Plan(home, config.seed, config.quick, 600.0)
    if kind == "disagreements":
        from experiments.torture import disagreements

        record = disagreements.run(plan, config.case).as_record()
        say(table([record]), *map(str, record["failures"]))
        return int(not record["held"])
    if kind in OWN:
        raise ValueError(f"{kind} has no single cases: run --only={kind} --seed={config.seed}")
    case = int(config.case)
    for said in children.attempts(kind, home, config.seed, range(case, case + 1)):
        say(json.dumps(said, ensure_ascii=False))
    return 0


def say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def main(config: Config) -> int:
    """0 if nothing forbidden was seen."""
    with contextlib.ExitStack() as stack:
        made = config.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="torture-"))
        home = pathlib.Path(made).absolute()
        home.mkdir(parents=True, exist_ok=True)
        if config.case:
            return repeat(config, home)
        outcome = run(config, home)
    say("", table(outcome["kinds"]), "")
    for record in outcome["kinds"]:
        for note in record["notes"]:
            say(f"{record['kind']}: {note}")
        if record["tried"] < record["planned"] and record["kind"] != "kills":
            say(f"{record['kind']}: the budget allowed {record['tried']} of {record['planned']}")
        more = len(record["failures"]) - SHOWN
        if more > 0:
            say(f"{record['kind']}: {more} more failures, which --out has")
        for failure in record["failures"][:SHOWN]:
            say(
                f"{failure['outcome']}: {failure['case']}: {failure['detail']}",
                f"  {failure['again']}",
            )
    if config.out:
        atomic.write_text(config.out, json.dumps(outcome, indent=1, ensure_ascii=False) + "\n")
    if config.page:
        page = pathlib.Path(config.page)
        atomic.write_text(page, into_page(page.read_text(), outcome))
    say("nothing was lost and nothing was silently wrong" if outcome["held"] else "FAILED")
    return int(not outcome["held"])


if __name__ == "__main__":
    flags.run(Config, main)
