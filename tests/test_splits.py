import warnings

import jax
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from mfauc_jax import Interactions
from mfauc_jax.data import splits


def pairs(X):
    return set(zip(*(axis.tolist() for axis in X.to_scipy().nonzero()), strict=True))


def lengths(X):
    return np.diff(np.asarray(X.indptr))


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    dense = rng.random((60, 40)) < rng.random((60, 1)) * 0.6
    dense[:4] = False
    dense[0, 3] = dense[1, [5, 7]] = True  # one, two, and (rows 2, 3) no positives at all
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix = Interactions.from_scipy(scipy.sparse.csr_array(dense))
    ids = np.arange(60) * 10, np.array([f"item{j:02}" for j in range(40)])
    return Interactions(
        matrix.indptr,
        matrix.indices,
        num_items=40,
        row_bits=matrix.row_bits,
        user_ids=ids[0],
        item_ids=ids[1],
    )


def assert_sound(part, X):
    """Sorted CSR of X's shape and ids, with a search depth that covers the longest row."""
    assert part.shape == X.shape
    assert part.user_ids is X.user_ids and part.item_ids is X.item_ids
    assert 2**part.row_bits > lengths(part).max()
    assert part.to_scipy().has_sorted_indices


def assert_partition(split, X):
    assert pairs(split.train) | pairs(split.test) == pairs(X)
    assert not pairs(split.train) & pairs(split.test)
    assert split.train.nnz + split.test.nnz == X.nnz
    for part in split:
        assert_sound(part, X)
    assert (lengths(split.train)[lengths(X) > 0] > 0).all()


@pytest.mark.parametrize("per_user", [1, 5, 1000])
def test_hold_out_takes_five_of_each_and_leaves_one(X, per_user):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split = splits.hold_out(jax.random.key(0), X, per_user)
    assert_partition(split, X)
    expected = [min(per_user, max(size - 1, 0)) for size in lengths(X)]
    np.testing.assert_array_equal(lengths(split.test), expected)


def test_hold_out_is_a_function_of_the_key(X):
    first, again, other = (splits.hold_out(jax.random.key(s), X) for s in (3, 3, 4))
    assert pairs(first.test) == pairs(again.test) != pairs(other.test)


def test_hold_out_is_the_same_on_any_machine():
    X = Interactions.from_pairs(np.repeat(np.arange(3), 8), np.tile(np.arange(8), 3), shape=(3, 9))
    test = splits.hold_out(jax.random.key(0), X, 2).test
    assert np.asarray(test.indices).tolist() == [5, 7, 0, 4, 4, 7]  # PCG64 of key 0


def test_every_positive_is_held_equally_often():
    X = Interactions.from_pairs(np.zeros(10, int), np.arange(10), shape=(1, 11))
    counts = np.zeros(10)
    for seed in range(300):
        counts[np.asarray(splits.hold_out(jax.random.key(seed), X, 3).test.indices)] += 1
    expected = 300 * 0.3
    assert ((counts - expected) ** 2 / (expected * 0.7)).sum() < 27.9  # χ², 9 dof, p = .001


@pytest.mark.parametrize("folds", [2, 3, 7])
def test_folds_test_each_positive_once(X, folds):
    parts = list(splits.k_fold(jax.random.key(1), X, folds))
    assert len(parts) == folds
    seen = [pair for split in parts for pair in pairs(split.test)]
    single = {pair for pair in pairs(X) if lengths(X)[pair[0]] == 1}
    assert sorted(seen) == sorted(pairs(X) - single)
    for split in parts:
        assert_partition(split, X)
        sizes, whole = lengths(split.test), lengths(X)
        assert (np.abs(sizes - whole / folds) < 1)[whole != 1].all()
    sizes = [split.test.nnz for split in parts]
    assert max(sizes) - min(sizes) < 0.2 * np.mean(sizes) + 12


@pytest.mark.parametrize("per_user", [1, 3])
def test_the_latest_are_left_out(X, per_user):
    times = np.random.default_rng(2).integers(0, 30, X.nnz)  # with ties
    split = splits.leave_last_out(X, times, per_user)
    assert_partition(split, X)
    indptr, indices = np.asarray(X.indptr), np.asarray(X.indices)
    expected = set()
    for i in range(X.num_users):
        row = [(times[t], indices[t]) for t in range(indptr[i], indptr[i + 1])]
        held_out = sorted(row)[max(1, len(row) - per_user) :]
        expected |= {(i, int(item)) for _, item in held_out}
    assert pairs(split.test) == expected


