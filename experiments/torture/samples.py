"""Small sound inputs that rooms damage: a matrix, models, and files of ratings in every format that is read."""

import bz2
import gzip
import io
import json
import lzma
import pathlib
import warnings
import zipfile
from typing import NamedTuple

import numpy as np
import polars as pl
import scipy.io

from mfauc_jax import MFAUC, Interactions

STARS, CHECKED = (
    "stars",
    ("gz", "bz2", "xz", "zip", "npz"),
)  # the endings whose formats have checksums


def matrix(seed: int = 0, m: int = 24, n: int = 16) -> np.ndarray:
    """A 0/1 matrix in which every user and every item has a positive, and nobody has all."""
    rng = np.random.default_rng(seed)
    X = (rng.random((m, n)) < 0.3).astype(float)
    X[np.arange(m), np.arange(m) % n] = 1
    X[np.arange(m), (np.arange(m) + 1) % n] = 0
    return X


def held_out(X: np.ndarray, seed: int = 1) -> np.ndarray:
    """Further positives of the same users, for validation."""
    rng = np.random.default_rng(seed)
    return ((rng.random(X.shape) < 0.2) & (X == 0)).astype(float)


def frame(seed: int = 0, text: bool = False) -> pl.DataFrame:
    """Ratings as a frame: user, item, stars, time."""
    users, items = np.nonzero(matrix(seed))
    stars = (users * 7 + items * 3) % 5 + 1
    shown = (
        [f"ü{u}" if text else u + 1 for u in users],
        [f"i {j}" if text else j + 1 for j in items],
    )
    columns = {"user": shown[0], "item": shown[1], STARS: stars, "time": 9e8 + users * 60 + items}
    return pl.DataFrame(columns).with_columns(pl.col("time").cast(pl.Int64))


def fitted(ids: bool = True, seed: int = 0) -> MFAUC:
    """A small fitted model, with ids that are text or without ids."""
    X = matrix(seed)
    data = Interactions.of(X)
    if ids:
        users, items = np.nonzero(X)
        data = Interactions.of(
            pl.DataFrame({"user": [f"ü{u}" for u in users], "item": items + 100})
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MFAUC(rank=3, seed=seed, solver="alternating").fit(data)


class Sample(NamedTuple):
    """A sound file of ratings."""

    name: str  # of the file
    data: bytes
    exact: bool  # whether the format has checksums: damage may not read as other data


def ratings() -> list[Sample]:
    """One sound file of ratings per format."""
    numbers, words = frame(), frame(text=True)
    csv = words.write_csv().encode()
    lines = [f"{u}::{j}::{r}::{t}" for u, j, r, t in numbers.iter_rows()]
    tabs = "\n".join("\t".join(map(str, row)) for row in numbers.iter_rows()) + "\n"
    recbole = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + tabs
    books = ['"User-ID";"ISBN";"Book-Rating"'] + [
        f'"{u}";"é{j}";"{r}"' for u, j, r, _ in numbers.iter_rows()
    ]
    per_user = numbers.group_by("user", maintain_order=True).agg("item").iter_rows()
    lightgcn = "\n".join(f"{u} {' '.join(map(str, items))}" for u, items in per_user) + "\n"
    json_lines = "".join(
        json.dumps(row, ensure_ascii=False) + "\n" for row in words.iter_rows(named=True)
    )
    found = {
        "a.csv": csv,
        "b.csv": numbers.write_csv().encode(),
        "c.tsv": words.write_csv(separator="\t").encode(),
        "d.txt": numbers.write_csv(separator=";").encode(),
        "e.jsonl": json_lines.encode(),
        "f.json": json.dumps(words.to_dicts()).encode(),
        "ratings.dat": ("\n".join(lines) + "\n").encode(),
        "u.data": tabs.encode(),
        "g.inter": recbole.encode(),
        "BX-Book-Ratings.csv": "\n".join(books).encode("latin-1"),
        "train.txt": lightgcn.encode(),
        "h.csv.gz": gzip.compress(csv, mtime=0),
        "i.csv.bz2": bz2.compress(csv),
        "j.csv.xz": lzma.compress(csv),
        "k.zip": _zip("ratings.csv", csv),
        "l.parquet": _written(words.write_parquet),
        "m.parquet": _written(lambda file: numbers.write_parquet(file, compression="uncompressed")),
        "n.parquet": _written(lambda file: numbers.write_parquet(file, compression="snappy")),
        "o.mat": _mat(numbers, True),
        "p.mat": _mat(numbers, False),
        "q.npz": _npz(numbers),
    }
    zst = _zst(csv)
    if zst is not None:
        found["r.csv.zst"] = zst
    return [Sample(name, data, name.rpartition(".")[2] in CHECKED) for name, data in found.items()]


def _written(write) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def _zip(name: str, data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _mat(numbers: pl.DataFrame, packed: bool) -> bytes:
    table = numbers.select("user", "item", pl.lit(1), STARS, "time").to_numpy().astype(float)
    return _written(lambda file: scipy.io.savemat(file, {"rating": table}, do_compression=packed))


def _npz(numbers: pl.DataFrame) -> bytes:
    users, items, stars = (numbers[c].to_numpy() for c in ("user", "item", STARS))
    return _written(lambda file: np.savez_compressed(file, row=users, col=items, rating=stars))


def _zst(data: bytes) -> bytes | None:
    """Zstandard without a checksum; None where no package can write it."""
    try:
        import pyarrow
    except ImportError:
        return None
    file = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(file, "zstd") as stream:
        stream.write(data)
    return file.getvalue().to_pybytes()


def same_interactions(a: Interactions, b: Interactions) -> bool:
    """Whether two matrices hold the same positives of the same ids, in whatever order of rows and columns."""
    return _triples(a) == _triples(b)


def _triples(X: Interactions) -> list[tuple]:
    rows = np.repeat(np.arange(X.num_users), np.diff(np.asarray(X.indptr, np.int64)))
    columns = np.asarray(X.indices)
    users = rows if X.user_ids is None else X.user_ids[rows]
    items = columns if X.item_ids is None else X.item_ids[columns]
    weight = np.ones(X.nnz) if X.confidence is None else np.asarray(X.confidence)
    return sorted(zip(users.tolist(), items.tolist(), weight.tolist(), strict=True), key=repr)


def write(folder: pathlib.Path, name: str, data: bytes) -> pathlib.Path:
    """The file `name` with these bytes."""
    path = folder / name
    path.write_bytes(data)
    return path
