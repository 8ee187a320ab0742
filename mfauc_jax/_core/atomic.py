"""Writing of files, whole or not at all. Every file of the library is written here.

A file is written beside its place and then renamed, so that after an error, a full disk or a kill the old content is
still there. A link is followed to its target. Nothing but a regular file is ever replaced: devices and pipes survive,
and text may be streamed into them.

A killed process leaves its temporary file behind. The next write into the folder begins by removing it, so at most one
is left per writer that was killed since.
"""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Iterator
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# names of temporary files, with the machine and the process that wrote them
LEFT_OVER = re.compile(r"\.mfauc-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{32}\.tmp")
DAY = 86_400.0  # seconds without a change after which a file of another machine is given up
FULL = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
)  # the disk, the quota or the file size is exhausted


def is_stream(path: str | os.PathLike) -> bool:
    """Whether a path is a pipe, a terminal, a device or another name of an open file, such as /dev/stdout."""
    path = os.fspath(path)
    if os.path.isdir(path):
        return False
    if os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return os.path.lexists(path)
    return os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)


def destination(path: str | os.PathLike) -> pathlib.Path:
    """The regular file, existing or new, that writing to `path` creates; an OSError if it would not be one."""
    if is_stream(path):
        raise OSError(
            f"cannot write {path}: it is not a regular file, and only text can be streamed"
        )
    target = pathlib.Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder, give the name of a file")
    return target


def check_writable(path: str | os.PathLike, stream: bool = False) -> None:
    """Raise OSError now, and not after an hour's work, if `path` cannot be written.

    Args:
        path: the file that will be written later.
        stream: whether a pipe or a device is allowed as well.
    """
    if stream and is_stream(path):
        return
    with _new_file_beside(path, destination(path)) as temporary:
        temporary.unlink()


@contextlib.contextmanager
def beside(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """A new empty file next to `path`; it replaces `path` if the block ends without an error.

    It gets the mode of the file that it replaces, or that of a new file under the umask.
    """
    target = destination(path)
    with _new_file_beside(path, target) as temporary:
        mode = stat.S_IMODE((target if target.exists() else temporary).stat().st_mode)
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.chmod(mode)  # some writers replace the temporary file by their own
            temporary.replace(target)
        except OSError as error:
            if error.errno not in FULL:
                raise
            kept = "; what was there before is kept" if target.exists() else ""
            raise OSError(error.errno, f"cannot write {path}: {error.strerror}{kept}") from error


@contextlib.contextmanager
def text_file(path: str | os.PathLike) -> Iterator[IO[str]]:
    """A file for UTF-8 text: `beside`, or the pipe or device itself where `path` is one."""
    if is_stream(path):
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file
        return
    with beside(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield file


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write the text as UTF-8, whole or not at all."""
    with text_file(path) as file:
        file.write(text)


def append_line(path: str | os.PathLike, line: str) -> None:
    """Append one line of a log, in one write; a line that a kill cut short is removed first."""
    path = pathlib.Path(path)
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        if whole < path.stat().st_size:
            os.truncate(path, whole)
    with path.open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")
        os.fsync(file.fileno())


def save_figure(figure: Any, path: str | os.PathLike, **options: Any) -> None:
    """Write a matplotlib figure in the format that the path ends in (.png without an ending), whole or not at all.

    Args:
        figure: the figure.
        path: the file.
        options: options of `Figure.savefig`.
    """
    ending = pathlib.Path(path).suffix.lower()[1:] or "png"
    with beside(path) as temporary:
        figure.savefig(temporary, format=ending, **options)


@contextlib.contextmanager
def _new_file_beside(path: str | os.PathLike, target: pathlib.Path) -> Iterator[pathlib.Path]:
    temporary = target.with_name(_new_name())
    remove_left_over(target.parent)  # first, for the disk may be full of them
    try:
        file = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)  # umask applies
    except OSError as error:
        why = error.strerror if target.parent.is_dir() else f"{target.parent} is not a folder"
        raise type(error)(error.errno, f"cannot write {path}: {why}") from error
    try:
        _is_locked(file, shared=True)  # seen by other containers, whose process numbers differ
        yield temporary
    finally:
        os.close(file)
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_folder(parent: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new folder in `parent`, which is removed at the end unless it was renamed."""
    remove_left_over(parent)
    made = parent / _new_name()
    made.mkdir()
    file = os.open(made, os.O_RDONLY) if fcntl else None  # Windows opens no folders
    try:
        _is_locked(file, shared=True)
        yield made
    finally:
        if file is not None:
            os.close(file)
        shutil.rmtree(made, ignore_errors=True)


def _new_name() -> str:
    return f".mfauc-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}.tmp"


def remove_left_over(folder: pathlib.Path) -> None:
    """Remove the temporary files and folders that killed processes left in a folder, never one that is being written.

    A file that is being written is locked. A process of this machine is dead if its number is free, is a zombie's, or
    was given to a process that started after the last change of the file. A file of another machine is given up after
    a day without a change.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            found = LEFT_OVER.fullmatch(name)
            if found is None:
                continue
            with contextlib.suppress(OSError):  # another process may remove it at the same time
                changed = os.stat(folder / name).st_mtime
                is_here = found["host"] == socket.gethostname()
                if time.time() - changed < DAY and (
                    not is_here or _is_alive(found["pid"], changed)
                ):
                    continue
                file = os.open(folder / name, os.O_RDONLY)
                try:
                    if _is_locked(file):
                        continue
                    if (folder / name).is_dir():
                        shutil.rmtree(folder / name, ignore_errors=True)
                    else:
                        (folder / name).unlink(missing_ok=True)
                finally:
                    os.close(file)


def _is_locked(file: int | None, shared: bool = False) -> bool:
    """Whether somebody else holds a lock on an open file; if not, lock it here, until it is closed."""
    if fcntl is None or file is None:
        return False
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    return False


def _is_alive(pid: str, changed: float) -> bool:
    """Whether the process that changed a file at the given time may still live."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    try:  # Linux: state and start, in ticks since the machine started
        state, *fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[18]) / os.sysconf("SC_CLK_TCK")
        started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks
    except (OSError, ValueError, IndexError, AttributeError):
        return True
    return state not in "ZX" and started < changed + 60  # a minute: clocks may be set
