"""Maximal marginal relevance: against a plain loop, at both ends, and on lists as `recommend` returns them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import quiet

import mfauc_jax as mf
from mfauc_jax.serving import rerank

RNG = np.random.default_rng(0)
LIKED = RNG.random((30, 25)) < 0.3
MODEL = mf.MFAUC(rank=4).fit(quiet(LIKED))


def loop(V, items, scores, length, d):
    """One user's list by the definition."""
    r = (scores - scores.min()) / (np.ptp(scores) or 1.0)
    chosen = [int(np.argmax(r))]
    while len(chosen) < length:
        worth = {
            c: (1 - d) * r[c] - d * max(V[items[c]] @ V[items[o]] for o in chosen)
            for c in range(len(items))
            if c not in chosen
        }
        chosen.append(max(worth, key=lambda c: (worth[c], -c)))
    return chosen


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.floats(0, 1))
def test_the_order_is_that_of_a_plain_loop(seed, length, d):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(20, 3))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    items = np.stack([rng.permutation(20)[:9] for _ in range(4)])
    scores = -np.sort(-rng.normal(size=(4, 9)), axis=1)
    found = rerank.marginal_relevance(V, items, scores, length, d)
    for row in range(4):
        assert list(found[row]) == loop(V, items[row], scores[row], length, d)


def test_without_diversity_the_list_is_cut_and_with_it_lists_differ_more():
    long = MODEL.recommend(range(30), n=15)
    items, scores = mf.diverse(MODEL, long, n=5, diversity=0.0)
    np.testing.assert_array_equal(items, long.items[:, :5])
    np.testing.assert_array_equal(scores, long.scores[:, :5])
    varied = mf.diverse(MODEL, long, n=5, diversity=0.7)
    np.testing.assert_array_equal(varied.items[:, 0], long.items[:, 0])
    unit = MODEL.item_factors_ / np.linalg.norm(MODEL.item_factors_, axis=1, keepdims=True)

    def alike(lists):
        return np.mean([(unit[row] @ unit[row].T)[np.triu_indices(5, 1)].mean() for row in lists])

    assert alike(varied.items) < alike(items) - 0.1
    np.testing.assert_array_equal(varied.users, np.arange(30))


def test_lists_that_ran_out_keep_their_ends():
    allowed = [0, 1, 2, 3]
    long = MODEL.recommend([0, 1], n=8, allow_items=allowed)
    short = np.isfinite(long.scores).sum(1)
    assert (short < 8).all()
    items, scores = mf.diverse(MODEL, long, n=8, diversity=0.9)
    np.testing.assert_array_equal(np.isfinite(scores).sum(1), short)
    for row in range(2):
        assert sorted(items[row]) == sorted(long.items[row])
        assert (items[row, short[row] :] == -1).all()


def test_one_user_and_ids_of_the_caller():
    users, items = np.nonzero(LIKED)
    named = mf.MFAUC(rank=3).fit(([f"u{i}" for i in users], [f"i{j}" for j in items]))
    long = named.recommend("u3", n=10)
    short = mf.diverse(named, long, n=4, diversity=0.5)
    assert short.items.shape == (4,) and set(short.items) <= set(long.items)
    assert mf.diverse(named, long, n=99).items.shape == (10,)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"diversity": 1.5}, "diversity = 1.5 must be"),
        ({"diversity": float("nan")}, "diversity = nan must be"),
        ({"n": 0}, "n = 0"),
        ({"lists": (np.zeros((2, 3)), np.zeros((2, 4)))}, r"shape \(2, 3\) and scores"),
    ],
)
def test_nonsense_is_refused(change, words):
    arguments = {"lists": MODEL.recommend([0], n=5), "n": 3} | change
    with pytest.raises(ValueError, match=words):
        mf.diverse(MODEL, arguments.pop("lists"), **arguments)
