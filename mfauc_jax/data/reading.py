"""One reading of data: the request of the caller, and the report when it is done."""

import contextvars
import dataclasses
import logging
import pathlib
import sys
import warnings
from collections.abc import Mapping
from typing import NamedTuple

from mfauc_jax.data import columns

LOG = logging.getLogger("mfauc_jax")
OVER_ANOTHER = contextvars.ContextVar("what is read over another catalogue", default="")
PACKAGE = str(pathlib.Path(__file__).parent.parent)


class Request(NamedTuple):
    """What the caller says about a file; what is left out is recognised."""

    layout: str | None = None  # one of `layouts.LAYOUTS`
    columns: Mapping[str, str] = {}  # user, item, rating, time, confidence → the name of the column
    header: tuple[str, ...] | None = None  # names of the columns of a file without a header
    delimiter: str | None = None
    encoding: str | None = None
    skip_bad: bool = False  # leave out lines that cannot be read, and count them
    needed: tuple[str, ...] = ("user", "item")
    whole: bool = False  # return all columns, with the names and the text of the file


@dataclasses.dataclass
class Report:
    """What one reading of data found, which is logged once at its end."""

    source: str  # a file, or "the frame"
    call: str = "pass {}"  # how the caller changes an option
    known: bool = False  # a data set of the catalogue: notes are logged, without a warning
    taken: dict[str, str] = dataclasses.field(default_factory=dict)  # kind → column
    ratings: list[str] = dataclasses.field(default_factory=list)  # columns that may be ratings
    how: list[str] = dataclasses.field(default_factory=list)  # how the file was understood
    rows: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)

    def note(self, text: str, found: int = 1) -> None:
        """Add a note for the warning, unless `found`, the number of cases, is 0."""
        self.notes += [text] if found else []

    def advice(self, option: str) -> str:
        """How the caller sets an option, for messages."""
        return self.call.format(option)

    def tell(self, num_users: int, num_items: int, nnz: int) -> None:
        """Write one log record, and one warning if there are notes."""
        taken = ", ".join(f"{kind} = {column}" for kind, column in self.taken.items())
        parts = [*([taken] if taken else []), *self.how]
        sizes = f"{self.rows} rows, {num_users} users × {num_items} items, {nnz} positives"
        if self.known:
            LOG.info("%s: %s", self.source, "; ".join([*parts, sizes, *self.notes]))
            return
        LOG.info("%s: %s", self.source, "; ".join([*parts, sizes]))
        warn(self.source, self.notes)


def choose(source: str, names: list[str], request: Request, report: Report) -> dict[str, str]:
    """The column of each kind that is needed or requested; the other columns are not read."""
    found = columns.find(source, names, request.columns, request.needed)
    report.ratings = [found["rating"]] if "rating" in found else columns.matching(names, "rating")
    report.taken = {
        kind: c for kind, c in found.items() if kind in (*request.needed, *request.columns)
    }
    return report.taken


def warn(source: str, notes: list[str]) -> None:
    """Issue one warning of one line, which points to the caller's code outside this package."""
    if notes:
        warnings.warn(f"{source}: {'; '.join(notes)}", stacklevel=_outside())


def _outside() -> int:
    """The `stacklevel` of the caller of this package, for `warnings.warn` in `warn`."""
    level, outside, frame = 0, 1, sys._getframe(1)
    while frame is not None:
        level += 1
        outside = level + 1 if frame.f_code.co_filename.startswith(PACKAGE) else outside
        frame = frame.f_back
    return outside
