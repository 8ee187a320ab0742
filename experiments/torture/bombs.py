"""Small inputs that ask for much memory: packed zeros, millions of columns, sparse files, absurd lengths of lists."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import pathlib
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import scipy.io
import scipy.sparse

import mfauc_jax as mf
from experiments.torture import samples
from experiments.torture.tally import CRASHED, OTHER, Outcome, refusal
from mfauc_jax import cli

SERVED = 1  # one case per child: memory that one has taken does not count for the next
MB = 2**20
QUICK = ("zeros.csv.gz", "sparse model", "recommend n", "wide.csv", "mfauc recommend --n")


def _files() -> dict[str, Callable[[], bytes]]:
    """Files of ratings below 10 MB by name, made when they are needed."""
    zeros, lines = bytes(32 * MB), b"user,item\n" + b"1,2\n" * (8 * MB)
    return {
        "zeros.csv.gz": lambda: gzip.compress(zeros, 9) * 128,
        "lines.csv.gz": lambda: gzip.compress(lines, 9) * 60,
        "zeros.csv.xz": lambda: lzma.compress(zeros, preset=1) * 128,
        "zeros.csv.bz2": lambda: bz2.compress(zeros) * 128,
        "zeros.csv.zst": lambda: (samples._zst(zeros) or b"\x28\xb5\x2f\xfd") * 128,
        "zeros.zip": lambda: _zip({"ratings.csv": bytes(512 * MB)}),
        "nested.zip": lambda: _zip({"ratings.csv.gz": gzip.compress(zeros, 9) * 128}),
        "wide.csv": lambda: b",".join([b"a"] * 4_900_000) + b"\n1,2\n",
        "wide.csv.gz": lambda: gzip.compress(b",".join([b"a"] * 10**7) + b"\n1,2\n"),
        "wide.tsv": lambda: b"\t".join([b"%x" % i for i in range(10**6)]) + b"\n1\t2\n",
        "keys.jsonl": lambda: json.dumps({f"k{i}": i for i in range(500_000)}).encode(),
        "deep.json": lambda: b"[" * (5 * MB),
        "empty.jsonl": lambda: b"{}\n" * (3 * MB),
        "quotes.csv": lambda: b'"' * (9 * MB),
        "field.csv": lambda: b"user,item\n1," + b"x" * (9 * MB),
        "train.txt": lambda: b" ".join([b"1"] * 4_500_000),
        "users.csv": lambda: b"user,item\n" + b"".join(b"%x,1\n" % i for i in range(10**6)),
        "rows.parquet": lambda: _parquet(10**8),
        "zeros.npz": lambda: _npz(60_000_000),
        "zeros.mat": lambda: _mat(300 * MB),
    }


def _calls(folder: pathlib.Path) -> dict[str, Callable[[], Any]]:
    """Calls by name."""
    model, X = samples.fitted(ids=False), samples.matrix()
    path, sparse = folder / "model", folder / "sparse"
    model.save(path)
    with sparse.open("wb") as file:
        file.truncate(2048 * MB)
    huge = 2**31
    header = (2**40).to_bytes(8, "little") + path.read_bytes()[8:]
    many = json.dumps(
        {str(i): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(10**5)}
    ).encode()
    claimed = {
        "long header": header,
        "many tensors": len(many).to_bytes(8, "little") + many,
        "large tensor": _header(
            {"user_factors": {"dtype": "F32", "shape": [2**33, 3], "data_offsets": [0, 12 * 2**33]}}
        ),
    }
    return {
        "sparse model": lambda: mf.MFAUC.load(sparse),
        "sparse model, mfauc recommend": lambda: _command("recommend", str(sparse), "0"),
        **{
            name: (lambda n=name, d=data: mf.MFAUC.load(samples.write(folder, n, d)))
            for name, data in claimed.items()
        },
        "recommend n": lambda: model.recommend(range(24), huge),
        "recommend n, all seen allowed": lambda: model.recommend(
            range(24), huge - 1, exclude_seen=False
        ),
        "recommend n, popular": lambda: model.recommend([99], huge, unknown="popular"),
        "similar_items n": lambda: model.similar_items(range(16), huge),
        "evaluate at": lambda: model.evaluate(samples.held_out(X), at=(huge,)),
        "export n": lambda: mf.export.table(model, folder / "lists.csv", n=huge),
        "mfauc recommend --n": lambda: _command("recommend", str(path), "0", "--n", str(huge)),
        "shape of pairs": lambda: mf.Interactions.from_pairs([0], [0], shape=(huge, huge)),
        "users of a sparse matrix": lambda: mf.Interactions.of(
            scipy.sparse.coo_array((huge - 1, 3))
        ),
        "items of a sparse matrix": lambda: mf.MFAUC(rank=2).fit(_one_user(huge - 2)),
        "rank": lambda: mf.MFAUC(rank=2**16).fit(np.ones((3, 4)) * (np.arange(4) > 1)),
    }


def _one_user(items: int) -> Any:
    return scipy.sparse.coo_array(([1.0], ([0], [3])), shape=(2, items))


def _header(tensors: dict[str, Any]) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


def _command(*words: str) -> Any:
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        code = cli.main([*words, "--no_cache"])
    if code or "Traceback" in err.getvalue():
        raise (
            ValueError(err.getvalue())
            if "internal error" not in err.getvalue()
            else RuntimeWarning(err.getvalue())
        )


def _zip(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def _parquet(rows: int) -> bytes:
    column = pl.Series("user", [1], dtype=pl.Int32).new_from_index(0, rows)
    file = io.BytesIO()
    pl.DataFrame({"user": column, "item": column}).write_parquet(file)
    return file.getvalue()


def _npz(rows: int) -> bytes:
    file, zeros = io.BytesIO(), np.zeros(rows, np.int64)
    np.savez_compressed(file, row=zeros, col=zeros, rating=zeros)
    return file.getvalue()


def _mat(size: int) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, {"rating": np.zeros((size // 32, 4))}, do_compression=True)
    return file.getvalue()


def names(quick: bool) -> list[str]:
    """The names of the bombs."""
    return list(QUICK) if quick else [*_files(), *CALLS]


CALLS = (
    *(
        "sparse model",
        "sparse model, mfauc recommend",
        "long header",
        "many tensors",
        "large tensor",
    ),
    *(
        "recommend n",
        "recommend n, all seen allowed",
        "recommend n, popular",
        "similar_items n",
        "evaluate at",
    ),
    *("export n", "mfauc recommend --n", "shape of pairs", "users of a sparse matrix"),
    *("items of a sparse matrix", "rank"),
)


def count(quick: bool) -> int:
    return len(names(quick))


def prepare(home: pathlib.Path) -> pathlib.Path:
    """The folder of the bombs; each file is made by a process of its own that comes before."""
    folder = home / "bombs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def attempt(folder: pathlib.Path, seed: int, case: int) -> Outcome:
    """Read one bomb, or make one absurd call."""
    del seed
    every = [*QUICK, *(name for name in names(False) if name not in QUICK)]  # quick ones come first
    name, named = every[case], ()
    if name in CALLS:
        call = _calls(folder)[name]
    else:
        path = folder / name
        named = (path.name,)
        if not path.exists() or not path.stat().st_size:
            made_apart(folder, name)
        call = lambda: mf.data.read_ratings(path)  # noqa: E731
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except MemoryError as error:
        return Outcome(CRASHED, f"{name}: MemoryError {error}")
    except BaseException as error:
        outcome = refusal(error, *named)
        return Outcome(outcome.what, f"{name}: {outcome.detail}")
    return Outcome(OTHER, name)


def made_apart(folder: pathlib.Path, name: str) -> None:
    """Make a file in a process of its own, whose memory does not count."""
    import subprocess
    import sys

    code = "import sys, pathlib; from experiments.torture import bombs; " + (
        "pathlib.Path(sys.argv[1], sys.argv[2]).write_bytes(bombs._files()[sys.argv[2]]())"
    )
    subprocess.run([sys.executable, "-c", code, str(folder), name], check=True)
