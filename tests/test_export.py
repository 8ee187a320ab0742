import faiss
import numpy as np
import polars as pl
import pytest
from toys import quiet, random_factors

import mfauc_jax as mf
from mfauc_jax.serving import export
from mfauc_jax.training.loop import Fitted

RNG = np.random.default_rng(0)
DENSE = RNG.random((40, 25)) < 0.3
DENSE[3] = np.arange(25) < 22  # three items are left


def fitted(X):
    return mf.MFAUC()._keep(X, Fitted(random_factors(0, X), [], "iterations"))


@pytest.fixture(scope="module")
def plain():
    return fitted(quiet(DENSE))


@pytest.fixture(scope="module")
def named():
    users, items = np.nonzero(DENSE)
    pairs = [f"ü{i:02d}" for i in users], items * 10
    return fitted(mf.Interactions.from_pairs(*pairs))


def test_faiss_finds_what_recommend_does(named):
    items = export.item_vectors(named)
    users = export.user_vectors(named, named.train_.user_ids[::3])
    for vectors in (items.vectors, users.vectors):
        assert vectors.dtype == np.float32 and vectors.flags.c_contiguous
    index = faiss.IndexFlatIP(items.vectors.shape[1])
    index.add(items.vectors)
    scores, found = index.search(users.vectors, 10)
    expected = named.recommend(users.ids, n=10, exclude_seen=False)
    np.testing.assert_array_equal(items.ids[found], expected[0])
    np.testing.assert_allclose(scores, expected[1], atol=1e-5)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_tables_hold_the_lists_in_blocks_of_users(plain, named, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "BLOCK", 16)
    path = tmp_path / f"lists.{kind}"
    for model in (plain, named):
        export.table(model, path, n=5)
        found = pl.read_parquet(path) if kind == "parquet" else pl.read_csv(path)
        assert found.columns == ["user", "item", "rank", "score"]
        ids = model.train_.user_ids if model is named else np.arange(40)
        items, scores = model.recommend(ids, n=5)
        assert found["user"].to_list() == np.repeat(ids, (scores > -np.inf).sum(1)).tolist()
        assert found["item"].to_list() == items[scores > -np.inf].tolist()
        assert found.filter(pl.col("user") == ids[3])["rank"].to_list() == [1, 2, 3]
        np.testing.assert_allclose(found["score"], scores[scores > -np.inf], rtol=5e-6)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_trec_run_reads_back(named, tmp_path):
    export.trec_run(named, tmp_path / "run", users=["ü01", "ü07"], n=3, tag="ours")
    rows = [line.split() for line in (tmp_path / "run").read_text(encoding="utf-8").splitlines()]
    items, scores = named.recommend(["ü01", "ü07"], n=3)
    assert [row[2] for row in rows] == [str(item) for item in items.ravel()]
    assert [row[3] for row in rows] == ["1", "2", "3"] * 2
    np.testing.assert_allclose([float(row[4]) for row in rows], scores.ravel(), rtol=1e-6)
    assert {(row[1], row[5]) for row in rows} == {("Q0", "ours")}


def test_what_cannot_be_written_leaves_the_old_file(plain, tmp_path):
    (tmp_path / "old.csv").write_text("old")
    for call, error, says in (
        (
            lambda: export.table(plain, tmp_path / "lists.xlsx"),
            ValueError,
            "choose .parquet or .csv",
        ),
        (
            lambda: export.table(plain, tmp_path / "no" / "lists.csv"),
            FileNotFoundError,
            "cannot write",
        ),
        (lambda: export.table(plain, tmp_path / "old.csv", users=[1, 99]), ValueError, "user 99"),
        (
            lambda: export.trec_run(plain, tmp_path / "old.csv", tag="a b"),
            ValueError,
            "white space",
        ),
        (lambda: export.trec_run(plain, tmp_path / "old.csv", users=[99]), ValueError, "user 99"),
        (lambda: export.item_vectors(mf.MFAUC()), RuntimeError, "call fit"),
        (lambda: export.table(mf.MFAUC(), tmp_path / "old.csv"), RuntimeError, "call fit"),
    ):
        with pytest.raises(error, match=says):
            call()
    assert (tmp_path / "old.csv").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_a_csv_with_formulas_warns_and_can_escape_them(tmp_path):
    X = mf.Interactions.from_pairs(["=1+1", "b", "b", "c"], ["x", "-x", "y", "x"])
    model = fitted(X)
    with pytest.warns(UserWarning, match=r"a\.csv: \d+ cells begin with = \+ - @"):
        export.table(model, tmp_path / "a.csv", n=1)
    assert "=1+1" in pl.read_csv(tmp_path / "a.csv")["user"].to_list()
    export.table(model, tmp_path / "a.csv", n=3, escape_formulas=True)
    found = pl.read_csv(tmp_path / "a.csv")
    assert set(found["user"]) == {"'=1+1", "b", "c"} and "'-x" in found["item"].to_list()
    export.table(model, tmp_path / "a.parquet", n=1)  # no spreadsheet takes it for formulas
    assert export.count_formulas(pl.DataFrame({"a": [-1, 2]})) == 0
