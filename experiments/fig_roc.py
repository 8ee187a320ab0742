"""Fig. 3: the left side of the ROC curves of the losses on Synthetic1 and Synthetic2.

    python -m experiments.fig_roc [--out=DIR]

Algorithm 1 as the authors' figures ran it: k = 8, κ_W = 30, κ_Y = 10, λ = 0, steps of length .05,
start N(0, .1²), averages from iteration 30 with η = 5. Five positives of each user are held out.
β of sigmoid and logistic and ρ of tanh are those with the largest true-positive rate at a fifth
of false positives on the *training* positives, as the authors chose them.

Each fit has two curves: on the held-out positives against the items that are neither trained on nor held
out; and as printed in the paper, where training positives count as negatives.
"""

import dataclasses
import pathlib
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments import flags, paper, protocol, results, style, together
from mfauc_jax.data import splits
from mfauc_jax.data.splits import Split
from mfauc_jax.evaluation import curves
from mfauc_jax.model import MFAUC

LOSSES: dict[str, dict[str, Any]] = {
    "hinge": {"loss": "square_hinge"},
    "square": {"loss": "square"},
    "sigmoid": {"loss": "sigmoid"},
    "logistic": {"loss": "logistic"},
    "tanh": {"loss": "square_hinge", "weighting": "tanh"},
}
SWEPT = {"sigmoid": "loss__beta", "logistic": "loss__beta", "tanh": "weighting__rho"}
MAX_FPR = 0.2
INSET = 0.05  # of false positives: what the inset enlarges


@dataclasses.dataclass(frozen=True)
class Config:
    """The defaults are the paper's."""

    datasets: tuple[str, ...] = ("synthetic1", "synthetic2")
    losses: tuple[str, ...] = tuple(LOSSES)
    values: tuple[float, ...] = flags.option((0.5, 1.0, 2.0), "of β and ρ")
    repeats: int = 5
    iterations: int = flags.option(500, "T")
    rank: int = 8
    limit: int = flags.option(0, "stop after so many new cells")
    results: str = "out/fig_roc.jsonl"
    out: str = "out"


QUICK = {"datasets": ("synthetic1",), "values": (1.0,), "repeats": 1, "iterations": 60}


def run(config: Config) -> list[dict]:
    """One cell per data set, loss and repeat: the curves at the β or ρ chosen."""
    cells = results.Cells(config.results, config.limit)

    def group(job):
        return job["dataset"], job["loss"]

    jobs = [
        {
            "kind": "roc",
            "dataset": dataset,
            "loss": loss,
            "seed": seed,
            "rank": config.rank,
            "iterations": config.iterations,
            "values": list(config.values) if loss in SWEPT else [],
            "model": results.described(_model(loss, config.iterations)),
        }
        for dataset in config.datasets
        for loss in config.losses
        for seed in range(config.repeats)
    ]
    return cells.run_together(jobs, _curves, group)


def _model(loss: str, iterations: int, **changes: Any) -> MFAUC:
    setting = {"penalty__reg": 0.0, "solver__iterations": iterations}
    return MFAUC.authors(**LOSSES[loss], **setting, **changes)


def _curves(jobs: list[dict]) -> list[dict[str, Any]]:
    """All repeats and values of β or ρ of a loss, as one program."""
    first = jobs[0]
    X, name = protocol.load(first["dataset"], ""), SWEPT.get(first["loss"])
    points = [{name: value} for value in first["values"]] if name else [{}]
    parts = [splits.hold_out(jax.random.key(job["seed"]), X, 5) for job in jobs]
    models, trains = [], []
    for job, part in zip(jobs, parts, strict=True):
        for point in points:
            changes = {"rank": job["rank"], "seed": job["seed"], **point}
            models.append(_model(job["loss"], job["iterations"], **changes))
            trains.append(part.train)
    fits = together.fit(models, trains)
    return [
        _best(points, fits[place * len(points) : (place + 1) * len(points)], part)
        for place, part in enumerate(parts)
    ]


