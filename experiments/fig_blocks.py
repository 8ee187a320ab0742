"""Fig. 2: blocks that can be worked on at once: the solver's own assignment of Synthetic2's rows and columns.

python -m experiments.fig_blocks [--out=DIR]
"""

import dataclasses
import pathlib
from functools import partial

import jax
import matplotlib.colors
import numpy as np
from matplotlib.patches import Patch

from experiments import flags, protocol, results, style
from mfauc_jax import Blockwise, Problem
from mfauc_jax.solvers.blockwise import design, placement


@dataclasses.dataclass(frozen=True)
class Config:
    """Four processes; two iterations, of the first two rounds."""

    dataset: str = "synthetic2"
    blocks: int = 4
    iterations: int = 2
    seed: int = 0
    results: str = "out/fig_blocks.jsonl"
    out: str = "out"


def run(config: Config) -> list[dict]:
    """One record per iteration: the block of each user and item, and the positives of each block."""
    X, d = protocol.load(config.dataset, ""), config.blocks
    solver = Blockwise(blocks=d, devices=1)
    order = solver.order(X, config.seed)
    assert order is not None  # there is one process
    users = np.argsort(order)  # the place of each user in the solver's order
    data = solver.prepare(Problem.of(X.take(order)))
    rows, items = np.asarray(X.rows), np.asarray(X.indices)
    assign = jax.jit(solver.assigned)
    records = []
    for iteration in range(config.iterations):
        key = jax.random.fold_in(jax.random.key(config.seed), iteration)  # as in a fit
        of_place, of_item = map(np.asarray, assign(key, data))
        real = placement.Rows(X.num_users, d).real()
        of_user, of_item = of_place.reshape(-1)[real][users], of_item[: X.num_items]
        inside = np.zeros((config.blocks, config.blocks), int)
        np.add.at(inside, (of_user[rows], of_item[items]), 1)
        records.append(
            {
                "iteration": iteration,
                "users": of_user.tolist(),
                "items": of_item.tolist(),
                "positives": inside.tolist(),
                "schedule": design.schedule(config.blocks).tolist(),
                "row": rows.tolist() if iteration == 0 else [],
                "column": items.tolist() if iteration == 0 else [],
            }
        )
    return records


def draw(records: list[dict], out: str | pathlib.Path) -> list[pathlib.Path]:
    """Two rounds of an iteration in block order, and the next iteration in that same order."""
    first, after = records[0], records[1]
    count = len(first["schedule"])
    rows, columns = (np.argsort(first[side], kind="stable") for side in ("users", "items"))
    X = np.zeros((len(rows), len(columns)), bool)
    X[np.array(first["row"]), np.array(first["column"])] = True
    X = X[rows][:, columns]
    figure, axes = style.panels(3, width=3.1, height=4.3)
    shown = (
        (first, 0, "iteration 1, round 1"),
        (first, 1, "iteration 1, round 2"),
        (after, 0, "iteration 2, round 1,\nin the order of iteration 1"),
    )
    colours = style.COLOURS[:count]
    paint = matplotlib.colors.ListedColormap([(1, 1, 1, 0), *colours])
    for ax, (record, turn, title) in zip(axes[0], shown, strict=True):
        user, item = np.array(record["users"])[rows], np.array(record["items"])[columns]
        partner = np.array(record["schedule"])[turn]  # the column block of each row block
        working = partner[user][:, None] == item[None, :]
        area = np.where(working, user[:, None] + 1, 0)
        ax.imshow(
            area, cmap=paint, vmin=0, vmax=count, alpha=0.55, aspect="auto", interpolation="none"
        )
        at = np.nonzero(X)
        ax.plot(at[1], at[0], ",", color="black", alpha=0.35, rasterized=True)
        if record is first:
            for edge in np.flatnonzero(np.diff(user)) + 0.5:
                ax.axhline(edge, color="0.5", lw=0.6)
            for edge in np.flatnonzero(np.diff(item)) + 0.5:
                ax.axvline(edge, color="0.5", lw=0.6)
            for block, other in enumerate(partner):
                at = np.flatnonzero(item == other).mean(), np.flatnonzero(user == block).mean()
                inside = record["positives"][block][other]
                ax.text(
                    *at,
                    f"process {block + 1}\n{inside:,} positives",
                    ha="center",
                    va="center",
                    fontsize=7,
                    bbox={"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1.5},
                )
        ax.set(title=title, xlabel="items", xticks=[], yticks=[])
    axes[0, 0].set(ylabel="users")
    patches = [
        Patch(color=colour, alpha=0.55, label=f"process {place + 1}")
        for place, colour in enumerate(colours)
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=count)
    return style.save(figure, out, "fig_blocks")


if __name__ == "__main__":
    flags.run(Config, partial(results.artefact, run, draw))
