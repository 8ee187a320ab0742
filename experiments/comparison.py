"""The paper's rows beside ours: means over splits, differences and their 95 % intervals.

The paper's number comes from one split. So the difference of our mean over r splits from it has the
variance (1 + 1/r) of one split's: from three splits on that is estimated between splits (Student's t),
below by the standard error over users, which is the larger.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from experiments import methods, paper, results
from mfauc_jax.evaluation import latex, significance


class Row(NamedTuple):
    """One method on one data set in one setting."""

    dataset: str
    setting: str
    method: str
    splits: int
    ours: dict[str, float]  # by column
    half: dict[str, float]  # half the interval of ours
    paper: dict[str, float] | None
    reach: dict[str, float]  # half the interval of ours − paper
    one_negative: float  # the authors' AUC of ours
    rank: int
    commits: str  # of its records


def rows(records: list[dict]) -> list[Row]:
    """One row per data set, setting and method, in the paper's order of methods."""
    fits = [r for r in records if r.get("kind") == "fit"]
    fits = results.latest(fits, ("dataset", "setting", "method", "seed"))
    groups: dict[tuple, list[dict]] = {}
    for r in fits:
        groups.setdefault((r["dataset"], r["setting"], r["method"]), []).append(r)
    order = {name: place for place, name in enumerate(methods.OURS)}
    names = sorted(groups, key=lambda names: order.get(names[2], len(order)))
    return [_row(d, s, m, groups[d, s, m]) for d, s, m in names]


def _row(dataset: str, setting: str, method: str, group: list[dict]) -> Row:
    count = len(group)
    ours, half, reach = {}, {}, {}
    for column in group[0]["metrics"]:
        means = np.array([r["metrics"][column]["mean"] for r in group])
        if count >= 3:
            spread = float(stats.t.ppf(0.975, count - 1)) * means.std(ddof=1)
        else:
            spread = 1.96 * float(np.mean([r["metrics"][column]["error"] for r in group]))
        ours[column] = float(means.mean())
        half[column], reach[column] = (
            float(spread * np.sqrt(1 / count)),
            float(spread * np.sqrt(1 + 1 / count)),
        )
    one = float(np.mean([r["auc_one_negative"] for r in group]))
    theirs = paper.ranking(dataset, method)
    rank, made_by = group[0]["rank"], results.commits(group)
    return Row(dataset, setting, method, count, ours, half, theirs, reach, one, rank, made_by)


def to_latex(records: list[dict]) -> str:
    """Tables 2 or 4 for a paper: one LaTeX table per data set and setting, the best of a column in bold.

    † marks a mean below the best of its column: paired t test over the splits that both have, corrected by Holm over
    the column. * marks a mean whose difference from the paper's number has an interval without 0.
    """
    found, tables = rows(records), []
    for dataset, setting in dict.fromkeys((r.dataset, r.setting) for r in found):
        mine = [r for r in found if (r.dataset, r.setting) == (dataset, setting)]
        best = {c: max(round(r.ours[c], 3) for r in mine) for c in paper.COLUMNS}
        below = {c: _below_the_best(records, mine, c) for c in paper.COLUMNS}
        cells = []
        for row in mine:
            line = [latex.escape(row.method)]
            for c in paper.COLUMNS:
                marks = r"\dagger" if row.method in below[c] else ""
                if row.paper and abs(row.ours[c] - row.paper[c]) > row.reach[c]:
                    marks += "*"
                is_best = round(row.ours[c], 3) == best[c]
                line.append(latex.marked(row.ours[c], best=is_best, marks=marks, digits=3))
            cells.append(line)
        caption = (
            f"{paper.TITLES.get(dataset, dataset)}, setting {setting}, k = {mine[0].rank}, means over "
            f"{' or '.join(sorted({str(r.splits) for r in mine}))} splits."
        )
        notes = (
            r"% $^{\dagger}$ below the best of the column (paired t over splits, Holm over the column, .05); "
            "* differs from the paper's number (95 % interval, which counts it as one split)\n"
        )
        label = f"tab:{dataset}-{setting}"
        tables.append(
            notes + latex.tabular(["", *paper.HEADS], cells, caption=caption, label=label)
        )
    return "\n".join(tables)


def _below_the_best(records: list[dict], mine: list[Row], column: str) -> set[str]:
    """The methods whose mean is significantly below the best one's, by the splits that they share."""
    best = max(mine, key=lambda r: r.ours[column])
    fits = [
        r
        for r in records
        if r.get("kind") == "fit" and (r["dataset"], r["setting"]) == (best.dataset, best.setting)
    ]
    values: dict[str, dict[int, float]] = {}
    for r in results.latest(fits, ("dataset", "setting", "method", "seed")):
        values.setdefault(r["method"], {})[r["seed"]] = r["metrics"][column]["mean"]
    names, p_values = [], []
    for row in mine:
        seeds = sorted(values[row.method].keys() & values[best.method].keys())
        if row is best or len(seeds) < 3:
            continue
        a, b = ([values[m][seed] for seed in seeds] for m in (best.method, row.method))
        names.append(row.method)
        p_values.append(significance.paired(a, b).p_t)
    corrected = significance.holm(p_values) if names else []
    return {name for name, p in zip(names, corrected, strict=True) if p < 0.05}
