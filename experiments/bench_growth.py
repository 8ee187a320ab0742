"""Growth after the fit, on MovieLens 1M: nightly updates in time order, and new items with a few positives.

    python -m experiments.bench_growth --data_dir=DIR [--parts=nights,items,explain]

Nights. The last five positives of every user are held out. Of the rest the last `--late` share, in time order, comes
in `--nights` equal nights; the model is fitted on what was before. After some nights the model that was only updated,
by `partial_fit`, is compared with a refit on the same positives: p@5 and AUC over the users who are known by then, with
the paired 95 % interval of their difference; and one night's time with the refit's, medians in the same run. The refit
uses every core (`mfauc_jax.use_cores()`).

Items. A tenth of the items loses all but 1, 3 or 10 of its positives, drawn at random among items with at least 20. The
model is fitted without these items, and they are folded in from the positives that are left; a refit sees the same
positives. The AUC is that of these items alone: over their lost positives, against all unseen items of the user.

Explain. Of `--explained` users, fitted and then folded in from the same positives, every item's score is compared with
the sum of the contributions of the user's positives; what is missing is the rest that `explain` returns.

The exit code says whether the targets hold: a night takes at most a quarter of a refit and its p@5 is not lower (the
interval reaches 0), at 10 positives the AUC is at most .01 below the refit's, and the contributions of folded-in users
sum to every score to 1e-5.
"""

import dataclasses
import sys
import time
import warnings
from functools import partial
from typing import Any

import numpy as np

from experiments import flags, results
from mfauc_jax import MFAUC, Interactions, data, use_cores
from mfauc_jax.evaluation import significance