def test_subsample_stops_before_the_limit_and_drops_empty_columns(X):
    sub = splits.subsample_users(jax.random.key(5), X, max_nnz=200, step=5)
    order = splits.generator(jax.random.key(5)).permutation(X.num_users)
    taken = 0
    while lengths(X)[order[: taken + 5]].sum() <= 200:
        taken += 5
    chosen = np.sort(order[:taken])
    chosen = chosen[lengths(X)[chosen] > 0]
    dense = X.to_scipy().toarray()[chosen]
    used = dense.any(0)
    np.testing.assert_array_equal(sub.to_scipy().toarray(), dense[:, used])
    np.testing.assert_array_equal(sub.user_ids, X.user_ids[chosen])
    np.testing.assert_array_equal(sub.item_ids, X.item_ids[used])
    assert 0 < sub.nnz <= 200


def test_a_small_matrix_is_its_own_subsample(X):
    sub = splits.subsample_users(jax.random.key(5), X)
    assert sub.nnz == X.nnz and sub.num_users == (lengths(X) > 0).sum()


@given(seed=st.integers(0, 10**6), user_min=st.integers(0, 6), item_min=st.integers(0, 6))
def test_k_core_is_the_fixed_point_of_dropping(seed, user_min, item_min):
    rng = np.random.default_rng(seed)
    dense = rng.random((25, 20)) < 0.2
    rows, cols = np.nonzero(dense)
    users, items = np.arange(25), np.arange(20)
    while True:  # an oracle on the dense matrix, items first: the fixed point does not care
        keep = dense[np.ix_(users, items)].sum(0) >= max(item_min, 1)
        items = items[keep]
        stay = dense[np.ix_(users, items)].sum(1) >= max(user_min, 1)
        users = users[stay]
        if keep.all() and stay.all():
            break
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = Interactions.from_pairs(rows, cols, shape=(25, 20))
    if not len(users):
        with pytest.raises(ValueError, match=r"none of the .* positives is left"):
            splits.k_core(X, user_min, item_min)
        return
    core = splits.k_core(X, user_min, item_min)
    np.testing.assert_array_equal(core.to_scipy().toarray(), dense[np.ix_(users, items)])
    np.testing.assert_array_equal(core.user_ids, users)
    np.testing.assert_array_equal(core.item_ids, items)
    assert 2**core.row_bits > lengths(core).max()


def test_confidence_travels_with_its_positive():
    rng = np.random.default_rng(1)
    dense = rng.integers(1, 9, (12, 8)) * (rng.random((12, 8)) < 0.7)
    dense[:, 0] = 0
    X = Interactions.from_scipy(dense, confidence=True)
    train, test = splits.hold_out(jax.random.key(0), X, 2)
    np.testing.assert_array_equal((train.to_scipy() + test.to_scipy()).toarray(), dense)
    core = splits.k_core(X, 4, 7)
    np.testing.assert_array_equal(
        core.to_scipy().toarray(), dense[np.ix_(core.user_ids, core.item_ids)]
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, key: splits.hold_out(key, X, 0), "per_user = 0 must be ≥ 1"),
        (lambda X, key: splits.k_fold(key, X, 1), "folds = 1 must be ≥ 2"),
        (lambda X, key: splits.subsample_users(key, X, 1), "max_nnz = 1 "),
        (lambda X, key: splits.subsample_users(key, X, 9, 0), "step = 0"),
        (lambda X, key: splits.leave_last_out(X, np.zeros(3)), "3 times for"),
        (lambda X, key: splits.leave_last_out(X, np.full(X.nnz, np.nan)), "not finite"),
        (lambda X, key: splits.k_core(X, 1000, 1), "none of the"),
        (lambda X, key: splits.k_core(X, -1, 1), "user_min = -1"),
    ],
)
def test_bad_input_is_named(X, call, message):
    with pytest.raises(ValueError, match=message):
        call(X, jax.random.key(0))
