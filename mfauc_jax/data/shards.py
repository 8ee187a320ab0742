"""Data larger than one host: a folder of parquet files, of which each process reads the rows of its own users only.

    shards.write(chunks, "folder", parts=64)     # once: any number of frames, each user into one file
    X = shards.read("folder")                    # in every process, after distributed.initialize()
    model = mf.MFAUC().fit(X)

No process holds, or even reads, the positives of the others: files are dealt to processes by their numbers of rows,
which their footers tell. So nobody needs all users' counts; every process knows the ids of all items.

Other folders of parquet files can be read too. If every user is in one file only, `by_user=True` deals the files in the
same way. Otherwise every process reads all files, one after the other, and keeps the users whose hash is its own.
"""

import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import polars as pl
from jaxtyping import Int, Shaped

from mfauc_jax._core import digests, host
from mfauc_jax.data import frames, interactions, pairs, parquet, reading, validation
from mfauc_jax.data.compressed import Content
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.reading import Report, Request

NAME = re.compile(r"users-(\d{5})-of-(\d{5})\.parquet")
SHOWN = 3  # notes about files that a warning has


def part_of(users: Any, parts: int) -> Int[np.ndarray, " rows"]:
    """The part, 0 … parts − 1, that each user id belongs to: a hash of the id, the same on any machine."""
    with np.errstate(over="ignore"):
        hashed = digests.mixed(digests.texts(np.asarray(users)) + digests.SEEDS[0])
    return (hashed % np.uint64(parts)).astype(np.int64)


def write(
    chunks: Iterable[Any],
    folder: str | os.PathLike,
    parts: int = 64,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    min_rating: float | None = None,
    confidence: str | None = None,
    skip_bad: bool = False,
) -> None:
    """Write positives into `parts` files of a new folder, each user into one of them; chunk by chunk, so of any size.

    Args:
        chunks: pandas, polars or arrow frames with one row per positive, and columns as for `Interactions.from_frame`.
        folder: made here; an existing one must be empty. It gets its name when it is whole.
        parts: how many files; at least as many as processes will read them, better ten times as many.
        user, item, rating, min_rating, confidence, skip_bad: as for `Interactions.from_frame`.
    """
    names = {"user": user, "item": item, "rating": rating, "confidence": confidence}
    options: dict[str, Any] = {**names, "min_rating": min_rating, "skip_bad": skip_bad}
    if not 1 <= parts < 10**5:
        raise ValueError(f"parts = {parts} must be in 1 … 99999")
    target = pathlib.Path(folder)
    if target.exists() and any(target.iterdir()):
        raise ValueError(f"{folder} is not empty: choose another folder, or delete it")
    making = target.with_name(f"{target.name}.part-{os.getpid()}")
    making.mkdir(parents=True)
    schema = None
    for number, chunk in enumerate(chunks):
        found, report = frames.read(chunk, **options)
        reading.warn(f"chunk {number}", report.notes)
        table = {"user": found.user_ids[found.users], "item": found.item_ids[found.items]}
        if found.confidence is not None:
            table["confidence"] = found.confidence
        part = pl.Series("part", part_of(found.user_ids, parts)[found.users])
        frame = pl.DataFrame(table)
        schema = frame.schema
        split = frame.with_columns(part).partition_by("part", as_dict=True, include_key=False)
        for (place,), rows in split.items():
            pieces = making / f"{place:05d}"
            pieces.mkdir(exist_ok=True)
            rows.write_parquet(pieces / f"{number:08d}.parquet")
    if schema is None:
        making.rmdir()
        raise ValueError("there is no chunk: nothing to write")
    for place in range(parts):
        pieces = making / f"{place:05d}"
        rows = [pl.read_parquet(piece) for piece in sorted(pieces.glob("*.parquet"))]
        whole = pl.concat([pl.DataFrame(schema=schema), *rows])
        whole.write_parquet(making / f"users-{place:05d}-of-{parts:05d}.parquet")
        shutil.rmtree(pieces, ignore_errors=True)
    if target.exists():
        target.rmdir()
    making.rename(target)


def read(
    folder: str | os.PathLike,
    *,
    by_user: bool | None = None,
    user: str | None = None,
    item: str | None = None,
    confidence: str | None = None,
) -> Interactions:
    """The positives of this process's users, over the items of all processes, with ids; all users in one process.

    Every process must call it, with the same arguments.

    Args:
        folder: has *.parquet files, from `write` or from elsewhere, with columns as for `Interactions.from_frame`.
        by_user: whether every user is in one file only; None: if `write` made the folder.
        user: name of the column of users; None: recognised by its name.
        item: the same for items.
        confidence: name of a column of weights > 0; None: "confidence", if `write` made the folder with one.
    """
    found, notes, error = [], [], None
    try:
        files = _files(folder)
        dealt = _is_whole(files) if by_user is None else by_user
        if confidence is None and _is_whole(files):
            known = "confidence" in pl.read_parquet_schema(files[0])
            confidence = "confidence" if known else None
        given = {"user": user, "item": item, "confidence": confidence}
        request = Request(columns={kind: name for kind, name in given.items() if name})
        with parquet.trial() as trial:
            for part, told in _parts(_own(files) if dealt else files, dealt, request, trial):
                found.append(part)
                notes += told
    except Exception as raised:
        error = raised
    failed = host.everyone(np.int32(error is not None)).ravel()
    if error is not None:
        raise error
    if failed.any():
        raise ValueError(f"process {int(failed.argmax())} cannot read its part of {folder}")
    reading.warn(str(folder), notes[:SHOWN] + ["…"] * (len(notes) > SHOWN))
    return _joined(folder, found)


