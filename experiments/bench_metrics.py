"""Full evaluation (AUC and every @ℓ) and top-10 lists: time and memory beside the peers'.

    python -m experiments.bench_metrics --data_dir=DIR

One fresh process per data set. Factors come from a randomised SVD, five positives per user are held
out. recometrics evaluates the same factors in the same run; implicit makes the same lists.
"Memory" is the peak resident size above that just before the first evaluation, compilation and
all. The exit code says whether the two evaluations agree and the targets are met: not slower than
recometrics, at most 300 MB, and on MovieLens-1M lists not slower than implicit's.
"""

import dataclasses
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from experiments import flags, measure, peers, results

AGREE = 2e-4  # float32 scores from two libraries: a few near-ties fall the other way
MEMORY = 300.0  # MB
PEER = {"precision": "P@K", "recall": "R@K", "map": "AP@K", "ndcg": "NDCG@K"}
PEER |= {"hit": "Hit@K", "mrr": "RR@K"}


@dataclasses.dataclass(frozen=True)
class Config(measure.Lists):
    """Which data, how large a model, how often."""

    datasets: tuple[str, ...] = ("ml-1m", "book-crossing")
    peer_repeats: int = 1
    results: str = "results/bench_metrics.jsonl"


def run(config: Config) -> list[dict]:
    """One record per data set, each measured in a process of its own."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the peers thread over users themselves
    records = []
    for name in config.datasets:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as process:
            records.append(process.submit(compare, config, name).result())
    return records


def compare(config: Config, name: str) -> dict:
    """Times in seconds, memory in MB, and the largest difference between the two evaluations."""
    import jax
    import numpy as np
    from recometrics import calc_reco_metrics

    from mfauc_jax import Svd, data
    from mfauc_jax.evaluation import metrics, ranking

    key_split, key_start = jax.random.split(jax.random.key(config.seed))
    X = data.load(name, config.data_dir)
    train, test = data.splits.hold_out(key_split, X, per_user=config.held_out)
    start, at = Svd().draw(key_start, train, config.rank), (1, 3, 5)

    with measure.peak_memory() as peak:
        cold, ours = measure.timed(lambda: metrics.evaluate(start, train, test, at), 1)
        warm, _ = measure.timed(lambda: metrics.evaluate(start, train, test, at), config.repeats)

    U, V = (np.asarray(F) for F in start)
    seen, held_out = map(peers.rows, (train, test))
    wanted = dict.fromkeys(("precision", "recall", "average_precision", "ndcg", "hit", "rr"), True)
    with measure.peak_memory() as peer_peak:
        peer_time, theirs = measure.timed(
            lambda: calc_reco_metrics(
                seen,
                held_out,
                U,
                V,
                k=max(at),
                cumulative=True,
                roc_auc=True,
                as_df=False,
                nthreads=peers.THREADS,
                break_ties_with_noise=False,
                **wanted,
            ),
            config.peer_repeats,
        )
    differences = [abs(ours["auc"] - np.nanmean(theirs["ROC_AUC"]))]
    for size in at:
        differences += [
            abs(ours[f"{our}@{size}"] - np.nanmean(theirs[their][:, size - 1]))
            for our, their in PEER.items()
        ]

    users = np.arange(train.num_users)
    lists = lambda: ranking.top_items(start, users, config.list_length, exclude=train)  # noqa: E731
    with measure.peak_memory() as top_peak:
        top_cold, _ = measure.timed(lists, 1)
        top_warm, (items, _) = measure.timed(lists, config.repeats)
    lists_of = peers.implicit_lists(U, V, train)
    with measure.peak_memory() as implicit_peak:
        implicit, (their_items, _) = measure.timed(
            lambda: lists_of(users, config.list_length), config.repeats
        )
    return {
        "dataset": name,
        "users": train.num_users,
        "items": train.num_items,
        "auc": ours["auc"],
        "precision@1": ours["precision@1"],
        "cold": cold,
        "warm": warm,
        "recometrics": peer_time,
        "memory": peak[0],
        "recometrics_memory": peer_peak[0],
        "difference": float(max(differences)),
        "top_cold": top_cold,
        "top_warm": top_warm,
        "top_memory": top_peak[0],
        "implicit": implicit,
        "implicit_memory": implicit_peak[0],
        "lists_equal": float((items == their_items).mean()),
    }


def table(records: list[dict]) -> str:
    """Seconds and memory beside the peers', as Markdown."""
    rows = ["| all users | s | memory, MB | the best peer | s | memory, MB |", "| --- " * 6 + "|"]
    for r in records:
        for what, ours, memory, peer in (
            ("`evaluate`", "warm", "memory", "recometrics"),
            ("lists of 10", "top_warm", "top_memory", "implicit"),
        ):
            theirs = f"{peer} | {r[peer]:.2f} | {r[f'{peer}_memory']:.0f}"
            rows.append(f"| {r['dataset']}: {what} | {r[ours]:.2f} | {r[memory]:.0f} | {theirs} |")
    return "\n".join(rows) + "\n"


def draw(records: list[dict]) -> None:
    """The table, targets beside measurements."""
    for r in records:
        print(f"{r['dataset']}, {r['users']} × {r['items']}: AUC {r['auc']:.4f}")
        ratio, top_ratio = r["recometrics"] / r["warm"], r["implicit"] / r["top_warm"]
        print(f"  evaluate     {r['warm']:8.2f} s warm {r['cold']:8.2f} s cold")
        print(f"  recometrics  {r['recometrics']:8.2f} s: ours {ratio:.1f}× faster (target ≥ 1)")
        print(f"  memory       {r['memory']:8.0f} MB above start (target ≤ {MEMORY:.0f})")
        print(f"  difference   {r['difference']:8.1e} between the two, at most (≤ {AGREE:g})")
        print(f"  top items    {r['top_warm']:8.2f} s warm {r['top_cold']:8.2f} s cold")
        print(f"  implicit     {r['implicit']:8.2f} s: ours {top_ratio:.1f}× faster (≥ 1 on ml-1m)")
        print(f"  lists        {r['lists_equal']:8.2%} of the places hold the same item")


def met(r: dict) -> bool:
    """Whether the evaluations agree and the targets hold."""
    lists = r["dataset"] != "ml-1m" or r["top_warm"] <= r["implicit"]
    fast = r["warm"] <= r["recometrics"] and lists
    return fast and r["memory"] <= MEMORY and r["difference"] <= AGREE


if __name__ == "__main__":
    sys.exit(flags.run(Config, partial(results.judged, run, draw, met)))
