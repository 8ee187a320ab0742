"""Numbers and tables of the documentation, taken from records; one that is stale fails a test.

    python -m experiments.quotes            # which numbers are stale; exit 1 if any
    python -m experiments.quotes --update   # write them anew

A number is followed by a comment that says where it comes from:

    AUC ≥ .917<!-- = certify; name=held_out_unseen; floor bound -->

that is, a file of experiments/results, conditions (`key=value`, `key!=value`, or `key~part of the value`), and a
field, with dots for fields of fields, or the quotient `a/b` of two. Several records that fit need `max`, `min`, `mean`
or `count` before the field; `floor` rounds down. A number keeps the digits it has in the text. A table or a printed
text stands between two comments, the first of which names a function of BLOCKS:

    <!-- begin certify_posterior -->
    <!-- end -->
"""

import argparse
import functools
import itertools
import json
import math
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

from experiments import (
    bench_growth,
    bench_metrics,
    bench_profile,
    certify_posterior,
    compile_tpu,
    results,
    speed_report,
    study_tanh,
)
from mfauc_jax._core import atomic

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("README.md", "theory/README.md", "experiments/README.md")
NUMBER = re.compile(r"(?P<text>[−-]?\d*\.?\d+(?:e[-−]?\d+)?)(?P<mark><!-- = (?P<source>.*?) -->)")
BLOCK = re.compile(
    r"(?P<begin><!-- begin (?P<name>\w+) -->\n)(?P<text>.*?)(?P<end><!-- end -->)", re.DOTALL
)
COMBINED: dict[str, Callable[[list[float]], float]] = {
    "max": max,
    "min": min,
    "mean": lambda values: sum(values) / len(values),
    "count": len,
}


def pages() -> list[pathlib.Path]:
    """Every page that may quote."""
    return [ROOT / page for page in PAGES] + sorted((ROOT / "docs").glob("*.md"))


@functools.cache
def records(name: str) -> list[dict[str, Any]]:
    """The records of a file by its stem: JSON lines, or what a `--json` wrote, of which `stem.key` is a part."""
    stem, *keys = name.split(".")
    lines, whole = (results.COMMITTED / f"{stem}{suffix}" for suffix in (".jsonl", ".json"))
    if lines.exists():
        return results.read(lines)
    found = json.loads(whole.read_text())
    for key in keys:
        found = found[key]
    return found if isinstance(found, list) else [found]


def value(source: str) -> float:
    """The number that a comment asks for; LookupError if no record, or no single one, fits."""
    name, *conditions, field = (part.strip() for part in source.split(";"))
    words = list(itertools.takewhile(lambda word: word in (*COMBINED, "floor"), field.split()))
    path = " ".join(field.split()[len(words) :])
    fitting = [r for r in records(name) if all(_fits(r, c) for c in conditions)]
    if not fitting:
        raise LookupError(f"no record fits {source!r}")
    values = [0.0 if path == "records" else float(_get(r, path)) for r in fitting]
    how = next((word for word in words if word in COMBINED), None)
    if how is None and len(set(values)) > 1:
        raise LookupError(f"{len(fitting)} records fit {source!r}: say max, min, mean or count")
    return float(COMBINED[how](values)) if how else values[0]


def _fits(record: dict, condition: str) -> bool:
    key, sign, wanted = re.split(r"(!=|=|~)", condition, maxsplit=1)
    found = str(_get(record, key))
    return wanted in found if sign == "~" else (found == wanted) is (sign == "=")


def _get(record: Any, path: str) -> Any:
    if "/" in path:
        above, below = (_get(record, part) for part in path.split("/"))
        return above / below if below else math.inf
    for key in path.split("."):
        record = record.get(key) if isinstance(record, dict) else record[int(key)]
    return record


def written(text: str, source: str) -> str:
    """The value of the source in the way the text has it: as many digits, with or without a leading zero."""
    found = value(source)
    if "e" in text:
        digits = len(re.sub(r"e.*|\D", "", text)) - 1
        mantissa, exponent = f"{found:.{digits}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    digits = len(text.partition(".")[2])
    if "floor" in source.rpartition(";")[2].split():
        found = math.floor(found * 10**digits) / 10**digits
    plain = f"{abs(found):.{digits}f}"
    plain = plain if re.match(r"[−-]?0", text) else plain.removeprefix("0") or "0"
    return ("−" if found < 0 and float(f"{found:.{digits}f}") else "") + plain


def tutorial(what: str) -> str:
    """What a command of docs/tutorial.md printed on MovieLens 100K."""
    (record,) = (r for r in records("tutorial") if r["what"] == what)
    return "```text\n" + record["printed"].rstrip() + "\n…\n```\n"


BLOCKS: dict[str, Callable[[], str]] = {
    "certify_posterior": lambda: certify_posterior.draw(records("certify_posterior")) + "\n",
    "study_tanh": lambda: study_tanh.draw(records("study_tanh")) + "\n",
    "speed_whole": lambda: speed_report.whole_table(records("bench_speed")),
    "speed_curves": lambda: speed_report.curve_table(records("bench_speed"), "ml-1m"),
    "profile_machine": lambda: bench_profile.table(records("bench_profile"), "machine"),
    "profile_step": lambda: bench_profile.table(
        records("bench_profile"), "minibatch", ("all", "1")
    ),
    "profile_sweep": lambda: bench_profile.table(records("bench_profile"), "alternating"),
    "metrics": lambda: bench_metrics.table(records("bench_metrics")),
    "growth_nights": lambda: bench_growth.nights_table(records("bench_growth")),
    "tpu_by_items": lambda: compile_tpu.by_items_table(records("compile_tpu")),
    "tutorial_evaluate": lambda: tutorial("evaluate"),
    "tutorial_certify": lambda: tutorial("certify"),
}


def updated(text: str) -> str:
    """A page with every number and block as the records have it."""
    text = NUMBER.sub(lambda m: written(m["text"], m["source"]) + m["mark"], text)
    return BLOCK.sub(lambda m: m["begin"] + f"\n{BLOCKS[m['name']]()}\n" + m["end"], text)


def stale(page: pathlib.Path) -> list[str]:
    """One line per number or block of a page that the records no longer have."""
    text, found = page.read_text(), []
    for match in (*NUMBER.finditer(text), *BLOCK.finditer(text)):
        line = text.count("\n", 0, match.start()) + 1
        old, new = match[0], updated(match[0])
        if old != new:
            found.append(f"{page.relative_to(ROOT)}:{line}: {old[:120]!r} is now {new[:120]!r}")
    return found


def main(argv: list[str] | None = None) -> int:
    """Print what is stale, or write it anew."""
    parser = argparse.ArgumentParser(prog="python -m experiments.quotes", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the numbers of the records")
    update = parser.parse_args(argv).update
    found = [line for page in pages() for line in stale(page)]
    for line in found:
        print(line)
    if update:
        for page in pages():
            text = page.read_text()
            if updated(text) != text:
                atomic.write_text(page, updated(text))
    return int(bool(found) and not update)


if __name__ == "__main__":
    sys.exit(main())
