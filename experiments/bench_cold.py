"""New items: AUC over items that nobody has had in training, beside peers that are tuned alike.

    python -m experiments.bench_cold --data_dir=DIR [--datasets=generator,book-crossing] [--methods=…]
        [--table=FILE.md] [--picture=FOLDER]

A tenth of the items is held out whole (`splits.hold_out_items`). A method sees the positives of the other items, and
the features of all: the generator's categories, tags and years (`synthetic.with_features`), or the prefixes of Book
Crossing's ISBNs, of a part of its users. The AUC of a user is that over the cold items. Each tuned method compares the
same number of fits on a tenth of the training items, held out in the same way; `MFAUC()` compares none. Differences
from `ours` are paired by user. `warm` compares fits with and without features on 5 held-out positives per user of all
items, and `curve` on items of which so many positives have been seen. `route` is `cold` for other losses and solvers,
not tuned (`--kinds=route` runs these alone). Records are cells: a finished one is read back.
"""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import scipy.stats

from experiments import cold_report, flags, opponents, peers, results
from mfauc_jax import MFAUC, Auto, Features, data, evaluate
from mfauc_jax._core import atomic
from mfauc_jax.data import features, splits, synthetic
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import significance
from mfauc_jax.objective import weightings

TESTED = 10  # further positives that an item of the curve must have


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data and methods."""

    data_dir: str = flags.option("data", "folder of the data sets")
    datasets: tuple[str, ...] = flags.option(cold_report.DATASETS, "generator, book-crossing")
    methods: tuple[str, ...] = flags.option((), "rows of the table; none: all")
    kinds: tuple[str, ...] = flags.option((), "of cold, warm, curve, route; none: all")
    seeds: tuple[int, ...] = flags.option((0, 1, 2), "of the generator, the splits and the fits")
    budget: int = flags.option(8, "fits that each tuned method may compare")
    rank: int = 32
    positives: int = flags.option(80_000, "of the users of Book Crossing, at most")
    table: str = flags.option("", "write the records to this Markdown file, and fit nothing")
    picture: str = flags.option("", "draw the records into this folder, and fit nothing")
    values: str = flags.option("out/bench_cold", "folder for the AUC of each user")
    results: str = "out/bench_cold.jsonl"


class World(NamedTuple):
    """Positives, and the features of all items."""

    X: Interactions
    F: Any  # [n, p], scipy


@functools.cache
def world(dataset: str, data_dir: str, seed: int, positives: int) -> World:
    """A data set with features of its items."""
    if dataset == "generator":
        made = synthetic.with_features(jax.random.key(1000 + seed))
        return World(made.X, Features.of(made.item_features).matrix)
    X = data.load(dataset, data_dir)
    X = splits.k_core(splits.subsample_users(seed, X, positives), 2, 2)
    assert X.item_ids is not None
    found = Features.of(data.isbn_prefixes(X.item_ids))
    known = features.joined(found, X.item_ids, X.num_items, "item").known
    return World(dataclasses.replace(X, user_ids=None, item_ids=None), known.matrix)


Scores = tuple[np.ndarray, np.ndarray]  # U and V, of all items


def ours(
    train: Interactions, F: Any, rank: int, seed: int, strength: float = 0.4, sigma: float = 1.6
) -> Scores:
    """MFAUC with features: the strengths of the ridge and of the spread penalty."""
    penalty = Auto(strength=strength, sigma=sigma)
    model = MFAUC(rank=rank, seed=seed, penalty=penalty).fit(train, item_features=F)
    return model.user_factors_, model.item_factors_


def popularity(train: Interactions, F: Any, rank: int, seed: int, reg: float) -> Scores:
    """Popularity by category: the ridge regression of an item's log-popularity on its features."""
    del rank, seed
    counts = np.bincount(np.asarray(train.indices), minlength=train.num_items)
    warm = counts > 0
    target = np.log1p(counts[warm])
    rows = scipy.sparse.vstack([F[warm], np.sqrt(reg) * scipy.sparse.eye_array(F.shape[1])])
    padded = np.concatenate([target - target.mean(), np.zeros(F.shape[1])])
    found = scipy.sparse.linalg.lsqr(scipy.sparse.csr_array(rows), padded, iter_lim=300)[0]
    return np.ones((train.num_users, 1)), (F @ found)[:, None]


