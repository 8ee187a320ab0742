"""Fig. 4 and Table 1: the objective against row updates, for 1, 2, 4 and 8 blocks; how much faster more devices are.

    python -m experiments.fig_timings [--out=DIR]
    python -m experiments.regenerate --preset=quick --only=fig_timings

Left: square hinge, k = 8, α = .05 with rows' steps of that length, λ = .1, T = 300, start N(0, .1²), averages
from iteration 30 with η = 5; the exact objective of the averages every 5 iterations, five repeats. Every iteration
visits all d × d blocks, and draws 10 positives and 10 negatives of each user whatever d is, but moves a row of U in
each of its d visits. So the axis counts row updates: how often a row of U or V was moved. "Algorithm 1" is the
sequential method (κ_W = 30, κ_Y = 10), the paper's one process. Seconds are of a fit without records, compiled before.

Right: the speed-up of 8 blocks over one device on a power-law matrix of 10⁵ × 2·10⁴ with 5·10⁶ positives, k = 64:
measured on as many devices as there are cores, modelled beyond (`critical_path`). Synthetic data are too small for any.
"""

import dataclasses
import functools
import pathlib
import sys
from typing import Any

import jax
import numpy as np

from experiments import critical_path, flags, paper, protocol, results, style
from mfauc_jax import MFAUC, Blockwise, Minibatch, Watch, data

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
    users: int = flags.option(100_000, "of the large matrix, as the next two")
    items: int = flags.option(20_000, "items of the large matrix")
    positives: int = 5_000_000
    speed_blocks: int = flags.option(8, "d on the large matrix")
    timed: int = flags.option(5, "iterations and visits of which the fastest counts")
    limit: int = flags.option(0, "stop after so many new cells")
    results: str = "out/fig_timings.jsonl"
    out: str = "out"


QUICK = {
    **{"datasets": ("synthetic1",), "blocks": (SEQUENTIAL, 1, 8), "repeats": 1},
    **{"iterations": 100, "timed": 2},
    **{"users": 4000, "items": 2000, "positives": 100_000},
}


