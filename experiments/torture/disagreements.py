"""Two processes that fit together and differ in one thing: each must end soon, by a sentence or by an equal result."""

import pathlib
import re
import shutil
import socket
import time
from typing import Any

from experiments.torture.children import LIMIT, Child, Plan
from experiments.torture.tally import CRASHED, EQUAL, HUNG, REFUSED, SILENT, Outcome, Tally

MODULE = "experiments.torture.pair"
QUICK = ("nothing differs", "learning rate", "wrong rows", "SIGTERM in one")
SENTENCE = re.compile(r"process|\busers\b|\bport\b|nobody answered")  # what our messages speak of
DEVICES, PORT = "other numbers of devices", "a port that is in use"


def count(quick: bool) -> int:
    return len(cases(quick))


def cases(quick: bool) -> list[str]:
    """The names of the differences, the harmless ones first."""
    if quick:
        return list(QUICK)
    from experiments.torture import pair

    alike = [name for name in pair.AGREE if not name.startswith("SIGKILL")]
    return [*alike, *pair.REFUSE, DEVICES, PORT]


def run(plan: Plan, only: str | None = None) -> Tally:
    """Try every difference with a pair that lives as long as nothing hangs."""
    from experiments.torture import pair

    names = cases(plan.quick) if only is None else [only]
    tally, began, processes = Tally("disagreements", len(names)), time.monotonic(), None
    home = plan.home / "disagreements"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    for number, name in enumerate(names):
        if time.monotonic() - began > plan.budget:
            break
        if name == PORT:
            outcome = port_in_use(plan, home)
        else:
            own = name == DEVICES
            pair_ = (
                started(plan, home, devices=(2, 1) if own else (1, 1))
                if own or not processes
                else processes
            )
            case = {"case": "nothing differs" if own else name, "name": str(number)}
            for child in pair_:
                child.tell(case)
            said = [child.hear(LIMIT) for child in pair_]
            refuse = name in pair.REFUSE or (own and all("error" in answer for answer in said))
            outcome = judged(said, None if refuse else pair.AGREE[case["case"]][0])
            alive = not own and not any("end" in answer for answer in said)
            processes = pair_ if alive else processes if own else None
            if not alive:
                ended(pair_)
        tally.add(outcome, name, plan.again("disagreements", f"'{name}'"))
    if processes:
        ended(processes)
    tally.seconds = time.monotonic() - began
    return tally


def started(plan: Plan, home: pathlib.Path, devices: tuple[int, ...]) -> list[Child]:
    """One process per number of devices, which have joined each other."""
    where, count = f"127.0.0.1:{free_port()}", str(len(devices))
    made = [
        Child(plan.home, MODULE, (where, str(me), str(home), str(devices[me]), count))
        for me in range(len(devices))
    ]
    for child in made:
        if "ready" not in (said := child.hear(60)):
            ended(made)
            raise RuntimeError(f"the pair did not start: {said}, {child.last_words()}")
    return made


def ended(children: list[Child]) -> None:
    for child in children:
        child.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def port_in_use(plan: Plan, home: pathlib.Path) -> Outcome:
    """Process 0 finds its port taken: it must say so."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        child = Child(plan.home, MODULE, (where, "0", str(home), "1"))
        said = child.hear(LIMIT)
        child.kill()
    return judged([said, said], None)


def judged(said: list[dict[str, Any]], wanted: str | None) -> Outcome:
    """How both processes ended.

    Args:
        said: the answer of each process, or {"end": …} for one that hung or died.
        wanted: the reason for which both must stop, with equal items; None: both must refuse.
    """
    shown = "; ".join(str(answer.get("message") or answer)[:150] for answer in said)
    ends = [answer["end"] for answer in said if "end" in answer]
    if "hung" in ends:
        return Outcome(HUNG, shown)
    if ends:
        return Outcome(CRASHED, shown)
    if wanted is not None:
        both = said[0] == said[1] and said[0].get("stopped") == wanted
        return Outcome(EQUAL, shown) if both else Outcome(SILENT, shown)
    if not all("error" in answer for answer in said):
        return Outcome(SILENT, shown)
    told = " ".join(a["message"] for a in said if SENTENCE.search(a["message"]))
    if not all(_is_clear(**answer) or answer["message"] in told for answer in said):
        return Outcome(CRASHED, shown)
    return Outcome(REFUSED, shown)


def _is_clear(error: str, message: str, **rest: Any) -> bool:
    """Whether an error is a sentence of ours, about processes, users or ports, or the caller's own error."""
    del rest
    ours = error in ("ValueError", "TypeError", "OSError", "TimeoutError", "RuntimeError")
    return error == "ZeroDivisionError" or (ours and bool(SENTENCE.search(message)))