SHARE, LOWER, EXPLAINED = 0.25, 0.01, 1e-5


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data, how many nights, which items."""

    data_dir: str = "data"
    dataset: str = "ml-1m"
    rank: int = 64
    parts: tuple[str, ...] = ("nights", "items", "explain")
    late: float = flags.option(0.1, "share of the positives that comes at night")
    nights: int = 50
    judged: tuple[int, ...] = flags.option((1, 10, 50), "nights after which a refit is made")
    positives: tuple[int, ...] = flags.option((1, 3, 10), "that a new item has")
    explained: int = flags.option(100, "users whose scores are explained")
    seed: int = 0
    results: str = "results/bench_growth.jsonl"


def run(config: Config) -> list[dict]:
    """One record per judged night, and one per number of positives."""
    parts = {"nights": nights, "items": items, "explain": explain}
    return [record for name in config.parts for record in parts[name](config)]


def nights(config: Config) -> list[dict]:
    """The updated model beside a refit, after some nights."""
    X, when = data.load_timed(config.dataset, config.data_dir)
    split = data.splits.leave_last_out(X, when, 5)
    train, test = split.train, named(split.test, X)
    keys = X.num_items * X.on_host()[0] + np.asarray(X.indices)
    kept = train.num_items * train.on_host()[0] + np.asarray(train.indices)
    order = np.argsort(when[np.searchsorted(keys, kept)], kind="stable")
    users, columns = (a[order] for a in named(train, X))
    first = int(len(order) * (1 - config.late))
    cuts = np.linspace(first, len(order), config.nights + 1).astype(int)
    model = MFAUC(rank=config.rank, seed=config.seed).fit(
        (users[:first], columns[:first]), progress=False
    )
    records, seconds = [], []
    for night in range(1, config.nights + 1):
        piece = slice(cuts[night - 1], cuts[night])
        begun = time.perf_counter()
        model.partial_fit((users[piece], columns[piece]))
        seconds.append(time.perf_counter() - begun)
        if night not in config.judged:
            continue
        refits, refit = [], model
        for _ in range(3):
            refit = MFAUC(rank=config.rank, seed=config.seed)
            begun = time.perf_counter()
            refit.fit(model.train_, progress=False)
            refits.append(time.perf_counter() - begun)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # users who are not known yet are left out
            ours, theirs = (m.evaluate(test, at=(5,), per_user=True) for m in (model, refit))
        record: dict[str, Any] = {"kind": "nights", "night": night}
        record |= {"seconds": float(np.median(seconds[-5:])), "refit": float(np.median(refits))}
        record |= {"positives": int(cuts[night] - cuts[night - 1]), "users": len(ours["user"])}
        for metric in ("precision@5", "auc"):
            found = significance.paired(ours[metric], theirs[metric])
            record[metric] = [float(np.nanmean(v[metric])) for v in (ours, theirs)]
            record[f"{metric} difference"] = [found.difference, found.low, found.high]
        records.append(record)
        draw([record])
    return records


def named(some: Interactions, X: Interactions) -> tuple[np.ndarray, np.ndarray]:
    """Some positives over the users and items of X, as ids."""
    rows, columns, _ = some.on_host()
    return X.user_ids[rows], X.item_ids[columns]  # type: ignore[index]


def items(config: Config) -> list[dict]:
    """New items folded in, beside a refit that has seen the same positives."""
    X = data.load(config.dataset, config.data_dir)
    rng = np.random.default_rng(config.seed)
    rows, columns, _ = X.on_host()
    often = np.flatnonzero(np.bincount(columns, minlength=X.num_items) >= 20)
    new = np.sort(rng.choice(often, X.num_items // 10, replace=False))
    is_new = np.isin(columns, new)
    # new items last, so that a model without them has the first columns
    place = np.empty(X.num_items, int)
    place[np.concatenate([np.setdiff1d(np.arange(X.num_items), new), new])] = np.arange(X.num_items)
    old_shape, shape = (X.num_users, X.num_items - len(new)), X.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = Interactions.from_pairs(rows[~is_new], place[columns[~is_new]], shape=old_shape)
    model = MFAUC(rank=config.rank, seed=config.seed).fit(old, progress=False)
    records = []
    for count in config.positives:
        shuffled = rng.permutation(np.flatnonzero(is_new))
        rank_in_item = _occurrence(columns[shuffled])
        few, lost = shuffled[rank_in_item < count], shuffled[rank_in_item >= count]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            few_X = Interactions.from_pairs(rows[few], place[columns[few]], shape=shape)
            whole = np.concatenate([np.flatnonzero(~is_new), few])
            seen = Interactions.from_pairs(rows[whole], place[columns[whole]], shape=shape)
        begun = time.perf_counter()
        folded = model.fold_in_items(few_X)
        seconds = time.perf_counter() - begun
        refit = MFAUC(rank=config.rank, seed=config.seed).fit(seen, progress=False)
        aucs = [item_auc(m, seen, rows[lost], place[columns[lost]]) for m in (folded, refit)]
        found = significance.paired(aucs[0], aucs[1])
        record = {"kind": "items", "positives": count, "items": len(new), "seconds": seconds}
        record |= {"auc": [float(np.nanmean(a)) for a in aucs]}
        record |= {"auc difference": [found.difference, found.low, found.high]}
        records.append(record)
        draw([record])
    return records


def explain(config: Config) -> list[dict]:
    """How far the contributions of a user's positives are from the scores, over all items of some users."""
    X = data.load(config.dataset, config.data_dir)
    model = MFAUC(rank=config.rank, seed=config.seed).fit(X, progress=False)
    rows = np.sort(np.random.default_rng(config.seed).choice(X.num_users, config.explained, False))
    folded = model.fold_in(X.take(rows))
    record: dict[str, Any] = {"kind": "explain", "users": len(rows), "items": X.num_items}
    for name, own, places in (("fitted", model, rows), ("folded in", folded, range(len(rows)))):
        U, V = own.user_factors_, own.item_factors_
        rest = [
            np.abs(V @ U[i] - (V @ next(own.explanations(np.array([i])))[1]).sum(1)).max()
            for i in places
        ]
        record[name] = float(max(rest))
    user, item = (ids[-1] for ids in (folded.train_.user_ids, folded.train_.item_ids))  # type: ignore[index]
    _, parts, score, left = folded.explain(user, item)
    record["one by explain"] = abs(score - parts.sum()) + abs(score - parts.sum() - left)
    draw([record])
    return [record]


