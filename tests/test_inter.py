"""Positives written for others: csv, parquet and RecBole's .inter, and read back."""

import numpy as np
import polars as pl
import pytest
from command import fails, home, run, untouched_jax  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

from mfauc_jax import Interactions, data

WORDS = st.text(
    st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp", "Zs")), min_size=1, max_size=6
)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def triples(X):
    rows, columns, _ = X.on_host()
    users = X.user_ids[rows].astype(str).tolist()
    items = X.item_ids[columns].astype(str).tolist()
    weights = [1.0] * X.nnz if X.confidence is None else np.asarray(X.confidence).tolist()
    return {(u, i): w for u, i, w in zip(users, items, weights, strict=True)}


@pytest.mark.parametrize("kind", ["csv", "parquet", "inter"])
def test_what_is_written_is_read_back(kind, tmp_path):
    pairs = ["ann", "ann", "böb 1", "a,b"], ["tea", "x|y", "tea", 'q"q']
    X = Interactions.from_frame(
        pl.DataFrame({"user": pairs[0], "item": pairs[1], "w": [1.5, 2.0, 0.25, 1.0]}),
        confidence="w",
    )
    path = tmp_path / f"r.{kind}"
    data.write_ratings(X, path)
    assert triples(data.read_ratings(path, confidence="confidence")) == triples(X)
    if kind == "inter":
        first = path.read_text("utf-8").splitlines()[0]
        assert first == "user_id:token\titem_id:token\tconfidence:float"
    with pytest.raises(ValueError, match="must end in .csv, .parquet or .inter"):
        data.write_ratings(X, tmp_path / "r.xlsx")


@given(st.dictionaries(st.tuples(WORDS, WORDS), st.none(), min_size=1, max_size=8))
def test_any_ids_survive_an_inter_file(tmp_path_factory, pairs):
    users, items = zip(*pairs, strict=True)
    X = Interactions.from_frame(pl.DataFrame({"user": users, "item": items}))
    path = tmp_path_factory.mktemp("inter") / "r.inter"
    data.write_ratings(X, path)
    assert triples(data.read_ratings(path)) == triples(X)


def test_a_tab_in_an_id_is_refused_before_anything_is_written(tmp_path):
    X = Interactions.from_frame(pl.DataFrame({"user": ["a\tb", "c"], "item": ["x", "y"]}))
    with pytest.raises(ValueError, match="'a.tb' has a tab or a line end"):
        data.write_ratings(X, tmp_path / "r.inter")
    assert not list(tmp_path.iterdir())


def test_the_command_converts_and_splits_inter_files(home, tmp_path):
    out = tmp_path / "r.inter"
    ran = run("data", "convert", home / "ratings.csv", "--out", out, "--rating_column", "stars")
    whole = data.read_ratings(home / "ratings.csv")
    assert ran.code == 0, ran.err
    assert triples(data.read_ratings(out)) == triples(whole)
    assert f"wrote {whole.nnz} positives" in ran.err
    parts = tmp_path / "a.inter", tmp_path / "b.inter"
    assert run("data", "split", out, "--train", parts[0], "--test", parts[1]).code == 0
    both = [triples(data.read_ratings(part)) for part in parts]
    assert both[0] | both[1] == triples(whole) and not both[0].keys() & both[1].keys()
    (tmp_path / "t.csv").write_text(
        "who,what,stars,when\nann,a,5,3\nann,b,4,1\nann,c,2,2\nbob,a,1,9\n"
    )
    named = ("--user_column", "who", "--item_column", "what", "--time_column", "when")
    split = ("--last", "1", "--train", parts[0], "--test", parts[1])
    assert run("data", "split", tmp_path / "t.csv", *named, *split).code == 0
    lines = parts[1].read_text().splitlines()
    assert lines == ["user_id:token\titem_id:token\tstars:float\twhen:float", "ann\ta\t5.0\t3.0"]
    said = fails("data", "convert", out, "--out", tmp_path / "r.txt", code=2)
    assert "must end in .csv, .parquet or .inter" in said
