"""Folders of parquet files, of which a process reads the users that are its own."""

import jax
import numpy as np
import polars as pl
import pytest

from mfauc_jax import Interactions
from mfauc_jax.data import shards

RNG = np.random.default_rng(0)
TABLE = pl.DataFrame({"user": RNG.integers(0, 50, 600), "item": RNG.integers(0, 20, 600)}).unique(
    maintain_order=True
)


def chunks(table=TABLE, size=100):
    return (table[first : first + size] for first in range(0, len(table), size))


def dense(X):
    rows, columns, _ = X.on_host()
    users, items = np.asarray(X.user_ids)[rows], np.asarray(X.item_ids)[columns]
    return set(zip(users.tolist(), items.tolist(), strict=True))


@pytest.mark.parametrize("text", [False, True])
def test_what_is_written_in_chunks_is_read_whole(tmp_path, text):
    """Kills: lost chunks, items of one part numbered by another, rows that are not sorted."""
    table = TABLE.with_columns(pl.all().cast(pl.String)) if text else TABLE
    shards.write(chunks(table), tmp_path / "new", 7)
    X = shards.read(tmp_path / "new")
    assert len(list((tmp_path / "new").iterdir())) == 7 and len(list(tmp_path.iterdir())) == 1
    assert dense(X) == set(table.rows()) == dense(Interactions.of(table))
    np.testing.assert_array_equal(X.item_ids, Interactions.of(table).item_ids)
    for row in np.split(np.asarray(X.indices), np.asarray(X.indptr)[1:-1]):
        assert (np.diff(row) > 0).all()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for part, rows in enumerate(chunks(table, 200)):
        rows.write_parquet(foreign / f"{part}.parquet")
    assert dense(shards.read(foreign)) == dense(X)


def test_confidences_are_kept(tmp_path):
    weighted = TABLE.with_columns(weight=pl.int_range(1, len(TABLE) + 1).cast(float))
    shards.write(chunks(weighted), tmp_path / "new", 3, confidence="weight")
    X, wanted = (
        shards.read(tmp_path / "new"),
        Interactions.from_frame(weighted, confidence="weight"),
    )
    back = X.take(np.argsort(np.asarray(X.user_ids)))
    np.testing.assert_array_equal(back.confidence, wanted.confidence)
    np.testing.assert_array_equal(back.indices, wanted.indices)


def test_files_are_dealt_by_their_rows_and_each_to_one_process(tmp_path, monkeypatch):
    """Kills: files by their number, a file of nobody, a file of two."""
    sizes = [1, 2, 3, 4, 40, 5, 6, 7, 8, 0]
    for place, size in enumerate(sizes):
        TABLE[:size].write_parquet(tmp_path / f"{place}.parquet")
    files = shards._files(tmp_path)
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    dealt = []
    for me in range(3):
        monkeypatch.setattr(jax, "process_index", lambda me=me: me)
        dealt.append(shards._own(files))
    assert sorted(file for own in dealt for file in own) == files
    rows = [sum(sizes[int(file.stem)] for file in own) for own in dealt]
    assert sorted(rows) == [18, 18, 40]
    monkeypatch.setattr(jax, "process_count", lambda: 11)
    with pytest.raises(ValueError, match="10 files for 11 processes: write more parts"):
        shards._own(files)


def test_users_are_hashed_evenly_and_alike():
    """Kills: the remainder of the id itself, which its numbering would upset."""
    parts = shards.part_of(np.arange(0, 64_000, 64), 64)
    assert np.bincount(parts, minlength=64).min() >= 1 and np.bincount(parts).max() < 40
    assert (
        shards.part_of(np.array(["ab", "c"]), 97).tolist()
        == shards.part_of(np.array(["ab", "c", "a longer id"]), 97)[:2].tolist()
    )


def test_what_is_wrong_with_a_folder_is_said(tmp_path):
    with pytest.raises(ValueError, match="has no .*parquet files"):
        shards.read(tmp_path)
    with pytest.raises(ValueError, match="parts = 0 must be in 1"):
        shards.write(chunks(), tmp_path / "none", 0)
    with pytest.raises(ValueError, match="there is no chunk"):
        shards.write([], tmp_path / "none")
    shards.write(chunks(), tmp_path / "new", 3)
    with pytest.raises(ValueError, match="new is not empty"):
        shards.write(chunks(), tmp_path / "new", 3)
    (tmp_path / "new" / "users-00001-of-00003.parquet").unlink()
    with pytest.raises(ValueError, match="has 2 of 3 files, users-00001 is among the others"):
        shards.read(tmp_path / "new")
