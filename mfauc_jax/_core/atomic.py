"""Files that are whole or not there: written beside their place, then renamed."""

import contextlib
import os
import pathlib
import uuid
from collections.abc import Iterator


@contextlib.contextmanager
def beside(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """A new empty file next to `path`, which takes its place if the block ends well.

    After an error, a full disk or a kill, what was at `path` before is still there.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file")
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        temporary.touch()  # an OSError that names the folder, before anything is made
    except OSError as error:
        raise type(error)(error.errno, f"cannot write {path}: {error.strerror}") from error
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, text: str) -> None:
    """The text as UTF-8, whole or not at all."""
    with beside(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
