import dataclasses
import os
import pathlib
import signal
import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import pytest
from toys import quiet

import mfauc_jax as mf
from mfauc_jax.data import splits
from mfauc_jax.objective import losses
from mfauc_jax.training.loop import DivergedError

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(40, 3)) @ RNG.normal(size=(3, 30)) + 0.3 * RNG.normal(size=(40, 30))
X = quiet(np.quantile(TASTE, 0.7, axis=1, keepdims=True) < TASTE)
SPLIT = splits.hold_out(jax.random.key(0), X, 2)
QUICK = {"rank": 4, "progress": False}


def checkerboard(size):
    """Ones where i + j is even, the diagonal held out."""
    i, j = np.indices((size, size))
    return quiet(((i + j) % 2 == 0) & (i != j))


SOLVERS = {"alternating": 10, "minibatch": 150, "sequential": 100, "full_batch": 30}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("loss", losses.LOSSES)
def test_held_out_diagonal_of_a_checkerboard_is_recovered(loss, solver):
    if solver == "alternating" and loss != "square":
        with pytest.raises(ValueError, match="square loss"):
            mf.MFAUC(loss=loss, solver=solver).fit(checkerboard(6))
        return
    board = checkerboard(50)
    model = mf.MFAUC(
        rank=3,
        loss=loss,
        solver=solver,
        reg=1e-3,
        spread=0.0,
        user_power=0.0,
        beta=3.0,
        iterations=SOLVERS[solver],
        learning_rate=0.3,
        start_scale=0.5,
        average_start=SOLVERS[solver] // 2,
        progress=False,
    ).fit(board)
    items, _ = model.recommend(range(50), n=1)
    assert (items[:, 0] == np.arange(50)).all()


def test_the_defaults_learn_and_a_seed_fixes_the_bits():
    first = mf.MFAUC(**QUICK).fit(SPLIT.train)
    again = mf.MFAUC(**QUICK).fit(SPLIT.train)
    other = mf.MFAUC(seed=1, **QUICK).fit(SPLIT.train)
    assert (first.user_factors_ == again.user_factors_).all()
    assert (first.item_factors_ == again.item_factors_).all()
    assert not (first.user_factors_ == other.user_factors_).all()
    assert mf.evaluate(first, SPLIT.train, SPLIT.test)["auc"] > 0.85
    assert [r["iteration"] for r in first.history_] == list(range(1, 10))


@pytest.mark.parametrize("preset", [mf.MFAUC.paper, mf.MFAUC.authors])
def test_the_papers_model_learns(preset):
    model = preset(
        "logistic", learning_rate=0.2, iterations=60, average_start=30, progress=False
    ).fit(SPLIT.train)
    assert mf.evaluate(model, SPLIT.train, SPLIT.test)["auc"] > 0.8


def test_beta_may_rise():
    model = mf.MFAUC.paper(
        "sigmoid", beta=(0.5, 2.0, 5.0), learning_rate=0.5, iterations=60, progress=False
    )
    assert mf.evaluate(model.fit(SPLIT.train), SPLIT.train, SPLIT.test)["auc"] > 0.8
    with pytest.raises(ValueError, match="must rise"):
        mf.MFAUC(loss="sigmoid", beta=(2.0, 1.0)).fit(X)


def test_external_ids_go_in_and_come_out():
    users, items = np.nonzero(SPLIT.train.to_scipy().toarray())
    frame = pd.DataFrame({"user": [f"u{i}" for i in users], "item": items * 10})
    model = mf.MFAUC(**QUICK).fit(frame)
    ids, scores = model.recommend("u7", n=4)
    seen = frame[frame.user == "u7"].item
    assert ids.shape == scores.shape == (4,) and not set(ids) & set(seen)
    assert (np.diff(scores) <= 0).all()
    np.testing.assert_allclose(model.predict(["u7"] * 4, ids), scores, rtol=1e-6)
    plain = mf.MFAUC(**QUICK).fit(SPLIT.train)
    both = model.recommend(["u7", "u3"], n=5)[0], plain.recommend([7, 3], n=5)[0] * 10
    assert (np.sort(both[0]) == np.sort(both[1])).all()
    near, cosine = model.similar_items(50, n=3)
    assert 50 not in near and (np.abs(cosine) <= 1 + 1e-6).all()


def test_filters_and_lists_that_run_out():
    model = mf.MFAUC(**QUICK).fit(SPLIT.train)
    top, _ = model.recommend(3, n=5)
    without, _ = model.recommend(3, n=5, filter_items=top[:2])
    assert list(without[:3]) == list(top[2:])
    only, scores = model.recommend([3], n=5, allow_items=top[:2])
    assert list(only[0]) == [*top[:2], -1, -1, -1] and np.isneginf(scores[0, 2:]).all()
    everything, _ = model.recommend(3, n=30, exclude_seen=False)
    assert sorted(everything) == list(range(30))


def test_validation_keeps_the_best_and_patience_stops():
    seen = []
    model = mf.MFAUC(
        loss="square_hinge", learning_rate=0.5, iterations=60, patience=3, metric="auc", **QUICK
    )
    model.fit(SPLIT.train, validation=SPLIT.test, callbacks=[lambda s, f, r: seen.append(r["auc"])])
    assert model.stopped_ == "patience" and len(seen) < 60
    best = mf.evaluate(model, SPLIT.train, SPLIT.test)["auc"]
    assert best == pytest.approx(max(seen)) and best == pytest.approx(
        max(r["auc"] for r in model.history_)
    )


