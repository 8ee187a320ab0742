"""The one door files are written through: whole or not at all, modes, links, devices, pipes, left-overs."""

import contextlib
import errno
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import threading
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest

import mfauc_jax as mf
from mfauc_jax import cli, export
from mfauc_jax._core import atomic
from mfauc_jax.training.loop import Fitted

ROOT = pathlib.Path(__file__).parent.parent


def model(seconds: float = 1.0) -> mf.MFAUC:
    """A model as a fit leaves it, without the work."""
    X = mf.Interactions.from_pairs(["a", "a", "b", "b", "c"], ["x", "y", "y", "z", "x"])
    factors = mf.Factors(jnp.arange(6.0).reshape(3, 2), jnp.arange(6.0).reshape(3, 2) + 1)
    history = [{"iteration": 1, "step_size": 0.5, "seconds": seconds}]
    return mf.MFAUC(rank=2)._keep(X, Fitted(factors, history, "iterations"))


@pytest.fixture
def made():
    return model()


WRITERS = {  # every public writer of files, and whether it writes text
    "save": (lambda m, path: m.save(path), False),
    "parquet": (lambda m, path: export.table(m, path, n=2), False),
    "csv": (lambda m, path: export.table(m, path, n=2), True),
    "trec": (lambda m, path: export.trec_run(m, path, n=2), True),
}


def ending(name: str) -> str:
    return f"out.{name}" if name in ("parquet", "csv") else "out"


@contextlib.contextmanager
def umask(value: int):
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("name", WRITERS)
def test_modes_follow_the_umask_or_the_file_that_was_there(name, made, tmp_path):
    write, _ = WRITERS[name]
    path = tmp_path / ending(name)
    for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        with umask(mask):
            write(made, path)
        assert stat.S_IMODE(path.stat().st_mode) == mode
        path.unlink()
    path.write_text("old")
    path.chmod(0o640)
    write(made, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640 and path.read_bytes() != b"old"


@pytest.mark.parametrize("name", WRITERS)
def test_a_link_is_followed_to_its_target(name, made, tmp_path):
    write, _ = WRITERS[name]
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / ending(name), tmp_path / ending(name)
    target.write_text("old")
    link.symlink_to(target)
    write(made, link)
    assert link.is_symlink() and not target.is_symlink() and target.read_bytes() != b"old"
    target.unlink()  # the link now dangles
    write(made, link)
    assert link.is_symlink() and target.is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["elsewhere", link.name])


@pytest.mark.parametrize("name", WRITERS)
def test_devices_survive(name, made, tmp_path):
    """As root a rename over /dev/null would replace the device for the whole machine."""
    write, text = WRITERS[name]
    before = os.stat("/dev/null")
    link = tmp_path / ending(name)
    link.symlink_to("/dev/null")  # `table` wants an ending
    if text:
        write(made, link)
    else:
        with pytest.raises(OSError, match="not a regular file"):
            write(made, link)
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode) and after.st_ino == before.st_ino


@pytest.mark.parametrize("name", WRITERS)
def test_a_pipe_gets_text_and_refuses_the_rest(name, made, tmp_path):
    write, text = WRITERS[name]
    path, read = tmp_path / ending(name), []
    os.mkfifo(path)
    if not text:
        with pytest.raises(OSError, match="not a regular file"):
            write(made, path)
        assert stat.S_ISFIFO(path.stat().st_mode)
        return
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    write(made, path)
    reader.join(timeout=10)
    regular = tmp_path / f"regular-{ending(name)}"
    write(made, regular)
    assert read == [regular.read_bytes()] and stat.S_ISFIFO(path.stat().st_mode)


def test_a_folder_is_refused_by_name(made, tmp_path):
    for write, _ in WRITERS.values():
        with pytest.raises((IsADirectoryError, ValueError), match=str(tmp_path)):
            write(made, tmp_path)


