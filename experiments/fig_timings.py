"""Fig. 4 and Table 1: the objective against iterations and seconds, for 1, 2, 4 and 8 blocks.

    python -m experiments.fig_timings [--out=DIR]

Square hinge, k = 8, α = .05 with rows' steps of that length, λ = .1, T = 300, start N(0, .1²), averages
from iteration 30 with η = 5; the exact objective of the averages every 5 iterations, five repeats.
d blocks run on as many of `devices` as divide d; every iteration visits all d × d blocks, and draws
10 positives and 10 negatives of each user whatever d is. "Algorithm 1" is the sequential method (κ_W = 30,
κ_Y = 10), the paper's one process. Seconds are of a fit without records, compiled before.
"""

import dataclasses
import functools
import pathlib
import sys
from typing import Any

import jax
import numpy as np

from experiments import flags, paper, protocol, results, style
from mfauc_jax import MFAUC, Blockwise, Watch

WITHIN = 1.05  # final objective of 8 blocks over 1 block's
SEQUENTIAL = 0  # "blocks" of Algorithm 1


@dataclasses.dataclass(frozen=True)
class Config:
    """The defaults are the paper's."""

    datasets: tuple[str, ...] = ("synthetic1", "synthetic2")
    blocks: tuple[int, ...] = flags.option((SEQUENTIAL, 1, 2, 4, 8), "0 is Algorithm 1")
    repeats: int = 5
    iterations: int = 300
    batch: int = flags.option(64, "users in a batch, at most")
    every: int = flags.option(5, "iterations between objectives")
    devices: int = flags.option(2, "CPU devices, one per core")
    limit: int = flags.option(0, "stop after so many new cells")
    results: str = "out/fig_timings.jsonl"
    out: str = "out"


QUICK = {"blocks": (1, 8), "repeats": 1, "iterations": 100}


def run(config: Config) -> list[dict]:
    """One cell per data set, number of blocks and repeat."""
    cells = results.Cells(config.results, config.limit)
    jobs = [
        {
            "kind": "timings",
            "dataset": dataset,
            "blocks": d,
            "seed": seed,
            "batch": config.batch,
            "iterations": config.iterations,
            "every": config.every,
            "model": results.described(_model(config, d)),
        }
        for dataset in config.datasets
        for d in config.blocks
        for seed in range(config.repeats)
    ]
    return cells.run(jobs, functools.partial(_curve, config))


def _model(config: Config, blocks: int) -> MFAUC:
    """Algorithm 1 as the authors' figures ran it, or with the same steps in blocks."""
    model = MFAUC.authors(solver__iterations=config.iterations)
    if blocks == SEQUENTIAL:
        return model
    solver = Blockwise(
        iterations=config.iterations,
        learning_rate=model.solver.learning_rate,
        optimiser="unit",
        batch=config.batch,
        num_pos=10,
        num_neg=10,
        average=model.solver.average,
        blocks=blocks,
    )
    return model.with_params(solver=solver)


def _curve(config: Config, job: dict) -> dict[str, Any]:
    X, d = protocol.load(job["dataset"], ""), job["blocks"]
    most = min(jax.device_count(), config.devices)
    devices = max(c for c in range(1, most + 1) if max(d, 1) % c == 0)
    model = _model(config, d).with_params(seed=job["seed"])
    if d != SEQUENTIAL:
        model.set_params(solver__devices=devices)
    model.with_params(solver__iterations=1).fit(X, progress=False)  # compiles
    seconds = model.with_params().fit(X, progress=False).history_[-1]["seconds"]
    told = model.fit(X, watch=Watch(record_every=config.every), progress=False).history_
    return {
        "devices": devices,
        "fit_seconds": seconds,
        "objective": [round(r["objective"], 6) for r in told if "objective" in r],
        "iteration": [r["iteration"] for r in told if "objective" in r],
    }


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """Both axes for both data sets, from the records alone; bands are the repeats' range."""
    cells = results.latest(records, ("dataset", "blocks", "seed"))
    datasets = list(dict.fromkeys(r["dataset"] for r in cells))
    figure, axes = style.panels(2, len(datasets), height=3.0)
    for row, dataset in zip(axes, datasets, strict=True):
        mine = [r for r in cells if r["dataset"] == dataset]
        for place, d in enumerate(dict.fromkeys(r["blocks"] for r in mine)):
            group = [r for r in mine if r["blocks"] == d]
            x = np.array(group[0]["iteration"])
            curves = np.array([r["objective"] for r in group])
            each = np.median([r["fit_seconds"] for r in group]) / x[-1]
            look = style.line(place)
            for ax, at in zip(row, (x, x * each), strict=True):
                ax.plot(at, curves.mean(0), **look, lw=1.5, label=_label(d))
                ax.fill_between(
                    at, curves.min(0), curves.max(0), color=look["color"], alpha=0.12, lw=0
                )
        low = min(min(r["objective"]) for r in mine)
        high = sorted(r["objective"][min(3, len(r["objective"]) - 1)] for r in mine)[-1]
        row[0].set(ylabel="θ of the averages", xlabel="iteration")
        row[1].set(xlabel="seconds, compilation apart", xscale="log")
        for ax in row:
            ax.set(title=paper.TITLES[dataset], ylim=(low - 0.02 * (high - low), high))
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return style.save(figure, out, "fig_timings")


def _label(d: int) -> str:
    return "Algorithm 1" if d == SEQUENTIAL else f"{d} block{'s' if d > 1 else ''}"


def summary(records: list[dict]) -> list[dict[str, Any]]:
    """Table 1, ours beside the paper's, and the final objective against one block's."""
    cells = results.latest(records, ("dataset", "blocks", "seed"))
    rows = []
    for dataset, d in dict.fromkeys((r["dataset"], r["blocks"]) for r in cells):
        mine = [r for r in cells if (r["dataset"], r["blocks"]) == (dataset, d)]
        one = [r["objective"][-1] for r in cells if (r["dataset"], r["blocks"]) == (dataset, 1)]
        final = float(np.mean([r["objective"][-1] for r in mine]))
        rows.append(
            {
                "dataset": dataset,
                "blocks": d,
                "label": _label(d),
                "devices": mine[0]["devices"],
                "repeats": len(mine),
                "seconds": float(np.median([r["fit_seconds"] for r in mine])),
                "paper": paper.TIMINGS[dataset].get(max(d, 1)),
                "objective": final,
                "ratio": final / float(np.mean(one)) if one else None,
                "commits": results.commits(mine),
            }
        )
    return rows


def main(config: Config) -> int:
    jax.config.update("jax_num_cpu_devices", config.devices)
    run(config)
    rows, good = summary(results.read(config.results)), True
    print(
        f"{'':12}{'':14}{'devices':>8}{'seconds':>9}{'paper':>8}{'θ at the end':>14}{'/ 1 block':>11}"
    )
    for r in rows:
        ratio = "" if r["ratio"] is None else f"{r['ratio']:11.3f}"
        print(
            f"{r['dataset']:12}{r['label']:14}{r['devices']:8}{r['seconds']:9.2f}"
            f"{r['paper'] or '':>8}{r['objective']:14.4f}{ratio}"
        )
        if r["blocks"] == 8 and r["ratio"] is not None:
            good = good and r["ratio"] <= WITHIN
    for path in draw(results.read(config.results), config.out):
        print(path)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
