import warnings

import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from toys import matrices, quiet

from mfauc_jax.data import ragged
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.model import MFAUC
from mfauc_jax.solvers import base

DENSE = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 1]])


@given(matrices())
def test_rows_columns_and_transpose_agree_with_the_dense_matrix(dense):
    X = quiet(dense)
    assert (X.to_scipy().toarray() == dense).all()
    assert (X.transpose().to_scipy().toarray() == dense.T).all()
    assert (np.asarray(X.rows) == np.nonzero(dense)[0]).all()
    assert (np.asarray(X.row_lengths) == dense.sum(1)).all()
    assert 2**X.row_bits > dense.sum(1).max()


@pytest.mark.parametrize(
    "make",
    [
        lambda: sp.csr_matrix(DENSE),
        lambda: sp.csc_array(DENSE.astype(np.float32)),
        lambda: sp.coo_array(DENSE.astype(bool)),
        lambda: DENSE,
        lambda: Interactions.of(DENSE),
        lambda: Interactions.from_csr([0, 2, 3, 6], [0, 2, 1, 0, 1, 3], 4),
        lambda: Interactions.from_pairs(*np.nonzero(DENSE), shape=(3, 4)),
    ],
)
def test_every_kind_of_matrix_is_the_same_x(make):
    assert (Interactions.of(make()).to_scipy().toarray() == DENSE).all()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table, lambda d: pl.LazyFrame(d)])
def test_frames_keep_their_ids(frame):
    table = frame({"user": ["zoë", "al", "zoë"], "item": [70, 7, 700]})
    X = Interactions.of(table)
    assert list(X.user_ids) == ["al", "zoë"] and list(X.item_ids) == [7, 70, 700]
    assert (X.to_scipy().toarray() == [[1, 0, 0], [0, 1, 1]]).all()


def test_pairs_of_ids_and_a_frame_with_other_column_names():
    X = Interactions.of((["b", "a"], [5, 6]))
    assert list(X.user_ids) == ["a", "b"] and X.shape == (2, 2)
    frame = pd.DataFrame({"who": [1, 2], "what": ["x", "y"]})
    Y = Interactions.from_frame(frame, user="who", item="what")
    assert list(Y.item_ids) == ["x", "y"]
    with pytest.raises(ValueError, match=r'from_frame\(df, user="…", item="…"\)'):
        Interactions.of(frame)


def test_ids_do_not_cross_jit_and_do_not_make_it_recompile():
    traces = []

    @jax.jit
    def run(X):
        traces.append(1)
        return X

    for users in (["a", "b"], ["c", "d"]):
        out = run(Interactions.from_pairs(users, [1, 2]))
    assert len(traces) == 1 and out.user_ids is None and out.num_items == 2


def test_duplicates_and_useless_users_are_kept_merged_and_told_once():
    with pytest.warns(UserWarning) as caught:
        X = Interactions.from_pairs([0, 0, 1, 1, 1], [0, 0, 0, 1, 2], shape=(3, 3))
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "1 repeated pairs merged" in text
    assert "1 users without a positive" in text and "1 users with every item" in text
    assert X.nnz == 4 and X.shape == (3, 3)