def run(config: Config) -> list[dict]:
    """One cell per data set, number of blocks and repeat; on the large matrix one per route and number of devices."""
    cells = results.Cells(config.results, config.limit)
    jobs = [
        {
            "kind": "timings",
            "counted": "row updates",
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
    curves = cells.run(jobs, functools.partial(_curve, config))
    size = {name: getattr(config, name) for name in ("users", "items", "positives")}
    speeds = [
        {
            "kind": "speed",
            "dataset": "large",
            "seed": 0,
            "blocks": blocks,
            "devices": devices,
            "timed": config.timed,
            **size,
            "model": results.described(_fast(blocks)),
        }
        for blocks, devices in _routes(config)
    ]
    return curves + cells.run(speeds, functools.partial(_speed, config))


def _routes(config: Config) -> list[tuple[int, int]]:
    """Minibatch, as 0 blocks, and the blocks on 1, 2, … devices."""
    d = config.speed_blocks
    return [(0, 1), *((d, c) for c in range(1, config.devices + 1) if d % c == 0)]


def _fast(blocks: int) -> MFAUC:
    """What the large matrix is fitted with: the defaults of the minibatch or of the blockwise route."""
    solver = Blockwise(blocks=blocks) if blocks else Minibatch()
    return MFAUC(loss="square_hinge", solver=solver)


def _speed(config: Config, job: dict) -> dict[str, Any]:
    key = jax.random.key(0)
    X = data.synthetic.power_law(key, job["users"], job["items"], job["positives"])
    model = _fast(job["blocks"])
    if job["blocks"]:
        model.set_params(solver__devices=job["devices"])
    iteration = critical_path.Iteration(model, X)
    seconds = critical_path.fastest(iteration, config.timed)
    drawn = X.num_users * (model.solver.num_pos + model.solver.num_neg)
    found: dict[str, Any] = {"iteration_seconds": seconds, "drawn_rows": drawn}
    if job["blocks"] and job["devices"] == 1:
        draws, visits = critical_path.of_blocks(iteration, config.timed)
        found |= {"draw_seconds": draws, "visit_seconds": visits}
    return found


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
    m, n = X.shape
    updates = 2 * max(m, n) if d == SEQUENTIAL else _updates(model, X)
    told = model.fit(X, watch=Watch(record_every=config.every), progress=False).history_
    return {
        "devices": devices,
        "fit_seconds": seconds,
        "updates": updates,  # row updates of an iteration
        "objective": [round(r["objective"], 6) for r in told if "objective" in r],
        "iteration": [r["iteration"] for r in told if "objective" in r],
    }


def _updates(model: MFAUC, X: Any) -> int:
    return critical_path.row_updates(critical_path.Iteration(model, X))


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """θ against row updates for both data sets, and speed-ups, from the records alone; bands are the repeats' range."""
    cells = _curves(records)
    datasets = list(dict.fromkeys(r["dataset"] for r in cells))
    figure, axes = style.panels(len(datasets) + 1, height=3.4)
    for ax, dataset in zip(axes[0], datasets, strict=False):
        mine = [r for r in cells if r["dataset"] == dataset]
        for place, d in enumerate(dict.fromkeys(r["blocks"] for r in mine)):
            group = [r for r in mine if r["blocks"] == d]
            x = np.array(group[0]["iteration"]) * group[0]["updates"]
            curves, look = np.array([r["objective"] for r in group]), style.line(place)
            ax.plot(x, curves.mean(0), **look, lw=1.5, label=_label(d))
            ax.fill_between(x, curves.min(0), curves.max(0), color=look["color"], alpha=0.12, lw=0)
        low = min(min(r["objective"]) for r in mine)
        high = sorted(r["objective"][min(3, len(r["objective"]) - 1)] for r in mine)[-1]
        ax.set(title=paper.TITLES[dataset], ylim=(low - 0.02 * (high - low), high))
        ax.set(xlabel="row updates", xscale="log")
    axes[0][0].set(ylabel="θ of the averages")
    _draw_speeds(axes[0][-1], speed_ups(records))
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return style.save(figure, out, "fig_timings")


def _draw_speeds(ax: Any, found: list[dict[str, Any]]) -> None:
    for place, how in enumerate(("measured", "modelled")):
        points = [(r["devices"], r["times_one"]) for r in found if r["how"] == how]
        look = style.line(place) | {"linestyle": "-" if how == "measured" else ":"}
        face = look["color"] if how == "measured" else "white"
        ax.plot(*zip(*points, strict=True), **look, marker="o", markerfacecolor=face, label=how)
    most = max(r["devices"] for r in found)
    ax.plot([1, most], [1, most], color="0.7", lw=0.8, zorder=0)
    r = found[0]
    title = f"{r['users']:,} × {r['items']:,}, {r['positives']:,} positives"
    ax.set(title=title, xlabel="devices", ylabel=f"speed-up of {r['blocks']} blocks")
    ax.set(xticks=sorted({r["devices"] for r in found}))
    ax.legend(loc="upper left", frameon=False)


def speed_ups(records: list[dict]) -> list[dict[str, Any]]:
    """The large matrix: times one device, and times the minibatch route on one device, measured and modelled."""
    cells = [r for r in records if r.get("kind") == "speed"]
    cells = results.latest(cells, ("blocks", "devices"))
    if not cells:
        return []
    minibatch = next(r for r in cells if not r["blocks"])["iteration_seconds"]
    one = next(r for r in cells if r["blocks"] and r["devices"] == 1)
    base = one["iteration_seconds"]
    times = [("measured", r["devices"], r["iteration_seconds"]) for r in cells if r["blocks"]]
    known = one["draw_seconds"], one["visit_seconds"]
    times += [
        ("modelled", devices, critical_path.modelled(base, *known, devices))
        for devices in (1, 2, 4, 8)
        if one["blocks"] % devices == 0
    ]
    size = {name: one[name] for name in ("users", "items", "positives", "blocks")}
    return [
        {
            **size,
            "how": how,
            "devices": devices,
            "seconds": seconds,
            "times_one": base / seconds,
            "times_minibatch": minibatch / seconds,
        }
        for how, devices, seconds in times
    ]


def _curves(records: list[dict]) -> list[dict]:
    """The newest record of each curve that counts row updates."""
    counted = [r for r in records if r.get("kind") == "timings" and "updates" in r]
    return results.latest(counted, ("dataset", "blocks", "seed"))


def at_updates(cells: list[dict], updates: float) -> float:
    """θ after so many row updates, between two records in proportion; the mean over repeats."""
    found = [
        np.interp(updates, np.array(r["iteration"]) * r["updates"], r["objective"]) for r in cells
    ]
    return float(np.mean(found))


def _label(d: int) -> str:
    return "Algorithm 1" if d == SEQUENTIAL else f"{d} block{'s' if d > 1 else ''}"


def summary(records: list[dict]) -> list[dict[str, Any]]:
    """Table 1, ours beside the paper's; the final objective, and that after equally many row updates as one block's."""
    cells, rows = _curves(records), []
    for dataset, d in dict.fromkeys((r["dataset"], r["blocks"]) for r in cells):
        of_data = [r for r in cells if r["dataset"] == dataset]
        mine, one = ([r for r in of_data if r["blocks"] == blocks] for blocks in (d, 1))
        # the fewest row updates that a whole fit has made: all curves reach them
        equal = min(r["updates"] * r["iteration"][-1] for r in of_data)
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
                "ratio": final / float(np.mean([r["objective"][-1] for r in one])) if one else None,
                "updates": mine[0]["updates"],
                "equal": equal,
                "at_equal": at_updates(mine, equal),
                "commits": results.commits(mine),
            }
        )
    return rows


def main(config: Config) -> int:
    jax.config.update("jax_num_cpu_devices", config.devices)
    run(config)
    records = results.read(config.results)
    rows, good = summary(records), True
    heads = (
        "devices",
        "seconds",
        "paper",
        "updates/it.",
        "θ, equal upd.",
        "θ at the end",
        "/ 1 block",
    )
    print(f"{'':26}" + "".join(f"{head:>14}" for head in heads))
    for r in rows:
        ratio = "" if r["ratio"] is None else f"{r['ratio']:.3f}"
        cells = (
            *(r["devices"], f"{r['seconds']:.2f}", r["paper"] or "", r["updates"]),
            *(f"{r['at_equal']:.4f}", f"{r['objective']:.4f}", ratio),
        )
        print(f"{r['dataset']:12}{r['label']:14}" + "".join(f"{cell:>14}" for cell in cells))
        if r["blocks"] == 8 and r["ratio"] is not None:
            good = good and r["ratio"] <= WITHIN
    for r in speed_ups(records):
        print(
            f"{r['blocks']} blocks on {r['devices']} devices, {r['how']}: {1e3 * r['seconds']:.0f} ms, "
            f"{r['times_one']:.2f} × one device, {r['times_minibatch']:.2f} × minibatch on one"
        )
    for path in draw(records, config.out):
        print(path)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
