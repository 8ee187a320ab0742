import os
import pathlib
import signal
import subprocess
import sys
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from toys import quiet

import mfauc_jax as mf
from mfauc_jax import Alternating, Averaging, FullBatch, Minibatch, Sequential, Watch, losses
from mfauc_jax.data import splits
from mfauc_jax.training.loop import DivergedError

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(40, 3)) @ RNG.normal(size=(3, 30)) + 0.3 * RNG.normal(size=(40, 30))
X = quiet(np.quantile(TASTE, 0.7, axis=1, keepdims=True) < TASTE)
SPLIT = splits.hold_out(jax.random.key(0), X, 2)


def checkerboard(size):
    """Ones where i + j is even, the diagonal held out."""
    i, j = np.indices((size, size))
    return quiet(((i + j) % 2 == 0) & (i != j))


LOSSES = (losses.square_hinge, losses.square, losses.Sigmoid(beta=3.0), losses.Logistic(beta=3.0))
SOLVERS = (
    Alternating(10),
    Minibatch(150, learning_rate=0.3, average=Averaging(75)),
    Sequential(100, learning_rate=0.3, average=Averaging(50)),
    FullBatch(30),
)


def named(part):
    return part.name


@pytest.mark.parametrize("solver", SOLVERS, ids=named)
@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_held_out_diagonal_of_a_checkerboard_is_recovered(loss, solver):
    if isinstance(solver, Alternating) and loss is not losses.square:
        with pytest.raises(ValueError, match=f"square loss, not {loss.name}: use solver="):
            mf.MFAUC(loss=loss, solver=solver)
        return
    model = mf.MFAUC(
        rank=3,
        loss=loss,
        weights=mf.Weights(user_power=0.0),
        penalty=mf.Fixed(reg=1e-3),
        solver=solver,
        start=mf.Gaussian(scale=0.5),
    ).fit(checkerboard(50))
    items, _ = model.recommend(range(50), n=1)
    assert (items[:, 0] == np.arange(50)).all()


def test_the_defaults_learn_and_a_seed_fixes_the_bits():
    first, again = (mf.MFAUC(rank=4).fit(SPLIT.train) for _ in range(2))
    other = mf.MFAUC(rank=4, seed=1).fit(SPLIT.train)
    assert (first.user_factors_ == again.user_factors_).all()
    assert (first.item_factors_ == again.item_factors_).all()
    assert not (first.user_factors_ == other.user_factors_).all()
    assert mf.evaluate(first, SPLIT.train, SPLIT.test)["auc"] > 0.85
    assert [r["iteration"] for r in first.history_] == list(range(1, 5))


@pytest.mark.parametrize("preset", [mf.MFAUC.paper, mf.MFAUC.authors])
def test_the_papers_model_learns(preset):
    changes = {"learning_rate": 0.2, "iterations": 60, "average__start": 30}
    model = preset("logistic", **{f"solver__{name}": value for name, value in changes.items()})
    model.fit(SPLIT.train)
    assert mf.evaluate(model, SPLIT.train, SPLIT.test)["auc"] > 0.8


def test_beta_may_rise():
    inner = Sequential(60, learning_rate=0.5, average=Averaging(30, eta=0.0))
    model = mf.MFAUC.paper("sigmoid", solver=mf.Continuation(inner, betas=(0.5, 2.0, 5.0)))
    assert mf.evaluate(model.fit(SPLIT.train), SPLIT.train, SPLIT.test)["auc"] > 0.8
    with pytest.raises(ValueError, match=r"betas = \(2.0, 1.0\) must be a rising tuple"):
        mf.Continuation(betas=(2.0, 1.0))
    with pytest.raises(ValueError, match="the loss square has no β to raise"):
        mf.MFAUC(loss="square", solver=mf.Continuation())