def warp(
    train: Interactions, F: Any, rank: int, seed: int, alpha: float, epochs: float, scale: float
) -> Scores:
    """lightfm-next's hybrid WARP: an embedding per warm item and per feature; a cold item has the latter only."""
    from lightfm import LightFM  # pyright: ignore[reportMissingImports]

    X, warm = train.to_scipy(), np.unique(np.asarray(train.indices))
    own = scipy.sparse.eye_array(train.num_items).tocsr()[:, warm]
    given = scipy.sparse.csr_matrix(scipy.sparse.hstack([own, scale * F]), dtype=np.float32)
    model: Any = LightFM(rank, loss="warp", item_alpha=alpha, user_alpha=alpha, random_state=seed)
    model.fit(
        scipy.sparse.coo_matrix(X[:, warm], dtype=np.float32),
        item_features=given[warm],
        epochs=round(epochs),
        num_threads=peers.THREADS,
    )
    U = np.pad(model.user_embeddings, ((0, 0), (0, 1)), constant_values=1.0)
    V = np.concatenate([model.item_embeddings, model.item_biases[:, None]], 1)
    return U, given @ V


def ials(
    train: Interactions, F: Any, rank: int, seed: int, alpha0: float, reg: float, ridge: float
) -> Scores:
    """irspack's iALS with item features, 16 epochs; a cold item is its features' part."""
    from irspack.recommenders import IALSRecommender  # pyright: ignore[reportMissingImports]

    warm = np.unique(np.asarray(train.indices))
    settings: dict[str, Any] = {"alpha0": alpha0, "reg": reg, "lambda_item_feature": ridge}
    model: Any = IALSRecommender(
        scipy.sparse.csr_matrix(train.to_scipy()[:, warm]),
        n_components=rank,
        n_threads=peers.THREADS,
        random_seed=seed,
        item_features=scipy.sparse.csr_matrix(F[warm], dtype=np.float32),
        **settings,
    )
    model.start_learning()
    for _ in range(16):
        model.run_epoch()
    by_features = scipy.sparse.csr_matrix(F, dtype=np.float32)
    V = np.array(model.trainer.transform_item_feature(by_features))
    V[warm] = model.trainer.core_trainer.item
    return np.asarray(model.trainer.core_trainer.user), V


METHODS: dict[str, tuple[Callable[..., Scores], dict[str, opponents.Range]]] = {
    "ours": (ours, {"strength": (0.2, 1.2), "sigma": (0.3, 3.0)}),
    "ours, not tuned": (ours, {}),
    "popularity by category": (popularity, {"reg": (0.01, 1000.0)}),
    "lightfm-next hybrid WARP": (
        warp,
        {"alpha": (1e-6, 1e-3), "epochs": (10.0, 40.0), "scale": (0.2, 5.0)},
    ),
    "irspack iALS with features": (
        ials,
        {"alpha0": (0.01, 1.0), "reg": (1e-3, 1.0), "ridge": (1e-3, 100.0)},
    ),
}


def auc_over(U: np.ndarray, V: np.ndarray, test: Interactions, seen: Interactions) -> np.ndarray:
    """The AUC of each user over the items of `test`, without those they have in `seen`; nan where it has none."""
    items = np.unique(np.asarray(test.indices))
    wanted, known = (part.to_scipy()[:, items].toarray() > 0 for part in (test, seen))
    values = np.full(len(U), np.nan)
    for i in np.flatnonzero(wanted.any(1)):
        free = ~known[i]
        positive = wanted[i, free]
        P, Q = positive.sum(), (~positive).sum()
        if Q:
            ranks = scipy.stats.rankdata(V[items[free]] @ U[i])
            values[i] = (ranks[positive].sum() - P * (P + 1) / 2) / (P * Q)
    return values


