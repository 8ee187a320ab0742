"""Files that are made, or damaged, to fill the memory or to end the process are refused by a sentence."""

import bz2
import gzip
import io
import json
import lzma
import os
import pathlib
import subprocess
import sys
import warnings
import zipfile
from unittest import mock

import numpy as np
import polars as pl
import pytest
import scipy.io

import mfauc_jax as mf
from mfauc_jax import data
from mfauc_jax.data import compressed, layouts, matlab, parquet
from mfauc_jax.serving import model_file

ROOT = pathlib.Path(__file__).parent.parent
HEAD, ROWS = b"user,item\n", b"1,2\n" * 2**20
MOST = 2**20 - 1  # what small files may unpack to in these tests


def zipped(name: str, content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return made.getvalue()


def arrays(save, **columns) -> bytes:
    made = io.BytesIO()
    save(made, **columns)
    return made.getvalue()


ZEROS = np.zeros(2**20)
BOMBS = {
    "a.csv.gz": gzip.compress(HEAD + ROWS),
    "a.csv.bz2": bz2.compress(HEAD + ROWS),
    "a.csv.xz": lzma.compress(HEAD + ROWS),
    "a.zip": zipped("a.csv", HEAD + ROWS),
    "b.zip": zipped("a.csv.gz", gzip.compress(HEAD + ROWS)),  # the bound is that of the outer file
    "a.npz": arrays(np.savez_compressed, row=ZEROS, col=ZEROS, rating=ZEROS),
    "rating.mat": arrays(
        lambda file, **m: scipy.io.savemat(file, m, do_compression=True),
        rating=np.zeros((2**18, 4)),
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_unpacks_to_a_bounded_size(name, tmp_path):
    """It kills a bound that forgets a kind of file, and one that is taken anew for an archive within a file."""
    (tmp_path / name).write_bytes(BOMBS[name])
    with (
        mock.patch.object(compressed, "SMALL", MOST),
        mock.patch.object(compressed, "RATIO", 2),
        pytest.raises(ValueError, match=rf"{name} .*unpacks to"),
    ):
        data.read_ratings(tmp_path / name)


def test_what_the_bounds_allow_is_read(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(HEAD + ROWS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert data.read_ratings(tmp_path / "a.csv.gz").shape == (1, 1)
    assert compressed.most_bytes(10**7) == 5 * 10**8
    assert compressed.most_bytes(10**9) == compressed.LARGEST


def test_a_file_has_at_most_one_row_per_byte(tmp_path):
    """4 MB of gzip with 8 GB of short rows; a parquet file of 10⁸ equal rows has a few kilobytes."""
    rows = {"user": np.zeros(5000, np.int64), "item": np.zeros(5000, np.int64)}
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(HEAD + b"1,2\n" * 5000))
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(b"1" + b" 2" * 5000 + b"\n"))
    text = b"[" + b'{"user":1,"item":2},' * 4999 + b'{"user":1,"item":2}]'
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text))
    for name in ("a.parquet", "a.csv.gz", "train.txt.gz", "a.json.gz"):
        with (
            mock.patch.object(compressed, "FEW_ROWS", 1000),
            pytest.raises(ValueError, match=rf"{name} has 500\d rows in \d+ bytes, more than 1000"),
        ):
            data.read_ratings(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"user,item" + b",x" * 10**6 + b"\n", "line 1 has more than 1048576 bytes"),
        (HEAD + b"1,2\n" + b"," * (2**20 + 1) + b"\n", "line 3 has more than 1048576 bytes"),
        (HEAD + b'"' + b"1,2\n" * 3 + b"x" * (2**20 + 5), "line 5 has more than 1048576 bytes"),
        (b",".join(b"c%d" % j for j in range(10_001)) + b"\n", "has 10001 columns or more"),
    ],
    ids=["header", "row", "last", "columns"],
)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_line_has_a_bounded_length_and_number_of_columns(content, words, skip_bad, tmp_path):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        data.read_ratings(tmp_path / "a.csv", skip_bad=skip_bad)