def test_epsilon_stops_and_callbacks_may_too():
    model = mf.MFAUC(tolerance=1e-3, iterations=200, **QUICK).fit(X)
    assert model.stopped_ == "converged" and len(model.history_) < 200
    assert all("objective" in r for r in model.history_)
    model = mf.MFAUC(iterations=50, **QUICK).fit(X, callbacks=[lambda s, f, r: s == 3])
    assert model.stopped_ == "callback" and len(model.history_) == 3


def test_control_c_returns_what_there_is():
    def interrupt(s, factors, record):
        if s == 4:
            raise KeyboardInterrupt

    model = mf.MFAUC(iterations=50, **QUICK).fit(X, callbacks=[interrupt])
    assert model.stopped_ == "interrupted" and len(model.history_) == 4
    assert np.isfinite(model.user_factors_).all()


def test_divergence_names_the_iteration_and_keeps_the_last_finite_factors():
    model = mf.MFAUC(loss="square", solver="sequential", learning_rate=1e3, reg=0.1, **QUICK)
    with pytest.raises(
        DivergedError, match=r"at iteration \d+.*learning_rate is 1000.0: try a tenth"
    ):
        model.fit(X)
    assert np.isfinite(model.user_factors_).all()


def test_params_are_fields_and_round_trip():
    model = mf.MFAUC(rank=7, loss="logistic")
    assert set(model.get_params()) == {f.name for f in dataclasses.fields(mf.MFAUC)}
    assert eval(repr(model), {"MFAUC": mf.MFAUC}) == model
    assert mf.MFAUC().set_params(**model.get_params()) == model
    with pytest.raises(ValueError, match="did you mean 'learning_rate'"):
        model.set_params(learning_rat=1)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: mf.MFAUC(rank=0).fit(X), ValueError, "rank = 0"),
        (lambda: mf.MFAUC(loss="squar").fit(X), ValueError, "did you mean 'square"),
        (lambda: mf.MFAUC(solver="altrnating").fit(X), ValueError, "did you mean 'alternating'"),
        (lambda: mf.MFAUC(reg=-1.0).fit(X), ValueError, "reg = -1.0"),
        (lambda: mf.MFAUC(reg="big").fit(X), ValueError, "neither a number nor 'auto'"),
        (lambda: mf.MFAUC(iterations=0).fit(X), ValueError, "iterations = 0"),
        (lambda: mf.MFAUC(start="zeros").fit(X), ValueError, "start = 'zeros'"),
        (
            lambda: mf.MFAUC(loss="logistic", learning_rate=-1.0).fit(X),
            ValueError,
            "learning_rate = -1",
        ),
        (
            lambda: mf.MFAUC(loss="logistic", optimiser="adm").fit(X),
            ValueError,
            "did you mean 'adam'",
        ),
        (lambda: mf.MFAUC().recommend(0), RuntimeError, "call fit"),
        (lambda: mf.MFAUC(**QUICK).fit(X).recommend(99), ValueError, "user 99 is outside"),
        (lambda: mf.MFAUC(**QUICK).fit(X).recommend("bob"), TypeError, "not a position"),
        (lambda: mf.MFAUC(**QUICK).fit(X).recommend(0, n=0), ValueError, "n = 0"),
        (
            lambda: mf.MFAUC(**QUICK).fit((["a", "b", "b"], [1, 2, 3])).recommend("zed"),
            ValueError,
            "unknown user 'zed'",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:interactions")
def test_bad_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


FIT = """
import sys, time, numpy as np, jax
import mfauc_jax as mf
rng = np.random.default_rng(0)
X = mf.Interactions.of((rng.random((60, 40)) < .3).astype(float))
slow = float(sys.argv[2])
model = mf.MFAUC(rank=4, loss="logistic", iterations=12, checkpoint_dir=sys.argv[1] or None,
                 checkpoint_every=2, average_start=3, progress=False)
model.fit(X, callbacks=[lambda s, f, r: (print(s, flush=True), time.sleep(slow))[1]])
np.savez(sys.argv[3], U=model.user_factors_, V=model.item_factors_, n=len(model.history_))
"""


def test_kill_and_resume_gives_the_same_bits(tmp_path):
    script = tmp_path / "fit.py"
    script.write_text(FIT)
    root = str(pathlib.Path(mf.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": root}

    def command(folder, slow, out):
        return [sys.executable, str(script), str(folder), slow, str(out)]

    victim = subprocess.Popen(
        command(tmp_path / "states", "0.4", tmp_path / "a.npz"),
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.stdout is not None
    for line in victim.stdout:
        if line.strip() == "7":
            break
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL and not (tmp_path / "a.npz").exists()
    resumed = subprocess.run(
        command(tmp_path / "states", "0", tmp_path / "b.npz"),
        env=env,
        check=True,
        capture_output=True,
        text=True,
    )
    assert resumed.stdout.split()[0] == "7"  # from the state after 6, not from the start
    subprocess.run(command("", "0", tmp_path / "c.npz"), env=env, check=True, capture_output=True)
    resumed_run, whole = np.load(tmp_path / "b.npz"), np.load(tmp_path / "c.npz")
    assert (resumed_run["U"] == whole["U"]).all() and (resumed_run["V"] == whole["V"]).all()
    assert resumed_run["n"] == whole["n"] == 12


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    mf.MFAUC(checkpoint_dir=str(tmp_path), iterations=2, **QUICK).fit(X)
    with pytest.raises(ValueError, match="holds another fit .rank = 4, here 5"):
        mf.MFAUC(checkpoint_dir=str(tmp_path), iterations=2, rank=5, progress=False).fit(X)
