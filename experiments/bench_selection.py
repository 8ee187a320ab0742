"""The paper's selection as one vmapped program beside a Python loop over the same fits.

    python -m experiments.bench_selection

Synthetic1, hinge, Algorithm 1 in the authors' setting: 3 splits × 7 α × 10 λ = 210 fits of 100
iterations, each evaluated. The grid's points share the sampling key, as the loop's fits do (all
have one seed), so both see the same samples and must choose the same point. In float64: steps of
length α amplify rounding, and in float32 the two orders of summation are .02 of F1@5 apart after
100 iterations, as far as the points at the top are from each other. Compilation is counted in both.
The exit code says whether the winners agree and the program is at least 3 times faster.
"""

import dataclasses
import math
import pathlib
import sys
import time
from functools import partial

import jax
import numpy as np

from experiments import flags, results
from experiments.methods import RATE, REG
from mfauc_jax.data import splits, synthetic
from mfauc_jax.evaluation import metrics
from mfauc_jax.model import MFAUC
from mfauc_jax.training import outcome, selection

TARGET = 3.0
SAME = 0.002  # F1@5: a few of the 1500 held-out items may fall the other way


@dataclasses.dataclass(frozen=True)
class Config:
    """The defaults are the authors' grids (docs/derivations.md#authors)."""

    users: int = flags.option(500, "number of users")
    items: int = flags.option(200, "number of items")
    rank: int = 8
    iterations: int = 100
    splits: int = 3
    alphas: int = flags.option(7, "α = 2⁻¹ … 2^-alphas")
    lambdas: int = flags.option(10, "λ = 2⁰ … 2^-(lambdas - 1)")
    loop_fits: int = flags.option(
        0, "fits of the loop to run, its time extrapolated; 0: all of them"
    )
    x64: bool = flags.option(True, "in float64; float32 is faster, but its rounding grows")
    seed: int = 0
    results: str = "results/bench_selection.jsonl"
    figure: str = flags.option("results/bench_selection.png", "file of the heat map")


def run(config: Config) -> list[dict]:
    """One record: both times, both winners, and how far apart the criteria are."""
    jax.config.update("jax_enable_x64", config.x64)
    key_data, key_splits = jax.random.split(jax.random.key(config.seed))
    X = synthetic.synthetic1(key_data, config.users, config.items)
    model = MFAUC.authors(rank=config.rank, solver__iterations=config.iterations)
    grid = {
        RATE: [2.0**-a for a in range(1, config.alphas + 1)],
        REG: [2.0**-a for a in range(config.lambdas)],
    }
    parts = [splits.hold_out(k, X, 3) for k in jax.random.split(key_splits, config.splits)]

    begun = time.perf_counter()
    found = selection.select(key_splits, model, X, grid, splits=parts, progress=False)
    together = time.perf_counter() - begun
    pathlib.Path(config.figure).parent.mkdir(parents=True, exist_ok=True)
    found.draw(config.figure)

    jobs = [(number, point) for number in range(config.splits) for point in found.points]
    wanted = max(config.loop_fits, 2) if config.loop_fits else len(jobs)
    chosen = sorted({round(at) for at in np.linspace(0, len(jobs) - 1, wanted)})
    seconds, table = [], []
    for number, point in (jobs[at] for at in chosen):
        train, test = parts[number]
        begun = time.perf_counter()
        try:
            alone = model.with_params(**point).fit(train, progress=False)
            value = metrics.evaluate(alone.factors_, train, test)["f1@5"]
        except ArithmeticError:  # diverged
            value = math.nan
        seconds.append(time.perf_counter() - begun)
        table.append({"split": number, **point, "f1@5": value})
    missing = len(jobs) - len(table)  # the first fit compiles, the others tell how long one takes
    loop = sum(seconds) + (missing * float(np.median(seconds[1:])) if missing else 0.0)

    ours = {(r["split"], r[RATE], r[REG]): r["f1@5"] for r in found.table}
    differences = [abs(r["f1@5"] - ours[r["split"], r[RATE], r[REG]]) for r in table]
    winner = None
    if len(table) == len(jobs):
        winner = outcome.Selection.choose(model, grid, "f1@5", found.points, table).best
    return [
        {
            "fits": len(jobs),
            "together": together,
            "loop": loop,
            "loop_fits": len(table),
            "best": found.best,
            "score": found.score,
            "loop_best": winner,
            "difference": float(np.nanmax(differences)),
            "means": found.means(),
        }
    ]


def draw(records: list[dict]) -> None:
    """The two times and the two winners."""
    for r in records:
        part = r["loop_fits"] < r["fits"]
        how = f"EXTRAPOLATED from {r['loop_fits']} fits" if part else "measured"
        print(f"{r['fits']} fits, compiled and evaluated")
        print(f"  one program  {r['together']:8.1f} s")
        print(f"  Python loop  {r['loop']:8.1f} s, {how}")
        print(f"  ratio        {r['loop'] / r['together']:8.1f} (target ≥ {TARGET:g})")
        print(f"  winner       {r['best']}: F1@5 {r['score']:.4f}")
        print(f"  loop's       {'not known: run the whole loop' if part else r['loop_best']}")
        print(f"  difference   {r['difference']:8.1e} in F1@5 of one fit, at most (≤ {SAME:g})")


def met(r: dict) -> bool:
    """Whether the program is fast enough and both find the same."""
    same = r["loop_fits"] < r["fits"] or r["best"] == r["loop_best"]
    return same and r["difference"] <= SAME and r["loop"] / r["together"] >= TARGET


if __name__ == "__main__":
    sys.exit(flags.run(Config, partial(results.judged, run, draw, met)))
