"""How the cost grows: seconds per sweep or iteration, peak memory and compile time against size.

    python -m experiments.bench_scaling [--out=DIR]

Power-law matrices (`data.synthetic.power_law`). Series: `nnz` with 20 positives per user and 10 users per
item, up to 10⁶ × 10⁵ × 2·10⁷; `m` and `n` alone at a fixed number of positives; `k` alone. Every point is
a process of its own, so that its peak memory is its own; what an idle process holds is taken off before the
exponents are fitted, and shown with it. The matrix is drawn and stored by the parent. An exponent is the
slope of log cost against log size by least squares over all points, and in brackets over those of at least
`large` positives, where fixed costs no longer matter and tables outgrow the caches. The exit code says whether
time and memory grow with an exponent of at most 1.1 in nnz over the three decades, and the largest matrix fits
into 8 GB.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import flags, measure, results, style
from mfauc_jax import MFAUC
from mfauc_jax.data import synthetic
from mfauc_jax.data.interactions import Interactions

ROUTES = {"alternating": "square", "minibatch": "square_hinge"}  # the loss whose default it is
COSTS = {"seconds": "seconds per iteration", "memory": "peak memory, GB", "compile": "compile, s"}
EXPONENT, GIGABYTES = 1.1, 8.0


@dataclasses.dataclass(frozen=True)
class Config:
    """Which sizes."""

    nnz: tuple[int, ...] = (20_000, 200_000, 2_000_000, 20_000_000)
    users: tuple[int, ...] = flags.option((2_000, 20_000, 100_000), "numbers of users m")
    items: tuple[int, ...] = flags.option((1_000, 10_000, 100_000), "numbers of items n")
    ranks: tuple[int, ...] = (8, 64, 256)
    rank: int = 64
    fixed: int = flags.option(400_000, "positives of m, n and k")
    large: int = flags.option(
        200_000, "exponents are fitted to points of at least so many positives"
    )
    routes: tuple[str, ...] = tuple(ROUTES)
    point: str = flags.option("", "of a child: its JSON")
    results: str = "results/bench_scaling.jsonl"
    out: str = "results"


def points(config: Config) -> list[dict[str, Any]]:
    """(series, m, n, nnz, k) of every point."""
    k, fixed = config.rank, config.fixed
    series = [("nnz", nnz // 20, max(nnz // 200, 200), nnz, k) for nnz in config.nnz]
    series += [("m", m, 10_000, fixed, k) for m in config.users]
    series += [("n", 20_000, n, fixed, k) for n in config.items]
    series += [("k", 20_000, 10_000, fixed, rank) for rank in config.ranks]
    return [dict(zip(("series", "m", "n", "nnz", "k"), one, strict=True)) for one in series]


def run(config: Config) -> list[dict]:
    """One record per point and route."""
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for point in points(config):
            sizes = tuple(point[name] for name in ("m", "n", "nnz"))
            path = pathlib.Path(folder) / ("x".join(map(str, sizes)) + ".npz")
            if not path.exists():
                X = synthetic.power_law(jax.random.key(0), *sizes)
                np.savez(path, indptr=np.asarray(X.indptr), indices=np.asarray(X.indices))
            for route in config.routes:
                job = json.dumps({**point, "route": route, "path": str(path)})
                command = [sys.executable, "-m", "experiments.bench_scaling", f"--point={job}"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(f"{job} failed:\n{done.stderr[-2000:]}")
                found = json.loads(done.stdout.splitlines()[-1])
                print(f"{point} {route} {found}", file=sys.stderr, flush=True)
                records.append({**point, "route": route, **found})
    return records


def cost(job: dict[str, Any]) -> dict[str, float]:
    """What one fit costs, in this process."""
    with np.load(job["path"]) as stored:
        indptr, indices = stored["indptr"], stored["indices"]
    row_bits = int(np.diff(indptr).max()).bit_length()
    X = Interactions(
        jnp.asarray(indptr), jnp.asarray(indices), num_items=job["n"], row_bits=row_bits
    )
    idle = _peak()
    model = MFAUC(rank=job["k"], loss=ROUTES[job["route"]])
    short, long = (model.with_params(solver__iterations=count) for count in (1, 4))
    cold, _ = measure.timed(lambda: short.fit(X, progress=False), 1)
    begun = time.perf_counter()
    history = long.fit(X, progress=False).history_
    first = history[0]["seconds"]
    setup = time.perf_counter() - begun - history[-1]["seconds"]
    seconds = float(np.diff([r["seconds"] for r in history]).min())
    return {
        "seconds": seconds,
        "setup": setup,
        "compile": max(cold - setup - first, 0.0),
        "memory": _peak(),
        "idle": idle,
    }


def _peak() -> float:
    """GB that this program has used at most."""
    return measure.peak_resident() * 1e6 / 2**30


def exponents(records: list[dict], least: int = 0) -> dict[tuple[str, str, str], float]:
    """(route, series, cost) → the slope in log–log; memory is what the fit adds to an idle process."""
    found = {}
    for route, series in dict.fromkeys((r["route"], r["series"]) for r in records):
        mine = [r for r in records if (r["route"], r["series"]) == (route, series)]
        mine = [r for r in mine if r["nnz"] >= least]
        x = np.log([r[series] for r in mine])
        for cost in COSTS:
            y = [r["memory"] - r["idle"] if cost == "memory" else r[cost] for r in mine]
            if len(x) > 1:
                found[route, series, cost] = float(np.polyfit(x, np.log(np.maximum(y, 1e-4)), 1)[0])
    return found


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """Every cost against nnz."""
    figure, axes = style.panels(len(COSTS), width=3.2, height=3.0)
    for ax, (cost, label) in zip(axes[0], COSTS.items(), strict=True):
        for place, route in enumerate(dict.fromkeys(r["route"] for r in records)):
            mine = [r for r in records if r["route"] == route and r["series"] == "nnz"]
            x, y = ([r[name] for r in mine] for name in ("nnz", cost))
            ax.plot(x, y, **style.line(place), marker=style.MARKERS[place], ms=4, label=route)
        ax.set(xscale="log", yscale="log", xlabel="positives", ylabel=label)
        if cost == "compile":  # a constant and noise
            ax.set(yscale="linear", ylim=(0, None))
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return style.save(figure, out, "bench_scaling")


def main(config: Config) -> int:
    if config.point:
        print(json.dumps(cost(json.loads(config.point))))
        return 0
    records = run(config)
    results.write(config.results, config, records)
    for path in draw(records, config.out):
        print(path)
    return report(config, records)


def report(config: Config, records: list[dict]) -> int:
    """The table and the exponents; 1 if a target is missed."""
    print(
        f"{'':12}{'':5}{'m':>10}{'n':>8}{'nnz':>10}{'k':>5}{'s/it':>9}{'GB':>7}{'idle':>6}{'compile':>9}"
    )
    for r in records:
        print(
            f"{r['route']:12}{r['series']:5}{r['m']:10}{r['n']:8}{r['nnz']:10}{r['k']:5}"
            f"{r['seconds']:9.4f}{r['memory']:7.2f}{r['idle']:6.2f}{r['compile']:9.2f}"
        )
    good, large = True, exponents(records, config.large)
    for (route, series, cost), slope in exponents(records).items():
        judged = series == "nnz" and cost != "compile"
        good = good and not (judged and slope > EXPONENT)
        print(
            f"{route}: {cost} ∝ {series}^{slope:.2f} [{large.get((route, series, cost), slope):.2f}]"
            + (f" (≤ {EXPONENT}) {'met' if slope <= EXPONENT else 'MISSED'}" if judged else "")
        )
    largest = max(r["memory"] for r in records)
    print(
        f"largest peak {largest:.2f} GB (≤ {GIGABYTES:g}) {'met' if largest <= GIGABYTES else 'MISSED'}"
    )
    return 0 if good and largest <= GIGABYTES else 1


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
