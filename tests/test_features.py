"""Features: how frames become numbers, and how their ids meet those of X."""

import logging

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from mfauc_jax.data import features
from mfauc_jax.data.features import Features

ROWS = {
    "item_id": ["a", "b", "c", "d"],
    "genre": ["Drama|Comedy", "Drama", None, "Comedy"],
    "tags": [["x", "y"], ["y"], [], ["y", "x", "z"]],
    "year": [1990.0, 2000.0, None, 2010.0],
    "alone": ["p", "q", "r", "s"],
}


def dense(found: Features) -> dict[str, list[float]]:
    return dict(zip(found.names, found.matrix.toarray().T.tolist(), strict=True))


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame])
def test_a_frame_is_encoded_by_the_stated_rule(frame):
    with pytest.warns(UserWarning, match="nothing to learn from alone"):
        found = Features.of(frame(ROWS))
    half, deviation = 0.5**0.5, np.std([1990, 2000, 2010])
    assert found.ids is not None and found.ids.tolist() == ["a", "b", "c", "d"]
    expected = {
        "genre=Comedy": [half, 0, 0, 1],
        "genre=Drama": [half, 1, 0, 0],
        "tags=x": [half, 0, 0, half],  # z, which one row has, is left out
        "tags=y": [half, 1, 0, half],
        "year": [-10 / deviation, 0, 0, 10 / deviation],
    }
    assert found.names == tuple(expected)
    assert np.allclose(list(dense(found).values()), list(expected.values()))


def test_other_rows_are_encoded_with_the_means_and_values_of_the_first():
    first = Features.from_frame(pl.DataFrame(ROWS).drop("alone"))
    other = {"item_id": ["e"], "genre": ["Drama|Horror"], "tags": [["x"]], "year": [2010.0]}
    with pytest.warns(UserWarning, match="left out 1 values"):
        found = first.like(pl.DataFrame(other))
    expected = [0, 1, 1, 0, 10 / np.std([1990, 2000, 2010])]
    assert found.names == first.names
    assert found.matrix.toarray()[0].tolist() == pytest.approx(expected)
    with pytest.raises(ValueError, match="lack the column 'tags'"):
        first.like(pl.DataFrame(other).drop("tags"))
    with pytest.raises(ValueError, match="are not the 5 that fit was given"):
        first.like(np.ones((1, 4)))


def test_repeated_and_missing_ids_are_said_in_one_line():
    rows = pl.DataFrame({"sku": [1, 1, None, 2], "colour": ["red", "blue", "red", "red"]})
    with pytest.warns(UserWarning, match="1 rows without an id left out; 1 rows with a repeated"):
        found = Features.of(rows)
    assert found.ids is not None and found.ids.tolist() == [1, 2]
    assert dense(found) == {"colour=red": [1.0, 1.0]}


def test_the_column_of_ids_must_be_one():
    with pytest.raises(ValueError, match=r"no column that looks like item ids among a, b: .*id="):
        Features.of(pl.DataFrame({"a": [1], "b": [2]}))
    with pytest.raises(ValueError, match="several columns"):
        Features.of(pl.DataFrame({"item": [1], "sku": [2], "b": [2]}))
    chosen = Features.from_frame(pl.DataFrame({"a": [7, 8], "b": [1, 2]}), id="a")
    assert chosen.ids is not None and chosen.ids.tolist() == [7, 8]
    with pytest.raises(TypeError, match="cannot read features from int"):
        Features.of(3)


def test_bad_matrices_are_refused():
    with pytest.raises(ValueError, match="a feature is nan"):
        Features.of(np.array([[1.0, np.nan]]))
    with pytest.raises(ValueError, match="1 names for 2 features"):
        Features.from_matrix(np.eye(2), names=["a"])
    with pytest.raises(ValueError, match="id 'a' has several rows"):
        Features.from_matrix(np.eye(2), ids=["a", "a"])
    with pytest.raises(ValueError, match="column 'b' has inf"):
        Features.of(pl.DataFrame({"item": [1, 2], "b": [1.0, np.inf]}))


def test_features_are_joined_to_the_items_of_x_by_id(caplog):
    given_ids = ["d", "z", "b", "y"]
    found = Features.from_matrix(np.diag([1.0, 2.0, 3.0, 4.0]), ids=given_ids)
    with (
        caplog.at_level(logging.INFO, "mfauc_jax"),
        pytest.warns(UserWarning, match="2 items of X without features"),
    ):
        known, others = features.joined(found, np.array(["a", "b", "c", "d"]), 4, "item")
    assert known.matrix.toarray().sum(1).tolist() == [0, 3, 0, 1]
    assert others.ids is not None and others.ids.tolist() == ["z", "y"]
    assert others.matrix.toarray().sum(1).tolist() == [2, 4]
    assert "2 items known by features only" in caplog.text


def test_positions_beyond_x_are_further_items():
    known, others = features.joined(Features.of(np.eye(5)), None, 3, "item")
    assert known.matrix.shape[0] == 3 and others.matrix.toarray()[0, 3] == 1
    apart = Features.from_matrix(np.eye(4), ids=[0, 1, 2, 7])
    with pytest.raises(ValueError, match="item 7 of the features is beyond the 3 items"):
        features.joined(apart, None, 3, "item")
    with pytest.raises(TypeError, match="X has item ids"):
        features.joined(Features.of(np.eye(3)), np.array(["a", "b", "c"]), 3, "item")
    with pytest.raises(TypeError, match="'a' is not a position"):
        features.joined(Features.from_matrix(np.eye(1), ids=["a"]), None, 3, "item")
    with pytest.raises(ValueError, match="none of the 1 item ids"):
        features.joined(Features.from_matrix(np.eye(1), ids=["q"]), np.array(["a"]), 1, "item")


cells = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(-1e6, 1e6),
    st.text("ab|", max_size=3),
    st.lists(st.text("ab", max_size=2)),
)


@given(st.lists(cells, min_size=1, max_size=8))
def test_any_cells_give_finite_rows_of_length_at_most_the_number_of_values(column):
    rows = [*column, "same", "same"]  # text, so that there is a shared value
    frame = pl.DataFrame(
        {"item": range(len(rows)), "c": pl.Series("c", rows, pl.Object)}, strict=False
    )
    found = Features.of(frame)
    squares = (found.matrix.toarray() ** 2).sum(1)
    assert np.isfinite(squares).all()
    assert np.allclose(squares[squares > 0], 1.0)  # values of one column share the length one
    assert scipy.sparse.issparse(found.matrix) and found.matrix.shape[0] == len(rows)
