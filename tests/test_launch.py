"""The files of docs/launch/ as they are printed: two processes that Slurm or Ray started find what one finds."""

import contextlib
import importlib.util
import os
import pathlib
import socket
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import yaml
from processes import matrix

from mfauc_jax import MFAUC, cli, distributed

LAUNCH = pathlib.Path(__file__).parent.parent / "docs" / "launch"
TOLERANCE = 1e-9  # float64; sums over processes are added in another order
OPTIONS = ("--rank", "3", "--iterations", "6", "--float64", "--cpu_devices", "1", "--no_cache")
SOLVERS = {
    "alternating": (*OPTIONS, "--solver", "alternating"),
    "validated": (*OPTIONS, "--solver", "alternating", "--validate", "2", "--metric", "ndcg@5"),
    "blockwise": (*OPTIONS, "--solver", "blockwise", "--blocks", "2", "--loss", "logistic"),
}
SRUN = """#!/bin/bash
# stands in for Slurm: two tasks on this machine, each with the variables that Slurm would give it
shift  # --kill-on-bad-exit=1
export SLURM_JOB_ID={job} SLURM_STEP_NODELIST=127.0.0.1 SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=1
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" & first=$!
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" & second=$!
wait $first && wait $second
"""


@pytest.fixture
def ratings(tmp_path):
    path = tmp_path / "ratings.csv"
    pairs = zip(*np.nonzero(matrix()), strict=True)
    path.write_text("user,item\n" + "".join(f"u{i:02},j{j:02}\n" for i, j in pairs))
    return path


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu", **more}


def program(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def alone(ratings, options) -> MFAUC:
    """What one process writes."""
    out = ratings.with_name("alone.model")
    with mock.patch.object(cli, "_set_up_jax"):  # the tests have set it up, in float64
        assert cli.main(["fit", str(ratings), "--out", str(out), *options]) == 0
    return MFAUC.load(out)


def same(found: MFAUC, wanted: MFAUC) -> None:
    assert found.factors_.U.dtype == np.float64
    order = np.argsort(found.train_.user_ids)  # the users of a process follow those of another
    np.testing.assert_array_equal(found.train_.user_ids[order], wanted.train_.user_ids)
    mine = found.user_factors_[order], found.item_factors_
    for a, b in zip(mine, wanted.factors_, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE * np.abs(b).max())
    users = wanted.train_.user_ids
    np.testing.assert_array_equal(
        found.recommend(users, n=5).items, wanted.recommend(users, n=5).items
    )
    assert len(found.history_) == len(wanted.history_) <= 6


@pytest.mark.parametrize("solver", SOLVERS)
def test_two_tasks_of_slurm_find_what_one_process_finds(tmp_path, ratings, solver, capsys):
    """Kills: users of the other process, rows in the order of the deal, a model of process 0's users alone.

    With --validate: a split of one process's users, an iteration that is best for one process.
    """
    with socket.socket() as free:  # Slurm's job gives the port, 61440 + JOB mod 4096
        for job in range(os.getpid(), os.getpid() + 50):
            with contextlib.suppress(OSError):
                free.bind(("127.0.0.1", 61440 + job % 4096))
                break
    program(tmp_path / "bin" / "srun", SRUN.format(job=job))
    command = f'#!/bin/bash\nexec {sys.executable} -m mfauc_jax.cli "$@"\n'
    program(tmp_path / "bin" / "mfauc", command)
    out = tmp_path / "likes.model"
    ran = subprocess.run(
        ["bash", str(LAUNCH / "fit.slurm"), str(ratings), str(out), *SOLVERS[solver]],
        env=environment(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stderr.count("wrote") == 1 and "2 processes" in ran.stderr
    assert (tmp_path / "likes.model.states").is_dir()
    wanted = alone(ratings, SOLVERS[solver])
    same(MFAUC.load(out), wanted)
    told, told_alone = (
        [line for line in text.splitlines() if "held-out" in line]
        for text in (ran.stderr, capsys.readouterr().err)
    )
    assert told == told_alone and len(told) == (solver == "validated")
    if solver == "validated":  # a trial fit, and then one on all positives
        folders = (tmp_path / "likes.model.states").iterdir()
        assert {folder.name for folder in folders} == {"validation", "final"}


def test_two_workers_of_ray_find_what_one_process_finds(ratings, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs the extra ray: run by .ci/full")
    spec = importlib.util.spec_from_file_location("ray_fit", LAUNCH / "ray_fit.py")
    launcher = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(launcher)
    out = ratings.with_name("likes.model")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(LAUNCH), *sys.path]))
    ray.init(
        num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}}
    )
    try:
        launcher.fit(2, str(ratings), str(out), *SOLVERS["alternating"])
        with pytest.raises(RuntimeError, match=r"exit codes \[2, 2\]"):
            launcher.fit(2, str(ratings), str(out), "--tune")
    finally:
        ray.shutdown()
    same(MFAUC.load(out), alone(ratings, SOLVERS["alternating"]))


def test_the_jobset_gives_every_pod_what_initialize_reads():
    """It has not been run; this much can be read from it."""
    job = yaml.safe_load((LAUNCH / "jobset.yaml").read_text())
    (fit,) = job["spec"]["replicatedJobs"]
    spec = fit["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    told = {one["name"]: one.get("value") for one in container["env"]}
    assert set(told) == {"MFAUC_COORDINATOR", "MFAUC_NUM_PROCESSES", "MFAUC_PROCESS_ID"}
    assert int(told["MFAUC_NUM_PROCESSES"]) == spec["completions"] == spec["parallelism"]
    name = job["metadata"]["name"]
    host, port = distributed._host_and_port(told["MFAUC_COORDINATOR"])
    assert (
        host == f"{name}-{fit['name']}-0-0.{name}"
        and port == container["ports"][0]["containerPort"]
    )
    words = [*container["command"], *container["args"]]
    assert cli.parser().parse_args(words[1:]).distributed


def test_what_several_processes_do_not_share_is_refused(tmp_path, ratings, monkeypatch, capsys):
    """Kills: an option that is read and then does nothing, a start without anybody to join."""
    for name in ("MFAUC_COORDINATOR", "MFAUC_NUM_PROCESSES", "MFAUC_PROCESS_ID"):
        monkeypatch.delenv(name, raising=False)
    words = [
        "fit",
        str(ratings),
        "--out",
        str(tmp_path / "m"),
        "--distributed",
        "--cpu_devices",
        "4",
    ]
    for option in (["--tune"], ["--plot", str(tmp_path / "p.png")]):
        assert cli.main([*words, *option]) == 2
        assert f"{option[0]} is for one process" in capsys.readouterr().err
    undefined = ValueError("coordinator_address should be defined.")  # what JAX says
    with mock.patch("jax.distributed.initialize", side_effect=undefined):
        assert cli.main(words) == 1
    assert "set MFAUC_COORDINATOR=host:port, MFAUC_NUM_PROCESSES" in capsys.readouterr().err