def test_lines_of_every_length_up_to_the_bound_are_let_through():
    """The search hops from line end to line end: it must not hop over a long line, nor count past the end."""
    draw = np.random.default_rng(0)
    with mock.patch.object(compressed, "LONGEST_LINE", 20):
        for _ in range(300):
            lines = [b"x" * int(draw.integers(0, 24)) for _ in range(12)]
            text = b"\n".join(lines) + (b"\n" if draw.random() < 0.5 else b"")
            bad = [number for number, line in enumerate(lines, 1) if len(line) > 20]
            if bad:
                with pytest.raises(ValueError, match=f"line {bad[0]} "):
                    compressed.check_lines("a", text)
            else:
                compressed.check_lines("a", text)


SPARSE = """
import resource, sys
import mfauc_jax as mf
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    mf.MFAUC.load(sys.argv[1])
except mf.ModelFileError as error:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, error)
"""


def test_a_large_file_that_is_no_model_is_not_read(tmp_path):
    """2 GB of nothing behind a sound header of safetensors; reading the tensors first took 4 GB."""
    entry = {"dtype": "F32", "shape": [2**29], "data_offsets": [0, 2**31]}
    header = json.dumps({"weight": entry, "__metadata__": {"format": "pt"}}).encode()
    path = tmp_path / "m"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2**31)
    words = [sys.executable, "-c", SPARSE, str(path)]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    megabytes, _, said = ran.stdout.partition(" ")
    assert "not a model of mfauc_jax" in said and int(megabytes) < 100


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 12]},
        {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [2.0, 2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [4], "data_offsets": [4, 20]},
        {"dtype": "F16", "shape": [8], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [4]},
        {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 2**64]},
        [],
    ],
)
def test_a_header_that_contradicts_itself_is_refused(entry, tmp_path):
    about = {"format": model_file.FORMAT, "format_version": "2.0"}
    header = json.dumps({"user_factors": entry, "__metadata__": about}).encode()
    (tmp_path / "m").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(mf.ModelFileError):
        mf.MFAUC.load(tmp_path / "m")


def mutated(draw: np.random.Generator, whole: bytes) -> bytes:
    """The bytes with one to three of them changed and, once in five times, cut."""
    changed = bytearray(whole)
    for _ in range(draw.integers(1, 4)):
        changed[draw.integers(len(whole))] = draw.integers(256)
    return bytes(changed[: draw.integers(1, len(whole))] if draw.random() < 0.2 else changed)


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_matlab_file_is_read_or_refused(packed, tmp_path):
    """scipy.io.loadmat ended the process on such files. Sound ones are read as scipy reads them."""
    table = np.random.default_rng(1).integers(1, 9, (12, 6)).astype(float)
    others = {"about": "a text", "parts": {"a": np.eye(2)}, "odd": np.array([1j])}
    file = io.BytesIO()
    scipy.io.savemat(file, others | {"rating": table}, do_compression=packed)
    whole, draw, refused = file.getvalue(), np.random.default_rng(0), 0
    np.testing.assert_array_equal(matlab.matrix(whole, "rating", 10**5), table)
    for _ in range(2000):
        try:
            assert matlab.matrix(mutated(draw, whole), "rating", 10**5).ndim >= 1
        except (ValueError, KeyError):
            refused += 1
    assert refused > 500
    path = tmp_path / "rating.mat"
    for _ in range(100):
        path.write_bytes(mutated(draw, whole))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                data.read_ratings(path)
            except ValueError as error:
                assert "rating.mat" in str(error)


@pytest.mark.parametrize("kind", ["u1", "i2", "i4", "u8", "f4", "f8", ">f8"])
def test_numbers_of_every_type_are_read_from_matlab_files(kind):
    table = np.arange(15).reshape(5, 3).astype(kind)
    file = io.BytesIO()
    scipy.io.savemat(file, {"x": table})
    np.testing.assert_array_equal(matlab.matrix(file.getvalue(), "x", 0), table)


