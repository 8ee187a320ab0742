"""Is a row of Table 2 below the paper's because of its objective, or because minibatches stop before the minimum?

    python -m experiments.study_route [--datasets=synthetic1_table,synthetic2]

The rows of the setting `ours` in results/tab_synthetic.jsonl have 30 or 80 iterations of minibatches. Here the same θ
with the same λ is minimised by L-BFGS over all pairs, from the same start, on the same splits.
"""

import dataclasses
from typing import Any

import numpy as np

from experiments import flags, methods, paper, protocol, results

SHOWN = ("precision@1", "precision@3", "precision@5", "auc")


@dataclasses.dataclass(frozen=True)
class Config:
    """The rows without φ: L-BFGS sees all pairs."""

    datasets: tuple[str, ...] = ("synthetic1_table",)
    methods: tuple[str, ...] = ("MFAUC hinge", "MFAUC sigmoid", "MFAUC logistic")
    splits: int = 5
    rank: int = 8
    rows: str = flags.option("experiments/results/tab_synthetic.jsonl", "where the rows are")
    results: str = "out/study_route.jsonl"


def run(config: Config) -> list[dict]:
    """One record per data set, row and split."""
    known = results.read(config.rows)
    jobs = [
        {"dataset": dataset, "method": method, "seed": seed}
        for dataset in config.datasets
        for method in config.methods
        for seed in range(config.splits)
    ]
    return [
        job | _fit(config, job, results.the(known, {"kind": "fit", "setting": "ours", **job}))
        for job in jobs
    ]


def _fit(config: Config, job: dict, row: dict) -> dict[str, Any]:
    part = protocol._split(protocol.load(job["dataset"], ""), job["seed"])
    model = methods.get(job["method"]).model
    assert model is not None
    reg = {methods.REG: row["hyper"][methods.REG]}
    exact = model.with_params(solver="full_batch", rank=config.rank, seed=job["seed"], **reg)
    found = exact.fit(part.train, progress=False).factors_
    metrics = protocol._ranked(found, part, job)["metrics"]
    return {"hyper": reg, "metrics": metrics, "ours": row["metrics"]}


def draw(records: list[dict]) -> str:
    """A table: p@1/3/5 and AUC as printed, by minibatches and by L-BFGS, means over splits."""
    lines = ["| data | row | paper | minibatches | L-BFGS |", "| --- " * 5 + "|"]
    for dataset, method in dict.fromkeys((r["dataset"], r["method"]) for r in records):
        mine = [r for r in records if (r["dataset"], r["method"]) == (dataset, method)]
        printed = paper.ranking(dataset, method)
        assert printed is not None
        cells = [[printed[c] for c in SHOWN]]
        cells += [
            [float(np.mean([r[key][c]["mean"] for r in mine])) for c in SHOWN]
            for key in ("ours", "metrics")
        ]
        texts = ["/".join(f"{v:.3f}".lstrip("0") for v in row) for row in cells]
        lines.append(f"| {paper.TITLES[dataset]} | {method} | {' | '.join(texts)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    flags.run(Config, lambda config: results.tell(config, run(config), draw))
