"""The parallel route across processes on loopback: agreement, a kill and a restart, clear errors."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from processes import matrix, model

from mfauc_jax import distributed
from mfauc_jax._core import host

TOLERANCE = 1e-10  # float64; sums over processes are added in another order


def start(out: pathlib.Path, count: int, **options) -> list[subprocess.Popen]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    script = pathlib.Path(__file__).with_name("processes.py")
    started = []
    for i in range(count):
        chosen = {"coordinator": f"127.0.0.1:{port}", "count": count, "id": i, "devices": 1}
        chosen |= options | {"out": str(out / f"{i}.npz")}
        if i != options.get("victim"):
            chosen.pop("kill_at", None)
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
    kept = {"checkpoint_dir": str(tmp_path / "states")}
    began = time.monotonic()
    ends = finish(start(tmp_path, 2, model=kept, victim=1, kill_at=3))
    assert ends[1][0] == -9
    assert ends[0][0] != 0
    assert time.monotonic() - began < 150  # started, compiled, three iterations, and noticed
    assert not list(tmp_path.glob("*.npz"))
    # again, as four devices in two processes; then the same states in one process of this test
    ends = finish(start(tmp_path, 2, model=kept, devices=2))
    assert [code for code, _ in ends] == [0, 0], ends[0][1][-3000:]
    for found, wanted in zip(together(tmp_path, 2), alone, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)
    more = model(iterations=7, **kept).fit(matrix())
    assert len(more.history_) == 7  # states of two processes go on in one
    np.testing.assert_allclose(
        more.item_factors_, model(iterations=7).fit(matrix()).item_factors_, rtol=1e-9, atol=1e-9
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


def test_users_are_shared_out_in_blocks():
    lengths = np.arange(1, 22)
    assert (np.sort(distributed.users(lengths, 4)) == np.arange(21)).all()


def test_a_bad_environment_is_named(monkeypatch):
    monkeypatch.setenv("MFAUC_NUM_PROCESSES", "two")
    with pytest.raises(ValueError, match="MFAUC_NUM_PROCESSES = 'two' must be an integer"):
        distributed.initialize("127.0.0.1:1", process_id=0)


def test_one_process_sums_to_itself():
    assert host.total(3) == 3
    assert jax.process_count() == 1