def _best(points: list[dict], fits: list[together.Fit], part: Split) -> dict[str, Any]:
    """The curves of the fit whose training positives are best ranked."""
    at_end = [float(curves.roc(f.factors, None, part.train, MAX_FPR).tpr[-1]) for f in fits]
    best = int(np.argmax(at_end))
    found = {}
    for kind, seen in (("exact", part.train), ("printed", None)):
        curve = curves.roc(fits[best].factors, seen, part.test, MAX_FPR)
        found[kind] = [round(float(y), 6) for y in curve.tpr]
    auc = float(np.nanmean(curves.auc(fits[best].factors, *part)))
    return {
        "fpr": np.linspace(0, MAX_FPR, 101).round(6).tolist(),
        "tpr": found,
        "auc": auc,
        "chosen": {name.rpartition("__")[2]: value for name, value in points[best].items()},
        "train_tpr": at_end,
        "objective": {"half": fits[best].half, "last": fits[best].last},
    }


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """The figure, from the records alone: mean over the repeats, bands of two standard errors."""
    cells = results.latest(records, ("dataset", "loss", "seed"))
    datasets = list(dict.fromkeys(r["dataset"] for r in cells))
    figure, axes = style.panels(len(datasets), height=3.9)
    for ax, dataset in zip(axes[0], datasets, strict=True):
        rows = [r for r in cells if r["dataset"] == dataset]
        inset = ax.inset_axes((0.48, 0.07, 0.5, 0.5))
        for loss in dict.fromkeys(r["loss"] for r in rows):
            curves = np.array([r["tpr"]["exact"] for r in rows if r["loss"] == loss])
            x, mean = np.array(rows[0]["fpr"]), curves.mean(0)
            look = style.line(list(LOSSES).index(loss))
            ax.plot(x, mean, **look, lw=1.6, label=_label(loss))
            left = x <= INSET
            inset.plot(x[left], mean[left], **look, lw=1.3)
            if len(curves) > 1:
                error = 2 * curves.std(0, ddof=1) / np.sqrt(len(curves))
                ax.fill_between(
                    x, mean - error, mean + error, color=look["color"], alpha=0.12, lw=0
                )
        ax.set(xlabel="false-positive rate", title=paper.TITLES[dataset], xlim=(0, MAX_FPR))
        ax.set_ylim(0, None)
        ax.set_xticks([0, 0.05, 0.1, 0.15, 0.2])
        inset.set(xlim=(0, INSET))
        inset.tick_params(labelsize=7)
        inset.set_title(f"below {100 * INSET:g} %", fontsize=8)
    axes[0][0].set(ylabel="true-positive rate, held-out items")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    caption = (
        "Fig. 3. ROC curves of the five losses up to a fifth of false positives: held-out positives against the items "
        "that are neither trained on nor held out, means over users and splits "
        f"({len({r['seed'] for r in cells})}); bands: two standard errors over splits. β or ρ is that with the best "
        "training curve, as the authors chose it."
    )
    return style.save(figure, out, "fig_roc", caption)


def _label(loss: str) -> str:
    return {"hinge": "square hinge", "tanh": "tanh of square hinge"}.get(loss, loss)


def summary(records: list[dict]) -> list[dict[str, Any]]:
    """For each data set and loss: true-positive rates at 5 % and 20 % and the AUC, over repeats."""
    cells = results.latest(records, ("dataset", "loss", "seed"))
    rows = []
    for dataset, loss in dict.fromkeys((r["dataset"], r["loss"]) for r in cells):
        mine = [r for r in cells if (r["dataset"], r["loss"]) == (dataset, loss)]
        at = mine[0]["fpr"].index(0.05)
        rows.append(
            {
                "dataset": dataset,
                "loss": _label(loss),
                "repeats": len(mine),
                "tpr@.05": float(np.mean([r["tpr"]["exact"][at] for r in mine])),
                "tpr@.20": float(np.mean([r["tpr"]["exact"][-1] for r in mine])),
                "printed@.20": float(np.mean([r["tpr"]["printed"][-1] for r in mine])),
                "auc": float(np.mean([r["auc"] for r in mine])),
                "chosen": sorted({f"{k} = {v:g}" for r in mine for k, v in r["chosen"].items()}),
                "commits": results.commits(mine),
            }
        )
    return rows


if __name__ == "__main__":
    flags.run(Config, partial(results.artefact, run, draw))
