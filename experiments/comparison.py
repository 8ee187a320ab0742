"""The paper's rows beside ours: means over splits, differences and their 95 % intervals.

The paper's number comes from one split. So the difference of our mean over r splits from it has the
variance (1 + 1/r) of one split's: from three splits on that is estimated between splits (Student's t),
below by the standard error over users, which is the larger.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from experiments import methods, paper, results


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
