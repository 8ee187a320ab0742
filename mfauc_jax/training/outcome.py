"""The outcome of a selection: the winner, the table, the heat map, and the cells kept on disk."""

import dataclasses
import json
import math
import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from mfauc_jax._core import atomic, digests
from mfauc_jax.evaluation import latex

MINIMISED = ("objective",)  # of every other criterion the largest wins


@dataclasses.dataclass(frozen=True)
class Selection:
    """The outcome of `selection.select`, `selection.authors_rule` or `selection.search`."""

    best: dict[str, Any]  # the winner's hyper-parameters
    score: float  # its mean criterion over the splits
    table: list[dict[str, Any]]  # one record per point and split: split, values, diverged, metrics
    criterion: str
    grid: dict[str, Any]
    points: list[dict[str, Any]]  # every combination of the grid
    model: Any  # the model whose other settings all points share
    before: "Selection | None" = None  # the first of two stages

    @classmethod
    def choose(
        cls,
        model: Any,
        grid: dict[str, Any],
        criterion: str,
        points: list[dict[str, Any]],
        table: list[dict[str, Any]],
    ) -> "Selection":
        """The selection of the point with the best mean; the first of equals, and never one that diverged."""
        unchosen = cls({}, math.nan, table, criterion, grid, points, model)
        means = [row["mean"] for row in unchosen.means()]
        sign = -1 if criterion in MINIMISED else 1
        order = [math.inf if math.isnan(mean) else -sign * mean for mean in means]
        winner = int(np.argmin(order))
        if math.isnan(means[winner]):
            raise ArithmeticError(
                f"all {len(points)} points diverged or have no {criterion}: try smaller learning "
                "rates or more reg"
            )
        return dataclasses.replace(unchosen, best=points[winner], score=means[winner])

    def best_model(self) -> Any:
        """The model with the winner's values, not yet fitted."""
        return self.model.with_params(**self.best)

    def means(self) -> list[dict[str, Any]]:
        """One row per point: its values, the mean and sd of the criterion over splits, and their number.

        The mean is nan if the point diverged in any split.
        """
        scores: dict[str, list[float]] = {}
        for record in self.table:
            point = {name: record[name] for name in self.points[0]}
            scores.setdefault(repr(point), []).append(record[self.criterion])
        rows = []
        for point in self.points:
            values = np.array(scores[repr(point)])
            sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
            rows.append(point | {"mean": float(values.mean()), "sd": sd, "splits": len(values)})
        return rows

    def __str__(self) -> str:
        return self.text({})

    def text(self, names: Mapping[str, str]) -> str:
        """The means as a table, one line per point, the best first; `names` maps settings to column heads."""
        sign = -1 if self.criterion in MINIMISED else 1
        rows = sorted(self.means(), key=lambda r: (math.isnan(r["mean"]), -sign * r["mean"]))
        heads = [
            *(names.get(name, name) for name in self.points[0]),
            self.criterion,
            "± sd",
            "splits",
        ]
        lines = [heads]
        for row in rows:
            values = [_short(row[name]) for name in self.points[0]]
            mean = "diverged" if math.isnan(row["mean"]) else f"{row['mean']:.4f}"
            sd = "" if math.isnan(row["sd"]) else f"{row['sd']:.4f}"
            lines.append([*values, mean, sd, str(row["splits"])])
        widths = [max(len(line[c]) for line in lines) for c in range(len(heads))]
        text = ["  ".join(x.rjust(w) for x, w in zip(line, widths, strict=True)) for line in lines]
        return "\n".join(text)

    def to_latex(self, *, digits: int = 4, caption: str = "", label: str = "") -> str:
        r"""The means as a LaTeX table with booktabs, best first and in bold; with a caption or label it floats.

        Args:
            digits: decimals of the mean and its standard deviation over the splits.
            caption: plain text; none if empty.
            label: the name for \ref; none if empty.
        """
        names, sign = list(self.points[0]), -1 if self.criterion in MINIMISED else 1
        rows = sorted(self.means(), key=lambda r: (math.isnan(r["mean"]), -sign * r["mean"]))
        best = round(rows[0]["mean"], digits)
        cells = [
            [
                *(latex.escape(_short(row[name])) for name in names),
                latex.marked(row["mean"], best=round(row["mean"], digits) == best, digits=digits),
                latex.number(row["sd"], digits),
                str(row["splits"]),
            ]
            for row in rows
        ]
        heads = [*(NAMES.get(name, name) for name in names), self.criterion, "± sd", "splits"]
        return latex.tabular(heads, cells, text_columns=len(names), caption=caption, label=label)

    def draw(self, path: str | os.PathLike, x: str | None = None, y: str | None = None) -> None:
        """Draw a heat map of the mean criterion over two hyper-parameters, with the winner marked.

        If the grid has more than two, each cell is the best over the others.

        Args:
            path: the file to write; its ending chooses the format.
            x: the name across; None: the learning rate if the grid has several, else the last name with several values.
            y: the name upwards; None: λ if the grid has several, else the first other name with several values.
        """
        from matplotlib.figure import Figure

        x, y = self._axes(x, y)
        across, up = (self._values(name) for name in (x, y))
        sign = -1 if self.criterion in MINIMISED else 1
        cells = np.full((len(up), len(across)), np.nan)
        for row in self.means():
            cell = up.index(row.get(y)), across.index(row[x])
            cells[cell] = sign * np.nanmax([sign * cells[cell], sign * row["mean"], -np.inf])
        cells[~np.isfinite(cells)] = np.nan

        figure = Figure(figsize=(1.9 + 0.62 * len(across), 1.7 + 0.36 * len(up)), dpi=150)
        axes = figure.add_subplot()
        axes.set_facecolor("0.85")  # shows where a point diverged
        known = cells[np.isfinite(cells)]
        low = np.quantile(known, 0.1 if sign > 0 else 0.0)
        high = np.quantile(known, 1.0 if sign > 0 else 0.9)
        high = high if high > low else low + 1e-9  # the worst tenth has the colour of the end
        colours = "viridis" if sign > 0 else "viridis_r"
        image = axes.imshow(cells, origin="lower", aspect="auto", cmap=colours, vmin=low, vmax=high)
        for (r, c), value in np.ndenumerate(cells):
            good = (np.clip(value, low, high) - low) / (high - low)
            dark = np.isfinite(value) and (good if sign > 0 else 1 - good) < 0.6
            text = f"{value:.3f}".replace("0.", ".", 1) if np.isfinite(value) else "×"
            axes.text(c, r, text, ha="center", va="center", fontsize=7, color="w" if dark else "k")
        cell = up.index(self.best.get(y)), across.index(self.best[x])
        box = {
            "fill": False,
            "edgecolor": "crimson",
            "linewidth": 2.2,
            "clip_on": False,
            "zorder": 3,
        }
        from matplotlib.patches import Rectangle

        axes.add_patch(Rectangle((cell[1] - 0.5, cell[0] - 0.5), 1, 1, **box))
        axes.set_xticks(range(len(across)), [_power(value) for value in across])
        axes.set_yticks(range(len(up)), [_power(value) for value in up])
        axes.tick_params(length=0)
        axes.set_xlabel(NAMES.get(x, x))
        axes.set_ylabel(NAMES.get(y, y))
        best = ", ".join(f"{NAMES.get(n, n)} = {_power(v)}" for n, v in self.best.items())
        axes.set_title(f"best {self.score:.4f} at {best}", fontsize=9)
        label = f"{self.criterion}, mean of {self.means()[0]['splits']} splits"
        figure.colorbar(image, ax=axes, label=label, extend="min" if sign > 0 else "max")
        atomic.save_figure(figure, path, bbox_inches="tight")

    def _axes(self, x: str | None, y: str | None) -> tuple[str, str]:
        several = [name for name in self.points[0] if len(self._values(name)) > 1]
        several = several or list(self.points[0])
        x = x or (RATE if RATE in several else several[-1])
        others = [name for name in several if name != x]
        y = y or (REG if REG in others else others[0] if others else "")
        for name in (x, y):
            if name and name not in self.points[0]:
                raise ValueError(f"{name!r} is not in the grid: choose from {list(self.points[0])}")
        return x, y

    def _values(self, name: str) -> list[Any]:
        values = list(dict.fromkeys(point.get(name) for point in self.points))
        return sorted(values) if all(isinstance(v, int | float) for v in values) else values