class _Part(NamedTuple):
    """The rows of some users, in order."""

    lengths: Int[np.ndarray, " m"]
    items: Int[np.ndarray, " nnz"]  # places in item_ids
    confidence: np.ndarray | None
    user_ids: Shaped[np.ndarray, " m"]
    item_ids: Shaped[np.ndarray, " n"]  # sorted


def _files(folder: str | os.PathLike) -> list[pathlib.Path]:
    files = sorted(pathlib.Path(folder).glob("*.parquet"))
    if not files:
        raise ValueError(f"{folder} has no *.parquet files: give a folder from shards.write")
    return files


def _is_whole(files: list[pathlib.Path]) -> bool:
    """Whether `write` made these files; a ValueError if some of them are gone."""
    matched = [NAME.fullmatch(file.name) for file in files]
    if not all(matched):
        return False
    numbers = [int(match[1]) for match in matched if match]
    parts = int(matched[0][2]) if matched[0] else 0
    missing = sorted(set(range(parts)) - set(numbers))
    if missing or len(numbers) != parts:
        raise ValueError(
            f"{files[0].parent} has {len(numbers)} of {parts} files, users-{(missing or numbers)[0]:05d} is among the "
            "others: copy the whole folder"
        )
    return True


def _own(files: list[pathlib.Path]) -> list[pathlib.Path]:
    """The files of this process: the largest first, each to the process with the fewest rows so far."""
    count = jax.process_count()
    if len(files) < count:
        raise ValueError(f"{len(files)} files for {count} processes: write more parts")
    if count == 1:
        return files
    sizes = [pl.scan_parquet(file).select(pl.len()).collect().item() for file in files]
    load, owner = np.zeros(count, np.int64), {}
    for place in np.argsort(-np.asarray(sizes), kind="stable").tolist():
        owner[place] = int(load.argmin())
        load[owner[place]] += sizes[place] + 1  # empty files are dealt out too
    return [file for place, file in enumerate(files) if owner[place] == jax.process_index()]


def _parts(
    files: list[pathlib.Path], dealt: bool, request: Request, trial: parquet.Trial
) -> Iterator[tuple[_Part, list[str]]]:
    """The distinct pairs of each file, those of this process's users, and notes about them."""
    count = jax.process_count()
    kept, report = [], Report(str(files[0].parent) if files else "no file")
    for file in files:
        content = Content(file.name, b"", packed=file.stat().st_size)
        report = Report(str(file))
        frame = parquet.read(str(file), content, request, report, trial)
        if not dealt and count > 1:
            mine = part_of(frame["user"].to_numpy(), count) == jax.process_index()
            frame = frame.filter(pl.Series(mine))
        if not len(frame):
            continue
        if dealt:
            yield _part(pairs.gather(frame, report)), [f"{file.name}: {n}" for n in report.notes]
        else:
            kept.append(frame)  # a user may come again in a later file
    if kept:
        yield _part(pairs.gather(pl.concat(kept), report)), report.notes


def _part(found: pairs.Pairs) -> _Part:
    lengths = np.bincount(found.users, minlength=len(found.user_ids)).astype(np.int32)
    items = found.items.astype(np.int32)
    return _Part(lengths, items, found.confidence, found.user_ids, found.item_ids)


def _joined(folder: str | os.PathLike, parts: list[_Part]) -> Interactions:
    """The parts one after the other, over the items of all processes."""
    counts = host.everyone(np.int32(len(parts))).ravel()
    if not counts.all():
        raise ValueError(
            f"process {int(counts.argmin())} has no user of {folder}: start fewer processes"
        )
    own = np.unique(np.concatenate([part.item_ids for part in parts]))
    item_ids = np.unique(host.everybody(own))
    m, nnz = (sum(len(getattr(part, name)) for part in parts) for name in ("lengths", "items"))
    validation.size(m, len(item_ids), nnz)
    indptr, indices = np.zeros(m + 1, np.int64), np.empty(nnz, np.int32)
    np.cumsum(np.concatenate([part.lengths for part in parts]), out=indptr[1:])
    user_ids = np.concatenate([part.user_ids for part in parts])
    weights = [part.confidence for part in parts if part.confidence is not None]
    confidence = np.concatenate(weights) if weights else None
    first = 0
    while parts:
        part = parts.pop(0)  # its memory is needed
        to = np.searchsorted(item_ids, part.item_ids).astype(np.int32)
        indices[first : first + len(part.items)] = to[part.items]
        first += len(part.items)
    return interactions.built(indptr, indices, confidence, len(item_ids), user_ids, item_ids)
