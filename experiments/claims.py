"""Every claim that the paper makes in words in Sections 2, 5 and 6 (and in Section 3 about practice), judged.

A claim has a quote, its place, what the records say (`evidence.Part`), and the verdict that we record. The verdict is
computed from the numbers: verified if every part holds, refuted if one does not, not testable here if the intervals do
not decide or nothing here can measure it. `python -m experiments.verify_claims` compares the two.
"""

import pathlib
from typing import NamedTuple

from experiments import claims_figures, claims_method, claims_ranking
from experiments.evidence import OPEN, REFUTED, Claim, MissingRecords, Part, Records, verdict_of

CLAIMS = (*claims_method.CLAIMS, *claims_figures.CLAIMS, *claims_ranking.CLAIMS)


class Judged(NamedTuple):
    """A claim beside its numbers."""

    claim: Claim
    parts: list[Part]
    found: str | None  # the verdict of the numbers; None without records
    missing: str = ""

    @property
    def borne_out(self) -> bool:
        """Whether the recorded verdict is that of the numbers."""
        return self.found == self.claim.verdict

    @property
    def decisive(self) -> list[Part]:
        """The parts that the verdict rests on: those that refute, those that are undecided, or those that hold."""
        wanted = {REFUTED: False, OPEN: None}.get(str(self.found), True)
        return [p for p in self.parts if p.holds is wanted] or self.parts


def judge(folder: str | pathlib.Path) -> list[Judged]:
    """Every claim with the numbers of a folder."""
    records, judged = Records(folder), []
    for made in CLAIMS:
        try:
            parts = made.parts(records)
            judged.append(Judged(made, parts, verdict_of(parts, made.exists)))
        except MissingRecords as missing:
            judged.append(Judged(made, [], None, str(missing)))
    return judged
