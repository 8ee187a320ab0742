"""Two trade-offs on real data: the top of the list against the AUC, and precise lists against varied ones.

    python -m experiments.study_tradeoffs --data_dir=DIR [--datasets=ml-100k,epinions] [--out=DIR]

`strength`: `MFAUC()` with penalties of several strengths, NDCG@20 and AUC of each. `diversity`: lists of 10 that
`mf.diverse` makes of `MFAUC()`'s lists of 100, NDCG@10 and the share of the catalogue that is in somebody's list. Five
positives per user are held out; a folder of DIR with train.tsv.gz and test.tsv.gz is a published split.
"""

import dataclasses
import pathlib

import numpy as np

from experiments import bench_tune, flags, results, style
from mfauc_jax import MFAUC, Auto, Interactions, diverse, evaluate
from mfauc_jax.data.splits import Split

STRENGTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
DIVERSITIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
LENGTH, CANDIDATES = 10, 100


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data."""

    data_dir: str = flags.option("data", "folder of the data sets")
    datasets: tuple[str, ...] = flags.option(
        ("ml-100k", "ml-1m", "epinions", "ir-benchmark/amazon2014-electronic"),
        "names, or folders of data_dir",
    )
    split_seed: int = flags.option(400, "of data sets without a published split")
    results: str = "out/study_tradeoffs.jsonl"
    out: str = "out"


def run(config: Config) -> list[dict]:
    """One record per data set and strength, and one per data set with every diversity."""
    jobs = []
    for name in config.datasets:
        plain = {"dataset": name, "rank": 64, "split": config.split_seed}
        jobs += [plain | {"kind": "strength", "strength": value} for value in STRENGTHS]
        jobs.append(plain | {"kind": "diversity"})

    def work(job: dict) -> dict:
        own = bench_tune.Config(data_dir=config.data_dir, split_seed=config.split_seed)
        parts = bench_tune.split_of(own, job["dataset"])
        split = Split(*(Interactions.from_csr(X.indptr, X.indices, X.num_items) for X in parts))
        if job["kind"] == "diversity":
            return {"curve": varied(MFAUC().fit(split.train), split)}
        model = MFAUC(penalty=Auto(strength=job["strength"])).fit(split.train)
        found = evaluate(model, split.train, split.test, (20,))
        return {name: found[name] for name in ("ndcg@20", "recall@20", "auc")}

    return results.Cells(config.results).run(jobs, work)


def varied(model: MFAUC, split: Split, block: int = 1000) -> list[list[float]]:
    """For each diversity d: d, NDCG@10, and the share of the items that are in some list."""
    lengths = split.test.on_host()[2]
    users, wanted = np.flatnonzero(lengths), split.test.to_scipy()
    discounts = 1 / np.log2(np.arange(2, LENGTH + 2))
    curve = []
    for d in DIVERSITIES:
        gains, shown = [], np.zeros(model.train_.num_items, bool)
        for first in range(0, len(users), block):
            own = users[first : first + block]
            long = model.recommend(own, n=CANDIDATES)
            items = diverse(model, long, LENGTH, diversity=d).items
            hit = wanted[own].toarray()[np.arange(len(own))[:, None], items] > 0
            ideal = np.cumsum(discounts)[np.minimum(lengths[own], LENGTH) - 1]
            gains.append(hit @ discounts / ideal)
            shown[items] = True
        curve.append([d, float(np.concatenate(gains).mean()), float(shown.mean())])
    return curve


def draw(records: list[dict], out: str) -> list[pathlib.Path]:
    """One picture per trade-off."""
    names = list(dict.fromkeys(r["dataset"] for r in records))
    figure, axes = style.panels(len(names), width=3.1, height=2.9)
    for ax, name in zip(axes[0], names, strict=True):
        own = [r for r in records if r["dataset"] == name and r["kind"] == "strength"]
        own.sort(key=lambda r: r["strength"])
        x = [r["strength"] for r in own]
        ax.plot(x, [r["ndcg@20"] for r in own], "o-", color=style.COLOURS[0], label="NDCG@20")
        other = ax.twinx()
        other.plot(x, [r["auc"] for r in own], "s--", color=style.COLOURS[1], label="AUC (right)")
        ax.set(title=name.split("/")[-1], xlabel="strength of the penalty")
        handles = [*ax.get_lines(), *other.get_lines()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    paths = style.save(figure, out, "tradeoff_strength")
    figure, axes = style.panels(len(names), width=3.1, height=2.9)
    for ax, name in zip(axes[0], names, strict=True):
        (own,) = [r for r in records if r["dataset"] == name and r["kind"] == "diversity"][-1:]
        d, ndcg, shown = np.array(own["curve"]).T
        ax.plot(100 * shown, ndcg, "o-", color=style.COLOURS[0])
        for place in np.flatnonzero(d >= 0.5):
            ax.annotate(
                f"{d[place]:g}",
                (100 * shown[place], ndcg[place]),
                (4, 4),
                textcoords="offset points",
            )
        ax.set(title=name.split("/")[-1], xlabel="% of the catalogue in some top 10")
    axes[0][0].set_ylabel("NDCG@10")
    return paths + style.save(figure, out, "tradeoff_diversity")


def main(config: Config) -> None:
    """Run and draw."""
    print(*draw(run(config), config.out), sep="\n")


if __name__ == "__main__":
    flags.run(Config, main)