def test_ids_of_arrays_are_whole_numbers(tmp_path):
    """A NaN became −2⁶³ without a word."""
    for bad, words in ((np.nan, "user nan"), (1.5, "user 1.5"), (2.0**60, "user 1.15")):
        users = np.array([1.0, bad])
        np.savez(tmp_path / "a.npz", row=users, col=np.array([1, 2]), rating=np.ones(2))
        with pytest.raises(ValueError, match=f"{words}.* is not a whole number"):
            data.read_ratings(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", row=np.ones(3), col=np.ones(2), rating=np.ones(2))
    with pytest.raises(ValueError, match=r"item is float64 \(2,\)"):
        data.read_ratings(tmp_path / "a.npz")


def likes(folder: pathlib.Path, compression: str = "zstd") -> bytes:
    draw = np.random.default_rng(0)
    users, items = draw.integers(0, 50, (2, 300))
    frame = pl.DataFrame({"user": users, "item": [f"i{j}" for j in items], "other": users})
    frame.write_parquet(folder / "likes.parquet", compression=compression)  # type: ignore[arg-type]
    return (folder / "likes.parquet").read_bytes()


@pytest.mark.parametrize("compression", ["zstd", "uncompressed"])
def test_a_damaged_parquet_file_is_read_or_refused(compression, tmp_path):
    """polars panics, a BaseException, or asks for 2⁶⁰ bytes and ends its process: that is another one here."""
    whole, draw, refused = likes(tmp_path, compression), np.random.default_rng(3), 0
    path = tmp_path / "damaged.parquet"
    with parquet.trial() as trial, mock.patch.object(layouts.parquet, "trial") as shared:
        shared.return_value.__enter__.return_value = trial  # one process for all of them
        for _ in range(250):
            path.write_bytes(mutated(draw, whole))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    data.read_ratings(path)
            except ValueError as error:
                refused += 1
                assert "damaged.parquet" in str(error)
    assert refused > 100


def test_a_file_that_ends_the_process_ends_only_the_trial(tmp_path):
    """The other process really is another one: it is killed in the middle, and the next file is read by a new one."""
    likes(tmp_path)
    with parquet.trial() as trial:
        ready = trial.ask(tmp_path / "likes.parquet", None, 1000)
        assert ready == {"names": ["user", "item", "other"], "rows": 300}
        assert trial.child is not None and trial.child.pid != os.getpid()
        trial.child.kill()
        answer = trial.ask(tmp_path / "likes.parquet", ["user"], 1000)
        assert answer is not None and "ends the process" in answer["error"]
        assert trial.ask(tmp_path / "likes.parquet", ["user"], 1000) == {"rows": 300}
        child = trial.child
    assert child is not None and child.poll() is not None


def test_where_no_process_can_be_started_parquet_is_read_all_the_same(tmp_path):
    likes(tmp_path)
    for executable in ("/nowhere/python", "", "/bin/true"):
        with mock.patch.object(sys, "executable", executable):
            assert data.read_ratings(tmp_path / "likes.parquet").num_users == 50


def test_a_panic_of_polars_is_a_sentence(tmp_path):
    likes(tmp_path)
    (tmp_path / "a.csv").write_bytes(HEAD + b"1,2\n")
    (tmp_path / "a.jsonl").write_text('{"user": 1, "item": 2}\n')

    def panics(*args, **options):
        raise pl.exceptions.PanicException("index out of bounds")

    with (
        mock.patch.object(pl, "read_parquet", panics),
        pytest.raises(ValueError, match="likes.par"),
    ):
        data.read_ratings(tmp_path / "likes.parquet")
    with mock.patch.object(pl, "read_csv", panics), pytest.raises(ValueError, match=r"a\.csv"):
        data.read_ratings(tmp_path / "a.csv")
    with mock.patch.object(pl, "read_ndjson", panics), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert data.read_ratings(tmp_path / "a.jsonl").nnz == 1  # read by Python instead


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**5,
        '[{"user": 1, "item": 2}',
        '[{"user": 1, "item": 2} {"user": 1, "item": 3}]',
        '[{"user": 1, "item": 2},]',
        '[{"user": 1, "item": 2}] and more',
        '[{"user": 1, "item": ' + "[" * 10**5,
        '{"user": 1, "item": ' + "[" * 10**5 + "]" * 10**5 + "}\n",
    ],
)
def test_a_list_of_objects_is_json_to_its_end(text, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"a\.json"):
        data.read_ratings(tmp_path / "a.json")


def test_a_list_of_objects_is_read_one_by_one(tmp_path):
    rows = [{"user": f"u{j % 7}", "item": j % 5, "note": {"a": [j]}} for j in range(40)]
    for indent in (None, 2):
        (tmp_path / "a.json").write_text(" \n" + json.dumps(rows, indent=indent) + " \n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            X = data.read_ratings(tmp_path / "a.json")
        assert X.shape == (7, 5) and X.nnz == len({(r["user"], r["item"]) for r in rows})
