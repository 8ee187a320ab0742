import subprocess
import sys

import matplotlib as mpl

mpl.use("Agg")
import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
from toys import quiet, random_factors

from mfauc_jax import plots
from mfauc_jax.data import splits
from mfauc_jax.evaluation import curves

RNG = np.random.default_rng(0)
X = quiet(RNG.random((40, 30)) < 0.3)
TRAIN, TEST = splits.hold_out(jax.random.key(0), X, 2)
ONLY_FIRST, ONLY_LAST = (quiet(np.outer(np.arange(40) == i, np.arange(30) < 3)) for i in (0, 39))
FACTORS = random_factors(0, X)
HISTORY = [
    {
        "iteration": s,
        "seconds": s / 10,
        "step_size": 1 / s,
        "auc": 0.5 + 0.1 * (s - 3 if s < 6 else 0),
    }
    for s in range(1, 8)
]


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def named_lines(ax):
    return [line for line in ax.lines if not line.get_label().startswith("_")]


def test_learning_curves_hold_the_history_and_mark_the_best():
    ax = plots.learning_curves(HISTORY)
    assert ax.get_xlabel() == "iteration" and ax.get_ylabel() == "validation metric"
    (curve,) = named_lines(ax)
    np.testing.assert_array_equal(curve.get_ydata(), [r["auc"] for r in HISTORY])
    assert "AUC, best 0.7000" in curve.get_label()
    assert (5, 0.7) in [tuple(np.ravel(line.get_xydata()).round(9)) for line in ax.lines[1:]]
    plain = [{k: v for k, v in r.items() if k != "auc"} for r in HISTORY]
    ax = plots.learning_curves(plain, against="seconds")
    assert ax.get_ylabel() == "relative step size" and ax.get_xlabel() == "time (seconds)"


def test_roc_is_the_metric_and_a_second_curve_differs_in_colour_and_line():
    ax = plots.roc(FACTORS, TRAIN, TEST, label="one")
    assert plots.roc(random_factors(1, X), TRAIN, TEST, ax, label="two") is ax
    first, second = named_lines(ax)
    np.testing.assert_array_equal(first.get_ydata(), curves.roc(FACTORS, TRAIN, TEST).tpr)
    assert (
        first.get_color() != second.get_color() and first.get_linestyle() != second.get_linestyle()
    )
    area = np.nanmean(curves.auc(FACTORS, TRAIN, TEST))
    assert f"one of 40 users, AUC {area:.3f}" == first.get_label()
    assert ax.get_xlabel() and ax.get_ylabel()


def test_activity_has_a_dot_a_user_and_a_median_a_group():
    ax = plots.auc_against_activity(FACTORS, TRAIN, TEST, bins=3)
    dots = ax.lines[0]
    auc = curves.auc(FACTORS, TRAIN, TEST)
    np.testing.assert_array_equal(dots.get_ydata(), auc)
    np.testing.assert_array_equal(dots.get_xdata(), TRAIN.row_lengths)
    medians = ax.lines[1].get_ydata()
    assert 1 <= len(medians) <= 3 and auc.min() <= medians.min() <= medians.max() <= auc.max()
    one = quiet(np.eye(30))  # all alike: one group
    plots.auc_against_activity(random_factors(0, one), one, quiet(np.roll(np.eye(30), 1, 1)))


def test_exposure_counts_every_place_of_every_list():
    ax = plots.popularity_against_exposure(FACTORS, TRAIN, n=4, label="random")
    items = named_lines(ax)[1]
    assert items.get_ydata().sum() == 40 * 4
    assert items.get_xdata().sum() == TRAIN.nnz
    assert items.get_label().startswith("random: ")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: plots.learning_curves([]), "history is empty"),
        (lambda: plots.learning_curves(HISTORY, ["ndcg"]), "'ndcg' was not recorded: choose from"),
        (
            lambda: plots.auc_against_activity(FACTORS, ONLY_FIRST, ONLY_LAST),
            "both training and held-out",
        ),
    ],
)
def test_nothing_to_draw_is_said(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_matplotlib_and_other_slow_modules_wait_for_their_use():
    slow = (
        "matplotlib",
        "polars",
        "pandas",
        "orbax.checkpoint",
        "scipy.stats",
        "safetensors",
        "sklearn",
    )
    code = (
        f"import sys, mfauc_jax, mfauc_jax.plots; print([m for m in {slow!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
