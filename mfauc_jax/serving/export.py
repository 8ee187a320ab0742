"""Export of a fitted model to other tools: vectors for an index of neighbours, and lists as files.

    items = export.item_vectors(model)
    index = faiss.IndexFlatIP(items.vectors.shape[1])      # scores are inner products
    index.add(items.vectors)
    scores, found = index.search(export.user_vectors(model, users).vectors, 10)
    items.ids[found]                                       # = model.recommend(users, exclude_seen=False)

With hnswlib use `hnswlib.Index("ip", dim)`, whose distance is one minus the score.

In several processes each has its own users, and writes a file of its own: see `shard`.
"""

import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Shaped

from mfauc_jax._core import atomic
from mfauc_jax.data import ids, reading
from mfauc_jax.evaluation import ranking
from mfauc_jax.serving.answers import Recommender

if TYPE_CHECKING:
    import polars as pl

FORMULA, NUMBER = r"^[=+\-@\t\r\n＝＋－＠]", r"^[+-]?\d+([.,]\d+)?$"
RISK = "cells begin with = + - @, a tab or a line end: a spreadsheet may run them as formulas"
BLOCK = 8192  # users whose lists are in memory at once
KINDS = ("npy", "parquet", "csv")  # of files of vectors


def shard(path: str | os.PathLike) -> pathlib.Path:
    """The file of this process: `path`, or lists-00000-of-00002.csv of lists.csv in the first of two processes."""
    path, count = pathlib.Path(path), jax.process_count()
    if count == 1:
        return path
    return path.with_name(f"{path.stem}-{jax.process_index():05d}-of-{count:05d}{path.suffix}")


class Vectors(NamedTuple):
    """One vector per row, in contiguous float32, and the caller's id of each row."""

    ids: Shaped[np.ndarray, " rows"]
    vectors: Float[np.ndarray, "rows k"]


def item_vectors(model: Recommender) -> Vectors:
    """The vectors v_j of all items, in the order of the columns of X."""
    V, X = model.item_factors_, model.train_
    return Vectors(np.arange(len(V)) if X.item_ids is None else X.item_ids, _float32(V))


def user_vectors(model: Recommender, users: Any = None) -> Vectors:
    """The vectors u_i of the given users, or of all users."""
    U, users = model.user_factors_, _users(model, users)
    rows = ids.places("user", model.train_.user_ids, users, len(U))
    return Vectors(users, _float32(U[rows]))


def frames(
    model: Recommender, users: Any = None, n: int = 10, **options: Any
) -> "Iterator[pl.DataFrame]":
    """The lists of users as frames, one per block of users, with columns user, item, rank (from 1) and score.

    Args:
        model: a fitted model.
        users: ids of the users; None: all users.
        n: length of a list; it is shorter where fewer items are left.
        options: options of `MFAUC.recommend`.
    """
    import polars as pl

    users = _users(model, users, options)
    for block in ranking.blocks(len(users), BLOCK):
        items, scores = model.recommend(users[block], n, **options)
        real = np.isfinite(scores)
        length = items.shape[1]  # at most n
        rank = np.broadcast_to(np.arange(1, length + 1, dtype=np.int32), items.shape)
        columns = {
            "user": np.repeat(users[block], length).reshape(items.shape)[real],
            "item": items[real],
        }
        yield pl.DataFrame(columns | {"rank": rank[real], "score": scores[real].astype(np.float64)})


def table(
    model: Recommender,
    path: str | os.PathLike,
    users: Any = None,
    n: int = 10,
    *,
    escape_formulas: bool = False,
    **options: Any,
) -> pathlib.Path:
    """Write the lists of users to a .parquet or .csv file, whole or not at all; the path of that file.

    Args:
        model: a fitted model.
        path: the file; in several processes, each writes the lists of its own users to `shard(path)`.
        users: ids of the users; None: all users.
        n: length of a list.
        escape_formulas: put ' before the ids in a .csv that a spreadsheet may run as formulas, such as =1+1. They are
            then no longer the ids. Without it the file has the ids as they are, and one warning counts such cells.
        options: options of `MFAUC.recommend`.
    """
    path = shard(path)
    kind = path.suffix.lower()
    if kind not in (".parquet", ".csv"):
        raise ValueError(f"{path} ends in {kind!r}: choose .parquet or .csv")
    users = _users(model, users, options)
    if kind == ".csv":
        header, risky = True, 0
        with atomic.text_file(path) as file:
            for frame in frames(model, users, n, **options):
                risky += count_formulas(frame)
                shown = escaped(frame) if escape_formulas else frame
                file.write(short(shown).write_csv(include_header=header))
                header = False
        if risky and not escape_formulas:
            reading.warn(str(path), [f"{risky} {RISK}; escape_formulas=True puts ' before them"])
        return path
    from polars.io.plugins import register_io_source

    schema = next(frames(model, users[:1], n, **options)).schema

    def source(with_columns, predicate, n_rows, batch_size):
        del with_columns, predicate, n_rows, batch_size  # polars applies them to what it is given
        yield from frames(model, users, n, **options)

    with atomic.beside(path) as temporary:
        register_io_source(source, schema=schema).sink_parquet(temporary)
    return path