def test_confidence_weights_the_positives():
    X = Interactions.of(sp.csr_array([[2.0, 0, 0.5], [1, 0, 0]]), confidence=True)
    assert X.confidence is not None and list(np.asarray(X.confidence)) == [2.0, 0.5, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Y = Interactions.from_pairs([0, 0, 0], [0, 0, 1], shape=(1, 3), confidence=[1.0, 2.0, 4.0])
    assert Y.confidence is not None and list(np.asarray(Y.confidence)) == [3.0, 4.0]


def bad(value):
    matrix = np.array(DENSE, float)
    matrix[1, 1] = value
    return sp.csr_array(matrix)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Interactions.of(bad(np.nan)), ValueError, "nan of user 1, item 1 is not finite"),
        (lambda: Interactions.of(bad(np.inf)), ValueError, "inf of user 1, item 1"),
        (lambda: Interactions.of(bad(-1)), ValueError, "-1.0 of user 1, item 1 is negative"),
        (lambda: Interactions.of(bad(0.5)), ValueError, "0.5 .* is not 0 or 1.*threshold"),
        (lambda: Interactions.of(bad(4)), ValueError, "4.0 .*confidence=True"),
        (lambda: Interactions.of(sp.csr_array((3, 4))), ValueError, "X is empty"),
        (lambda: Interactions.of(np.ones((0, 4))), ValueError, "X is empty"),
        (lambda: Interactions.of(([], [])), ValueError, "X is empty"),
        (lambda: Interactions.of(np.ones(4)), TypeError, "cannot read interactions from ndarray"),
        (lambda: Interactions.of("ratings.csv"), TypeError, "from str"),
        (lambda: Interactions.of(([1.0, 2.0], [1, 2])), TypeError, "user id 1.0 is float: cast"),
        (lambda: Interactions.of(([1, 2], [1.5, np.nan])), TypeError, "item id"),
        (lambda: Interactions.of(([1, 2], [1])), ValueError, "2 users but 1 items"),
        (lambda: Interactions.of((["a", 1], [1, 2])), TypeError, "mix strings and integers"),
        (lambda: Interactions.of((["a", None], [1, 2])), ValueError, "1 of 2 user ids are missing"),
        (lambda: Interactions.of((["a", " "], [1, 2])), ValueError, "1 of 2 user ids are empty"),
        (lambda: Interactions.of((["a", "a\0"], [1, 2])), ValueError, "a zero character"),
        (
            lambda: Interactions.from_pairs([1, 2], [3, 4], confidence=[1.0, 0.0]),
            ValueError,
            "confidence of user 2, item 4 is 0",
        ),
        (
            lambda: Interactions.of(pl.DataFrame({"user": [1], "item": [2]}), confidence=True),
            ValueError,
            "confidence=True reads the values of a matrix",
        ),
        (
            lambda: Interactions.from_pairs([0, 5], [0, 1], shape=(3, 3)),
            ValueError,
            "user 5 is out",
        ),
        (lambda: Interactions.from_pairs([0, -1], [0, 1], shape=(3, 3)), ValueError, "user -1"),
        (lambda: Interactions.from_pairs(["a"], [1], shape=(3, 3)), TypeError, "not a position"),
        (lambda: Interactions.from_csr([0, 2], [1, 0], 3), ValueError, "row 0 is unsorted"),
        (lambda: Interactions.from_csr([0, 2], [1, 1], 3), ValueError, "repeats"),
        (lambda: Interactions.from_csr([0, 1], [3], 3), ValueError, "item 3 is outside"),
        (lambda: Interactions.from_csr([0, 2, 1, 3], [0, 1, 2], 3), ValueError, "falls at row 1"),
        (lambda: Interactions.from_csr([0, 2], [0.0, 1.0], 3), TypeError, "float64"),
        (
            lambda: Interactions.of(pd.DataFrame({"user": [1, None], "item": [1, 2]})),
            (TypeError, ValueError),
            "user",
        ),
        (
            lambda: Interactions.from_frame(pl.DataFrame({"a": [1]}), user="a", item="b"),
            ValueError,
            "the frame has no column 'b' for item=: it has a",
        ),
        (
            lambda: Interactions.from_frame(
                pl.DataFrame({"a": ["x", None], "b": ["y", "z"]}), user="a", item="b"
            ),
            ValueError,
            "1 bad rows of 2, 1 with no user id; the first is row 1",
        ),
        (lambda: MFAUC(rank=0), ValueError, "rank = 0"),
    ],
)
def test_bad_input_is_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


@given(matrices(max_items=12))
def test_buckets_hold_every_positive_once(dense):
    X = quiet(dense)
    seen = []
    for bucket in ragged.buckets(X, ratio=2):
        real = np.asarray(bucket.real) > 0
        users = np.broadcast_to(np.asarray(bucket.users)[:, None], real.shape)
        seen += list(zip(users[real], np.asarray(bucket.items)[real], strict=True))
        assert (np.asarray(X.indices)[np.asarray(bucket.slots)] == np.asarray(bucket.items)).all()
    assert sorted(seen) == sorted(zip(*np.nonzero(dense), strict=True))


def test_randomised_svd_start_is_the_truncated_svd():
    rng = np.random.default_rng(0)
    X = quiet(rng.random((30, 20)) < 0.3)
    start = base.randomised_svd(jax.random.key(0), X, rank=15, power=6)
    left, s, right = np.linalg.svd(X.to_scipy().toarray(), full_matrices=False)
    best = (left[:, :15] * s[:15]) @ right[:15]
    np.testing.assert_allclose(start.U @ start.V.T, best, atol=1e-6)
    np.testing.assert_allclose(start.V.T @ start.V, np.eye(15), atol=1e-9)


def test_randomised_svd_start_beyond_the_rank_of_x_has_no_zero_columns():
    start = base.randomised_svd(jax.random.key(0), quiet(DENSE), rank=6)
    assert start.U.shape == (3, 6) and (np.abs(np.asarray(start.V)).max(0) > 0).all()
