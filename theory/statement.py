"""A numbered claim of Section 3 with both of its sides measured."""

import math
from typing import NamedTuple

HOLDS = "holds"
REFUTED = "refuted as printed"
CORRECTED = "holds as corrected"
BEYOND = "holds, beyond the paper"  # ours: not in the count of the paper's statements


class Statement(NamedTuple):
    """left ≤ right (or =), and what we say about it.

    A refuted statement carries the *printed* relation, which must then fail.
    """

    number: str  # "Thm 3.7", "E38"
    claim: str
    left: float
    relation: str  # "≤", "<" or "="
    right: float
    verdict: str
    tolerance: float = 1e-9

    @property
    def slack(self) -> float:
        """right − left."""
        return self.right - self.left

    @property
    def true(self) -> bool:
        """Whether the relation holds between the measured sides."""
        if self.relation == "=":
            return math.isclose(
                self.left, self.right, rel_tol=self.tolerance, abs_tol=self.tolerance
            )
        if self.relation == "<":
            return self.left < self.right
        return self.left <= self.right + self.tolerance

    @property
    def stands(self) -> bool:
        """Our verdict is borne out: a refutation reproduces, everything else is true."""
        return self.true is (self.verdict != REFUTED)


def at_most(number, claim, left, right, verdict=HOLDS, tolerance=1e-9) -> Statement:
    """left ≤ right."""
    return Statement(number, claim, float(left), "≤", float(right), verdict, tolerance)


def below(number, claim, left, right, verdict=HOLDS) -> Statement:
    """left < right."""
    return Statement(number, claim, float(left), "<", float(right), verdict)


def equal(number, claim, left, right, verdict=HOLDS, tolerance=1e-9) -> Statement:
    """left = right within a tolerance, relative or absolute."""
    return Statement(number, claim, float(left), "=", float(right), verdict, tolerance)
