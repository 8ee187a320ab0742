"""The parallel route across processes on loopback: agreement, a kill and a restart, clear errors."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import types

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils
from processes import matrix, model
from toys import quiet

from mfauc_jax import MFAUC, Blockwise, Checkpoints, distributed
from mfauc_jax._core import host
from mfauc_jax.training import agreement

TOLERANCE = 1e-10  # float64; sums over processes are added in another order


def start(
    out: pathlib.Path, count: int, program: str = "processes.py", **options
) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    script = pathlib.Path(__file__).with_name(program)
    started = []
    for i in range(count):
        chosen = {"coordinator": f"127.0.0.1:{port}", "count": count, "id": i, "devices": 1}
        chosen |= options | {"out": str(out / f"{i}.npz")}
        if i != options.get("victim"):
            chosen = {k: v for k, v in chosen.items() if not k.startswith("kill_")}
        started.append(
            subprocess.Popen(
                [sys.executable, str(script), json.dumps(chosen)],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return started


def finish(started, seconds=200) -> list[tuple[int, str]]:
    ends = []
    for process in started:
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            pytest.fail(f"a process hung: {said[-2000:]}")
        ends.append((process.returncode, said))
    return ends


def together(out: pathlib.Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    parts = [np.load(out / f"{i}.npz") for i in range(count)]
    U = np.empty((len(matrix()), 3))
    for part in parts:
        U[part["users"]] = part["U"]
        np.testing.assert_array_equal(part["V"], parts[0]["V"])
    return U, parts[0]["V"]


@pytest.fixture(scope="module")
def alone():
    """One process, one device: what all others must find."""
    fitted = model(devices=1).fit(matrix())
    return fitted.user_factors_, fitted.item_factors_


def test_two_processes_find_what_one_finds(tmp_path, alone):
    ends = finish(start(tmp_path, 2))
    assert [code for code, _ in ends] == [0, 0], ends[0][1][-3000:]
    assert "fit" not in ends[1][1]  # only process 0 has a bar, and only on a terminal
    for found, wanted in zip(together(tmp_path, 2), alone, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_killed_process_stops_the_others_and_a_restart_ends_the_same(tmp_path, alone):
    folder = str(tmp_path / "states")
    began = time.monotonic()
    ends = finish(start(tmp_path, 2, folder=folder, victim=1, kill_at=3, heartbeat=6))
    assert ends[1][0] == -9
    assert ends[0][0] != 0
    assert time.monotonic() - began < 150  # started, compiled, three iterations, and noticed
    assert not list(tmp_path.glob("*.npz"))
    # again, as four devices in two processes; then the same states in one process of this test
    ends = finish(start(tmp_path, 2, folder=folder, devices=2))
    assert [code for code, _ in ends] == [0, 0], ends[0][1][-3000:]
    for found, wanted in zip(together(tmp_path, 2), alone, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)
    longer = model(iterations=7)
    resumed = longer.with_params().fit(matrix(), checkpoints=Checkpoints(folder, every=2))
    assert len(resumed.history_) == 7  # states of two processes go on in one
    np.testing.assert_allclose(
        resumed.item_factors_, longer.fit(matrix()).item_factors_, rtol=1e-9, atol=1e-9
    )


def test_an_absent_coordinator_is_an_error_not_a_hang(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    code = f"from mfauc_jax import distributed;distributed.initialize('{address}', 2, 1, timeout=3)"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert time.monotonic() - began < 60
    assert f"TimeoutError: nobody answered at {address} for 3 s" in done.stderr


@pytest.mark.parametrize("count", [1, 2, 4])
def test_users_are_shared_out_in_blocks(count, monkeypatch):
    """Kills: the same users in every process, cuts that are not at the ends of blocks, another deal than the fit's."""
    X = quiet(np.tri(21, 30))
    monkeypatch.setattr(jax, "process_count", lambda: count)
    parts = []
    for me in range(count):
        monkeypatch.setattr(jax, "process_index", lambda me=me: me)
        parts.append(distributed.users(X.row_lengths, 4, seed=3))
    ends = np.cumsum([6, 5, 5, 5])[4 // count - 1 :: 4 // count]  # of 21 users in 4 blocks
    assert np.cumsum([len(part) for part in parts]).tolist() == ends.tolist()
    monkeypatch.undo()
    np.testing.assert_array_equal(np.concatenate(parts), Blockwise(blocks=4).order(X, 3))
    assert sorted(np.concatenate(parts)) == list(range(21))


def test_blocks_that_the_processes_cannot_share_are_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    with pytest.raises(ValueError, match="blocks = 4 must be a multiple of the 3 processes"):
        distributed.users(np.ones(9), 4)


def test_what_several_processes_cannot_do_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(agreement, "_check_devices", lambda: None)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda a: np.stack([a, a]))
    monkeypatch.setattr(distributed, "_last_deal", None)
    with pytest.raises(ValueError, match="'minibatch' runs in one process: use 'alternating'"):
        MFAUC(solver="minibatch").fit(matrix())
    with pytest.raises(ValueError, match="processes 0 and 1 hold the same rows: each must load"):
        model().fit(matrix())


