"""The paper's table of data sets: users, items and positives, theirs beside ours.

    python -m experiments.tab_datasets --data_dir=DIR

The "table" filters must reproduce the printed sizes; `--filters=table,text` shows what the
paper's text taken literally gives, too.
"""

import dataclasses
import sys

import jax

from experiments import flags, paper, results
from mfauc_jax import data
from mfauc_jax._core import atomic
from mfauc_jax.data import synthetic

SYNTHETIC = {  # paper: the sizes the authors ran; a draw of Synthetic1 is not theirs
    "synthetic1": ((500, 200, 12_973), synthetic.synthetic1),
    "synthetic1_table": ((413, 200, 23_090), synthetic.synthetic1_table),
    "synthetic2": ((573, 300, 17_796), lambda key: synthetic.synthetic2()),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sec. 5: which data sets, and by which filter."""

    data_dir: str = "data"
    datasets: tuple[str, ...] = (*SYNTHETIC, *paper.DATASETS)
    filters: tuple[str, ...] = flags.option(
        ("table",), "rules of filtering: table (the authors' scripts) or text (the paper's words)"
    )
    seed: int = 0
    results: str = "results/tab_datasets.jsonl"


def run(config: Config) -> list[dict]:
    """One record per data set and filter: the paper's sizes and ours, or why there are none."""
    records = []
    for name in config.datasets:
        if name in SYNTHETIC:
            printed, draw_matrix = SYNTHETIC[name]
            X = draw_matrix(jax.random.key(config.seed))
            exact = name == "synthetic2"
            records.append(_record(name, "drawn", printed, (*X.shape, X.nnz), exact=exact))
            continue
        for rule in config.filters:
            printed, note, ours = paper.DATASETS.get(name), "", None
            try:
                X = data.load(name, config.data_dir, rule)
                ours = (*X.shape, X.nnz)
            except FileNotFoundError as error:
                note = str(error)
            records.append(_record(name, rule, printed, ours, note=note, exact=rule == "table"))
    return records


def _record(name, rule, printed, ours, *, note="", exact) -> dict:
    """`equal` is None where equality is not claimed: nothing to compare, or a random draw."""
    equal = ours == printed if exact and ours and printed else None
    return {
        "dataset": name,
        "filter": rule,
        "paper": printed,
        "ours": ours,
        "equal": equal,
        "note": note,
    }


def draw(records: list[dict], path: str | None = None) -> str:
    """The table as text, from the records alone; written to `path` if there is one."""
    lines = [
        f"{'data set':<20}{'filter':<12}{'paper: users × items':>22}{'positives':>12}"
        f"{'ours: users × items':>22}{'positives':>12}{'density':>9}  equal"
    ]
    for r in records:
        start = f"{r['dataset']:<20}{r['filter']:<12}{_sizes(r['paper'])}"
        if r["ours"] is None:
            lines.append(f"{start}  {r['note']}")
            continue
        m, n, nnz = r["ours"]
        equal = {True: "yes", False: "NO", None: "-"}[r["equal"]]
        lines.append(f"{start}{_sizes(r['ours'])}{nnz / (m * n):>9.4f}  {equal}")
    table = "\n".join(lines)
    if path is not None:
        atomic.write_text(path, table + "\n")
    return table


def _sizes(sizes) -> str:
    if sizes is None:
        return f"{'-':>22}{'-':>12}"
    m, n, nnz = sizes
    return f"{f'{m:,} × {n:,}':>22}{nnz:>12,}"


def main(config: Config) -> int:
    """Run, record and print; the exit code is 1 if a size that should be equal is not."""
    records = run(config)
    results.write(config.results, config, records)
    sys.stdout.write(draw(results.read(config.results)) + "\n")
    return int(any(r["equal"] is False for r in records))


if __name__ == "__main__":
    flags.run(Config, main)
