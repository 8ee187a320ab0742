"""The lists are those of a stable argsort, whatever the blocks, filters and float type."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import ranking


def whole(rng, shape):
    """Small integers as floats: scores are exact and full of ties."""
    return rng.integers(-2, 3, shape).astype(float)


def some(rng, m, n, density=0.2):
    dense = (rng.random((m, n)) < density).astype(float)
    dense[0, 0] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # users without a positive, or with nothing else
        return Interactions.of(dense), dense.astype(bool)


def by_sorting(S, n):
    """The oracle: a stable sort of −S, hidden items last and named −1; no list is longer than the catalogue."""
    order = np.argsort(-S, axis=1, kind="stable")[:, :n]
    best = np.take_along_axis(S, order, 1)
    return np.where(best == -np.inf, -1, order), best


@settings(max_examples=12)  # each compiles
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 70)),
    st.integers(1, 80),
    st.integers(1, 4),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 2**32 - 1),
)
def test_lists_equal_a_stable_sort(shape, length, batch, dtype, seed):
    (m, n), rng = shape, np.random.default_rng(seed)
    factors = Factors(*(jnp.asarray(whole(rng, (s, 3)), dtype) for s in (m, n)))
    X, seen = some(rng, m, n)
    users = rng.integers(0, m, 6)
    items, best = ranking.top_items(factors, users, length, exclude=X, batch=batch)
    S = np.where(seen, -np.inf, np.asarray(factors.U) @ np.asarray(factors.V).T)[users]
    want_items, want_best = by_sorting(S, length)
    np.testing.assert_array_equal(items, want_items)
    np.testing.assert_array_equal(best, want_best)
    assert items.dtype == np.int32 and best.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ties", [True, False])
def test_wide_rows(dtype, ties):
    """Wide enough that float64 takes the route by runs."""
    rng = np.random.default_rng(1)
    make = whole if ties else lambda rng, shape: rng.standard_normal(shape)
    S = jnp.asarray(make(rng, (5, 2003)), dtype)
    S = S.at[:, ::7].set(-jnp.inf)
    for n in (1, 3, 10):
        values, items = ranking.best(S, n)
        want, value = by_sorting(np.asarray(S), n)
        np.testing.assert_array_equal(items, want)
        np.testing.assert_array_equal(values, value)


def test_more_hidden_than_left_in_the_route_by_runs():
    S = jnp.full((2, 1000), -jnp.inf).at[:, 999].set(1.0)
    values, items = ranking.best(S, 5)
    assert items[0, 0] == 999
    assert np.isneginf(values[:, 1:]).all()


def test_global_and_personal_filters():
    rng = np.random.default_rng(2)
    m, n = 7, 30
    factors = Factors(jnp.asarray(whole(rng, (m, 4))), jnp.asarray(whole(rng, (n, 4))))
    S = np.asarray(factors.U @ factors.V.T)
    users = np.arange(m)
    (X, seen), (D, denied), (A, allowed) = (some(rng, m, n, p) for p in (0.2, 0.3, 0.5))
    deny, allow = np.array([3, 4, 9]), np.arange(0, n, 2)
    is_denied, is_allowed = np.isin(np.arange(n), deny), np.isin(np.arange(n), allow)
    cases = [
        (dict(deny=deny), is_denied[None]),
        (dict(allow=allow), ~is_allowed[None]),
        (dict(allow=allow, deny=deny, exclude=X), seen | is_denied[None] | ~is_allowed[None]),
        (dict(deny=D, exclude=X), denied | seen),
        (dict(allow=A), ~allowed),
        (dict(allow=A, deny=deny, exclude=X), ~allowed | is_denied[None] | seen),
    ]
    for filters, hidden in cases:
        items, best = ranking.top_items(factors, users, 6, batch=2, **filters)
        want_items, want_best = by_sorting(np.where(hidden, -np.inf, S), 6)
        np.testing.assert_array_equal(items, want_items)
        np.testing.assert_array_equal(best, want_best)


def test_one_program_for_all_blocks_and_never_the_whole_matrix():
    rng = np.random.default_rng(3)
    m, n = 403, 57
    factors = Factors(jnp.asarray(rng.random((m, 2))), jnp.asarray(rng.random((n, 2))))
    X, _ = some(rng, m, n)
    before = ranking._top.made
    ranking.top_items(factors, range(m), 5, exclude=X, batch=50)
    assert ranking._top.made == before + 1
    sizes = [ranking.batch_size(10**6, n) * n for n in (10, 3380, 68_517, 10**6)]
    assert max(sizes) <= 2 * ranking.BLOCK_SCORES


def test_a_fitted_model_is_as_good_as_its_factors():
    class Model:
        factors_ = Factors(jnp.eye(3), jnp.eye(3))

    items, _ = ranking.top_items(Model(), [2, 0], 1)
    assert items.tolist() == [[2], [0]]


def test_no_users_gives_no_lists():
    items, best = ranking.top_items(Factors(jnp.eye(3), jnp.eye(3)), [], 2)
    assert items.shape == best.shape == (0, 2)


def test_no_list_is_longer_than_the_catalogue():
    items, best = ranking.top_items(Factors(jnp.eye(3), jnp.eye(3)), [1], 2**31, deny=[0])
    assert items.tolist() == [[1, 2, -1]] and best.tolist() == [[1.0, 0.0, -np.inf]]


@pytest.mark.parametrize(
    ("users", "n", "filters", "says"),
    [
        ([0, 3], 1, {}, r"user 3 is outside range\(3\)"),
        ([-1], 1, {}, "user -1"),
        ([0], 0, {}, "n = 0"),
        ([0], 1, dict(deny=[5]), "denied item 5"),
        ([0], 1, dict(allow=[-2]), "allowed item -2"),
        ([0], 1, dict(batch=0), "batch = 0"),
    ],
)
def test_bad_input_is_named(users, n, filters, says):
    with pytest.raises(ValueError, match=says):
        ranking.top_items(Factors(jnp.eye(3), jnp.eye(3)), users, n, **filters)


def test_bad_factors_are_named():
    nan = Factors(jnp.eye(3).at[1, 1].set(jnp.nan), jnp.eye(3))
    with pytest.raises(ValueError, match="row 1 of U is not finite"):
        ranking.top_items(nan, [0], 1)
    with pytest.raises(TypeError, match="fit it first"):
        ranking.top_items(object(), [0], 1)
    with pytest.raises(TypeError, match="positions"):
        ranking.top_items(Factors(jnp.eye(3), jnp.eye(3)), ["ann"], 1)
    X = Interactions.of(np.eye(4))
    with pytest.raises(ValueError, match="4 × 4, U Vᵀ 3 × 3"):
        ranking.top_items(Factors(jnp.eye(3), jnp.eye(3)), [0], 1, exclude=X)


def test_float32_without_x64_gives_the_same_lists():
    rng = np.random.default_rng(5)
    U, V = whole(rng, (6, 3)), whole(rng, (40, 3))
    with jax.enable_x64(False):
        factors = Factors(jnp.asarray(U, jnp.float32), jnp.asarray(V, jnp.float32))
        items, _ = ranking.top_items(factors, range(6), 8)
    np.testing.assert_array_equal(items, by_sorting(U @ V.T, 8)[0])
