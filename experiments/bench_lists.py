"""Recall@20 and NDCG@20 of a model on a published split, or on a tenth of its training positives.

    python -m experiments.bench_lists --data_dir=DIR --datasets=gowalla,ir-benchmark/gowalla
        [--params='{"loss__beta": 8.0, "solver__iterations": 20}'] [--member=softmax|default] [--test]

A data set is the name of a published split of `data.load_split`, or a folder of DIR with train.tsv.gz and test.tsv.gz
(a header, then the numbers of a user and an item). Without `--test` a tenth of each user's training positives is held
out, test is not read, and the record has the metrics after every few iterations: what settings are chosen by. With
`--test` the model sees all of train. Records are cells: a finished one is read back. `--rate` measures instead how
many flops per second an iteration of the dense solver does, of 6 m n k, and the three matrix products alone; `--alike`
how alike the items of one user are, within and between train and test, and which share of the items' positives is in
test; `--table=FILE` writes what the records of `--test` say, and `--curves=FILE` those without it: NDCG@20 by
iteration.
"""

import dataclasses
import itertools
import json
import pathlib
import sys
import time

import jax
import numpy as np

from experiments import flags, measure, results
from mfauc_jax import (
    MFAUC,
    Auto,
    Gaussian,
    Interactions,
    LeastSquares,
    UnitRows,
    Weights,
    data,
    evaluate,
)
from mfauc_jax._core import atomic
from mfauc_jax.objective.losses import Exponential
from mfauc_jax.objective.weightings import Log
from mfauc_jax.solvers import base

