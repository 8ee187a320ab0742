"""Relatives of softmax as members of Eq. 3, each a loss and a weighting of a line: do they help the top of the list?

    python -m experiments.study_relatives --data_dir=DIR [--datasets=ml-100k]

All have unit rows, k = 64, the same weights of users and positives, and the dense solver; β is chosen for each from the
same three values. A tenth of the positives per user is held out of the training part, and NDCG@20 there decides; test
is not read. Without a closed form a loss is summed over ten drawn positives per user, each against all items.

- softmax: L = exp(−βγ), φ = log.
- PSL (NeurIPS 2024): exp becomes a flatter activation, L = a(−γ)^β with a(d) = 1 + tanh d, max(0, 1 + arctan d) or
  max(0, 1 + d); φ = log.
- top-weighted, as in SL@K (KDD 2025): φ(x) = −log(1/x + 1/c), whose slope on the log scale, 1/(1 + x/c), drops the
  positives that are far from the top; softmax is c = ∞.
- p-norm push (Rudin 2009), hard negatives: L = max(0, 1 − γ)^p, φ(x) = x^(1/p), p = β.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp

from experiments import bench_lists, bench_tune, flags, results
from mfauc_jax import MFAUC, Dense, UnitRows, Weights, evaluate
from mfauc_jax.data import splits
from mfauc_jax.objective.losses import Exponential
from mfauc_jax.objective.weightings import Log

TINY = 1e-6  # keeps the pure log finite where every negative is far below


def psl(activation: Callable, beta: float) -> Callable:
    """γ → a(−γ)^β."""
    return lambda x: activation(-x) ** beta + TINY


def top_weighted(c: float) -> Callable:
    """x → −log(1/x + 1/c)."""
    return lambda x: -jnp.log(1 / x + 1 / c)


def push(p: float) -> Callable:
    """γ → max(0, 1 − γ)^p."""
    return lambda x: jnp.maximum(1.0 - x, 0.0) ** p + TINY


def root(p: float) -> Callable:
    """x → x^(1/p)."""
    return lambda x: x ** (1 / p)


ACTIVATIONS = {
    "PSL tanh": lambda d: 1 + jnp.tanh(d),
    "PSL arctan": lambda d: jnp.maximum(1 + jnp.arctan(d), 0.0),
    "PSL relu": lambda d: jnp.maximum(1 + d, 0.0),
}
BETAS = (3.0, 5.0, 8.0)


def relatives(beta: float) -> dict[str, dict]:
    """The loss and the weighting of each relative."""
    found: dict[str, dict] = {"softmax": {"loss": Exponential(beta=beta), "weighting": Log()}}
    for name, activation in ACTIVATIONS.items():
        found[name] = {"loss": psl(activation, beta), "weighting": Log()}
    for c in (0.3, 0.03):
        weighting = top_weighted(c)
        found[f"top-weighted, c = {c}"] = {"loss": Exponential(beta=beta), "weighting": weighting}
    found["p-norm push"] = {"loss": push(beta), "weighting": root(beta)}
    return found


@dataclasses.dataclass(frozen=True)
class Config:
    """Which data."""

    data_dir: str = flags.option("data", "folder of the data sets")
    datasets: tuple[str, ...] = flags.option(("ml-100k",), "names, or folders of data_dir")
    iterations: int = flags.option(20, "visits of each user")
    split_seed: int = flags.option(500, "of data sets without a published split")
    table: str = flags.option("", "write the records to this Markdown file, and fit nothing")
    results: str = "out/study_relatives.jsonl"


def run(config: Config) -> list[dict]:
    """One record per data set, relative and β."""
    jobs = [
        {"dataset": name, "relative": relative, "beta": beta, "iterations": config.iterations}
        for name in config.datasets
        for relative in relatives(1.0)
        for beta in BETAS
    ]

    def work(job: dict) -> dict:
        own = bench_tune.Config(data_dir=config.data_dir, split_seed=config.split_seed)
        train = bench_tune.split_of(own, job["dataset"]).train
        train, held_out = next(splits.k_fold(0, train, 10))
        model = MFAUC(
            **relatives(job["beta"])[job["relative"]],
            penalty=UnitRows(),
            weights=Weights(tau=0.15, user_power=1.0),
            solver=Dense(iterations=job["iterations"]),
        )
        found = evaluate(model.fit(train, progress=False), train, held_out, (bench_lists.LENGTH,))
        return {name: found[name] for name in ("ndcg@20", "recall@20", "auc")}

    return results.Cells(config.results).run(jobs, work)


def table(records: list[dict]) -> str:
    """The best β of each relative, as Markdown."""
    rows = ["| data | relative | β | NDCG@20 | Recall@20 | AUC |", "| --- " * 6 + "|"]
    for name in dict.fromkeys(r["dataset"] for r in records):
        for relative in relatives(1.0):
            own = [r for r in records if (r["dataset"], r["relative"]) == (name, relative)]
            if own:
                best = max(own, key=lambda r: r["ndcg@20"])
                shown = (f"{best[m]:.4f}".lstrip("0") for m in ("ndcg@20", "recall@20", "auc"))
                rows.append(f"| {name} | {relative} | {best['beta']:g} | {' | '.join(shown)} |")
    return "\n".join(rows) + "\n"


def main(config: Config) -> None:
    """Run, and print; or write the table."""
    if config.table:
        from mfauc_jax._core import atomic

        atomic.write_text(config.table, table(results.read(config.results)))
    else:
        print(table(run(config)))


if __name__ == "__main__":
    flags.run(Config, main)