def cold(config: Config, job: dict) -> dict:
    """Tune on held-out training items, fit, and rank the cold items."""
    X, F = _world(config, job)
    train, test = splits.hold_out_items(job["seed"], X)
    fit, ranges = METHODS[job["method"]]
    best: dict[str, float] = {}
    if ranges:
        part, judged = splits.hold_out_items(500 + job["seed"], train)

        def worth(**setting: float) -> float:
            try:
                U, V = fit(part, F, job["rank"], job["seed"], **setting)
            except RuntimeError as error:  # irspack's Cholesky fails where its ridge is small
                print(job["method"], setting, error, file=sys.stderr)
                return 0.0
            value = float(np.nanmean(auc_over(U, V, judged, part)))
            return value if np.isfinite(value) else 0.0

        best = opponents.searched(worth, ranges, job["budget"], job["seed"])
    values = auc_over(*fit(train, F, job["rank"], job["seed"], **best), test, train)
    _keep(config, job, values)
    return {"auc": float(np.nanmean(values)), "users": int((~np.isnan(values)).sum())} | {
        "chosen": best,
        "sizes": [*X.shape, X.nnz, F.shape[1]],
    }


def warm(config: Config, job: dict) -> dict:
    """AUC and NDCG@10 over all items of 5 held-out positives per user, with or without features."""
    X, F = _world(config, job)
    train, test = splits.hold_out(job["seed"], X, per_user=5)
    model = MFAUC(rank=job["rank"], seed=job["seed"])
    model.fit(train, item_features=F if job["method"] == "with features" else None)
    found = evaluate(model, train, test, (10,), per_user=True)
    seen = np.bincount(np.asarray(train.indices), minlength=X.num_items) > 0
    kept = splits.select(test, seen[np.asarray(test.indices)])  # items that have been seen
    values = auc_over(model.user_factors_, model.item_factors_, kept, train)
    _keep(config, job, values, np.asarray(found["ndcg@10"]))
    return {"auc": float(np.nanmean(values)), "ndcg@10": float(np.nanmean(found["ndcg@10"]))}


def curve(config: Config, job: dict) -> dict:
    """AUC over a tenth of the items after so many of their positives have been seen, with or without features."""
    X, F = _world(config, job)
    rest, held_out = splits.hold_out_items(job["seed"], X)
    rows, columns, _ = held_out.on_host()
    rng = splits.generator(job["seed"])
    order = np.lexsort((rng.random(len(rows)), columns))
    place = np.empty(len(rows), int)  # of a positive among those of its item
    counts = np.bincount(columns, minlength=X.num_items)
    place[order] = np.arange(len(rows)) - (np.cumsum(counts) - counts)[columns[order]]
    enough = counts[columns] >= max(cold_report.SEEN) + TESTED
    test = splits.select(held_out, enough & (place >= max(cold_report.SEEN)))
    shown = splits.select(held_out, place < job["seen"])
    train = Interactions.of(rest.to_scipy() + shown.to_scipy())
    model = MFAUC(rank=job["rank"], seed=job["seed"])
    model.fit(train, item_features=F if job["method"] == "with features" else None)
    values = auc_over(
        model.user_factors_, model.item_factors_, test, held_out_without(test, held_out)
    )
    _keep(config, job, values)
    return {"auc": float(np.nanmean(values)), "items": len(np.unique(np.asarray(test.indices)))}


def held_out_without(test: Interactions, held_out: Interactions) -> Interactions:
    """The held-out positives that are not tested: they are no negatives either."""
    left = held_out.to_scipy() - test.to_scipy()
    left.eliminate_zeros()
    return Interactions.of(left)


ROUTES: dict[str, dict[str, Any]] = {  # fields of the model
    "square, alternating": {},
    "square, minibatch": {"solver": "minibatch"},
    "square, dense": {"solver": "dense"},
    "square hinge, minibatch": {"loss": "square_hinge"},
    "logistic, minibatch": {"loss": "logistic"},
    "softmax, dense": {"loss": "exponential", "weighting": weightings.Log(c=1000.0)},
}


