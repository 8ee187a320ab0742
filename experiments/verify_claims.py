"""Every claim that the paper makes in words, with the numbers that bear on it and our verdict.

    python -m experiments.verify_claims [--folder=experiments/results] [--data_dir=DIR] [--json=FILE] [--only=TEXT]

The numbers come from the records in the folder. What the figures and tables do not decide is decided by small
experiments (`claim_experiments`), which are computed if the folder has no record of them (about three minutes) and kept
in its claims.jsonl. The exit code is 0 only if every recorded verdict is that of the numbers.
"""

import argparse
import json
import pathlib
import sys
import textwrap
from collections import Counter

import jax

from experiments import claim_experiments, claims
from experiments.claims import Judged
from mfauc_jax._core import atomic

FOLDER = pathlib.Path(__file__).parent / "results"


def lines(judged: Judged) -> str:
    """A claim, its parts and its verdict."""
    made = judged.claim
    found = judged.found or f"no records: {judged.missing}"
    verdict = (
        found if judged.borne_out else f"NOT BORNE OUT: recorded {made.verdict}, found {found}"
    )
    head = f"{made.name} ({made.place}): {verdict}"
    body = [f"“{made.quote}”", *map(str, judged.parts), *([made.note] if made.note else [])]
    return "\n".join([head, *(textwrap.indent(line, "    ") for line in body)])


def as_record(judged: Judged) -> dict:
    """The claim for a JSON file."""
    made = judged.claim
    return {
        "name": made.name,
        "place": made.place,
        "quote": made.quote,
        "recorded": made.verdict,
        "found": judged.found,
        "borne_out": judged.borne_out,
        "parts": [{**part._asdict(), "holds": part.holds} for part in judged.parts],
        "note": made.note,
    }


def main(argv: list[str] | None = None) -> int:
    """Compute what is missing, print every claim; 0 if every verdict is borne out."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.verify_claims", description=__doc__
    )
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER, help="where the records are")
    parser.add_argument("--data_dir", default="", help="folder of the real data sets")
    parser.add_argument("--json", type=pathlib.Path, help="also write the claims here")
    parser.add_argument("--only", default="", help="only claims whose name has this text")
    arguments = parser.parse_args(argv)
    claim_experiments.run(arguments.folder, arguments.data_dir)
    judged = [j for j in claims.judge(arguments.folder) if arguments.only in j.claim.name]
    for one in judged:
        print(lines(one), flush=True)
    wrong = [j for j in judged if not j.borne_out]
    counts = Counter(j.claim.verdict for j in judged if j.borne_out)
    said = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    print(f"\n{len(judged)} claims: {said}; {len(wrong)} not borne out")
    if arguments.json:
        text = json.dumps([as_record(j) for j in judged], indent=1, ensure_ascii=False)
        atomic.write_text(arguments.json, text)
    return 1 if wrong or not judged else 0


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)  # the eigenvalues and the consistency need it
    sys.exit(main())
