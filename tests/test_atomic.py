"""The one door files are written through: whole or not at all, modes, links, devices, pipes, left-overs."""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import uuid
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


def left_over(folder: pathlib.Path, host: str, pid: int, age: float = 0.0) -> pathlib.Path:
    """A temporary file as a process of a machine leaves it, last changed `age` seconds ago."""
    made = folder / f".mfauc-{host}-{pid}-{uuid.uuid4().hex}.tmp"
    made.write_text("half")
    os.utime(made, (time.time() - age,) * 2)
    return made


def test_a_file_is_a_left_over_if_nobody_can_be_writing_it(tmp_path):
    """It kills trusting the number alone: zombies answer to it, later processes get it, other machines use it too."""
    here, zombie = socket.gethostname(), subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet waited for
    try:
        gone = [
            left_over(tmp_path, here, zombie.pid),
            left_over(tmp_path, here, os.getpid(), age=3 * 3600),  # before this process started
            left_over(tmp_path, "another.host", 1, age=2 * atomic.DAY),
        ]
        kept = [left_over(tmp_path, here, os.getpid()), left_over(tmp_path, "another.host", 1)]
        gone.append(left_over(tmp_path, here, zombie.pid))  # a folder of a download
        gone[-1].unlink()
        gone[-1].mkdir()
        (gone[-1] / "ratings.csv").touch()
        locked = left_over(tmp_path, here, zombie.pid)  # as of a live process of another container
        with locked.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            atomic.write_text(tmp_path / "m", "new")
        assert not any(path.exists() for path in gone)
        assert all(path.exists() for path in (*kept, locked))
        atomic.write_text(tmp_path / "m", "newer")
        assert not locked.exists() and all(path.exists() for path in kept)
    finally:
        zombie.wait()


def test_killed_saves_leave_one_file_at_most(tmp_path):
    """Kills in the middle of a write: each writer first removes what those before it left."""
    for _ in range(2):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WAITS, tmp_path / "m"], stdout=subprocess.PIPE, cwd=ROOT
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == b"writing\n"
        for writer in writers:
            writer.kill()
            writer.wait()
        assert len(list(tmp_path.iterdir())) <= 2  # of the two that wrote at the same time
    atomic.write_text(tmp_path / "m", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_kill_while_a_figure_is_drawn_leaves_the_old_one(tmp_path):
    script = """
import sys, time
from experiments import style
class Slow:
    def savefig(self, path, **options):
        open(path, "wb").write(b"half of a picture")
        print("drawing", flush=True)
        time.sleep(60)
style.save(Slow(), sys.argv[1], "figure")
"""
    (tmp_path / "figure.png").write_bytes(b"a whole picture")
    words = [sys.executable, "-c", script, str(tmp_path)]
    drawing = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT)
    assert drawing.stdout is not None and drawing.stdout.readline() == b"drawing\n"
    drawing.kill()
    drawing.wait()
    assert (tmp_path / "figure.png").read_bytes() == b"a whole picture"


def test_a_figure_is_drawn_in_the_format_of_its_name(tmp_path):
    from matplotlib.figure import Figure

    for name, begins in (("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("a", b"\x89PNG")):
        atomic.save_figure(Figure(), tmp_path / name, dpi=20)
        assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_line_that_was_cut_short_is_not_continued(tmp_path):
    log = tmp_path / "log"
    atomic.append_line(log, "one")
    with log.open("a") as file:
        file.write('{"half')
    atomic.append_line(log, "twö")
    assert log.read_text(encoding="utf-8") == "one\ntwö\n"


WRITES = re.compile(
    r"\.savefig\(|\.write_(text|bytes)\(|\bopen\([^)]*[\"'][wax]b?[\"']|np\.savez?\(|\.write_(csv|parquet)\("
)
ELSEWHERE = {  # lines that write without `atomic`, and why they may
    "mfauc_jax/_core/atomic.py": 4,  # the door itself
    "mfauc_jax/cli/__init__.py": 1,  # /dev/null
    "mfauc_jax/cli/lists.py": 1,  # text for `text_file`
    "mfauc_jax/serving/export.py": 3,  # the same, and into `beside`
    "mfauc_jax/data/download.py": 2,  # into hidden files that are renamed
    "mfauc_jax/data/parquet.py": 1,  # a temporary folder
    "mfauc_jax/data/shards.py": 2,  # a hidden folder that is renamed
    "mfauc_jax/data/writing.py": 3,  # into `beside`
    "mfauc_jax/plots.py": 1,  # an example
    "experiments/bench_cold.py": 1,  # into `beside`
    "experiments/bench_scaling.py": 1,  # a temporary folder
    "experiments/bench_service.py": 1,  # the same
    "experiments/bench_tune.py": 1,  # into `beside`
    "experiments/mutants.py": 2,  # a copy of the tree in a temporary folder
    "experiments/page_outputs.py": 3,  # a temporary folder
}


def test_nothing_else_writes_files():
    """A new `savefig` or `write_text` outside the door is counted here."""
    found = {}
    for package in ("mfauc_jax", "experiments", "theory"):
        for path in sorted((ROOT / package).rglob("*.py")):
            lines = path.read_text().splitlines()
            if "torture" in path.parts:  # it damages files on purpose
                continue
            count = sum(bool(WRITES.search(x)) and "atomic." not in x for x in lines)
            found |= {path.relative_to(ROOT).as_posix(): count} if count else {}
    assert found == ELSEWHERE


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
