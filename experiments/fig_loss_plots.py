"""Fig. 1: the surrogates of "the positive is not ranked above the negative", β = 5.

python -m experiments.fig_loss_plots [--out=DIR]
"""

import dataclasses
import pathlib
from functools import partial

import jax
import numpy as np

from experiments import flags, results, style
from theory import function_class


@dataclasses.dataclass(frozen=True)
class Config:
    """The defaults are the paper's."""

    beta: float = 5.0
    points: int = 241
    reach: float = dataclasses.field(default=1.5, metadata={"help": "γ from −reach to reach"})
    results: str = "out/fig_loss_plots.jsonl"
    out: str = "out"


def run(config: Config) -> list[dict]:
    """One record per loss: its values, and the indicator that all of them replace."""
    x = np.linspace(-config.reach, config.reach, config.points)
    by_name = function_class.paper_losses(config.beta)
    curves = {name: loss(x) for name, loss in by_name.items()}
    curves["indicator"] = np.where(x <= 0, 1.0, 0.0)
    return [
        {"loss": name, "margin": x.tolist(), "value": np.asarray(jax.device_get(y)).tolist()}
        for name, y in curves.items()
    ]


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """The figure, from the records alone."""
    figure, axes = style.panels(1, width=5.0, height=3.6)
    ax = axes[0, 0]
    beta = records[0]["config"]["beta"]
    names = {
        "square_hinge": "square hinge, ½ max(0, 1 − γ)²",
        "square": "square, ½ (1 − γ)²",
        "sigmoid": f"sigmoid, σ(−{beta:g}γ)",
        "logistic": f"logistic, −ln σ({beta:g}γ)",
        "indicator": "indicator, γ ≤ 0",
    }
    for place, r in enumerate(records):
        ax.plot(r["margin"], r["value"], **style.line(place), lw=1.8, label=names[r["loss"]])
    reach = records[0]["margin"][-1]
    ax.set(xlabel="margin γ = uᵢ·(v$_p$ − v$_q$)", ylabel="loss L(γ)", ylim=(-0.05, 3.2))
    ax.set(xlim=(-reach, reach), title=f"Loss functions with β = {beta:g}")
    ax.legend(loc="upper right")
    caption = (
        "Fig. 1. The surrogates of the indicator of a wrongly ordered pair, by its margin; "
        f"β = {beta:g} in the sigmoid and the logistic. The sigmoid is the paper's −σ(βγ) plus one."
    )
    return style.save(figure, out, "fig_loss_plots", caption)


if __name__ == "__main__":
    flags.run(Config, partial(results.artefact, run, draw))