LENGTH = 20
PUBLISHED = {  # Recall@20 / NDCG@20 of the best matrix factorisation with k = 64 that is published for the split
    "ir-benchmark/gowalla": ".2121 / .1709, SL@20 (KDD 2025)",
    "ir-benchmark/amazon2014-electronic": ".0901 / .0590, SL@20 (KDD 2025)",
    "ir-benchmark/amazon2014-movie": ".1299 / .0945, PSL (NeurIPS 2024)",
    "gowalla": ".1837 / .1493, MF-CCL (BARS)",
}
MEMBERS = {
    "default": MFAUC(),
    "softmax": MFAUC(
        loss=Exponential(beta=10.0),
        weighting=Log(),
        weights=Weights(tau=0.2, tau_neg=0.0, user_power=1.0),  # unit rows lack popularity: τ > 0
        penalty=UnitRows(),
        start=LeastSquares(),
    ),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data, which model, judged on what."""

    data_dir: str = flags.option("data", "folder of the data sets")
    datasets: tuple[str, ...] = flags.option(("gowalla",), "names, or folders of data_dir")
    member: str = flags.option("softmax", f"the model that params change: {', '.join(MEMBERS)}")
    params: str = flags.option("{}", "JSON: settings as MFAUC.with_params takes them")
    rank: int = 64
    seeds: int = flags.option(1, "starts")
    test: bool = flags.option(False, "fit on all of train and judge on test")
    rate: bool = flags.option(False, "measure the speed of an iteration, and nothing else")
    alike: bool = flags.option(False, "compare items of train and test, and nothing else")
    every: int = flags.option(5, "iterations between two judgements on held-out positives")
    users: int = flags.option(8000, "at most so many users judge during a fit")
    table: str = flags.option("", "write the test records to this Markdown file, and fit nothing")
    curves: str = flags.option("", "write the curves of the others to this file, and fit nothing")
    results: str = "results/bench_lists.jsonl"


def run(config: Config) -> list[dict]:
    """One record per data set and start."""
    model = MEMBERS[config.member].with_params(rank=config.rank, **json.loads(config.params))
    parts = results.described(model) | {"iterations": model.chosen_solver.iterations}
    jobs = [
        {"kind": "test" if config.test else "tenth", "dataset": name, "rank": model.rank}
        | {"method": config.member, "seed": seed, "model": parts}
        for name in config.datasets
        for seed in range(config.seeds)
    ]
    return results.Cells(config.results).run(jobs, lambda job: judge(config, model, job))


def judge(config: Config, model: MFAUC, job: dict) -> dict:
    """Fit and judge; the seconds of the fit are without those of judging during it."""
    train, test = split(config, job["dataset"])
    model = model.with_params(seed=job["seed"])
    rng, curve, judging = np.random.default_rng(0), [], 0.0
    held = np.flatnonzero(test.on_host()[2])
    some = np.sort(rng.permutation(held)[: config.users])

    def look(iteration, factors, record):
        nonlocal judging
        if config.test or iteration % config.every:
            return
        begun = time.perf_counter()
        part = factors._replace(U=factors.U[some])
        found = evaluate(part, train.take(some), test.take(some), (LENGTH,))
        judging += time.perf_counter() - begun
        seconds = record["seconds"] - judging
        curve.append([iteration, found[f"recall@{LENGTH}"], found[f"ndcg@{LENGTH}"], seconds])
        print(json.dumps(curve[-1]), file=sys.stderr, flush=True)

    begun = time.perf_counter()
    model.fit(train, callbacks=[look], progress=False)
    seconds = time.perf_counter() - begun - judging
    found = evaluate(model, train, test, (LENGTH,))
    kept = {name: found[name] for name in (f"recall@{LENGTH}", f"ndcg@{LENGTH}", "auc")}
    return kept | {"curve": curve, "fit_seconds": round(seconds, 1)}


def split(config: Config, name: str) -> data.Split:
    """The published split, or train and a tenth of it."""
    folder = pathlib.Path(config.data_dir, name)
    if (folder / "train.tsv.gz").exists():
        parts = ("train", "test") if config.test else ("train",)
        pairs = [np.loadtxt(folder / f"{p}.tsv.gz", np.int64, skiprows=1).T for p in parts]
        m, n = (int(max(part[side].max() for part in pairs)) + 1 for side in (0, 1))
        read = [Interactions.from_pairs(*part, shape=(m, n)) for part in pairs]
        found = data.Split(read[0], read[-1])
    else:
        found = data.load_split(name, config.data_dir)
    if config.test:
        return found
    return next(data.splits.k_fold(0, found.train, 10))


def speed(config: Config, name: str) -> dict:
    """Flops per second of the fastest of three iterations, and of the products of its batches alone."""
    train, _ = split(config, name)
    model = MEMBERS[config.member].with_params(rank=config.rank, **json.loads(config.params))
    solver, problem = model.chosen_solver, model.problem(train)
    state = solver.init(problem, Gaussian().draw(jax.random.key(0), train, config.rank))
    prepared = solver.prepare(problem)
    b, steps = prepared.strata.shape

    @jax.jit
    def products(u, V, G):
        """The three products of every batch; each needs the one before, so none is left out."""

        def one(carry, _):
            u, V = carry
            S = u @ V.T
            return (u + 1e-9 * (S @ V), V + 1e-9 * (G.T @ u)), S[0, 0]

        return jax.lax.scan(one, (u, V), None, length=steps)

    def iteration():
        return base.run(solver, problem.objective, jax.random.key(1), state, prepared)

    V, G = state.factors.V, jax.numpy.ones((b, train.num_items), state.factors.V.dtype)
    alone = measure.warm_seconds(lambda: products(state.factors.U[:b], V, G), 3)
    whole = measure.warm_seconds(iteration, 3)
    flops = 6 * b * steps * train.num_items * config.rank
    return {"dataset": name, "gflops": flops / whole / 1e9, "products_gflops": flops / alone / 1e9}


def alike(config: Config, name: str) -> dict:
    """Mean cosines of two items of one user: both of train, one of each, both of test; chance makes the last two equal.

    The vectors are the item factors of `MFAUC(strength=.15, τ = −.4)` fitted to train, less their mean. Users have at
    least 10 items in train and 4 in test.
    """
    train, test = split(dataclasses.replace(config, test=True), name)
    model = MFAUC(weights=Weights(tau=-0.4), penalty=Auto(strength=0.15)).fit(train, progress=False)
    V = model.item_factors_ - model.item_factors_.mean(0)
    V = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12)
    sums, counts = zip(
        *((part.to_scipy() @ V, part.on_host()[2]) for part in split_known(train, test)),
        strict=False,
    )
    kept = (counts[0] >= 10) & (counts[1] >= 4)
    (x, y), (a, b) = ([part[kept] for part in both] for both in (sums, counts))
    pairs = (
        ((x * x).sum(1) - a) / (a * (a - 1)),
        (x * y).sum(1) / (a * b),
        ((y * y).sum(1) - b) / (b * (b - 1)),
    )
    means = dict(
        zip(
            ("train, train", "train, test", "test, test"),
            (float(p.mean()) for p in pairs),
            strict=False,
        )
    )
    return {"dataset": name, "users": int(kept.sum())} | means | {"shares": shares(train, test)}


def shares(train: Interactions, test: Interactions) -> dict[str, float]:
    """The share of positives that are in test, for items of similar popularity; and how far it varies between items.

    By chance all shares are alike, and the last number, the ratio of the variance between items of 200 positives or
    more to that of binomial draws, is about 1. A stretch of time has items of its own.
    """
    in_test = np.bincount(np.asarray(test.indices), minlength=train.num_items)
    both = in_test + np.bincount(np.asarray(train.indices), minlength=train.num_items)
    edges = (1, 20, 50, 200, 500, np.inf)
    found = {}
    for low, high in itertools.pairwise(edges):
        among = (both >= low) & (both < high)
        if among.any():
            found[f"{low} to {high}"] = float(in_test[among].sum() / both[among].sum())
    top = both >= 200
    if top.sum() > 1:
        share = in_test[top].sum() / both[top].sum()
        gaps = (in_test[top] / both[top] - share) ** 2 / (share * (1 - share) / both[top])
        found["variance over chance"] = float(gaps.mean())
    return found


def split_known(train: Interactions, test: Interactions) -> data.Split:
    """Test without the items that nobody has in train."""
    known = np.bincount(np.asarray(train.indices), minlength=train.num_items) > 0
    return data.Split(train, data.splits.select(test, known[np.asarray(test.indices)]))


def draw(records: list[dict]) -> None:
    """One line per record."""
    for r in records:
        scores = f"{r[f'recall@{LENGTH}']:.4f} / {r[f'ndcg@{LENGTH}']:.4f}, AUC {r['auc']:.4f}"
        print(f"{r['dataset']:36}{r['method']:9}{r['kind']:6} {scores}  {r['fit_seconds']} s")


def table(records: list[dict]) -> str:
    """The test records as Markdown: means over starts, the settings, and the best published factorisation."""
    groups: dict[str, list[dict]] = {}
    for r in records:
        if r["kind"] == "test":
            groups.setdefault(json.dumps([r["dataset"], r["method"], r["model"]]), []).append(r)
    metrics = (f"recall@{LENGTH}", f"ndcg@{LENGTH}", "auc", "fit_seconds")
    rows = ["| data | settings | starts | Recall@20 | NDCG@20 | AUC | seconds | published |"]
    rows += ["| --- " * 8 + "|"]
    for group in groups.values():
        r = group[0]
        beta, tau = r["model"]["loss"].get("beta"), r["model"]["weights"]["tau"]
        c = r["model"]["penalty"].get("popularity", 0.0)  # earlier records lack it
        chosen = f"{r['method']}: β {beta}, τ {tau}, c {c}, {r['model']['iterations']} iterations"
        means = [np.mean([one[name] for one in group]) for name in metrics]
        shown = [*(f"{value:.4f}".lstrip("0") for value in means[:3]), f"{means[3]:.0f}"]
        cells = [r["dataset"], chosen, str(len(group)), *shown, PUBLISHED.get(r["dataset"], "")]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def curves(records: list[dict]) -> str:
    """The records of a held-out tenth as Markdown: NDCG@20 after some iterations, one row per model."""
    shown = (5, 10, 20, 40, 60)
    rows = [f"| data | start | β, τ | {' | '.join(f'{s} iterations' for s in shown)} |"]
    rows += ["| --- " * (3 + len(shown)) + "|"]
    for r in records:
        if r["kind"] != "tenth":
            continue
        at = {s: f"{ndcg:.4f}".lstrip("0") for s, _, ndcg, _ in r["curve"]}
        beta, tau = r["model"]["loss"].get("beta"), r["model"]["weights"]["tau"]
        own = [r["dataset"], f"`{r['model']['start']['name']}`", f"{beta}, {tau}"]
        rows.append(f"| {' | '.join([*own, *(at.get(s, '') for s in shown)])} |")
    return "\n".join(rows) + "\n"


def main(config: Config) -> None:
    """Run, and print."""
    if config.rate or config.alike:
        for name in config.datasets:
            print(json.dumps(speed(config, name) if config.rate else alike(config, name)))
    elif config.table:
        atomic.write_text(config.table, table(results.read(config.results)))
    elif config.curves:
        atomic.write_text(config.curves, curves(results.read(config.results)))
    else:
        draw(run(config))


if __name__ == "__main__":
    flags.run(Config, main)
