"""What `study_top`'s records say: paired differences, tables, figures, missed targets."""

import pathlib
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from experiments import results, style
from experiments.variants import (
    ALS,
    AUC,
    LEVERS,
    METHODS,
    OURS,
    PICTURED,
    PUBLISHED,
    TARGETS,
    TITLES,
)
from mfauc_jax._core import atomic
from mfauc_jax.evaluation import significance

COLUMNS = {"p@1": "precision@1", "p@3": "precision@3", "p@5": "precision@5", "AUC": "auc"}


def draw_picture(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """Densities of one user's scores, without the penalty and with it."""
    kept = [r for r in records if r["kind"] == "picture"][-1]["scores"]
    scores = {name: kept[name] for name in PICTURED}
    figure, axes = style.panels(len(scores), width=3.9, height=2.9)
    every = np.concatenate([np.concatenate(list(s.values())) for s in scores.values()])
    bins = np.linspace(every.min(), every.max(), 61)
    for ax, (name, groups) in zip(axes[0], scores.items(), strict=True):
        negative = np.array(groups["negative"])
        above = (negative > np.median(groups["held out"])).sum()
        for place, kind in enumerate(("negative", "seen")):
            ax.hist(
                groups[kind], bins, density=True, color=style.COLOURS[place], alpha=0.55, label=kind
            )
        ax.plot(
            groups["held out"],
            [0.02] * len(groups["held out"]),
            "k^",
            ms=6,
            label="held out",
            transform=ax.get_xaxis_transform(),
            clip_on=False,
        )
        ax.set(
            title=f"{name}\nnegatives: sd {negative.std():.2f}; {above} beat the median ▲",
            xlabel="score: 0 mean negative, 1 mean seen",
            yscale="log",
            ylim=(0.02, None),
        )
    axes[0][0].set_ylabel("density")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return style.save(figure, out, "spread")


class Row(NamedTuple):
    """One method on one data set: means, half intervals, and the paired difference from another."""

    dataset: str
    method: str
    splits: int
    mean: dict[str, float]
    half: dict[str, float]
    against: dict[str, significance.Paired]  # empty without two common splits


def rows(records: list[dict], names: dict[str, Any], against: str) -> list[Row]:
    """Rows of `names`, each beside `against` on the splits both have."""
    cells = [r for r in records if r["kind"] == "split" and r["method"] in names]
    by: dict[tuple, dict[int, dict]] = {}
    for r in results.latest(cells, ("dataset", "method", "seed", "rank")):
        by.setdefault((r["dataset"], r["method"]), {})[r["seed"]] = r
    found = []
    for (dataset, method), mine in by.items():
        mean, half, paired = {}, {}, {}
        other = by.get((dataset, against), {})
        both = sorted(mine.keys() & other.keys())
        for label, column in COLUMNS.items():
            values = np.array([r[column] for r in mine.values()])
            mean[label], half[label] = float(values.mean()), _half(values)
            if method != against and len(both) > 1:
                a, b = ([which[s][column] for s in both] for which in (mine, other))
                paired[label] = significance.paired(a, b)
        found.append(Row(dataset, method, len(mine), mean, half, paired))
    return found


def _half(values: np.ndarray) -> float:
    """Half of Student's 95 % interval of the mean."""
    if len(values) < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def table(found: list[Row], against: str) -> str:
    """The rows in Markdown."""
    names = list(COLUMNS)
    lines = [
        f"| data, splits | method | {' | '.join(names)} | p@5 − {against} | AUC − {against} |",
        "| --- " * (len(names) + 4) + "|",
    ]
    for row in sorted(found, key=lambda r: list(TITLES).index(r.dataset)):
        means = " | ".join(_short(row.mean[name]) for name in names)
        gaps = " | ".join(_gap(row.against.get(name)) for name in ("p@5", "AUC"))
        lines.append(f"| {TITLES[row.dataset]}, {row.splits} | {row.method} | {means} | {gaps} |")
    return "\n".join(lines)


def _short(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1)


def _gap(paired: significance.Paired | None) -> str:
    if paired is None:
        return ""
    sign = "+" if paired.difference >= 0 else "−"
    half = (paired.high - paired.low) / 2
    return f"{sign}{_short(abs(paired.difference))} ± {_short(half)}"


def gowalla_table(records: list[dict]) -> str:
    """Validation and test beside what others published."""
    lines = ["| Gowalla | k | Recall@20 | NDCG@20 | AUC |", "| --- | --- | --- | --- | --- |"]
    for r in results.latest(records, ("kind", "method", "rank")):
        if r["kind"].startswith("gowalla"):
            where = "" if r["kind"] == "gowalla" else " (validation)"
            lines.append(
                f"| {r['method']}{where} | {r['rank']} | {_short(r['recall@20'])} | "
                f"{_short(r['ndcg@20'])} | {_short(r['auc'])} |"
            )
    for name, (recall, ndcg) in PUBLISHED.items():
        lines.append(f"| {name}, published | 64 | {_short(recall)} | {_short(ndcg)} | |")
    return "\n".join(lines)


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """p@5 against AUC, one point per method with 95 % intervals, one panel per data set."""
    found = rows(records, METHODS, ALS)
    datasets = [name for name in TITLES if any(r.dataset == name for r in found)]
    figure, axes = style.panels(len(datasets), width=3.2, height=3.1)
    for ax, dataset in zip(axes[0], datasets, strict=True):
        for row in (r for r in found if r.dataset == dataset):
            place = list(METHODS).index(row.method)
            ax.errorbar(
                row.mean["AUC"],
                row.mean["p@5"],
                yerr=row.half["p@5"],
                xerr=row.half["AUC"],
                fmt=style.MARKERS[place],
                color=style.COLOURS[place],
                ms=6,
                lw=1,
                label=row.method,
            )
        ax.set(title=TITLES[dataset], xlabel="AUC")
    axes[0][0].set_ylabel("precision@5")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return style.save(figure, out, "study_top")


def missed(records: list[dict]) -> list[str]:
    """The targets of this study that the records do not meet; rows that were not run are left out."""
    found = {(r.dataset, r.method): r for r in rows(records, METHODS, ALS)}
    told = []
    for dataset, (auc, alone, above) in TARGETS.items():
        mine, only = found.get((dataset, OURS)), found.get((dataset, AUC))
        if mine is not None and mine.against:
            gap = mine.against["p@5"]
            if mine.mean["AUC"] < auc:
                told.append(f"{dataset}: AUC {mine.mean['AUC']:.4f} < {auc}")
            if dataset == "ml-100k" and mine.against["AUC"].difference < 0.004:
                told.append(f"{dataset}: AUC only {mine.against['AUC'].difference:+.4f} from ALS")
            if (gap.low if above else gap.high) <= 0:
                told.append(
                    f"{dataset}: p@5 {gap.difference:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
                )
        if only is not None and only.mean["AUC"] < alone:
            told.append(f"{dataset}: AUC alone {only.mean['AUC']:.4f} < {alone}")
    recalls = [r["recall@20"] for r in records if r["kind"] == "gowalla"]
    if recalls and max(recalls) <= PUBLISHED["MF-BPR"][0]:
        told.append(f"gowalla: Recall@20 {max(recalls):.4f} ≤ {PUBLISHED['MF-BPR'][0]}")
    return told


def write_tables(records: list[dict], out: str | pathlib.Path) -> pathlib.Path:
    """The three tables as one page of Markdown, in sections that docs/choosing.md takes in."""
    levers = {OURS: {}, **LEVERS}
    tried = {r["dataset"] for r in records if r.get("method") in LEVERS}
    tables = {
        "methods": table(rows(records, METHODS, ALS), ALS),
        "levers": table([r for r in rows(records, levers, OURS) if r.dataset in tried], OURS),
        "gowalla": gowalla_table(records),
    }
    mark = "<!-- --8<-- [{}:{}] -->\n"
    text = (
        mark.format("start", k) + f"\n{t}\n\n" + mark.format("end", k) for k, t in tables.items()
    )
    path = pathlib.Path(out) / "study_top.md"
    atomic.write_text(path, "\n".join(text))
    return path
