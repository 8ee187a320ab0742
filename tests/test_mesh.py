"""The alternating route on 1, 2 and 4 devices, and across processes: the same factors, whatever the layout."""

import logging
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from processes import matrix
from test_distributed import finish, start
from toys import quiet, random_factors

from mfauc_jax import (
    MFAUC,
    Alternating,
    Checkpoints,
    Problem,
    Watch,
    evaluate,
    selection,
    use_cores,
)
from mfauc_jax._core import cores, programs
from mfauc_jax.data import ragged, splits
from mfauc_jax.objective import equation, weightings
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import alternating, base

RNG = np.random.default_rng(3)
DENSE = RNG.random((60, 30)) < np.linspace(0.6, 0.05, 60)[:, None]  # sorted by activity
DENSE[0], DENSE[30], DENSE[59] = False, True, False  # unusable users, at both ends too
X = quiet(DENSE)
REG = Reg(RNG.random(60), RNG.random(30))
SPREAD = RNG.random(60)
AT = random_factors(0, X)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Enough chunks that every device has some."""
    monkeypatch.setattr(alternating, "BUDGET", 128)


def swept(devices, problem, sweeps=1, shard_items=None):
    solver = Alternating(devices=devices, shard_items=shard_items)
    data, state = solver.prepare(problem), solver.init(problem, AT)
    seen = solver.seen_by_step(problem)
    for _ in range(sweeps):
        state, info = base.run(solver, seen, jax.random.key(0), state, data)
    return solver.read(state, AT), float(info.step_size)


def close(found, wanted, tolerance):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


def test_runs_of_users_are_even_in_chunks_and_lose_nobody():
    """Kills: rows counted from the first device's, chunks dealt to one device, empty rows dropped."""
    for devices in (1, 2, 3, 4):
        tiling = ragged.tiling(X, 128, devices)
        tiles = ragged.tiles(X, tiling, np.ones(X.nnz))
        assert tiling.rows.sum() == 60 and np.ptp(tiling.chunks) <= 1
        first, found = np.cumsum(tiling.rows) - tiling.rows, []
        items, ones = (
            np.asarray(a).reshape(*tiles.local.shape, -1) for a in (tiles.items, *tiles.values)
        )
        parts = [np.split(np.asarray(a), devices) for a in (tiles.rows, tiles.local, items)]
        real = np.split(ones > 0, devices)
        for d, (rows, local, items) in enumerate(zip(*parts, strict=True)):
            owner = np.take_along_axis(rows, local, 1)[:, :, None] + np.zeros_like(items)
            assert not real[d][tiling.chunks[d] :].any()
            found += list(zip(owner[real[d]] + first[d], items[real[d]], strict=True))
        assert sorted(found) == sorted(zip(*np.nonzero(DENSE), strict=True))


@pytest.mark.parametrize("phi", [weightings.identity, weightings.Tanh(rho=0.7)])
def test_a_sweep_is_the_same_on_any_number_of_devices(phi):
    """Kills: any sum over users that stays on its device, λ_i or σ_i of another user, a lost ĝ."""
    objective = equation.make("square", phi, reg=REG, spread=SPREAD)
    problem = Problem(X, Weights(0.5, None, user_power=0.5).of(X), objective)
    alone, change = swept(1, problem)
    for devices in (2, 3, 4):
        found, its_change = swept(devices, problem)
        close(found, alone, 1e-12)
        assert its_change == pytest.approx(change, rel=1e-10)
        assert not np.asarray(found.U)[[0, 30, 59]].any()
    fixed = problem.minimising(equation.make("square", phi, reg=0.3, spread=0.2))
    close(swept(4, fixed, 3)[0], swept(1, fixed, 3)[0], 1e-11)


@pytest.mark.parametrize("users", [60, 3])
def test_a_whole_fit_is_the_same_on_any_number_of_devices(users):
    """Also with fewer users than devices."""
    rows = quiet(DENSE[5 : 5 + users])
    fits = {d: MFAUC(4, solver=Alternating(devices=d)).fit(rows) for d in (1, 2, 4)}
    for devices in (2, 4):
        close(fits[devices].factors_, fits[1].factors_, 1e-9)
        again = MFAUC(4, solver=Alternating(devices=devices)).fit(rows)
        for a, b in zip(again.factors_, fits[devices].factors_, strict=True):
            np.testing.assert_array_equal(a, b)  # a seed gives bits, on a mesh too


