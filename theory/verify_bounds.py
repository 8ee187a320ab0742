"""Every numbered statement of Section 3, both sides measured.

    python -m theory.verify_bounds [--json=FILE]

Exit 0 only if all that is marked as holding holds and every refutation reproduces.
"""

import argparse
import json
import pathlib
import sys
import time
from collections import Counter

import jax

jax.config.update("jax_enable_x64", True)  # before any array exists

from mfauc_jax._core import atomic  # noqa: E402
from theory import verify_consistency, verify_generalisation, verify_rademacher  # noqa: E402
from theory.statement import BEYOND, Statement  # noqa: E402

CHECKS = [*verify_consistency.CHECKS, *verify_rademacher.CHECKS, *verify_generalisation.CHECKS]


def row(s: Statement) -> str:
    """One line of the table."""
    mark = s.verdict if s.stands else f"NOT BORNE OUT: {s.verdict}"
    sides = f"{s.left:>12.6g} {s.relation} {s.right:<12.6g} {s.slack:>10.3g}"
    return f"{s.number:<15} {s.claim:<78} {sides}  {mark}"


def as_record(s: Statement) -> dict:
    """The statement for a JSON file."""
    return {**s._asdict(), "slack": s.slack, "stands": s.stands}


def main(argv: list[str] | None = None) -> int:
    """Print the table; 0 if every verdict is borne out."""
    parser = argparse.ArgumentParser(prog="python -m theory.verify_bounds", description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, help="also write the statements here")
    arguments = parser.parse_args(argv)
    started = time.perf_counter()
    print(f"{'statement':<15} {'claim':<78} {'left':>12}   {'right':<12} {'slack':>10}  verdict")
    statements = []
    for check in CHECKS:
        for statement in check():
            statements.append(statement)
            print(row(statement), flush=True)
    wrong = [s for s in statements if not s.stands]
    counts = Counter(s.verdict for s in statements)
    ours = counts.pop(BEYOND, 0)
    verdicts = ", ".join(f"{n} {name}" for name, n in counts.items())
    seconds = time.perf_counter() - started
    print(
        f"\n{counts.total()} statements about the paper in {seconds:.0f} s: {verdicts}; "
        f"{ours} beyond it; {len(wrong)} not borne out"
    )
    if arguments.json:
        atomic.write_text(arguments.json, json.dumps([as_record(s) for s in statements], indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