def test_each_beta_has_its_share_of_the_iterations():
    """Four iterations at β = 1 and four at 2 are a fit at 1, gone on with at 2 from its state."""
    inner = Minibatch(8, batch=16, average=Averaging(100))  # the averages are the factors
    rising = mf.MFAUC(rank=4, loss="logistic", solver=mf.Continuation(inner, betas=(1.0, 2.0)))
    seen = []
    rising.fit(X, callbacks=[lambda s, found, record: seen.append(found.U)])
    first = mf.MFAUC(rank=4, loss=losses.Logistic(beta=1.0), solver=inner)
    alone = []
    first.fit(X, callbacks=[lambda s, found, record: alone.append(found.U)])
    np.testing.assert_array_equal(seen[3], alone[3])
    assert np.abs(np.asarray(seen[4] - alone[4])).max() > 1e-6
    assert len(rising.history_) == 8


def test_external_ids_go_in_and_come_out():
    users, items = np.nonzero(SPLIT.train.to_scipy().toarray())
    frame = pd.DataFrame({"user": [f"u{i}" for i in users], "item": items * 10})
    model = mf.MFAUC(rank=4).fit(frame)
    ids, scores = model.recommend("u7", n=4)
    seen = frame[frame.user == "u7"].item
    assert ids.shape == scores.shape == (4,) and not set(ids) & set(seen)
    assert (np.diff(scores) <= 0).all()
    np.testing.assert_allclose(model.predict(["u7"] * 4, ids), scores, rtol=1e-6)
    plain = mf.MFAUC(rank=4).fit(SPLIT.train)
    both = model.recommend(["u7", "u3"], n=5)[0], plain.recommend([7, 3], n=5)[0] * 10
    assert (np.sort(both[0]) == np.sort(both[1])).all()
    near, cosine = model.similar_items(50, n=3)
    assert 50 not in near and (np.abs(cosine) <= 1 + 1e-6).all()


def test_filters_and_lists_that_run_out():
    model = mf.MFAUC(rank=4).fit(SPLIT.train)
    top, _ = model.recommend(3, n=5)
    without, _ = model.recommend(3, n=5, filter_items=top[:2])
    assert list(without[:3]) == list(top[2:])
    only, scores = model.recommend([3], n=5, allow_items=top[:2])
    assert list(only[0]) == [*top[:2], -1, -1, -1] and np.isneginf(scores[0, 2:]).all()
    everything, _ = model.recommend(3, n=30, exclude_seen=False)
    assert sorted(everything) == list(range(30))


def test_epsilon_stops_and_callbacks_may_too():
    model = mf.MFAUC(rank=4, solver=Alternating(200)).fit(X, watch=Watch(tolerance=1e-3))
    assert model.stopped_ == "converged" and len(model.history_) < 200
    assert all("objective" in r for r in model.history_)
    model = mf.MFAUC(rank=4, solver=Alternating(50)).fit(X, callbacks=[lambda s, f, r: s == 3])
    assert model.stopped_ == "callback" and len(model.history_) == 3


def test_control_c_returns_what_there_is():
    def interrupt(s, factors, record):
        if s == 4:
            raise KeyboardInterrupt

    model = mf.MFAUC(rank=4, solver=Alternating(50)).fit(X, callbacks=[interrupt])
    assert model.stopped_ == "interrupted" and len(model.history_) == 4
    assert np.isfinite(model.user_factors_).all()


def test_divergence_names_the_iteration_and_keeps_the_last_finite_factors():
    model = mf.MFAUC(rank=4, penalty=mf.Fixed(), solver=Sequential(learning_rate=1e3))
    with pytest.raises(
        DivergedError, match=r"at iteration \d+.*learning_rate is 1000.0: try a tenth"
    ):
        model.fit(X)
    assert np.isfinite(model.user_factors_).all()


def test_a_fit_that_the_machine_cannot_hold_is_refused_before_it_begins(monkeypatch):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**22}  # 17 GB
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    with pytest.raises(
        ValueError, match=r"24 users, 30 items and rank 65536 needs about 69 GB, and"
    ):
        mf.MFAUC(rank=2**16).fit(X.take(np.arange(24)))
    wide = mf.Interactions.from_csr([0, 2], [3, 10], 2**31 - 2)
    with pytest.raises(
        ValueError, match="this machine has 17 GB: choose a lower rank, or leave out"
    ):
        mf.MFAUC(rank=2).fit(wide)
    mf.MFAUC(rank=4, solver=Alternating(1)).fit(X)


