"""What explicit dislikes add: MovieLens with the ratings 1 and 2 as dislikes of several weights.

    python -m experiments.study_dislikes --data_dir=DIR [--datasets=ml-100k,ml-1m] [--out=DIR]

Five positives (ratings of 4 and 5) and a fifth of the dislikes of every user are held out. `MFAUC()` is fitted to the
other positives with the other dislikes, whose g′ is multiplied by the factor c; c = 0 means a fit without dislikes. All
are judged alike: training positives and training dislikes are left out of the lists, held-out dislikes are not.
`versus disliked` is the share of the pairs (held-out positive, held-out dislike) of a user in which the positive has
the higher score, a tie being a half, averaged over the users with both. The default factor was chosen on the splits of
`--choose`, the table has those of `--report`.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np

from experiments import flags, results
from mfauc_jax import MFAUC, Interactions, Weights, data, evaluate
from mfauc_jax._core import atomic
from mfauc_jax.data import splits
from mfauc_jax.evaluation import significance

METRICS = ("versus disliked", "auc", "precision@5", "ndcg@20")


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data, factors and splits."""

    data_dir: str = flags.option("data", "folder of the data sets")
    datasets: tuple[str, ...] = ("ml-100k", "ml-1m")
    factors: tuple[float, ...] = flags.option((0.0, 1.5, 2.0, 4.0, 8.0, 16.0), "c; 0: no dislikes")
    rank: int = 64
    choose: tuple[int, ...] = flags.option((500, 501), "split seeds that the default is chosen on")
    report: tuple[int, ...] = flags.option((520, 521, 522), "split seeds of the table")
    results: str = "out/study_dislikes.jsonl"
    out: str = "out"


def run(config: Config) -> list[dict]:
    """One record per data set, split and factor, with the paired difference to the fit without dislikes."""
    jobs = [
        {
            "kind": part,
            "dataset": name,
            "rank": config.rank,
            "split": seed,
            "factors": [*config.factors],
        }
        for name in config.datasets
        for part, seeds in (("choose", config.choose), ("report", config.report))
        for seed in seeds
    ]

    def work(job: dict) -> dict:
        X = data.load(job["dataset"], config.data_dir, dislikes_below=3)
        return {"found": compared(X, job["factors"], job["split"], job["rank"])}

    return results.Cells(config.results).run(jobs, work)


def compared(X: Interactions, factors: list[float], seed: int, rank: int) -> dict[str, Any]:
    """For each factor the mean of every metric, and its paired difference to the first factor with the interval."""
    split = splits.hold_out(seed, X, 5)
    D = X.dislikes
    assert D is not None
    held_out = splits.generator(seed + 1_000_000).random(D.nnz) < 0.2
    train = dataclasses.replace(split.train, dislikes=splits.select(D, ~held_out))
    disliked = splits.select(D, held_out)
    users = {}
    for factor in factors:
        weights = Weights(dislikes=factor) if factor else Weights()
        positives = train if factor else dataclasses.replace(train, dislikes=None)
        model = MFAUC(rank=rank, weights=weights).fit(positives, progress=False)
        own = evaluate(model, train, split.test, (5, 20), per_user=True)
        users[factor] = own | {"versus disliked": versus(model, split.test, disliked)}
    first, found = users[factors[0]], {}
    for factor, own in users.items():
        found[str(factor)] = {"dislikes": int(train.dislikes.nnz)} if train.dislikes else {}
        for metric in METRICS:
            gap = significance.paired(own[metric], first[metric])
            mean = float(np.nanmean(own[metric]))
            found[str(factor)][metric] = [mean, gap.difference, gap.low, gap.high]
    return found


def versus(model: MFAUC, test: Interactions, disliked: Interactions) -> np.ndarray:
    """Per user the share of (held-out positive, held-out dislike) pairs in the right order; users with both only."""
    U, V = model.user_factors_, model.item_factors_
    liked, rejected = (
        np.split(np.asarray(X.indices), np.asarray(X.indptr)[1:-1]) for X in (test, disliked)
    )
    shares = []
    for u, own, other in zip(U, liked, rejected, strict=True):
        if len(own) and len(other):
            gap = (V[own] @ u)[:, None] - (V[other] @ u)[None, :]
            shares.append(((gap > 0) + 0.5 * (gap == 0)).mean())
    return np.array(shares)


def table(records: list[dict], part: str) -> str:
    """Means over the splits of one part, with the mean difference to no dislikes and how many intervals exclude 0."""
    lines = [
        "| data | c | " + " | ".join(METRICS) + " |",
        "| --- | --- |" + " --- |" * len(METRICS),
    ]
    own = [r for r in records if r["kind"] == part]
    for name in dict.fromkeys(r["dataset"] for r in own):
        splits_ = [r["found"] for r in own if r["dataset"] == name]
        for factor in sorted(splits_[0], key=float):
            cells = []
            for metric in METRICS:
                mean, gap, low, high = np.array([s[factor][metric] for s in splits_]).T
                sure = f"{(low > 0).sum()}+ {(high < 0).sum()}−" if float(factor) else ""
                cells.append(
                    f"{mean.mean():.4f} ({gap.mean():+.4f}; {sure})"
                    if sure
                    else f"{mean.mean():.4f}"
                )
            called = "none" if not float(factor) else f"{float(factor):g}"
            lines.append(f"| {name} | {called} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(records: list[dict], out: str) -> list[pathlib.Path]:
    """The tables of both parts."""
    parts = ("report", "choose")
    text = "\n".join(f"Splits to {part}\n\n{table(records, part)}" for part in parts)
    path = pathlib.Path(out) / "study_dislikes.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, text)
    return [path]


def main(config: Config) -> None:
    """Run and draw."""
    print(*draw(run(config), config.out), sep="\n")


if __name__ == "__main__":
    flags.run(Config, main)