RATE, REG = "solver__learning_rate", "penalty__reg"
NAMES = {RATE: "α", REG: "λ", "loss__beta": "β", "weighting__rho": "ρ", "rank": "k"}


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(getattr(value, "__name__", value))


def _power(value: Any) -> str:
    """A number as text, powers of two as such: 2⁻³ for 0.125."""
    if value is None:
        return ""
    if isinstance(value, float) and value > 0 and math.log2(value) % 1 == 0:
        return f"$2^{{{int(math.log2(value))}}}$"
    return _short(value)


class Cells:
    """The finished cells of a selection in a folder, one file of JSON lines per cell, written whole or not at all.

    `about` describes the selection. A folder that holds another one is refused, not overwritten. Without a folder
    nothing is kept.
    """

    def __init__(self, folder: str | os.PathLike | None, about: dict[str, Any]):
        self._folder = None if folder is None else pathlib.Path(folder)
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        here = json.loads(json.dumps(about, default=_named))
        file = self._folder / "selection.json"
        if not file.exists():
            atomic.write_text(file, json.dumps(here, sort_keys=True))
        try:
            there = dict(json.loads(file.read_text("utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{file} is damaged ({error}): delete the folder to start again"
            ) from None
        for name in sorted(here.keys() | there.keys()):
            if there.get(name) != here.get(name):
                raise ValueError(
                    f"{folder} holds another selection ({name} = {there.get(name)}, here "
                    f"{here.get(name)}): choose another folder or delete it"
                )

    def read(self, place: int) -> list[dict[str, Any]] | None:
        """The records of cell `place`, or None if it is not finished, or damaged: then it is computed again."""
        file = self._file(place)
        if file is None or not file.exists():
            return None
        *lines, checksum = file.read_bytes().decode("utf-8", "replace").split("\n")
        if checksum != digests.text("\n".join(lines)):
            warnings.warn(f"{file} is damaged: this cell is computed again", stacklevel=3)
            return None
        return [json.loads(line) for line in lines]

    def write(self, place: int, records: list[dict[str, Any]]) -> None:
        """Keep the records of cell `place`, with their checksum in the last line."""
        file = self._file(place)
        if file is not None:
            lines = "\n".join(json.dumps(record, default=_named) for record in records)
            atomic.write_text(file, f"{lines}\n{digests.text(lines)}")

    def _file(self, place: int) -> pathlib.Path | None:
        return None if self._folder is None else self._folder / f"cell-{place:04d}.jsonl"


def _named(value: Any) -> str:
    return getattr(value, "__name__", repr(value))