def _occurrence(values: np.ndarray) -> np.ndarray:
    """How often each value has come before, along the array."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    start = np.searchsorted(ordered, ordered)
    found = np.empty(len(values), int)
    found[order] = np.arange(len(values)) - start
    return found


def item_auc(model: Any, seen: Interactions, users: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Mean over an item's held-out users of the share of the user's unseen items that score lower, per item."""
    U, V = model.user_factors_, model.item_factors_
    indptr, indices = np.asarray(seen.indptr), np.asarray(seen.indices)
    order = np.argsort(users, kind="stable")
    users, columns = users[order], columns[order]
    share, starts = np.empty(len(users)), np.flatnonzero(np.diff(users, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(users)], strict=True):
        i, own = users[start], columns[start:end]
        s = V @ U[i]
        unseen = np.ones(len(V), bool)
        unseen[indices[indptr[i] : indptr[i + 1]]] = unseen[own] = False
        others = np.sort(s[unseen])
        below, upto = (np.searchsorted(others, s[own], side) for side in ("left", "right"))
        share[start:end] = (below + upto) / 2 / len(others)
    items = np.unique(columns)
    return np.array([share[columns == j].mean() for j in items])


def draw(records: list[dict]) -> None:
    """One line per record."""
    for r in records:
        if r["kind"] == "nights":
            p, d, a = r["precision@5"], r["precision@5 difference"], r["auc"]
            ratio = f"ratio {r['seconds'] / r['refit']:.2f} (≤ {SHARE})"
            print(f"night {r['night']}: {r['positives']} positives, {r['users']} users")
            print(f"  seconds  {r['seconds']:.3f}, refit {r['refit']:.2f}, {ratio}")
            print(
                f"  p@5      {p[0]:.4f}, refit {p[1]:.4f}, {d[0]:+.4f} [{d[1]:+.4f}, {d[2]:+.4f}]"
            )
            print(f"  AUC      {a[0]:.4f}, refit {a[1]:.4f}")
        elif r["kind"] == "explain":
            print(
                f"{r['users']} users × {r['items']} items: contributions sum to the score to {r['folded in']:.1e} "
                f"after fold_in (≤ {EXPLAINED:g}); the rest of fitted users is up to {r['fitted']:.1e}"
            )
        else:
            a, d = r["auc"], r["auc difference"]
            print(
                f"{r['items']} items with {r['positives']} positives: AUC {a[0]:.4f} folded in ({r['seconds']:.2f} s), "
                f"{a[1]:.4f} in a refit, difference {d[0]:+.4f} [{d[1]:+.4f}, {d[2]:+.4f}]"
            )


def nights_table(records: list[dict]) -> str:
    """The judged nights as Markdown."""
    rows = [
        "| after nights | one night / a refit, ms | p@5, refit | difference, 95 % | AUC, refit |",
        "| --- " * 5 + "|",
    ]
    for r in (r for r in records if r["kind"] == "nights"):
        p, d, a = r["precision@5"], r["precision@5 difference"], r["auc"]
        shown = [
            str(r["night"]),
            f"{1e3 * r['seconds']:.0f} / {1e3 * r['refit']:.0f} = {r['seconds'] / r['refit']:.2f}",
            f"{p[0]:.4f}, {p[1]:.4f}",
            f"{d[0]:+.4f} [{d[1]:+.4f}, {d[2]:+.4f}]".replace("-", "−"),
            f"{a[0]:.4f}, {a[1]:.4f}",
        ]
        rows.append(f"| {' | '.join(shown)} |")
    return "\n".join(rows) + "\n"


def met(r: dict) -> bool:
    """Whether the targets hold."""
    if r["kind"] == "nights":
        return r["seconds"] <= SHARE * r["refit"] and r["precision@5 difference"][2] >= 0
    if r["kind"] == "explain":
        return r["folded in"] <= EXPLAINED and r["one by explain"] <= EXPLAINED
    return r["positives"] < 10 or r["auc difference"][0] >= -LOWER


if __name__ == "__main__":
    use_cores()
    sys.exit(flags.run(Config, partial(results.judged, run, lambda records: None, met)))
