"""The alternating route with V split by items over 1, 2, 3 and 4 devices: the factors of one device."""

import jax
import numpy as np
import pytest
from test_mesh import AT, DENSE, REG, SPREAD, X, close, swept
from toys import quiet

from mfauc_jax import MFAUC, Alternating, Checkpoints, Problem, selection
from mfauc_jax._core import programs
from mfauc_jax.objective import equation, weightings
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import alternating, base


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Enough chunks and few enough rows of padding that every device has users and items."""
    monkeypatch.setattr(alternating, "BUDGET", 128)
    monkeypatch.setattr(programs, "item_rows", lambda count: count)


def split(devices, iterations=4, shard_items=True, **parts):
    return MFAUC(
        4, solver=Alternating(iterations, devices=devices, shard_items=shard_items), **parts
    )


def problem_of(phi, **penalties):
    return Problem(
        X, Weights(0.5, None, user_power=0.5).of(X), equation.make("square", phi, **penalties)
    )


@pytest.mark.parametrize("phi", [weightings.identity, weightings.Tanh(rho=0.7)])
def test_a_sweep_is_that_of_one_device(phi):
    """Kills: a sum over items of one device, λ_j or b_j of another item, a gradient that goes to another's rows."""
    problem = problem_of(phi, reg=REG, spread=SPREAD)
    alone, change = swept(1, problem)
    for devices in (2, 3, 4):  # 30 items: the last of 4 devices has two rows of padding
        found, its_change = swept(devices, problem, shard_items=True)
        close(found, alone, 1e-12)
        assert its_change == pytest.approx(change, rel=1e-10)
    fixed = problem_of(phi, reg=0.3, spread=0.2)
    close(swept(4, fixed, 3, shard_items=True)[0], swept(1, fixed, 3)[0], 1e-11)


@pytest.mark.parametrize("items", [30, 3])
def test_a_whole_fit_is_that_of_one_device(items):
    """From the spectral start, also with fewer items than devices."""
    rows = quiet(DENSE[:, :items])
    alone = split(1).fit(rows).factors_
    for devices in (2, 4):
        found = split(devices).fit(rows).factors_
        close(found, alone, 1e-9)
        assert all(len(F.devices()) == 1 for F in found)  # as serving wants them
        again = split(devices).fit(rows).factors_
        for a, b in zip(again, found, strict=True):
            np.testing.assert_array_equal(a, b)  # a seed gives bits


def test_a_padded_fit_is_that_of_one_device(monkeypatch):
    """With the library's own grid of sizes most devices have padding only."""
    monkeypatch.undo()
    close(split(4).fit(X).factors_, split(1).fit(X).factors_, 1e-9)


def test_a_state_goes_on_with_v_whole_or_split_on_another_number_of_devices(tmp_path):
    """Kills: a state with the padding of its devices, or with one device's items."""
    kept = Checkpoints(str(tmp_path), every=1)
    split(4, 2).fit(X, checkpoints=kept)
    split(3, 3).fit(X, checkpoints=kept)
    split(2, 4, shard_items=False).fit(X, checkpoints=kept)
    split(4, 5).fit(X, checkpoints=kept)
    resumed = split(1, 6).fit(X, checkpoints=kept)
    assert len(resumed.history_) == 6
    close(resumed.factors_, split(1, 6).fit(X).factors_, 1e-9)


def test_a_grid_as_one_program_is_that_of_one_device():
    grid, means = {"penalty__reg": [0.1, 1.0]}, []
    for devices in (1, 4):
        chosen = split(devices, 3, penalty="fixed")
        found = selection.select(0, chosen, X, grid, splits=2, per_user=2, progress=False)
        means.append([row["mean"] for row in found.means()])
    np.testing.assert_allclose(means[1], means[0], rtol=1e-9)


def test_every_device_keeps_its_part_of_what_has_a_row_per_item(monkeypatch):
    """Kills: a V that is whole on each device after a step, a sum of whole gradients, a bound that is not read."""
    problem = problem_of(weightings.identity, reg=REG)

    def compiled(solver):
        data, state = solver.prepare(problem), solver.init(problem, AT)
        args = solver, solver.seen_by_step(problem), jax.random.key(0), state, data
        after, _ = base.run(*args)
        return base.run.lower(*args).compile(), data, after.factors.V

    def parts(values):
        return {shard.data.shape for shard in values.addressable_shards}

    program, data, V = compiled(Alternating(devices=2, shard_items=True))
    assert parts(V) == {(15, 3)} and parts(data.b) == parts(data.weight) == {(15,)}
    text = program.as_text()
    assert "reduce-scatter" in text and "all-gather" in text
    assert not any("all-reduce(" in line and "[30,3]" in line for line in text.splitlines())
    whole, _, V = compiled(Alternating(devices=2))
    assert parts(V) == {(30, 3)} and "all-gather" not in whole.as_text()
    monkeypatch.setattr(alternating, "MANY_ITEMS", 29)
    assert parts(compiled(Alternating(devices=2))[2]) == {(15, 3)}
    assert parts(compiled(Alternating(devices=2, shard_items=False))[2]) == {(30, 3)}
    assert parts(compiled(Alternating(devices=1, shard_items=True))[2]) == {(30, 3)}
