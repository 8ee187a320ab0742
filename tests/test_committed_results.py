"""The committed figures are what the committed records draw."""

import importlib
import pathlib

import matplotlib.image
import numpy as np
import pytest

from experiments import regenerate, results

FOLDER = pathlib.Path(regenerate.__file__).parent / "results"
DRAWN = [
    name
    for name in regenerate.ARTEFACTS
    if name not in regenerate.TEXT_ONLY and (FOLDER / f"{name}.jsonl").exists()
]


@pytest.mark.parametrize("name", DRAWN)
def test_draw_alone_reproduces_the_committed_figure(name, tmp_path):
    module = importlib.import_module(f"experiments.{name}")
    for path in module.draw(results.read(FOLDER / f"{name}.jsonl"), tmp_path):
        committed = FOLDER / path.name
        assert committed.exists()
        if path.suffix == ".png":
            ours, theirs = (matplotlib.image.imread(p) for p in (path, committed))
            assert ours.shape == theirs.shape
            assert np.abs(ours - theirs).mean() < 0.01  # another matplotlib may smooth otherwise


def test_the_committed_report_has_every_artefact_with_records():
    text = (FOLDER / "RESULTS.md").read_text()
    for name in DRAWN:
        assert f"({name}.png)" in text
    assert "data:image/png;base64," in (FOLDER / "report.html").read_text()
