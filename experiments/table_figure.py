"""Tables 2 and 4 as a figure: p@5 and AUC of every row, ours with its 95 % interval, the paper's beside."""

import pathlib

from matplotlib import ticker

from experiments import comparison, paper, style

LOOK = {
    "authors": ("s", style.COLOURS[1], "setting authors"),
    "ours": ("o", style.COLOURS[0], "ours"),
}
SHOWN = (("precision@5", "precision@5"), ("auc", "AUC"))


def draw(records: list[dict], out: str | pathlib.Path, name: str) -> list[pathlib.Path]:
    """`out/name.png` and `.pdf`, from the records alone; nothing if there is no fit among them."""
    rows = comparison.rows(records)
    if not rows:
        return []
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    datasets.sort(key=list(paper.TITLES).index)
    counts = [len({r.method for r in rows if r.dataset == d}) for d in datasets]
    heights = [0.9 + 0.24 * count for count in counts]
    figure, axes = style.panels(2, len(datasets), width=4.2, height=heights)
    for line, dataset in zip(axes, datasets, strict=True):
        mine = [row for row in rows if row.dataset == dataset]
        names = list(dict.fromkeys(row.method for row in mine))
        for ax, (column, label) in zip(line, SHOWN, strict=True):
            _panel(ax, mine, names, column)
            ax.set(xlabel=label, title=f"{paper.TITLES.get(dataset, dataset)}, {label}")
        line[1].set_yticklabels([])
    handles = {}
    for ax in axes.ravel():
        found, labels = ax.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=3)
    return style.save(figure, out, name)


def _panel(ax, rows: list[comparison.Row], names: list[str], column: str) -> None:
    settings = [s for s in LOOK if any(row.setting == s for row in rows)]
    for number, setting in enumerate(settings):
        marker, colour, label = LOOK[setting]
        mine = [row for row in rows if row.setting == setting]
        shift = 0.22 * (number - (len(settings) - 1) / 2)
        y = [names.index(row.method) + shift for row in mine]
        ax.errorbar(
            [row.ours[column] for row in mine],
            y,
            xerr=[row.half[column] for row in mine],
            fmt=marker,
            ms=4,
            color=colour,
            capsize=2,
            lw=1,
            label=f"{label}, 95 % interval",
        )
    printed = {row.method: row.paper[column] for row in rows if row.paper}
    ax.plot(
        list(printed.values()),
        [names.index(m) for m in printed],
        "D",
        ms=7,
        mfc="none",
        mec="black",
        label="paper",
    )
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(6))
    ax.grid(axis="y", color="0.9", lw=0.6)
    ax.set_axisbelow(True)
