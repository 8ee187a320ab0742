"""The content of files, plain or compressed: gzip, bzip2, xz, zstandard, and zip with one file of ratings.

The kind of a file is recognised by its first bytes. A file that is damaged, or made to fill the memory, is refused:
unpacking stops at `LARGEST` bytes and at `RATIO` times the size of the file, and a file has at most one row per packed
byte. So a file of 10 MB takes less than 2 GB of memory, whatever it holds. Small files may be packed tighter.
"""

import bz2
import gzip
import importlib
import io
import lzma
import os
import pathlib
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

LARGEST = 4 * 2**30  # bytes of unpacked content
RATIO = 50  # of unpacked to packed bytes; ratings are packed 3 to 30 times smaller
SMALL = 2**26  # unpacked bytes below which the ratio does not matter
FEW_ROWS = 10**7  # below which the packed size does not matter
LONGEST_LINE = 2**20  # bytes
CHUNK = 2**22
ENDINGS = (".gz", ".bz2", ".xz", ".zst", ".zstd", ".zip")
FOREIGN = {  # first bytes of other kinds of files, and what to do with them
    b"\xd0\xcf\x11\xe0": "an Excel workbook: save it as .csv",
    b"SQLite format 3": "an SQLite database: export the table as .csv",
    b"Rar!": "a rar archive: unpack it first",
    b"7z\xbc\xaf": "a 7z archive: unpack it first",
    b"%PDF": "a PDF document",
}
DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
BESIDE_THE_POINT = ("__macosx/", "readme", "license", ".ds_store", "thumbs.db")


class Content(NamedTuple):
    """The unpacked content of a file."""

    name: str  # of the file, or of the member of an archive, without the endings of compressions
    data: bytes
    member: str | None = None  # the name of the member, if it is an archive
    packed: int = 0  # bytes of the file itself


def most_bytes(packed: int) -> int:
    """How many bytes a file of this size may unpack to."""
    return min(LARGEST, max(SMALL, RATIO * packed))


def check_rows(path: str, rows: int, packed: int) -> None:
    """Raise ValueError for more rows than a file of ratings of this size can have: one per byte."""
    if rows > max(FEW_ROWS, packed):
        raise ValueError(
            f"{path} has {rows} rows in {packed} bytes, more than {FEW_ROWS} and than one per byte: if that is right, "
            "unpack it first, or read it yourself and pass the frame"
        )


def check_lines(path: str, data: bytes) -> None:
    """Raise ValueError for a line of more than LONGEST_LINE bytes."""
    start = 0
    while len(data) - start > LONGEST_LINE:
        end = data.rfind(b"\n", start, start + LONGEST_LINE + 1)
        if end < 0:
            line = data.count(b"\n", 0, start) + 1
            raise ValueError(
                f"{path}, line {line} has more than {LONGEST_LINE} bytes: is a line end missing, or is it another file?"
            )
        start = end + 1


def plain_name(path: pathlib.PurePath) -> str:
    """The name of a file without the endings of compressions."""
    name = path.name
    while name.lower().endswith(ENDINGS):
        name = name[: name.rindex(".")]
    return name


def read(path: pathlib.Path, is_ratings: Callable[[str], bool] = lambda name: True) -> Content:
    """The content of a file, unpacked.

    Args:
        path: the file; `archive.zip/member` names a member of an archive.
        is_ratings: whether a file with this name may hold ratings; chooses among the members of an archive.
    """
    archive = next((p for p in path.parents if p.suffix.lower() == ".zip" and p.is_file()), None)
    if archive is not None and not path.exists():
        return _member(
            archive, archive.read_bytes(), is_ratings, path.relative_to(archive).as_posix()
        )
    check(path)
    raw, name = path.read_bytes(), plain_name(path)
    if raw.startswith(b"PK\x03\x04") and not path.name.lower().endswith(".npz"):
        return _member(path, raw, is_ratings)
    return Content(name, _unpacked(path, raw, len(raw)), packed=len(raw))


def check(path: pathlib.Path) -> None:
    """Raise an error for a folder, a missing file or a spreadsheet."""
    if path.is_dir():
        found = sorted(p.name for p in path.iterdir() if not p.name.startswith((".", "_")))
        there = ", ".join(found[:9]) + (", …" if len(found) > 9 else "")
        raise IsADirectoryError(
            f"{path} is a folder: name the file of ratings in it ({there or 'it is empty'})"
        )
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.suffix.lower() in (".xlsx", ".xlsm", ".xls", ".ods"):
        raise ValueError(f"{path} is a spreadsheet: save it as .csv")


