"""Fold-in of held-out users, and everybody's lists, on MovieLens-1M.

    python -m experiments.bench_fold_in --data_dir=DIR

Users who were kept out of training are folded in, and their AUC on held-out items is set beside that
of the same users trained in the ordinary way, on the same positives: the same items are hidden from
both. The time is that of `MFAUC.fold_in` for all of them, compiled before on other users; each loss is
fitted by its own default solver. Then `MFAUC.recommend` makes everybody's list, seen items excluded,
beside implicit's `recommend` with the same factors in the same run; "memory" is the peak resident size
above that just before. The exit code says whether the targets are met: AUC at most .01 lower, 1,000
users of the default model in at most a second, lists not slower than implicit's.
"""

import dataclasses
import sys
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments import flags, measure, peers, results
from mfauc_jax import MFAUC, data

LOWER, SECONDS = 0.01, 1.0


@dataclasses.dataclass(frozen=True)
class Config(measure.Lists):
    """Which data, which losses, how many new users."""

    dataset: str = "ml-1m"
    losses: tuple[str, ...] = ("square", "square_hinge", "logistic")
    new_users: int = 1000
    repeats: int = 5
    results: str = "results/bench_fold_in.jsonl"


def run(config: Config) -> list[dict]:
    """One record per loss, and one for the lists."""
    key_split, key_users = jax.random.split(jax.random.key(config.seed))
    X = data.load(config.dataset, config.data_dir)
    train, test = data.splits.hold_out(key_split, X, per_user=config.held_out)
    order = np.asarray(jax.random.permutation(key_users, X.num_users))
    new, old = order[: config.new_users], order[config.new_users :]
    if len(old) < 2 * len(new):
        raise ValueError(f"new_users = {len(new)} of {X.num_users} leaves too few to train on")
    records, model = [], None
    for loss in config.losses:
        unfitted = MFAUC(rank=config.rank, loss=loss, seed=config.seed)
        everybody = unfitted.with_params().fit(train, progress=False)
        model = model or everybody
        others = unfitted.with_params().fit(train.take(old), progress=False)
        cold, _ = measure.timed(lambda m=others: m.fold_in(train.take(old[: len(new)])), 1)
        repeats = config.repeats if loss == "square" else 1  # the others take seconds
        warm, folded = measure.timed(lambda m=others: m.fold_in(train.take(new)), repeats)
        others.fold_in(train.take(new[:1]))
        single, _ = measure.timed(lambda m=others: m.fold_in(train.take(new[:1])), 3)
        trained = everybody.evaluate(test, per_user=True)
        among = np.isin(trained["user"], new)
        records.append(
            {
                "loss": loss,
                "users": len(new),
                "auc": folded.evaluate(test.take(new), at=(5,))["auc"],
                "trained_auc": float(np.nanmean(trained["auc"][among])),
                "seconds": warm,
                "cold": cold,
                "one": single,
                "gap": float(folded.fold_in_gap_.max()),
            }
        )
    if model is not None:
        records.append(lists(config, model))
    return records


def lists(config: Config, model: Any) -> dict:
    """Everybody's top items, ours and implicit's."""
    users, train = np.arange(model.train_.num_users), model.train_
    ids = users if train.user_ids is None else train.user_ids
    with measure.peak_memory() as peak:
        cold, _ = measure.timed(lambda: model.recommend(ids, config.list_length), 1)
        warm, (items, _) = measure.timed(
            lambda: model.recommend(ids, config.list_length), config.repeats
        )
    with peers.one_blas_thread():  # implicit threads over users itself
        lists_of = peers.implicit_lists(model.user_factors_, model.item_factors_, train)
        theirs, (found, _) = measure.timed(
            lambda: lists_of(users, config.list_length), config.repeats
        )
    found = found if train.item_ids is None else train.item_ids[found]
    return {
        "users": len(users),
        "cold": cold,
        "seconds": warm,
        "implicit": theirs,
        "memory": peak[0],
        "same": float((items == found).mean()),
    }


def draw(records: list[dict]) -> None:
    """The two tables, targets beside measurements."""
    for r in records:
        if "loss" in r:
            print(f"fold-in, {r['loss']}: {r['users']} users, gap at most {r['gap']:.1e}")
            print(
                f"  AUC      {r['auc']:.4f} folded in, {r['trained_auc']:.4f} trained (≥ − {LOWER})"
            )
            target = f" (target ≤ {SECONDS:g} a thousand)" if r["loss"] == "square" else ""
            print(
                f"  seconds  {r['seconds']:.2f} warm{target}, {r['cold']:.2f} cold; one user {r['one']:.3f}"
            )
        else:
            print(f"lists of {r['users']} users, {r['same']:.2%} of the places as implicit's")
            print(
                f"  seconds  {r['seconds']:.2f} warm, {r['cold']:.2f} cold; implicit {r['implicit']:.2f} (target)"
            )
            print(f"  memory   {r['memory']:.0f} MB above start")


def met(r: dict) -> bool:
    """Whether the targets hold."""
    if "loss" not in r:
        return r["seconds"] <= r["implicit"]
    quick = r["loss"] != "square" or r["seconds"] <= SECONDS * max(1, r["users"] / 1000)
    return quick and r["auc"] >= r["trained_auc"] - LOWER


if __name__ == "__main__":
    sys.exit(flags.run(Config, partial(results.judged, run, draw, met)))