def test_the_number_of_devices_follows_the_positives(monkeypatch):
    solver = Alternating()
    assert solver.mesh(X).size == 1
    monkeypatch.setattr(alternating, "PER_DEVICE", X.nnz // 3)
    assert solver.mesh(X).size == 3
    monkeypatch.setattr(alternating, "PER_DEVICE", 1)
    assert solver.mesh(X).size == len(jax.devices()) == 4
    assert MFAUC(4).fit(X).factors_.U.shape == (60, 4)
    with pytest.raises(ValueError, match=r"devices = 9 must be in 1 … 4"):
        Alternating(devices=9).mesh(X)


def test_a_state_goes_on_on_another_number_of_devices(tmp_path):
    def model(devices, sweeps=6):
        return MFAUC(4, solver=Alternating(sweeps, devices=devices))

    whole = model(1).fit(X)
    model(4, 3).fit(X, checkpoints=Checkpoints(str(tmp_path), every=1))
    for devices in (1, 2):
        kept = Checkpoints(str(tmp_path), every=3)
        resumed = model(devices, 4 + devices).fit(X, checkpoints=kept)
        assert len(resumed.history_) == 4 + devices
    close(resumed.factors_, whole.factors_, 1e-9)
    straight, folder = model(4).fit(X), Checkpoints(str(tmp_path / "b"), every=2)
    model(4).fit(X, checkpoints=folder, callbacks=[lambda s, *_: s == 2])
    again = model(4).fit(X, checkpoints=folder)
    for a, b in zip(again.factors_, straight.factors_, strict=True):
        np.testing.assert_array_equal(a, b)  # on the same number: the same bits


def test_what_surrounds_a_fit_is_the_same_on_four_devices():
    """partial_fit, records, validation, a grid as one program."""
    train, test = splits.hold_out(jax.random.key(0), X, per_user=2)
    ends = []
    for devices in (1, 4):
        model = MFAUC(4, solver=Alternating(4, devices=devices))
        model.fit(train, test, watch=Watch(metric="auc", record_every=1))
        values = [model.history_[-1]["objective"], evaluate(model, train, test)["auc"]]
        model.partial_fit((np.array([60, 60, 2]), np.array([3, 5, 29])))
        grid = {"penalty__reg": [0.1, 1.0]}
        chosen = MFAUC(4, penalty="fixed", solver=Alternating(3, devices=devices))
        found = selection.select(0, chosen, X, grid, splits=2, per_user=2, progress=False)
        ends.append((model.factors_, values + [row["mean"] for row in found.means()]))
    close(ends[1][0], ends[0][0], 1e-9)
    np.testing.assert_allclose(ends[1][1], ends[0][1], rtol=1e-9)


def test_cores_are_one_call(caplog, monkeypatch):
    """Kills: a call that comes too late and says nothing, cores counted beyond the process's own, a silent idle core."""
    assert use_cores(4) == 4  # what JAX has started with
    with pytest.raises(RuntimeError, match="started with 4 CPU devices, and use_cores.3. comes"):
        use_cores(3)
    with pytest.raises(ValueError, match="cores = 0 must be ≥ 1"):
        use_cores(0)
    assert 1 <= cores.count() <= len(os.sched_getaffinity(0))
    monkeypatch.setenv("NPROC", "1")
    assert cores.count() == 1
    code = (
        "import mfauc_jax as mf, jax; print(mf.use_cores(3), mf.use_cores(3), len(jax.devices()))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout.split() == [b"3", b"3", b"3"]
    monkeypatch.setattr(alternating, "PER_DEVICE", X.nnz // 6)
    for cores_here, lines in ((6, 1), (4, 0)):
        caplog.clear()
        monkeypatch.setattr(cores, "count", lambda count=cores_here: count)
        with caplog.at_level(logging.INFO, "mfauc_jax"):
            MFAUC(4, solver=Alternating(1)).fit(X)
        said = [r.getMessage() for r in caplog.records if "cores" in r.getMessage()]
        assert len(said) == lines
    assert not said


TOGETHER = 1e-9


@pytest.mark.parametrize(("devices", "shard_items"), [(1, None), (2, None), (2, True)])
def test_two_processes_find_what_one_finds(tmp_path, monkeypatch, devices, shard_items):
    if shard_items:
        monkeypatch.setattr(programs, "item_rows", lambda count: count)
    wanted = MFAUC(3, solver=Alternating(6, devices=1)).fit(matrix())
    options = {"solver": "alternating", "devices": devices, "folder": str(tmp_path / "states")}
    options["shard_items"] = shard_items
    ends = finish(start(tmp_path, 2, **options))
    assert [code for code, _ in ends] == [0, 0], ends[0][1][-3000:]
    parts = [np.load(tmp_path / f"{i}.npz") for i in range(2)]
    U = np.empty_like(wanted.factors_.U)
    for part in parts:
        U[part["users"]] = part["U"]
        np.testing.assert_array_equal(part["V"], parts[0]["V"])
    close((U, parts[0]["V"]), wanted.factors_, TOGETHER)
    longer = MFAUC(3, solver=Alternating(8, devices=2))
    order = np.concatenate([part["users"] for part in parts])
    kept = Checkpoints(options["folder"], every=2)  # the states of two processes, in one
    resumed = longer.with_params().fit(matrix()[order], checkpoints=kept)
    assert len(resumed.history_) == 8
    close(resumed.factors_, longer.fit(matrix()[order]).factors_, TOGETHER)