def route(config: Config, job: dict) -> dict:
    """AUC over cold items of a loss and its solver, with their defaults."""
    X, F = _world(config, job)
    train, test = splits.hold_out_items(job["seed"], X)
    model = MFAUC(rank=job["rank"], seed=job["seed"], **ROUTES[job["method"]])
    model.fit(train, item_features=F)
    values = auc_over(model.user_factors_, model.item_factors_, test, train)
    _keep(config, job, values)
    return {"auc": float(np.nanmean(values))}


WORK = {"cold": cold, "warm": warm, "curve": curve, "route": route}


def _world(config: Config, job: dict) -> World:
    return world(job["dataset"], config.data_dir, job["seed"], job.get("positives", 0))


def _path(config: Config, job: dict) -> pathlib.Path:
    parts = [job[name] for name in ("dataset", "kind", "method", "seen", "seed") if name in job]
    return pathlib.Path(config.values, "-".join(map(str, parts)).replace(" ", "_") + ".npz")


def _keep(config: Config, job: dict, auc: np.ndarray, ndcg: np.ndarray | None = None) -> None:
    path = _path(config, job)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.beside(path) as new, new.open("wb") as file:
        np.savez(file, auc=auc, ndcg=auc if ndcg is None else ndcg)
    print(job, float(np.nanmean(auc)), file=sys.stderr, flush=True)


def jobs(config: Config) -> list[dict]:
    """All pieces of work."""
    made = []
    for dataset in config.datasets:
        about: dict[str, Any] = {"dataset": dataset, "rank": config.rank}
        about |= {"positives": config.positives} if dataset != "generator" else {}
        for seed in config.seeds:
            own = about | {"seed": seed}
            for method in config.methods or METHODS:
                budget = config.budget if METHODS[method][1] else 0
                made.append(own | {"kind": "cold", "method": method, "budget": budget})
            for method in ("with features", "without"):
                made.append(own | {"kind": "warm", "method": method})
                if dataset == "generator":
                    made += [
                        own | {"kind": "curve", "method": method, "seen": r}
                        for r in cold_report.SEEN
                    ]
            if dataset == "generator":
                made += [own | {"kind": "route", "method": method} for method in ROUTES]
    return [job for job in made if not config.kinds or job["kind"] in config.kinds]


def compared(config: Config) -> list[dict]:
    """One record per data set, kind and opponent: the mean difference over the users of all seeds, and its interval."""
    todo = [
        {"kind": f"paired {kind}", "dataset": dataset, "method": method, "seeds": config.seeds}
        for dataset in config.datasets
        for kind, method in [("warm", "without"), *(("cold", m) for m in METHODS if m != "ours")]
    ]

    def difference(job: dict) -> dict:
        kind = job["kind"].split()[1]
        first = "ours" if kind == "cold" else "with features"
        gaps = {}
        for metric in ("auc", "ndcg") if kind == "warm" else ("auc",):
            sides = []
            for method in (first, job["method"]):
                own = [
                    job | {"kind": kind, "method": method, "seed": seed} for seed in job["seeds"]
                ]
                sides.append(np.concatenate([np.load(_path(config, o))[metric] for o in own]))
            found = significance.paired(*sides)
            gaps[metric] = [found.difference, found.low, found.high]
        return {"ours_minus": gaps}

    return results.Cells(config.results).run(todo, difference)


def main(config: Config) -> int:
    """Run, print, and judge: 1 if ours is not above an opponent on cold items, or is below itself on warm ones."""
    if config.table or config.picture:
        records = results.read(config.results)
        if config.table:
            atomic.write_text(config.table, cold_report.table(records))
        if config.picture:
            print(*cold_report.draw(records, config.picture))
        return 0
    records = results.Cells(config.results).run(
        jobs(config), lambda job: WORK[job["kind"]](config, job)
    )
    gaps = compared(config) if not config.methods and not config.kinds else []
    print(cold_report.table(records + gaps))
    missed = [
        f"MISSED {r['dataset']}, {r['kind']}: {r['method']}: {r['ours_minus']}"
        for r in gaps
        if r["method"] != "ours, not tuned"
        and (
            r["ours_minus"]["auc"][1] <= 0
            if r["kind"] == "paired cold"
            else any(gap[2] < 0 for gap in r["ours_minus"].values())
        )
    ]
    print(*missed, sep="\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(flags.run(Config, main))