@pytest.mark.parametrize(
    ("penalty", "named"),
    [
        (mf.Fixed(reg=1e4), r"Fixed\(reg=10000.0\)"),
        (mf.Auto(strength=100.0), r"Auto\(strength=100.0\)"),
    ],
)
def test_scores_that_are_all_zero_are_said(penalty, named):
    with pytest.warns(UserWarning, match=f"every score is about zero .*{named} outweighs these"):
        mf.MFAUC(rank=4, penalty=penalty).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mf.MFAUC(rank=4).fit(X)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: mf.MFAUC(rank=0), ValueError, "MFAUC: rank = 0 must be a whole number ≥ 1"),
        (lambda: mf.MFAUC(loss="squar"), ValueError, "did you mean 'square"),
        (lambda: mf.MFAUC(solver="altrnating"), ValueError, "did you mean 'alternating'"),
        (
            lambda: mf.MFAUC(penalty="fixd"),
            ValueError,
            "one of fixed, unit_rows, auto .did you mean 'fixed'",
        ),
        (lambda: mf.MFAUC(start="zeros"), ValueError, "start = 'zeros' must be one of gaussian"),
        (lambda: mf.MFAUC(reg=0.1), TypeError, r"no field 'reg' .*it belongs to Fixed\(reg=0.1\)"),
        (lambda: mf.MFAUC(rang=3), TypeError, "did you mean 'rank'"),
        (lambda: mf.MFAUC().recommend(0), RuntimeError, "call fit"),
        (lambda: mf.MFAUC(rank=4).fit(X).recommend(99), ValueError, "user 99 is outside"),
        (lambda: mf.MFAUC(rank=4).fit(X).recommend("bob"), TypeError, "not a position"),
        (lambda: mf.MFAUC(rank=4).fit(X).recommend(0, n=0), ValueError, "n = 0"),
        (
            lambda: mf.MFAUC(rank=4).fit((["a", "b", "b"], [1, 2, 3])).recommend("zed"),
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
model = mf.MFAUC(rank=4, loss="logistic", solver=mf.Minibatch(12, average=mf.Averaging(3)))
states = mf.Checkpoints(sys.argv[1], every=2) if sys.argv[1] else None
say = lambda s, f, r: (print(s, flush=True), time.sleep(slow))[1]
model.fit(X, checkpoints=states, callbacks=[say])
np.savez(sys.argv[3], U=model.user_factors_, V=model.item_factors_, n=len(model.history_))
"""


def test_kill_and_resume_gives_the_same_bits(tmp_path):
    script = tmp_path / "fit.py"
    script.write_text(FIT)
    root = str(pathlib.Path(mf.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": root}

    def command(folder, slow, out):
        return [sys.executable, str(script), str(folder), slow, str(out)]

    whole = subprocess.Popen(
        command("", "0", tmp_path / "c.npz"), env=env, stdout=subprocess.DEVNULL
    )  # beside the victim: imports take long
    victim = subprocess.Popen(
        command(tmp_path / "states", "0.2", tmp_path / "a.npz"),
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
    assert whole.wait(120) == 0
    after, alone = np.load(tmp_path / "b.npz"), np.load(tmp_path / "c.npz")
    assert (after["U"] == alone["U"]).all() and (after["V"] == alone["V"]).all()
    assert after["n"] == alone["n"] == 12


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    states, short = mf.Checkpoints(tmp_path, every=1), mf.MFAUC(rank=4, solver=Alternating(2))
    short.fit(X, checkpoints=states)
    with pytest.raises(ValueError, match="holds another fit .rank = 4, here 5"):
        short.with_params(rank=5).fit(X, checkpoints=states)
    with pytest.raises(ValueError, match="holds another fit .*user_steps"):
        short.with_params(solver__user_steps=3).fit(X, checkpoints=tmp_path)
    longer = short.with_params(solver__iterations=3).fit(X, checkpoints=states)
    whole = mf.MFAUC(rank=4, solver=Alternating(3)).fit(X)
    assert [r["iteration"] for r in longer.history_] == [1, 2, 3]  # T is no part of what a fit is
    np.testing.assert_array_equal(longer.user_factors_, whole.user_factors_)
