"""How every figure looks, and how it is saved: PNG and PDF, the same bytes for the same records."""

import logging
import pathlib
import textwrap
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from mfauc_jax._core import atomic

STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.dpi": 200,
}
# Okabe and Ito's palette, distinct for every common kind of colour vision; dashes and markers tell
# the lines apart in grey
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
MARKERS = "os^Dv*P"
LETTERS_PER_INCH = 15.5  # of a caption, at 8 points


def line(place: int) -> dict:
    """Colour and dashes of the line at `place`, for `plot`."""
    return {"color": COLOURS[place % 7], "linestyle": DASHES[place % 7]}


def panels(
    columns: int, rows: int = 1, *, width: float = 4.1, height: float | list[float] = 3.4
) -> tuple[Figure, Any]:
    """A figure of panels of `width` × `height` inches (or one height a row), and its axes [r, c]."""
    plt.rcParams.update(STYLE)  # pyright: ignore
    heights = height if isinstance(height, list) else [height] * rows
    return plt.subplots(
        rows,
        columns,
        figsize=(width * columns, sum(heights)),
        layout="constrained",
        squeeze=False,
        height_ratios=heights,
    )


def save(
    figure: Figure, out: str | pathlib.Path, name: str, caption: str = ""
) -> list[pathlib.Path]:
    """`out/name.png` and `.pdf`, the caption below the panels; without dates, so that drawing again changes nothing."""
    if caption:
        lines = textwrap.wrap(caption, int(LETTERS_PER_INCH * figure.get_figwidth()))
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # panels and legends stay where they are
        for legend in figure.legends:
            box = legend.get_window_extent().transformed(figure.transFigure.inverted())
            legend.set_bbox_to_anchor((box.x0 + box.width / 2, box.y0), figure.transFigure)
            legend.set_loc("lower center")
            legend.borderaxespad = 0
        low = (figure.get_tightbbox().y0 - 0.1) / figure.get_figheight()
        figure.text(0.01, low, "\n".join(lines), ha="left", va="top", fontsize=8)
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells every glyph
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    paths = [pathlib.Path(out) / f"{name}.{suffix}" for suffix in ("png", "pdf")]
    for path, metadata in zip(paths, ({"Software": None}, {"CreationDate": None}), strict=True):
        atomic.save_figure(figure, path, bbox_inches="tight", metadata=metadata)
    plt.close(figure)
    return paths