def vectors(model: Recommender, folder: str | os.PathLike, kind: str = "npy") -> list[pathlib.Path]:
    """Write the vectors of all items and of all users into a folder, each file whole or not at all.

    As "npy", for faiss and hnswlib: items.npy and users.npy, contiguous float32, and the ids of their rows in
    item_ids.npy and user_ids.npy. As "parquet" or "csv", tables items and users with the columns id, v0, v1, …

    Args:
        model: a fitted model.
        folder: where the files go; it is made if it does not exist.
        kind: "npy", "parquet" or "csv".
    """
    if kind not in KINDS:
        raise ValueError(f"kind = {kind!r} must be one of {', '.join(KINDS)}")
    import polars as pl

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, made in (("item", item_vectors(model)), ("user", user_vectors(model))):
        if kind == "npy":
            arrays = {f"{name}s.npy": made.vectors, f"{name}_ids.npy": made.ids}
            for file, array in arrays.items():
                with atomic.beside(folder / file) as temporary, temporary.open("wb") as stream:
                    np.save(stream, array, allow_pickle=False)
            written += [folder / file for file in arrays]
            continue
        columns = {f"v{place}": column for place, column in enumerate(made.vectors.T)}
        frame = pl.DataFrame({"id": made.ids} | columns)
        with atomic.beside(folder / f"{name}s.{kind}") as temporary:
            frame.write_csv(temporary) if kind == "csv" else frame.write_parquet(temporary)
        written.append(folder / f"{name}s.{kind}")
    return written


def short(frame: "pl.DataFrame") -> "pl.DataFrame":
    """The frame with its real numbers to six digits, which is what a float32 can tell, for text."""
    import polars as pl

    return frame.with_columns(pl.col(pl.Float64, pl.Float32).cast(pl.Float64).round_sig_figs(6))


def count_formulas(frame: "pl.DataFrame") -> int:
    """The number of text cells that a spreadsheet may run as formulas; signed numbers are none."""
    return int(frame.select(_is_formula()).sum().sum_horizontal().sum()) if _has_text(frame) else 0


def escaped(frame: "pl.DataFrame") -> "pl.DataFrame":
    """The frame with ' before the cells that a spreadsheet may run as formulas."""
    import polars as pl

    text = pl.col(pl.String)
    return frame.with_columns(pl.when(_is_formula()).then("'" + text).otherwise(text).name.keep())


def _is_formula() -> "pl.Expr":
    import polars as pl

    text = pl.col(pl.String)
    return (text.str.contains(FORMULA) & ~text.str.contains(NUMBER)).fill_null(value=False)


def _has_text(frame: "pl.DataFrame") -> bool:
    import polars as pl

    return pl.String in frame.schema.values()


def trec_run(
    model: Recommender,
    path: str | os.PathLike,
    users: Any = None,
    n: int = 1000,
    tag: str = "mfauc",
    **options: Any,
) -> pathlib.Path:
    """Write the lists of users as a TREC run, `user Q0 item rank score tag` per line; the path of the file.

    Ids and the tag must not contain white space. The other arguments are those of `frames`; `path` is as in `table`.
    """
    path = shard(path)
    users = _users(model, users, options)
    names = {"tag": np.array([tag]), "user": users, "item": item_vectors(model).ids}
    for kind, given in names.items():
        for name in given.tolist() if given.dtype.kind == "U" else []:
            if name.split() != [name]:
                raise ValueError(
                    f"{kind} {name!r} is empty or has white space: TREC runs have no quotes"
                )
    with atomic.text_file(path) as file:
        for frame in frames(model, users, n, **options):
            columns = (frame[name].to_list() for name in ("user", "item", "rank", "score"))
            file.writelines(
                f"{user} Q0 {item} {rank} {score:.9g} {tag}\n"
                for user, item, rank, score in zip(*columns, strict=True)
            )
    return path


def _users(model: Recommender, users: Any, options: Mapping[str, Any] | None = None) -> np.ndarray:
    """Whose lists are written: an unknown id raises before anything is, unless `options` skip it or make it popular."""
    m, names = len(model.user_factors_), model.train_.user_ids
    if users is None:
        return np.arange(m) if names is None else names
    users, unknown = ids.requested(users), (options or {}).get("unknown", "raise")
    ids.check_unknown(unknown, "raise", "skip", "popular")
    if unknown == "raise":
        ids.places("user", names, users, m)
    if unknown == "skip":
        users = ids.without_unknown(users, ids.known("user", names, users, m)[1])
        if not len(users):
            raise ValueError("none of the users was in training: there is no list to write")
    return users


def _float32(F: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(F, np.float32)
