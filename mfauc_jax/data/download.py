"""Download of data sets from their official addresses: resumed, checked, unpacked safely, renamed into place.

A reader of `data_dir` sees a data set whole or not at all: bytes arrive in a hidden `.part` file, which the next call
resumes, and are unpacked into a hidden folder, which is renamed at the end.
"""

import gzip
import hashlib
import http.client
import os
import pathlib
import shutil
import stat
import urllib.error
import urllib.request
import zipfile
import zlib
from typing import NamedTuple

import tqdm

from mfauc_jax._core import atomic
from mfauc_jax.data import ratings, reading
from mfauc_jax.data.catalogue import DATASETS, Dataset

MAX_BYTES = 4 * 2**30  # of an archive, and of what it unpacks to; ML-25M is 1.2 GB
MAX_FILES = 10_000
BLOCK = 2**20


class SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but not from https to an address that is not encrypted."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        """The request for the new address; a ConnectionError if it is not as safe as the old one."""
        old, new = (url.partition(":")[0].lower() for url in (req.full_url, newurl))
        if new not in ("http", "https") or (old == "https" and new != "https"):
            raise ConnectionError(
                f"{req.full_url} redirects to {newurl}, which is not https: it is not followed"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Downloaded(NamedTuple):
    """The folder of a data set, and whether its content was verified."""

    folder: pathlib.Path
    sha256: dict[str, str]  # of the decompressed content of each file of ratings
    verified: bool  # all hashes are as expected; False: some expected hash is not known


def download(
    name: str,
    data_dir: str | os.PathLike,
    *,
    base_url: str | None = None,
    max_bytes: int = MAX_BYTES,
    timeout: float = 60.0,
) -> Downloaded:
    """Fetch the data set `name` into `data_dir`/`name`/, unless it is there already.

    Args:
        name: one of `catalogue.DATASETS`.
        data_dir: parent of the data set's folder.
        base_url: the address of a mirror, from which the same file names are fetched instead.
        max_bytes: largest size, packed and unpacked.
        timeout: seconds to wait for an answer.
    """
    data_dir = pathlib.Path(data_dir)
    try:
        return _told(name, _verify(name, ratings.find(name, data_dir)))
    except FileNotFoundError as missing:
        dataset = DATASETS[name]
        if not dataset.urls:
            raise FileNotFoundError(f"{missing}; it cannot be downloaded") from None
    data_dir.mkdir(parents=True, exist_ok=True)
    parts = []
    for url in dataset.urls:
        file = url.rpartition("/")[2]
        address = url if base_url is None else f"{base_url.rstrip('/')}/{file}"
        part = data_dir / f".{name}.{file}.part"
        _fetch(address, part, max_bytes, timeout, dataset)
        parts.append((file, part))
    folder = data_dir / name
    try:
        with atomic.temporary_folder(data_dir) as unpacked:
            for file, part in parts:
                if file.endswith(".zip"):
                    _unpack(part, unpacked, dataset, max_bytes)
                else:
                    shutil.copyfile(part, unpacked / file)
            result = _verify(name, [unpacked / file for file in _ratings_in(unpacked, dataset)])
            _move(unpacked, folder, last=set(result.sha256))
    finally:
        for _, part in parts:  # sound or not, it was used: the next call starts afresh
            part.unlink(missing_ok=True)
    return _told(name, result._replace(folder=folder))


def _ratings_in(folder: pathlib.Path, dataset: Dataset) -> list[str]:
    """The files of ratings in `folder`: all of a split, else only the first that exists."""
    there = [file.name for file in dataset.files if (folder / file.name).is_file()]
    return there if dataset.split else there[:1]


def _verify(name: str, paths: list[pathlib.Path]) -> Downloaded:
    known = {file.name: file.sha256 for file in DATASETS[name].files}
    hashes = {path.name.removesuffix(".gz"): _sha256(path) for path in paths}
    for path in paths:
        plain = path.name.removesuffix(".gz")
        if known[plain] not in (None, hashes[plain]):
            raise ValueError(
                f"{plain} of {name} has sha256 {hashes[plain]}, not {known[plain]}: damaged, or "
                "another version; remove it (what was just fetched is gone) and download again"
            )
    verified = all(known[plain] is not None for plain in hashes)
    return Downloaded(paths[0].parent, hashes, verified)


def _told(name: str, result: Downloaded) -> Downloaded:
    """The result, after a warning if nothing shows that its files are the official ones."""
    if not result.verified:
        hashes = ", ".join(f"{file} {digest}" for file, digest in result.sha256.items())
        reading.warn(
            name,
            [
                f"UNVERIFIED: no sha256 is known to compare with, so the files may be others than the official "
                f"ones; theirs are {hashes}"
            ],
        )
    return result


def _sha256(path: pathlib.Path) -> str:
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is a truncated or damaged gzip ({error}): remove it") from None


def _fetch(url: str, part: pathlib.Path, max_bytes: int, timeout: float, dataset: Dataset) -> None:
    """Fetch `url` into the file `part`; continue a partial file where the server allows it."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is not an http address")
    if not url.endswith(".zip"):  # in a bare file nothing would show that its halves do not match
        part.unlink(missing_ok=True)
    received = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "mfauc_jax"})
    if received:
        request.add_header("Range", f"bytes={received}-")
    try:
        with urllib.request.build_opener(SafeRedirects).open(request, timeout=timeout) as answer:
            resumes = answer.status == http.HTTPStatus.PARTIAL_CONTENT
            if resumes and not answer.headers.get("Content-Range", "").startswith(
                f"bytes {received}-"
            ):
                raise ConnectionError(
                    f"{url} resumes at another place than byte {received}: try again"
                )
            received = received if resumes else 0
            length = answer.headers.get("Content-Length")
            total = None if length is None else received + int(length)
            if (total or 0) > max_bytes:
                raise ValueError(f"{url} is {total} bytes, more than max_bytes = {max_bytes}")
            _receive(answer, part, received, total, max_bytes)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and received:
            part.unlink()  # it is longer than the file itself: start afresh
            return _fetch(url, part, max_bytes, timeout, dataset)
        raise ConnectionError(
            f"{url} answers {error.code} {error.reason}: get it by {dataset.get}"
        ) from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        raise ConnectionError(f"{url} cannot be reached ({error}): try again to resume") from None


