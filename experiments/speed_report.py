"""What `bench_speed` makes of its records: ratios with their targets, tables and pictures."""

import pathlib

import numpy as np

from experiments import style

TITLES = {
    "ml-100k": "MovieLens 100K",
    "ml-1m": "MovieLens 1M",
    "book-crossing": "Book Crossing",
    "gowalla": "Gowalla",
    "synthetic": "power-law matrix",
}
AUC_TO_REACH = {"ml-100k": 0.92, "ml-1m": 0.939}
WHOLE = {  # the largest ratio of our median whole fit to a peer's on MovieLens 1M
    "implicit ALS": 0.5,
    "irspack CG": 1.0,
    "irspack iALS++": 1.0,
}
LEAST = (0.944, 0.148)  # AUC and p@5 that the whole fit of MovieLens 1M must have
EPOCHS = {"implicit ALS": 15, "irspack CG": 12, "irspack iALS++": 12}


def time_to(record: dict, auc: float, top: float = 0.0) -> float | None:
    """Seconds until both are reached at one point of the curve."""
    reached = [t for t, a, p in record["points"] if a >= auc and p >= top]
    return reached[0] if reached else None


def targets(records: list[dict], dataset: str) -> list[tuple[str, float | None, float]]:
    """What is compared, our ratio, and the largest ratio allowed."""
    by = {r["method"]: r for r in records if r["dataset"] == dataset and "method" in r}
    whole = whole_targets(records) if dataset == "ml-1m" else []
    if dataset not in AUC_TO_REACH or not {"MFAUC", "implicit ALS", "lightfm WARP"} <= set(by):
        return whole
    auc = AUC_TO_REACH[dataset]
    warp, ours = time_to(by["lightfm WARP"], auc), time_to(by["MFAUC"], auc)
    als = by["implicit ALS"]["points"]
    rows = [
        (
            f"time to AUC {auc} over lightfm WARP's",
            _ratio(ours, warp),
            0.25 if dataset == "ml-1m" else 0.5,
        )
    ]
    if dataset == "ml-100k" and ours is not None:
        for what in ("compile", "cached"):
            known = {"compile": "cold", "cached": "from the cache"}[what]
            ratio = _ratio(ours + by["MFAUC"][what], warp)
            rows.append((f"the same, compilation counted, {known}", ratio, 2.0))
    if dataset == "ml-1m":
        last = als[-1]
        both = time_to(by["MFAUC"], last[1], last[2])
        rows.append(
            ("time to implicit ALS's last AUC and p@5 over its time", _ratio(both, last[0]), 1.0)
        )
    rows += whole
    for found in (r["rows"] for r in records if r["dataset"] == dataset and "rows" in r):
        peer = found["implicit BPR"]
        rows += [
            (f"{name}: {ns:.0f} ns per row, over implicit BPR's {peer:.0f}", ns / peer, 1.0)
            for name, ns in found.items()
            if ns is not peer
        ]
    return rows


def whole_targets(records: list[dict]) -> list[tuple[str, float | None, float]]:
    """Our median whole fit over each peer's on MovieLens 1M; None where our quality is below `LEAST`."""
    rows = []
    for found in (r["whole"] for r in records if r["dataset"] == "ml-1m" and "whole" in r):
        ours = found["MFAUC"]
        good = ours["auc"] >= LEAST[0] and ours["precision@5"] >= LEAST[1]
        median = float(np.median(ours["seconds"])) if good else None
        for peer, most in WHOLE.items():
            if peer in found:
                theirs = float(np.median(found[peer]["seconds"]))
                what = f"whole fit, {theirs:.2f} s of {peer} ({EPOCHS[peer]})"
                rows.append((what, _ratio(median, theirs), most))
    return rows


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    """None if we do not get there; 0 if they do not."""
    if ours is None:
        return None
    return 0.0 if theirs is None else ours / theirs


def whole_table(records: list[dict]) -> str:
    """Medians of the whole fits as Markdown, and ours as a share of each."""
    rows = ["| whole fit | s | AUC | p@5 | `MFAUC()` takes |", "| --- " * 5 + "|"]
    for r in (r for r in records if "whole" in r):
        seconds = {name: float(np.median(found["seconds"])) for name, found in r["whole"].items()}
        for name, found in r["whole"].items():
            means = " | ".join(_short(found[metric]) for metric in ("auc", "precision@5"))
            share = (
                "" if name == "MFAUC" else f"{_short(seconds['MFAUC'] / seconds[name], 2)} of it"
            )
            called = f"{name}, {EPOCHS[name]} epochs" if name in EPOCHS else f"`{name}()`"
            rows.append(
                f"| {TITLES[r['dataset']]}, {called} | {_short(seconds[name], 2)} | {means} | {share} |"
            )
    return "\n".join(rows) + "\n"


def curve_table(records: list[dict], dataset: str) -> str:
    """Where the curves of a data set end, as Markdown."""
    title, least = f"{TITLES[dataset]}, k = 64", AUC_TO_REACH[dataset]
    heads = (title, "compile, s", "from the cache", f"AUC {_short(least, 3)} after, s", "last, s")
    rows = [f"| {' | '.join((*heads, 'AUC', 'p@5'))} |", "| --- " * 7 + "|"]
    for r in (r for r in records if r["dataset"] == dataset and "points" in r):
        t, auc, top = r["points"][-1]
        own, reached = r["compile"] > 0, time_to(r, least)
        compiled = [_short(r[k], 2) if own else "" for k in ("compile", "cached")]
        when = "never" if reached is None else _short(reached, 2)
        shown = [r["method"], *compiled, when, _short(t, 2), _short(auc), _short(top)]
        rows.append(f"| {' | '.join(shown)} |")
    return "\n".join(rows) + "\n"


def _short(number: float, digits: int = 4) -> str:
    return f"{number:.{digits}f}".removeprefix("0")


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """One figure per data set: AUC and p@5 against seconds."""
    drawn = []
    curves = [r for r in records if "points" in r]
    for dataset in dict.fromkeys(r["dataset"] for r in curves):
        figure, axes = style.panels(2)
        for place, r in enumerate(x for x in curves if x["dataset"] == dataset):
            t, auc, top = np.array(r["points"]).T
            look = style.line(place) if place < 7 else {"color": "#888888", "linestyle": "-"}
            look |= {"marker": (style.MARKERS + "X")[place % 8], "markevery": max(len(t) // 12, 1)}
            for ax, y in zip(axes[0], (auc, top), strict=True):
                ax.plot(t, y, **look, ms=4, lw=1.3, label=r["method"])
                ax.set(xscale="log", xlabel="seconds on 2 cores, compilation apart")
        best = max(
            max(point[1] for point in r["points"]) for r in curves if r["dataset"] == dataset
        )
        title = TITLES[dataset]
        axes[0][0].set(ylabel="exact AUC", title=title, ylim=(best - 0.15, best + 0.01))
        axes[0][1].set(ylabel="p@5", title=title)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        drawn += style.save(figure, out, f"bench_speed_{dataset}")
    return drawn
