"""Is the error in the authors' tanh gradient why the printed tanh rows differ from ours?

    python -m experiments.study_tanh [--datasets=synthetic2] [--seeds=1]

Read in the authors' public code: for a row v_j that is a *negative* of a drawn user, the rank loss inside tanh′ is
summed over the κ_Y drawn negatives but divided by the mass of *all* the user's negatives, so it is κ_Y/M_i of what it
should be, tanh′ is nearly 1, and the pull on negatives is not damped. `AuthorsTanh` is Algorithm 1 with that error.
Their ρ multiplies the mean of max(0, 1 − γ)², twice our rank loss, and the objective is halved: ½ tanh(2ρC).

One record per data set, ρ and seed, with the α and λ of our row in results/tab_synthetic.jsonl, which are the same for
both gradients; the printed row and ours stand beside it.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from experiments import flags, methods, paper, protocol, results, together
from mfauc_jax import MFAUC, Sequential
from mfauc_jax.objective import losses
from mfauc_jax.objective.weightings import Tanh


class HalfTanh(Tanh, listed=False):
    """½ tanh(2ρC): the authors' φ, with their ρ."""

    def __call__(self, x):
        """½ tanh(2ρx)."""
        return 0.5 * jnp.tanh(2 * self.rho * x)


class AuthorsTanh(Sequential, listed=False):
    """Algorithm 1 with the authors' error in ∂v_j."""

    def item_risk(self, objective, v, factors, sample):
        """Its gradient is the authors': as a negative, v_j has φ′(κ_Y C_p / M_i) where φ′(C_p) is right.

        The weight g′_ij = 1/M_i of v_j as a negative stands in slot 0 of the sample; it is 0 if j is a positive.
        """
        u = factors.U[sample.users]
        s_pos, s_neg = (
            jnp.einsum("bpk,bk->bp", factors.V[items[:, 1:]], u)
            for items in (sample.pos, sample.neg)
        )
        slope = jax.grad(objective.weighting)

        def one(s, s_pos, s_neg, g_pos, g_neg):
            own, others = g_neg[0], g_neg[1:]
            as_positive = g_pos[0] * objective.weighting((objective.loss(s - s_neg) * others).sum())
            rank_loss = (objective.loss(s_pos[:, None] - s_neg[None, :])).mean(1)
            damped = jax.vmap(slope)(self.num_items * own * rank_loss)
            as_negative = (g_pos[1:] * damped * own * objective.loss(s_pos - s)).sum()
            return as_positive + as_negative

        risks = jax.vmap(one)(u @ v, s_pos, s_neg, sample.g_pos, sample.g_neg)
        return (sample.user_weight * risks).mean()


@dataclasses.dataclass(frozen=True)
class Config:
    """One split of each synthetic set."""

    datasets: tuple[str, ...] = ("synthetic1_table", "synthetic2")
    rhos: tuple[float, ...] = flags.option(methods.RHOS, "values of ρ, the slope of tanh")
    seeds: int = flags.option(1, "splits, from 0 on")
    iterations: int = flags.option(2000, "T")
    rank: int = 8
    hyper: str = flags.option("experiments/results/tab_synthetic.jsonl", "where α and λ are from")
    results: str = "out/study_tanh.jsonl"


def wrong(model: MFAUC, rho: float) -> MFAUC:
    """The authors' row with the authors' gradient."""
    solver = model.chosen_solver
    settings = {name: getattr(solver, name) for name in type(solver).specs()}
    return dataclasses.replace(model, weighting=HalfTanh(rho=rho), solver=AuthorsTanh(**settings))


def run(config: Config) -> list[dict]:
    """One record per data set, ρ and seed; all ρ of a seed are one program."""
    known = results.read(config.hyper)
    found = []
    for dataset in config.datasets:
        X = protocol.load(dataset, "")
        for seed in range(config.seeds):
            part = protocol._split(X, seed)
            job = {"kind": "fit", "dataset": dataset, "setting": "authors", "seed": seed}
            rows = [
                results.the(known, job | {"method": f"MFAUC tanh ρ={rho}"}) for rho in config.rhos
            ]
            models = []
            for rho, row in zip(config.rhos, rows, strict=True):
                hyper = {**row["hyper"], methods.ITERATIONS: config.iterations}
                right = methods.authors_model(losses.SquareHinge(), Tanh(rho=rho))
                models.append(wrong(right.with_params(rank=config.rank, seed=seed, **hyper), rho))
            fits = together.fit(models, [part.train] * len(models))
            for rho, row, fit in zip(config.rhos, rows, fits, strict=True):
                metrics = protocol._ranked(fit.factors, part, {"seed": seed})["metrics"]
                job = {"dataset": dataset, "rho": rho, "seed": seed, "hyper": row["hyper"]}
                found.append(job | {"metrics": metrics, "ours": row["metrics"]})
    return found


def distance(metrics: dict[str, dict], dataset: str, rho: float) -> float:
    """The largest difference from the printed row, over its seven cells."""
    printed = paper.ranking(dataset, f"MFAUC tanh ρ={rho}")
    assert printed is not None
    return float(max(abs(metrics[c]["mean"] - printed[c]) for c in paper.COLUMNS))


def draw(records: list[dict]) -> str:
    """A table: how far each gradient's row is from the printed one."""
    lines = ["| data | ρ | splits | authors' gradient | right gradient |", "| --- " * 5 + "|"]
    for dataset, rho in dict.fromkeys((r["dataset"], r["rho"]) for r in records):
        own = [r for r in records if (r["dataset"], r["rho"]) == (dataset, rho)]
        away = [
            np.mean([distance(r[which], dataset, rho) for r in own])
            for which in ("metrics", "ours")
        ]
        cells = " | ".join(f"{x:.3f}" for x in away)
        lines.append(f"| {paper.TITLES[dataset]} | {rho:g} | {len(own)} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    flags.run(Config, lambda config: results.tell(config, run(config), draw))