def _receive(answer, part: pathlib.Path, received: int, total: int | None, max_bytes: int) -> None:
    bar = tqdm.tqdm(
        total=total, initial=received, unit="B", unit_scale=True, desc=part.name[1:-5], disable=None
    )  # disable=None: no bar unless on a terminal
    with bar, part.open("ab" if received else "wb") as file:
        while block := answer.read(BLOCK):
            received += len(block)
            if received > max_bytes:
                part.unlink()
                raise ValueError(f"{answer.url} sends more than max_bytes = {max_bytes}")
            file.write(block)
            bar.update(len(block))
    if total is not None and received < total:
        raise ConnectionError(
            f"{answer.url} stopped at {received} of {total} bytes: download again to resume"
        )


def _unpack(archive: pathlib.Path, folder: pathlib.Path, dataset: Dataset, max_bytes: int) -> None:
    """Extract the folder that holds the ratings, after checking every member of the archive."""
    try:
        with zipfile.ZipFile(archive) as zipped:
            members = zipped.infolist()
            _check(members, max_bytes)
            wanted = {file.name for file in dataset.files}
            ratings_files = [m.filename for m in members if m.filename.rpartition("/")[2] in wanted]
            if not ratings_files:
                names = ", ".join(m.filename for m in members[:10])
                raise ValueError(f"the archive has no {' or '.join(wanted)}; it holds {names}")
            ratings_folder = ratings_files[0].rpartition("/")[0]
            prefix = f"{ratings_folder}/" if ratings_folder else ""
            bytes_left = max_bytes
            for member in members:
                if member.is_dir() or not member.filename.startswith(prefix):
                    continue
                target = folder / member.filename.removeprefix(prefix)
                target.parent.mkdir(parents=True, exist_ok=True)
                with zipped.open(member) as source, target.open("xb") as file:
                    while block := source.read(BLOCK):
                        bytes_left -= len(
                            block
                        )  # of what really comes out, whatever the header claims
                        if bytes_left < 0:
                            raise ValueError(f"the archive unpacks to more than {max_bytes} bytes")
                        file.write(block)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, FileExistsError) as error:
        raise ValueError(
            f"the archive of {dataset.title} is damaged ({error}); it was removed: download again"
        ) from None


def _check(members: list[zipfile.ZipInfo], max_bytes: int) -> None:
    """Raise ValueError for members outside the folder, for links and special files, and for too large a size."""
    if len(members) > MAX_FILES:
        raise ValueError(f"the archive has {len(members)} members, more than {MAX_FILES}")
    for member in members:
        path = pathlib.PurePosixPath(member.filename)
        kind = stat.S_IFMT(member.external_attr >> 16)
        outside = path.is_absolute() or ".." in path.parts or not path.parts
        if outside or "\\" in member.orig_filename or ":" in path.parts[0]:
            raise ValueError(f"the archive would write outside its folder: {member.filename!r}")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ValueError(f"{member.filename!r} in the archive is a link or a special file")
    size = sum(member.file_size for member in members)
    if size > max_bytes:
        raise ValueError(f"the archive unpacks to {size} bytes, more than {max_bytes}")


def _move(source: pathlib.Path, folder: pathlib.Path, last: set[str]) -> None:
    """Rename the folder; if `folder` exists, move the files into it one by one, those named in `last` at the end."""
    source.chmod(0o755)
    if not folder.exists():
        source.rename(folder)
        return
    files = sorted((p for p in source.rglob("*") if p.is_file()), key=lambda p: p.name in last)
    for path in files:
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
