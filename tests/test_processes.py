"""Records, validation, early stops, metrics, selections, files and states of two processes are those of one."""

import json
import pathlib
import shutil

import numpy as np
import polars as pl
import pytest
import surroundings
from processes import matrix, model
from test_distributed import finish, start, together

from mfauc_jax import MFAUC, Alternating, Checkpoints
from mfauc_jax.data import shards

TOLERANCE = 1e-9  # float64; sums over processes are added in another order


def close(found, wanted, path=""):
    """Equal up to `TOLERANCE` in every number, and otherwise equal."""
    assert type(found) is type(wanted), path
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), (path, found.keys() ^ wanted.keys())
        for name in wanted:
            close(found[name], wanted[name], f"{path}/{name}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), path
        for place, (a, b) in enumerate(zip(found, wanted, strict=True)):
            close(a, b, f"{path}/{place}")
    elif isinstance(wanted, float):
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=path)
    else:
        assert found == wanted, path


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What one process finds here, and two processes elsewhere."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "two").mkdir()
    (folder / "one").mkdir()
    rows, columns = np.nonzero(matrix())
    table = pl.DataFrame({"user": surroundings.NAMES[rows], "item": columns})
    shards.write(
        (table[first : first + 60] for first in range(0, len(table), 60)), folder / "shards", 5
    )
    (folder / "foreign").mkdir()
    for part in range(3):  # every user in several files
        table[part::3].write_parquet(folder / "foreign" / f"{part}.parquet")
    both = start(folder, 2, "surroundings.py", folder=str(folder / "two"))
    every = np.arange(40)
    alone = json.loads(json.dumps(surroundings.run(every, every, str(folder / "one"))))
    ends = finish(both)
    assert [code for code, _ in ends] == [0, 0], ends[0][1][-3000:] + ends[1][1][-3000:]
    told = [json.loads(said.splitlines()[-1]) for _, said in ends]
    return folder, alone, told


LOCAL = ("refused", "random splits", "lists", "run", "shards users", "foreign users")


def test_everything_around_a_fit_is_that_of_one_process(ran):
    """Kills: θ, metrics, novelty, coverage, intervals or early stops of one process's users; best factors of one."""
    _, alone, told = ran
    shared = [{k: v for k, v in each.items() if k not in LOCAL} for each in (alone, *told)]
    close(shared[1], shared[0])
    close(shared[2], shared[0])
    assert alone["patience"]["stopped"] == "patience"
    assert alone["converged"]["stopped"] == "converged"
    assert len(alone["patience"]["history"]) < 8


def test_a_metric_that_looks_at_one_process_is_refused(ran):
    for each in ran[2]:
        assert each["refused"].startswith("the metric listed gave 20.0 and 15.0 in several")
        assert each["random splits"] == ran[2][0]["random splits"]


def test_the_files_of_two_processes_hold_all_users(ran):
    """Kills: a model of the last writer's users, lists that overwrite one another."""
    folder, alone, told = ran
    one, two = (MFAUC.load(folder / name / "model.safetensors") for name in ("one", "two"))
    names, theirs = (np.asarray(m.train_.user_ids) for m in (one, two))
    order = np.argsort(theirs)
    assert (theirs[order] == names).all()
    np.testing.assert_array_equal(two.train_.indices, one.train_.take(np.argsort(order)).indices)
    np.testing.assert_allclose(two.user_factors_[order], one.user_factors_, atol=1e-9)
    basket = np.eye(24)[:3] + np.eye(24, k=1)[:3]
    for a, b in zip(*(m.fold_in(basket).user_factors_ for m in (one, two)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    paths = [pathlib.Path(each["lists"]) for each in told]
    assert [path.name for path in paths] == [f"lists-{i:05d}-of-00002.csv" for i in range(2)]
    lists = pl.concat([pl.read_csv(path) for path in paths]).sort("user", "rank")
    wanted = pl.read_csv(alone["lists"]).sort("user", "rank")
    assert lists.drop("score").equals(wanted.drop("score"))
    np.testing.assert_allclose(lists["score"], wanted["score"], rtol=1e-6)
    runs = [pathlib.Path(each["run"]).read_text().splitlines() for each in told]
    assert sum(map(len, runs)) == len(pathlib.Path(alone["run"]).read_text().splitlines())


@pytest.mark.parametrize("name", ["shards", "foreign"])
def test_every_process_reads_its_own_users(ran, name):
    """Kills: a process that holds all users, or a user in both, or in neither."""
    users = [each[f"{name} users"] for each in ran[2]]
    assert sum(users) == ran[1][f"{name} users"] == 40 and min(users) > 5


@pytest.mark.parametrize("name", ["patience", "blockwise", "dense"])
def test_a_watched_fit_of_two_processes_goes_on_in_one(ran, name):
    """Kills: best factors of one process's users in a state, or in another order than the solver's."""
    folder = ran[0]
    kept = Checkpoints(str(folder / "two" / name), every=1)
    train, test = surroundings.whole()
    if name == "patience":
        watch, fitting = surroundings.watched(patience=2), surroundings.default(8)
        resumed = fitting.fit(train, test, watch=watch, checkpoints=kept)
        straight = surroundings.default(8).fit(train, test, watch=watch)
    else:
        longer = surroundings.softmax(5) if name == "dense" else model()
        watch = surroundings.watched()
        resumed = longer.with_params().fit(train, test, watch=watch, checkpoints=kept)
        straight = longer.fit(train, test, watch=watch)
        assert len(resumed.history_) == longer.solver.iterations
    for a, b in zip(resumed.factors_, straight.factors_, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    close([r["objective"] for r in resumed.history_], [r["objective"] for r in straight.history_])


@pytest.mark.parametrize(
    ("victim", "moment"), [(1, {"kill_after": 0.03}), (0, {"kill_in_save": True})]
)
def test_a_killed_process_of_the_default_route_loses_nothing(tmp_path, victim, moment):
    """Kills: a survivor that waits for ever, a state that holds one process's users, a state half written and read."""
    options = {"solver": "alternating", "folder": str(tmp_path / "states"), "sweeps": 12}
    ends = finish(start(tmp_path, 2, **options, victim=victim, **moment))
    assert ends[victim][0] == -9, ends[victim][1][-3000:]
    assert ends[1 - victim][0] != 0
    assert not list(tmp_path.glob("*.npz"))
    shutil.copytree(tmp_path / "states", tmp_path / "alone")
    ends = finish(start(tmp_path, 2, **options))
    assert [code for code, _ in ends] == [0, 0], ends[0][1][-3000:]
    wanted = MFAUC(3, solver=Alternating(12, devices=1)).fit(matrix())
    kept = Checkpoints(str(tmp_path / "alone"), every=2)  # in one process
    resumed = MFAUC(3, solver=Alternating(12, devices=1)).fit(matrix(), checkpoints=kept)
    for found in (together(tmp_path, 2), resumed.factors_):
        for a, b in zip(found, wanted.factors_, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