def _unpacked(path: pathlib.Path, raw: bytes, packed: int) -> bytes:
    """The bytes of a file of `packed` bytes, decompressed; other kinds of files raise ValueError."""
    for start, kind, reader in (
        (b"\x1f\x8b", "gzip", lambda file: gzip.GzipFile(fileobj=file)),
        (b"BZh", "bzip2", bz2.BZ2File),
        (b"\xfd7zXZ\0", "xz", lzma.LZMAFile),
        (b"\x28\xb5\x2f\xfd", "zstandard", _zstandard),
    ):
        if raw.startswith(start):
            raw = _bounded(path, kind, reader, raw, packed)
            break
    for start, what in FOREIGN.items():
        if raw.startswith(start):
            raise ValueError(f"{path} is {what}")
    if raw[257:262] == b"ustar":
        raise ValueError(f"{path} is a tar archive: unpack it first")
    return raw


def _bounded(
    path: pathlib.Path, kind: str, reader: Callable[[Any], Any], raw: bytes, packed: int
) -> bytes:
    """The bytes that `reader` unpacks; a ValueError if they are damaged, or too many for a file of `packed` bytes."""
    unpacked, size, most = io.BytesIO(), 0, most_bytes(packed)
    try:
        with reader(io.BytesIO(raw)) as file:
            while size <= most:
                chunk = file.read(CHUNK)
                if not chunk:
                    return unpacked.getvalue()
                size += unpacked.write(chunk)
    except Exception as error:
        damaged = isinstance(error, DAMAGED) or type(error).__name__ == "ZstdError"
        if not damaged or (isinstance(error, OSError) and error.errno is not None):
            raise
        raise ValueError(
            f"{path} is a truncated or damaged {kind} ({error}): get it again"
        ) from None
    raise ValueError(
        f"{path} unpacks to more than {most // 2**20} MB from {packed} bytes (a file may unpack to "
        f"{SMALL // 2**20} MB, or to {RATIO} times its size, up to {LARGEST // 2**30} GB): "
        "if that is right, unpack it first"
    )


def _zstandard(file: io.BytesIO) -> Any:
    """A reader of zstandard, from Python itself (since 3.14) or from the first installed package."""
    for name in ("compression.zstd", "zstandard", "pyarrow"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if name == "pyarrow":
            return module.CompressedInputStream(file, "zstd")
        if name == "zstandard":
            return module.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return module.ZstdFile(file)
    raise ImportError(
        "a .zst file needs a package that reads it: pip install zstandard, or pyarrow"
    )


def _member(
    path: pathlib.Path, raw: bytes, is_ratings: Callable[[str], bool], wanted: str | None = None
) -> Content:
    """The member `wanted` of a zip archive, or the only one that can be the file of ratings."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
    except (zipfile.BadZipFile, ValueError) as error:  # ValueError: a place before the beginning
        raise ValueError(
            f"{path} is a zip archive that is damaged ({error}): get it again"
        ) from None
    with archive:
        names = [n for n in archive.namelist() if not n.endswith("/")]
        if "[Content_Types].xml" in names:
            raise ValueError(f"{path} is an Excel workbook: save it as .csv")
        chosen = [wanted] if wanted in names else [] if wanted else _choose(names, is_ratings)
        if len(chosen) != 1:
            shown = ", ".join(names[:9]) + (", …" if len(names) > 9 else "")
            missing = (
                f"no member {wanted}"
                if wanted
                else f"{len(chosen) or 'no'} members that may be ratings"
            )
            raise ValueError(
                f"{path} is a zip archive with {missing} among {shown or 'none'}: "
                f"name one, as in {path}{os.sep}{(chosen or names or ['NAME'])[0]}"
            )
        name = chosen[0]
        info = archive.getinfo(name)
        if info.flag_bits & 1:
            raise ValueError(f"{path} is a zip archive with a password: unpack it first")
        try:
            data = _bounded(
                path, "zip archive", lambda _: _member_file(archive, name), raw, len(raw)
            )
        except NotImplementedError as error:
            raise ValueError(f"{path}: {error}: unpack it first") from None
    inner = pathlib.PurePosixPath(name)
    return Content(plain_name(inner), _unpacked(path, data, len(raw)), name, len(raw))


def _member_file(archive: zipfile.ZipFile, name: str) -> Any:
    try:
        return archive.open(name)
    except ValueError as error:  # it should begin before the beginning of the archive
        raise zipfile.BadZipFile(str(error)) from error


def _choose(names: list[str], is_ratings: Callable[[str], bool]) -> list[str]:
    """The members that may hold ratings: the only one, or the one with "rating" or "interaction" in its name."""
    names = [n for n in names if not any(word in n.lower() for word in BESIDE_THE_POINT)]
    if len(names) == 1:
        return names
    fitting = [n for n in names if is_ratings(plain_name(pathlib.PurePosixPath(n)))]
    spoken = [
        n
        for n in fitting
        if any(w in pathlib.PurePosixPath(n).name.lower() for w in ("rating", "interaction"))
    ]
    return spoken if len(spoken) == 1 else fitting
