"""Items fitted on all positives, certified by PAC-Bayes: what it costs beside the certificate of half the data.

    python -m experiments.certify_posterior --data_dir=DIR

Five positives per user are kept apart and only measure the AUC that is being certified. The others are halved. The
prior is a default fit on the first half, V̂ is that fit continued over both (docs/derivations.md#pac-bayes).
"""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np

from experiments import flags, results
from mfauc_jax import MFAUC, data
from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds, pac_bayes
from mfauc_jax.certify.held_out import held_out_ranks
from mfauc_jax.data import splits
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.problem import Problem
from mfauc_jax.serving import fold_in


@dataclasses.dataclass(frozen=True)
class Config:
    """Both MovieLens sets, small ranks and the default one, δ = .05."""

    data_dir: str = "data"
    datasets: tuple[str, ...] = ("ml-100k", "ml-1m")
    ranks: tuple[int, ...] = (4, 8, 64)
    sigmas: tuple[float, ...] = flags.option(
        (0.0125, 0.0177, 0.025, 0.0354, 0.05, 0.0707, 0.1, 0.141),
        "standard deviations σ of the draw of V around V̂",
    )
    iterations: int = flags.option(10, "sweeps over both halves, from the prior")
    delta: float = 0.05
    seed: int = 0
    results: str = "results/certify_posterior.jsonl"


def run(config: Config) -> list[dict]:
    """One record per data set, rank and σ."""
    records = []
    for dataset in config.datasets:
        X = data.load(dataset, config.data_dir)
        key_test, key_half, key_draw = jax.random.split(jax.random.key(config.seed), 3)
        seen, test = splits.hold_out(key_test, X, per_user=5)
        first, second = next(iter(splits.k_fold(key_half, seen, folds=2)))
        for rank in config.ranks:
            found = certified(key_draw, config, rank, first, second, (seen, test))
            records += [{"dataset": dataset, "rank": rank, **record} for record in found]
    return records


def certified(
    key, config: Config, rank: int, first: Interactions, second: Interactions, truth
) -> list[dict]:
    """One record per σ: the certificate of a draw, beside that of the prior's own model."""
    prior = MFAUC(rank=rank, seed=config.seed).fit(first)
    problem, start = prior.problem(first), prior.factors_
    V = prior.partial_fit(second, iterations=config.iterations).factors_.V
    models = {"prior": solved(problem, start.V), "mean": solved(problem, V), "all": prior.factors_}
    measured = {f"auc_{name}": held_out_ranks(F, *truth)[0].mean() for name, F in models.items()}
    half = {name: held_out_ranks(models[name], first, second)[0].mean() for name in models}
    size, delta = second.nnz, config.delta
    certified_prior = 1 - bounds.kl_inverse(1 - half["prior"], np.log(1 / delta) / size)
    records = []
    for sigma in config.sigmas:
        drawn = pac_bayes.draw(key, start, V, sigma)
        model = solved(problem, drawn.V)
        ranks = held_out_ranks(model, first, second)[0]
        found = pac_bayes.from_ranks(
            ranks,
            drawn.log_ratio,
            delta,
            num_sigmas=len(config.sigmas),
            divergence=drawn.divergence,
        )
        budget = pac_bayes.budget(1 - float(ranks.mean()), 1 - half["prior"], size, delta)
        records.append(
            {
                "sigma": sigma,
                "certified": found.bound,
                "certified_prior": certified_prior,
                **found.terms,
                "budget": budget,
                "second_half_auc_prior": half["prior"],
                "second_half_auc_mean": half["mean"],
                "auc_drawn": held_out_ranks(model, *truth)[0].mean(),
                **measured,
                "sentence": found.sentence,
            }
        )
    return [{name: getattr(v, "item", lambda v=v: v)() for name, v in r.items()} for r in records]


def solved(problem: Problem, V) -> Factors:
    """The users of the problem solved from V: a function of V and of the first half alone."""
    found = fold_in.fold_in(
        problem.objective, V, problem.X, problem.weights, usable_share=problem.usable_share
    )
    return Factors(jnp.asarray(found.U), V)


def draw(records: list[dict]) -> str:
    """A table: of each data set and rank the best σ, beside the certificate of half the data."""
    lines = [
        "| data | rank | σ | KL | certified, V fitted on all | its AUC on fresh positives | certified, "
        "half of the data | its AUC | AUC of V̂, and with users on all |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for dataset, rank in dict.fromkeys((r["dataset"], r["rank"]) for r in records):
        own = [r for r in records if (r["dataset"], r["rank"]) == (dataset, rank)]
        r = max(own, key=lambda r: r["certified"])
        lines.append(
            f"| {dataset} | {rank} | {r['sigma']:g} | {r['divergence']:.0f} | {_down(r['certified'])} | "
            f"{r['auc_drawn']:.3f} | {_down(r['certified_prior'])} | {r['auc_prior']:.3f} | "
            f"{r['auc_mean']:.3f}, {r['auc_all']:.3f} |"
        )
    return "\n".join(lines)


def _down(bound: float) -> str:
    """Three digits, rounded down: a certificate must not be rounded up."""
    return f"{np.floor(1000 * bound) / 1000:.3f}"


def main(config: Config) -> int:
    """0 if some certificate of a V that was fitted on all positives is better than chance."""
    results.write(config.results, config, run(config))
    records = results.read(config.results)
    sys.stdout.write(draw(records) + "\n")
    return int(max(r["certified"] for r in records) <= 0.5)


if __name__ == "__main__":
    flags.run(Config, main)
