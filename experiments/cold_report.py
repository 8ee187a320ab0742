"""What `bench_cold` makes of its records: the tables and the picture of docs/new-items.md."""

import pathlib

import numpy as np

from experiments import style

DATASETS = ("generator", "book-crossing")
SEEN = (0, 1, 2, 3, 5, 10, 20)  # positives that an item of the curve has had


def table(records: list[dict]) -> str:
    """The records as Markdown: means over the seeds, and the paired differences."""
    rows = [
        "| data | method | AUC over cold items | ours − it, 95 % interval |",
        "| --- " * 4 + "|",
    ]
    gaps = {
        (r["dataset"], r["kind"], r["method"]): r["ours_minus"]
        for r in records
        if "ours_minus" in r
    }
    for dataset in DATASETS:
        for method, own in _aucs(records, dataset, "cold").items():
            gap = gaps.get((dataset, "paired cold", method), {}).get("auc")
            rows.append(f"| {dataset} | {method} | {np.mean(own):.3f} | {_shown(gap)} |")
    rows += [
        "",
        "| data | warm items | without features | with − without, 95 % interval |",
        "| --- " * 4 + "|",
    ]
    for dataset in DATASETS:
        gap = gaps.get((dataset, "paired warm", "without"), {})
        plain = [r for r in _of(records, dataset, "warm") if r["method"] == "without"]
        for name, metric in (("AUC", "auc"), ("NDCG@10", "ndcg@10")):
            if plain and gap:
                mean = np.mean([r[metric] for r in plain])
                rows.append(f"| {dataset} | {name} | {mean:.3f} | {_shown(gap[metric[:4]])} |")
    rows += ["", "| loss, solver | AUC over cold items | by seed |", "| --- " * 3 + "|"]
    for method, own in _aucs(records, "generator", "route").items():
        each = ", ".join(f"{auc:.3f}" for auc in own)
        rows.append(f"| {method} | {np.mean(own):.3f} | {each} |")
    return "\n".join(rows) + "\n"


def _of(records: list[dict], dataset: str, kind: str) -> list[dict]:
    return [r for r in records if r["dataset"] == dataset and r["kind"] == kind]


def _aucs(records: list[dict], dataset: str, kind: str) -> dict[str, list[float]]:
    """The AUCs of each method, one per seed; the methods are in the order of the records of all data sets."""
    found: dict[str, list[float]] = {r["method"]: [] for r in records if r["kind"] == kind}
    for r in _of(records, dataset, kind):
        found[r["method"]].append(r["auc"])
    return {method: aucs for method, aucs in found.items() if aucs}


def _shown(gap: list[float] | None) -> str:
    return "" if gap is None else f"{gap[0]:+.4f} [{gap[1]:+.4f}, {gap[2]:+.4f}]"


def draw(records: list[dict], out: str) -> list[pathlib.Path]:
    """AUC of items against the number of positives that they have had, with and without features."""
    figure, axes = style.panels(1, width=5.5, height=3.4)
    ax = axes[0][0]
    for place, method in enumerate(("with features", "without")):
        own = [r for r in _of(records, "generator", "curve") if r["method"] == method]
        means = [np.mean([r["auc"] for r in own if r["seen"] == seen]) for seen in SEEN]
        ax.plot(
            range(len(SEEN)),
            means,
            style.MARKERS[place] + "-",
            color=style.COLOURS[place],
            label=f"{method} of items" if place == 0 else "without features",
        )
    ax.set_xticks(range(len(SEEN)), list(map(str, SEEN)))
    ax.set_xlabel("positives that the item has had in training")
    ax.set_ylabel("AUC over these items")
    ax.grid(axis="y", alpha=0.3)
    ax.legend()
    return style.save(figure, out, "bench_cold")
