"""Writing of files, whole or not at all. Every file of the library is written here.

A file is written beside its place and then renamed, so that after an error, a full disk or a kill the old content is
still there. A link is followed to its target. Nothing but a regular file is ever replaced: devices and pipes survive,
and text may be streamed into them.
"""

import contextlib
import errno
import os
import pathlib
import re
import socket
import stat
import uuid
from collections.abc import Iterator
from typing import IO

# names of temporary files, with the machine and the process that wrote them
LEFT_OVER = re.compile(r"\.mfauc-(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{32}\.tmp")
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


@contextlib.contextmanager
def _new_file_beside(path: str | os.PathLike, target: pathlib.Path) -> Iterator[pathlib.Path]:
    name = f".mfauc-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}.tmp"
    temporary = target.with_name(name)
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # umask applies
    except OSError as error:
        why = error.strerror if target.parent.is_dir() else f"{target.parent} is not a folder"
        raise type(error)(error.errno, f"cannot write {path}: {why}") from error
    try:
        remove_left_over(target.parent)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def remove_left_over(folder: pathlib.Path) -> None:
    """Remove the temporary files that killed processes of this machine left in a folder, never a live one's."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            found = LEFT_OVER.fullmatch(name)
            if found and found["host"] == socket.gethostname() and not _is_alive(int(found["pid"])):
                (folder / name).unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