def test_standard_output_may_be_named_and_is_not_replaced(made, tmp_path):
    """/dev/stdout is another name of an open file, even where that is a regular one."""
    made.save(tmp_path / "m")
    words = [sys.executable, "-m", "mfauc_jax.cli", "recommend", str(tmp_path / "m"), "--out"]
    with (tmp_path / "kept").open("wb") as file:
        file.write(b"before\n")
        file.flush()
        ran = subprocess.run(
            [*words, "/dev/stdout"], stdout=file, stderr=subprocess.PIPE, cwd=ROOT, check=False
        )
    assert ran.returncode == 0, ran.stderr
    found = (tmp_path / "kept").read_bytes()
    assert found.startswith((b"before\nuser,item", b"user,item")) and b"a,z" in found


def test_a_full_disk_names_the_path_and_keeps_the_old_file(tmp_path):
    path = tmp_path / "m"
    path.write_text("old")
    with (
        pytest.raises(OSError, match=re.escape(f"cannot write {path}: No space left")) as caught,
        atomic.beside(path),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.errno == errno.ENOSPC and "is kept" in str(caught.value)
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["m"]


WAITS = """
import sys, time
from mfauc_jax._core import atomic
with atomic.beside(sys.argv[1]) as path:
    path.write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_left_overs_of_the_dead_are_removed_and_those_of_the_living_kept(tmp_path):
    path = tmp_path / "m"
    path.write_text("old")
    writers = [
        subprocess.Popen([sys.executable, "-c", WAITS, path], stdout=subprocess.PIPE, cwd=ROOT)
        for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == b"writing\n"
        writers[0].send_signal(signal.SIGKILL)
        writers[0].wait()
        assert len(list(tmp_path.glob(".mfauc-*.tmp"))) == 2
        other = tmp_path / f".mfauc-another.host-{writers[0].pid}-{'0' * 32}.tmp"
        other.touch()  # a dead process here, perhaps a living one there
        atomic.write_text(path, "new")
        left = {p.name for p in tmp_path.glob(".mfauc-*.tmp")}
        assert len(left) == 2 and other.name in left
        assert any(f"-{writers[1].pid}-" in name for name in left)
        assert path.read_text() == "new"
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


def test_equal_fits_write_equal_bytes(tmp_path):
    for place, seconds in enumerate((1.0, 2.5)):
        model(seconds).save(tmp_path / str(place))
    first, second = ((tmp_path / str(place)).read_bytes() for place in (0, 1))
    assert first == second
    script = (
        "import sys; sys.path.insert(0, 'tests'); from test_atomic import model;"
        f"model(7.0).save({str(tmp_path / '2')!r})"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "5", "JAX_ENABLE_X64": "1"}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, env=environment)
    assert (tmp_path / "2").read_bytes() == first  # in another process, too


def test_safetensors_itself_reads_what_is_written(made, tmp_path):
    from safetensors.numpy import load_file

    made.save(tmp_path / "m")
    tensors = load_file(tmp_path / "m")
    np.testing.assert_array_equal(tensors["user_factors"], made.user_factors_)
    assert mf.MFAUC.load(tmp_path / "m").recommend(["a"], n=1)[0].tolist() == [["z"]]


def test_another_user_reads_what_a_service_account_should(made, tmp_path):
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and parent != pathlib.Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    with umask(0o022):
        made.save(tmp_path / "m")
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o644
    become = "os.setuid(65534);" if os.getuid() == 0 else ""  # only root can become somebody else
    script = f"import os; {become} print(len(open({str(tmp_path / 'm')!r}, 'rb').read()))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(ran.stdout) == (tmp_path / "m").stat().st_size


def test_a_command_that_could_not_write_says_so_before_it_works(made, tmp_path, capsys):
    made.save(tmp_path / "m")
    with (
        mock.patch.object(cli, "_set_up_jax"),
        mock.patch.object(mf.MFAUC, "load", side_effect=AssertionError("worked")),
    ):
        for out in (tmp_path, tmp_path / "no" / "x.csv", "/proc/nowhere"):
            assert cli.main(["recommend", str(tmp_path / "m"), "--out", str(out)]) == 1
            assert "cannot write" in capsys.readouterr().err