def test_a_bad_environment_is_named(monkeypatch):
    monkeypatch.setenv("MFAUC_NUM_PROCESSES", "two")
    with pytest.raises(ValueError, match="MFAUC_NUM_PROCESSES = 'two' must be an integer"):
        distributed.initialize("127.0.0.1:1", process_id=0)


def test_totals_are_over_processes_and_not_within_an_array(monkeypatch):
    """Kills: a total over the array's own axes, a total that is this process's part, or its mean."""
    mine, theirs = np.array([1, 2, 3]), np.array([10, 20, 30])
    assert host.total(mine).tolist() == [1, 2, 3] and host.total(3) == 3
    assert host.everyone(mine).tolist() == [[1, 2, 3]]
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    words = theirs.view(np.uint32)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda local: [local, words])
    assert host.total(mine).tolist() == [11, 22, 33]
    assert host.everyone(mine).tolist() == [[1, 2, 3], [10, 20, 30]]


REFUSED = "ValueError: the processes disagree about "
OUTCOMES = {  # the beginning of what process 0 and process 1 say
    "nothing": "iterations 6",
    "learning_rate": REFUSED + "solver.learning_rate: process 0 has 0.3, process 1 has 0.2; give",
    "seed": REFUSED + "seed: process 0 has 0, process 1 has 1",
    "loss": REFUSED + "loss.",
    "weighting": REFUSED + "weighting.",
    "penalty": REFUSED + "penalty.",
    "strength": REFUSED + "penalty.strength: process 0 has 0.4, process 1 has 0.5",
    "num_pos": REFUSED + "solver.num_pos",
    "num_neg": REFUSED + "solver.num_neg",
    "eta": REFUSED + "solver.average.eta",
    "tau": REFUSED + "weights.tau",
    "user_power": REFUSED + "weights.user_power",
    "iterations": REFUSED + "iterations: process 0 has 6, process 1 has 4",
    "blocks": REFUSED + "solver.blocks",
    "batch": REFUSED + "solver.batch",
    "optimiser": REFUSED + "solver.optimiser",
    "rank": REFUSED + "rank",
    "start": REFUSED + "start.scale",
    "solver": ("ValueError: process 1 cannot take part", "ValueError: solver 'minibatch' runs in"),
    "shard_items": REFUSED + "solver.shard_items: process 0 has false, process 1 has true",
    "items": REFUSED + "number of items: process 0 has 24, process 1 has 25",
    "wrong rows": ("ValueError: process 1 cannot", "ValueError: process 1 holds other rows than"),
    "too few rows": ("ValueError: process 1 cannot", "ValueError: process 1 holds other rows"),
    "broken data": ("ValueError: process 1 cannot take part", "ValueError: value 0.5 of user 0"),
    "confidence": REFUSED + "confidence: process 0 has false, process 1 has true",
    "ids": REFUSED + "item ids",
    "item ids": REFUSED + "item ids",
    "folder in one": REFUSED + "checkpoints.every: process 0 has none, process 1 has 10",
    "every": REFUSED + "checkpoints.every: process 0 has 2, process 1 has 3",
    "watch": REFUSED + "watch",
    "validation": REFUSED + "validation: process 0 has false, process 1 has true",
    "broken validation": ("ValueError: process 1 cannot take part", "ValueError: item "),
    "callback stops": "callback 2",
    "callback fails": ("RuntimeError: process 1 stopped with an error of its", "KeyError: 'broken"),
    "Ctrl-C": "interrupted 3",
    "SIGTERM": "interrupted 3",
    "same users": "ValueError: 1 users (such as u",
}


def test_processes_that_disagree_say_so_in_every_process(tmp_path):
    """Kills: each fact that is not compared, and each stop that is not shared (the others would hang)."""
    ends = finish(start(tmp_path, 2, "disagreements.py", folder=str(tmp_path)))
    told = [[json.loads(line) for line in said.splitlines() if line[:1] == "{"] for _, said in ends]
    assert [code for code, _ in ends] == [0, 0], ends[0][1][-3000:] + ends[1][1][-3000:]
    for process, records in enumerate(told):
        assert [record["case"] for record in records] == list(OUTCOMES)
        for record in records:
            expected = OUTCOMES[record["case"]]
            expected = expected if isinstance(expected, str) else expected[process]
            assert record["said"].startswith(expected), (process, record)
            assert record["seconds"] < 30


def test_processes_with_other_numbers_of_devices_are_refused(monkeypatch):
    devices = [types.SimpleNamespace(process_index=i) for i in (0, 0, 1)]
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "devices", lambda: devices)
    with pytest.raises(ValueError, match="the processes have 2, 1 devices: start every process"):
        model().fit(matrix())


def test_a_port_that_is_in_use_is_named():
    """Kills: leaving it to JAX, whose process 0 crashes."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} of the coordinator is in use"):
            distributed.initialize(f"127.0.0.1:{port}", 2, 0)
    for bad in ("127.0.0.1", "host:", "host:99999", ":8080"):
        with pytest.raises(ValueError, match="must be host:port"):
            distributed.initialize(bad, 2, 0)
