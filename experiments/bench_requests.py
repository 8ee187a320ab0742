"""Requests against a served model: lists of any length for any few users, and one new user folded in.

    python -m experiments.bench_requests --data_dir=DIR

A model of MovieLens-1M is loaded from its file and warmed up. Then come `--requests` requests: n uniform in 1 … 100,
the number of users in 1 … 64, seen items left out; the same requests go to implicit's `recommend` with the same factors
in the same run. Then single users are folded in, each with the positives of a user of training under a new id.
Compilations are counted where XLA makes them. The exit code says whether the targets hold: at most 8 compilations in
all, p50 and p99 of a request at most 1 and 5 ms, of a fold-in 5 and 20 ms, no warning.
"""

import dataclasses
import pathlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments import flags, peers, results
from mfauc_jax import MFAUC, data

LIMITS = {"lists": (1.0, 5.0), "fold_in": (5.0, 20.0)}  # ms: p50, p99
COMPILATIONS = 8
COMPILED: list[str] = []  # one entry per program that XLA makes


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data, how many requests."""

    data_dir: str = "data"
    dataset: str = "ml-1m"
    rank: int = 64
    requests: int = 500
    longest: int = flags.option(100, "n is uniform in 1 … longest")
    users: int = flags.option(64, "users per request are uniform in 1 … users")
    seed: int = 0
    results: str = "results/bench_requests.jsonl"


def note(event: str, duration_secs: float, **rest: Any) -> None:
    """Count the compilations of XLA."""
    del duration_secs, rest
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(event)


def run(config: Config) -> list[dict]:
    """One record for lists, one for fold-ins."""
    jax.monitoring.register_event_duration_secs_listener(note)
    X = data.load(config.dataset, config.data_dir)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model")
        MFAUC(rank=config.rank, seed=config.seed).fit(X, progress=False).save(path)
        model = MFAUC.load(path)
    before = len(COMPILED)
    print(f"warm-up: {model.warm_up(config.longest, config.users)}", file=sys.stderr)
    return [lists(config, model, before), fold_in(config, model, before)]


def lists(config: Config, model: Any, before: int) -> dict:
    """The times of the requests, ours and implicit's."""
    rng, X = np.random.default_rng(config.seed), model.train_
    names = np.arange(X.num_users) if X.user_ids is None else X.user_ids
    wanted = [
        (rng.integers(0, len(names), rng.integers(1, config.users + 1)), int(n))
        for n in rng.integers(1, config.longest + 1, config.requests)
    ]
    ours = times(lambda rows, n: model.recommend(names[rows], n), wanted)
    with peers.one_blas_thread():  # implicit threads over users itself
        theirs = peers.implicit_lists(model.user_factors_, model.item_factors_, X)
        implicit = times(theirs, wanted)
    return {"kind": "lists", "compilations": len(COMPILED) - before, "implicit": implicit} | ours


def fold_in(config: Config, model: Any, before: int) -> dict:
    """The times of fold-ins of one user each, and how many of them warned."""
    X = model.train_
    indptr, indices = np.asarray(X.indptr), np.asarray(X.indices)
    items = np.arange(X.num_items) if X.item_ids is None else X.item_ids
    some = np.random.default_rng(config.seed).integers(0, X.num_users, config.requests)
    baskets = [items[indices[indptr[i] : indptr[i + 1]]] for i in some]
    wanted = [(np.full(len(basket), "new user"), basket) for basket in baskets]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = times(lambda users, basket: model.fold_in((users, basket)), wanted)
    found = {"compilations": len(COMPILED) - before, "warnings": len(caught)}
    return {"kind": "fold_in"} | found | ours


def times(answer: Callable, wanted: list[tuple]) -> dict[str, float]:
    """The median and the 99th percentile of the seconds per request, in milliseconds."""
    seconds = []
    for request in wanted:
        begun = time.perf_counter()
        answer(*request)
        seconds.append(time.perf_counter() - begun)
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return {"p50": float(p50), "p99": float(p99), "count": len(seconds)}


def draw(records: list[dict]) -> None:
    """Two lines, with the limits and implicit's times."""
    for r in records:
        p50, p99 = LIMITS[r["kind"]]
        line = f"{r['kind']:8} p50 {r['p50']:.2f} ms (≤ {p50:g}), p99 {r['p99']:.2f} (≤ {p99:g}), "
        line += f"{r['compilations']} compilations (≤ {COMPILATIONS})"
        if "implicit" in r:
            theirs = r["implicit"]
            line += f"; implicit {theirs['p50']:.2f} and {theirs['p99']:.2f}: ratios "
            line += f"{r['p50'] / theirs['p50']:.2f} and {r['p99'] / theirs['p99']:.2f}"
        else:
            line += f", {r['warnings']} warnings (0)"
        print(line)


def met(r: dict) -> bool:
    """Whether the targets hold."""
    p50, p99 = LIMITS[r["kind"]]
    quick = r["p50"] <= p50 and r["p99"] <= p99
    return quick and r["compilations"] <= COMPILATIONS and not r.get("warnings")


if __name__ == "__main__":
    sys.exit(flags.run(Config, partial(results.judged, run, draw, met)))
