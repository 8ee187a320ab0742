"""Pictures of a fit and of its recommendations. Each function draws on the given Axes and returns it.

    ax = plots.roc(model, train, test)
    plots.roc(baselines.popularity(key, train), train, test, ax=ax, label="popularity")
    ax.figure.savefig("roc.png", dpi=150)

A second call on the same Axes takes the next colour and line style, which also differ when printed in grey.
matplotlib is imported with the first picture.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# colours of Okabe and Ito, darkest first, each with its own line style and mark
STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#E69F00", ":", "D"),
)
GREY = "0.45"


def learning_curves(
    source: Any,
    names: Sequence[str] | None = None,
    ax: "Axes | None" = None,
    *,
    label: str | None = None,
    against: str = "iteration",
) -> "Axes":
    """Learning curves: the records of each iteration, with the best of each metric marked.

    Args:
        source: a fitted model, or its `history_`.
        names: which records to draw; None: AUC and NDCG@10 if there was validation, else the exact objective, else
            the step size.
        ax: where to draw; None: a new figure.
        label: text before the names in the legend, to tell fits apart.
        against: the horizontal axis, "iteration" or "seconds".
    """
    history = getattr(source, "history_", source)
    if not history:
        raise ValueError("the history is empty: fit the model first")
    recorded = list(dict.fromkeys(name for record in history for name in record))
    if names is None:
        names = [name for name in ("auc", "ndcg@10") if name in recorded]
        names = names or [name for name in ("objective", "step_size") if name in recorded][:1]
    for name in [*names, against]:
        if name not in recorded:
            raise ValueError(f"{name!r} was not recorded: choose from {', '.join(recorded)}")
    ax = ax or _axes()
    for name in names:
        rows = [(r[against], r[name]) for r in history if name in r]
        x, y = np.array(rows, float).T
        colour, line, mark = _next(ax)
        best = None if name in ("objective", "step_size") else int(np.argmax(y))
        text = _caption(name) + ("" if best is None else f", best {y[best]:.4f}")
        text = text if label is None else f"{label}: {text}"
        ax.plot(x, y, line, color=colour, label=text)
        if best is not None:
            ax.plot(x[best], y[best], mark, color=colour, markersize=6)
    ax.set_xlabel("iteration" if against == "iteration" else "time (seconds)")
    kinds = [n if n in ("objective", "step_size") else "validation metric" for n in names]
    ax.set_ylabel(_caption(kinds[0]) if len(set(kinds)) == 1 else "value")
    if set(kinds) == {"step_size"}:
        ax.set_yscale("log")
    return _finish(ax)


def roc(
    model: Any,
    train: Interactions | None,
    test: Interactions,
    ax: "Axes | None" = None,
    *,
    label: str = "mean",
    max_fpr: float = 1.0,
    band: float = 0.5,
) -> "Axes":
    """The mean ROC curve of the users, and a band that holds the middle share `band` of their curves.

    Args:
        model: a fitted model or Factors.
        train: items to leave out of the lists, as for `metrics.evaluate`.
        test: the held-out positives.
        ax: where to draw; None: a new figure.
        label: name of the curve in the legend.
        max_fpr: the last false-positive rate, in (0, 1]; a small one shows the top of the lists.
        band: share of the users in the band, in (0, 1].
    """
    curve = curves.roc(model, train, test, max_fpr, band=band)
    area = float(np.nanmean(curves.auc(model, train, test)))
    ax = ax or _axes()
    colour, line, _ = _next(ax)
    if len(ax.lines) == 0:
        ax.plot([0, max_fpr], [0, max_fpr], color=GREY, linewidth=0.8, label="_chance")
        ax.annotate(
            "chance",
            (0.8 * max_fpr, 0.8 * max_fpr),
            (4, -10),
            color=GREY,
            fontsize=8,
            textcoords="offset points",
        )
    text = f"{label} of {curve.users} users, AUC {area:.3f}"
    ax.plot(curve.fpr, curve.tpr, line, color=colour, label=text)
    shade = f"the middle {band:.0%} of users"
    for edge in (curve.low, curve.high):  # in the style of the curve, so that bands differ in grey
        ax.plot(curve.fpr, edge, line, color=colour, alpha=0.6, linewidth=0.7, label="_edge")
    ax.fill_between(
        curve.fpr, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0, label=shade
    )
    ax.set_xlabel("false-positive rate (share of negatives)")
    ax.set_ylabel("true-positive rate (share of held-out items)")
    ax.set_xlim(0, max_fpr)
    ax.set_ylim(0, 1.01)
    return _finish(ax)


def auc_against_activity(
    model: Any,
    train: Interactions,
    test: Interactions,
    ax: "Axes | None" = None,
    *,
    label: str | None = None,
    bins: int = 8,
) -> "Axes":
    """The AUC of each user against their number of training items, one dot per user.

    The error bars are medians and quartiles of `bins` groups of about equally many users.

    Args:
        model: a fitted model or Factors.
        train: the training positives.
        test: the held-out positives.
        ax: where to draw; None: a new figure.
        label: text before the legend entry, to tell models apart.
        bins: largest number of groups.
    """
    auc = curves.auc(model, train, test)
    length = np.asarray(train.row_lengths)
    known = ~np.isnan(auc) & (length > 0)
    if not known.any():
        raise ValueError("no user has both training and held-out items: there is no AUC to draw")
    auc, length = auc[known], length[known]
    group = curves.activity_groups(length, bins)
    used = np.unique(group)
    low, middle, high = np.array([np.quantile(auc[group == b], (0.25, 0.5, 0.75)) for b in used]).T
    centre = np.array([np.exp(np.log(length[group == b]).mean()) for b in used])
    ax = ax or _axes()
    colour, line, mark = _next(ax)
    ax.plot(length, auc, ".", color=colour, alpha=0.15, markersize=3, label="_users", zorder=1)
    text = f"median and quartiles, {len(auc)} users"
    ax.errorbar(
        centre,
        middle,
        (middle - low, high - middle),
        color=colour,
        linestyle=line,
        marker=mark,
        capsize=3,
        label=text if label is None else f"{label}: {text}",
        zorder=3,
    )
    ax.set_xscale("log")
    ax.set_xlabel("training items of the user (number)")
    ax.set_ylabel("AUC on the user's held-out items")
    _plain_log(ax.xaxis)
    bottom = min(float(np.quantile(auc, 0.01)), float(low.min()))
    ax.set_ylim(max(0.0, bottom - 0.02), 1.005)
    return _finish(ax)


def popularity_against_exposure(
    model: Any,
    train: Interactions,
    n: int = 10,
    ax: "Axes | None" = None,
    *,
    label: str | None = None,
) -> "Axes":
    """The number of users with each item in their top n, against the number of users who had it in training.

    The line is exposure in proportion to popularity: items above it are shown more often than that.

    Args:
        model: a fitted model or Factors.
        train: the training positives, which are left out of the lists.
        n: length of a list.
        ax: where to draw; None: a new figure.
        label: text before the legend entry, to tell models apart.
    """
    had, shown, covered, share = curves.exposure(model, train, n)
    ax = ax or _axes()
    colour, _, mark = _next(ax)
    if len(ax.lines) == 0:
        x = np.array([1, max(had.max(), 2)])
        ax.plot(x, x * shown.sum() / had.sum(), color=GREY, linewidth=0.8, label="in proportion")
    text = f"{covered:.0%} of items shown; the most popular tenth fills {share:.0%}"
    ax.plot(
        had,
        shown,
        mark,
        color=colour,
        alpha=0.35,
        markersize=3,
        markeredgewidth=0,
        label=text if label is None else f"{label}: {text}",
    )
    ax.set_xscale("symlog", linthresh=1)
    ax.set_yscale("symlog", linthresh=1)
    ax.set_xlim(-0.2 if had.min() == 0 else 0.8, None)
    ax.set_ylim(-0.2, None)
    for axis in (ax.xaxis, ax.yaxis):
        _plain_log(axis)
    ax.set_xlabel("popularity (users with the item in training)")
    ax.set_ylabel(f"exposure (users with the item in their top {n})")
    return _finish(ax)


def _axes() -> "Axes":
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(5.2, 3.6), layout="constrained")[1]


def _next(ax: "Axes") -> tuple[str, str, str]:
    """The style of the next curve: one per curve that is in the legend so far."""
    named = [
        h for h in ax.get_legend_handles_labels()[1] if "middle" not in h and h != "in proportion"
    ]
    return STYLES[len(named) % len(STYLES)]


def _caption(name: str) -> str:
    known = {"objective": "objective θ", "step_size": "relative step size"}
    return known.get(name) or (name if name == "validation metric" else name.upper())


def _plain_log(axis: Any) -> None:
    """Label the ticks of an axis 1, 10, 100 instead of with powers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _finish(ax: "Axes") -> "Axes":
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    names = ax.get_legend_handles_labels()[1]
    if names != [ax.get_ylabel()]:
        ax.legend(frameon=False, fontsize=8)
    return ax
