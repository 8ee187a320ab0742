"""One reading of data: what the caller said of it, and what there is to tell when it is done."""

import dataclasses
import logging
import pathlib
import sys
import warnings
from collections.abc import Mapping
from typing import NamedTuple

from mfauc_jax.data import columns

LOG = logging.getLogger("mfauc_jax")
PACKAGE = str(pathlib.Path(__file__).parent.parent)


class Request(NamedTuple):
    """What the caller said of a file; what was not said is recognised."""

    layout: str | None = None  # one of `layouts.LAYOUTS`
    columns: Mapping[str, str] = {}  # user, item, rating, time, confidence → the file's name of it
    header: tuple[str, ...] | None = None  # names of the columns of a file without a header
    delimiter: str | None = None
    encoding: str | None = None
    skip_bad: bool = False  # leave lines out that cannot be read, and count them
    needed: tuple[str, ...] = ("user", "item")
    whole: bool = False  # all columns, under the file's own names and as they are written


@dataclasses.dataclass
class Report:
    """The story of one reading, told once at its end."""

    source: str  # a file, or "the frame"
    call: str = "pass {}"  # how the caller changes an option
    known: bool = (
        False  # a data set of the catalogue: what is found in it is no news, and not warned of
    )
    taken: dict[str, str] = dataclasses.field(default_factory=dict)  # kind → column
    ratings: list[str] = dataclasses.field(default_factory=list)  # columns that may be ratings
    how: list[str] = dataclasses.field(default_factory=list)  # how the file was understood
    rows: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)

    def note(self, text: str, found: int = 1) -> None:
        """Something that deserves attention, unless it was found 0 times."""
        self.notes += [text] if found else []

    def advice(self, option: str) -> str:
        """How the caller changes an option."""
        return self.call.format(option)

    def tell(self, num_users: int, num_items: int, nnz: int) -> None:
        """One log record, and one warning if there are notes."""
        taken = ", ".join(f"{kind} = {column}" for kind, column in self.taken.items())
        parts = [*([taken] if taken else []), *self.how]
        sizes = f"{self.rows} rows, {num_users} users × {num_items} items, {nnz} positives"
        if self.known:
            LOG.info("%s: %s", self.source, "; ".join([*parts, sizes, *self.notes]))
            return
        LOG.info("%s: %s", self.source, "; ".join([*parts, sizes]))
        warn(self.source, self.notes)


def choose(source: str, names: list[str], request: Request, report: Report) -> dict[str, str]:
    """The column of each kind that is needed; ratings and times that are not needed stay in the file."""
    found = columns.find(source, names, request.columns, request.needed)
    report.ratings = [found["rating"]] if "rating" in found else columns.matching(names, "rating")
    report.taken = {
        kind: c for kind, c in found.items() if kind in (*request.needed, *request.columns)
    }
    return report.taken


def warn(source: str, notes: list[str]) -> None:
    """One warning of one line, at the caller's line outside this package."""
    if notes:
        warnings.warn(f"{source}: {'; '.join(notes)}", stacklevel=_outside())


def _outside() -> int:
    """How many frames up the caller of this package is, for `warnings.warn` in `warn`."""
    level, outside, frame = 0, 1, sys._getframe(1)
    while frame is not None:
        level += 1
        outside = level + 1 if frame.f_code.co_filename.startswith(PACKAGE) else outside
        frame = frame.f_back
    return outside
