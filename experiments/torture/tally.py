"""The outcomes of cases, counted per kind of attack; the table; and what makes a run fail."""

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

REFUSED, EQUAL, OTHER = "refused clearly", "equal", "other data"
SILENT, CRASHED, HUNG = "silently wrong", "crashed", "hung"
PARTIAL, MEMORY = "partial files", "too much memory"
OUTCOMES = (REFUSED, EQUAL, OTHER, SILENT, CRASHED, HUNG, PARTIAL, MEMORY)
FORBIDDEN = (SILENT, CRASHED, HUNG, PARTIAL, MEMORY)
LARGEST = 2048  # MB of memory that a case may take
BEGIN, END = "<!-- torture: begin -->", "<!-- torture: end -->"  # around the table of the page


class Outcome(NamedTuple):
    """How one case ended."""

    what: str  # one of OUTCOMES
    detail: str = ""  # one line: the error, or what differs


@dataclasses.dataclass
class Tally:
    """The outcomes of one kind of attack."""

    kind: str
    planned: int = 0
    counts: Counter = dataclasses.field(default_factory=Counter)
    failures: list[dict[str, str]] = dataclasses.field(default_factory=list)
    peak: float = 0.0  # MB, the largest resident memory of a child
    notes: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def add(self, outcome: Outcome, case: str, again: str) -> None:
        """Count the outcome of a case; `again` is the line that repeats it."""
        if outcome.what not in OUTCOMES:
            raise ValueError(f"{outcome.what!r} is no outcome: choose from {', '.join(OUTCOMES)}")
        self.counts[outcome.what] += 1
        if outcome.what in FORBIDDEN:
            detail = " ".join(outcome.detail.split())[:400]
            self.failures.append(
                {
                    "kind": self.kind,
                    "case": case,
                    "outcome": outcome.what,
                    "detail": detail,
                    "again": again,
                }
            )

    @property
    def tried(self) -> int:
        """The number of cases that ended in any way."""
        return sum(self.counts[name] for name in OUTCOMES)

    @property
    def held(self) -> bool:
        """Whether something was tried and nothing forbidden was seen."""
        return self.tried > 0 and not any(self.counts[name] for name in FORBIDDEN)

    def as_record(self) -> dict[str, Any]:
        """The tally as JSON."""
        return {
            "kind": self.kind,
            "planned": self.planned,
            "tried": self.tried,
            **{name: self.counts[name] for name in OUTCOMES},
            "peak_mb": round(self.peak),
            "seconds": round(self.seconds, 1),
            "notes": self.notes,
            "failures": self.failures,
            "held": self.held,
        }


def refusal(error: BaseException, *names: str) -> Outcome:
    """How a case ended that raised: refused clearly, if the error is of a usual kind and its message helps.

    Args:
        error: what was raised.
        names: what the message must name; one of them suffices.
    """
    said = f"{type(error).__name__}: {error}"
    usual = isinstance(error, ValueError | TypeError | OSError | KeyError | ArithmeticError)
    if not usual and type(error) is not RuntimeError:  # JAX's own errors are RuntimeErrors, too
        return Outcome(CRASHED, said)
    if isinstance(error, IndexError | OverflowError | ZeroDivisionError | UnicodeError):
        return Outcome(CRASHED, f"not meant for the caller: {said}")
    if not str(error).strip():
        return Outcome(CRASHED, f"without a message: {said}")
    if names and not any(name in str(error) for name in names):
        return Outcome(CRASHED, f"does not name {' or '.join(names)}: {said}")
    return Outcome(REFUSED, said)


def is_flat(samples: Sequence[float], warm: int, share: float, slack: float) -> bool:
    """Whether a quantity stays at most `share` and `slack` above its largest value of the first `warm` samples."""
    if len(samples) <= warm:
        raise ValueError(f"{len(samples)} samples: more than the {warm} of the start are needed")
    before, after = max(samples[:warm]), max(samples[warm:])
    return after <= before * (1 + share) + slack


def table(records: Iterable[dict[str, Any]]) -> str:
    """The table of a run as text."""
    heads = ("kind", "tried", *OUTCOMES[:-1], "peak MB", "seconds")
    rows = [heads, *(_row(record) for record in records)]
    widths = [max(len(row[c]) for row in rows) for c in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(w) if c == 0 else cell.rjust(w) for c, (cell, w) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    counts = (record["tried"], *(record[name] for name in OUTCOMES[:-1]))
    over = " !" if record[MEMORY] else ""
    return (
        record["kind"],
        *map(str, counts),
        f"{record['peak_mb']}{over}",
        f"{record['seconds']:.0f}",
    )


def markdown(run: dict[str, Any]) -> str:
    """The table of a run, read from its JSON, as the page docs/reliability.md shows it."""
    heads = ("kind", "tried", *OUTCOMES[:-1], "peak MB")
    lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    lines += [f"| {' | '.join(_row(record)[:-1])} |" for record in run["kinds"]]
    words = f"`python -m experiments.torture --seed={run['seed']}{' --quick' * run['quick']}`"
    lines += ["", f"{words} at commit {run['commit']}, {run['seconds'] / 60:.0f} minutes."]
    return "\n".join(lines)


def into_page(page: str, run: dict[str, Any]) -> str:
    """The text of the page with the table between its two markers replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{markdown(run)}\n\n{END}{after}"


def left_over(folder: pathlib.Path) -> list[str]:
    """The temporary files and folders that nobody will ever finish."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return sorted(name for name in found if name.endswith(".tmp") or "-tmp" in name)
