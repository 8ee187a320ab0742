"""Requests: the route in NumPy has the lists of the compiled one, warm_up leaves nothing to compile, threads agree."""

import concurrent.futures
import json
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import quiet

import mfauc_jax as mf
from mfauc_jax import Alternating, Interactions, Minibatch
from mfauc_jax._core import host, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.evaluation import ranking
from mfauc_jax.serving import fold_in, model_file
from mfauc_jax.training.loop import Fitted

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 40)) + 0.3 * RNG.normal(size=(60, 40))
DENSE = np.quantile(TASTE, 0.75, axis=1, keepdims=True) < TASTE
DENSE[2] = np.arange(40) == 4
X = quiet(DENSE)


def named_pairs(dense):
    users, items = np.nonzero(dense)
    return np.char.add("u", users.astype(str)), np.char.add("i", items.astype(str))


@pytest.fixture(scope="module")
def named():
    return mf.MFAUC(rank=4, solver=Alternating(10)).fit(named_pairs(DENSE))


@settings(max_examples=60)
@given(
    st.integers(1, 5),
    st.integers(1, 40),
    st.integers(1, 45),
    st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    st.integers(0, 2**32 - 1),
)
def test_the_host_route_is_a_stable_sort(m, n, length, hidden, seed):
    """Small integers: scores are exact and full of ties. Kills any tie but the lowest indices, and lists that run out."""
    rng, length = np.random.default_rng(seed), min(length, n)
    U, V = (rng.integers(-1, 2, (size, 3)).astype(np.float32) for size in (m, n))
    is_shown = rng.random((m, n)) >= hidden
    items, best = ranking.lists_on_host(U, V, is_shown, length)
    S = np.where(is_shown, U @ V.T, -np.inf)
    order = np.argsort(-S, axis=1, kind="stable")[:, :length]
    want = np.take_along_axis(S, order, 1)
    np.testing.assert_array_equal(best, want)
    np.testing.assert_array_equal(items, np.where(want == -np.inf, -1, order))
    assert items.dtype == np.int32 and best.dtype == np.float32


def test_both_routes_have_the_same_lists_under_every_filter():
    rng = np.random.default_rng(1)
    factors = Factors(*(jnp.asarray(rng.normal(size=(size, 8))) for size in (9, 300)))
    seen, some = (quiet(rng.random((9, 300)) < share) for share in (0.2, 0.5))
    users = rng.integers(0, 9, 6)
    cases: tuple[dict[str, Any], ...] = (
        {},
        {"exclude": seen},
        {"exclude": seen, "deny": [3, 5]},
        {"allow": some, "deny": seen},
        {"allow": [1, 2, 3]},
    )
    for filters in cases:
        for n in (1, 7, 300):
            quick = ranking.top_items(factors, users, n, **filters)
            compiled = ranking.top_items(factors, users, n, batch=4, **filters)
            np.testing.assert_array_equal(quick[0], compiled[0])
            np.testing.assert_allclose(quick[1], compiled[1], rtol=1e-12)


def test_scores_that_overflow_do_not_break_the_list():
    U = np.array([[3e38, 3e38]], np.float32)
    V = np.array([[1, 0], [10, -10], [0, 1]], np.float32)  # inf − inf for item 1
    items, _ = ranking.lists_on_host(U, V, np.ones((1, 3), bool), 2)
    assert items.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (3, 5000, 2), (64, 900, 64), (2, 0, 3), (0, 4, 5), (7, 30, 20000)]
)
def test_a_product_in_parts_is_the_product(shape):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=shape[:2]), rng.normal(size=shape[1:])
    np.testing.assert_allclose(host.product(A, B), A @ B, atol=1e-9)


def test_requests_after_warm_up_compile_nothing(monkeypatch):
    """Also where requests are too large for NumPy. Kills a program that warm_up forgets, and one that it invents."""
    monkeypatch.setattr(ranking, "HOST_SCORES", 200)
    model = mf.MFAUC(rank=3, loss="square_hinge", solver=Minibatch(2)).fit(X)
    programs.forget()
    said = model.warm_up(n=30, users=20)
    assert (
        said.programs > 0 and said.fold_in and len(said.lists) == 4
    )  # 16 and 64 users; 16 and 128 places
    assert f"compiled {said.programs} programs" in str(said) and "20 × 30" in str(said)
    before = programs.made()
    for users in (1, 3, 6, 17, 20):
        for n in (1, 16, 17, 30):
            model.recommend(np.arange(users), n)
    for i in (0, 2, 7):
        model.fold_in(X.take(np.array([i])))
    model.similar_items(3)
    model.similar_users(3)
    assert programs.made() == before
    assert model.warm_up(n=30, users=20).programs == 0
    with pytest.raises(ValueError, match="users = 0"):
        model.warm_up(users=0)


def test_warm_up_of_a_model_whose_requests_need_no_program(named):
    said = named.warm_up()
    assert said.lists == () and "none needs a program" in str(said)
    folded = named.fold_in((["x"], ["i3"]))
    assert folded.warm_up().fold_in == (1,)


def test_eight_threads_give_the_answers_of_one(named, monkeypatch):
    """Lists of both routes, fold-in and similar items, with a model whose caches are empty. Kills shared state."""
    monkeypatch.setattr(ranking, "HOST_SCORES", 400)
    rng = np.random.default_rng(2)
    users, items = named.train_.user_ids, named.train_.item_ids

    def job(seed):
        rng = np.random.default_rng(seed)
        some = users[rng.integers(0, len(users), int(rng.integers(1, 20)))]
        basket = items[rng.choice(len(items), int(rng.integers(1, 12)), replace=False)]
        folded = model.fold_in((["new"] * len(basket), basket))
        return (
            *model.recommend(some, int(rng.integers(1, 30))),
            *model.similar_items(basket, 3),
            folded.user_factors_,
            *folded.recommend("new", 5),
        )

    seeds = rng.integers(0, 10**6, 80)
    model = named
    alone = [job(seed) for seed in seeds]
    factors = Factors(*(jax.device_put(np.array(F)) for F in named.factors_))
    model = named.with_params()._keep(named.train_, Fitted(factors, [], ""))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(job, seeds))
    for a, b in zip(alone, together, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_similar_users_are_those_at_the_least_angle(named):
    U = named.user_factors_
    cosine = U @ U[5] / np.linalg.norm(U, axis=1) / np.linalg.norm(U[5])
    cosine[5] = -np.inf
    found, value = named.similar_users(named.train_.user_ids[5], 4)
    want = np.argsort(-cosine)[:4]
    assert list(found) == list(named.train_.user_ids[want])
    np.testing.assert_allclose(value, cosine[want], rtol=1e-6)


def test_fold_in_reads_the_training_set_once_and_warns_of_nothing(named, monkeypatch):
    """Kills weights of the training set per call, and the warning that a user has every item of its own basket."""
    calls = []
    weights_of = mf.Weights.of
    monkeypatch.setattr(
        mf.Weights,
        "of",
        lambda self, X, train=None: calls.append(X.nnz) or weights_of(self, X, train),
    )
    model = named.with_params()._keep(named.train_, Fitted(named.factors_, [], ""))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            folded = model.fold_in((["x", "x"], ["i3", "i4"]))
    assert calls == [named.train_.nnz, 2, 2, 2]
    slow = model.problem(model.train_)
    new = slow.of_users(folded.train_)
    want, _ = fold_in.fold_in(
        new.objective, model.factors_.V, folded.train_, new.weights, usable_share=slow.usable_share
    )
    np.testing.assert_array_equal(folded.user_factors_, want)
    model.set_params(penalty__strength=4.0)  # other rules: the constants are computed anew
    assert np.abs(model.fold_in((["x", "x"], ["i3", "i4"])).user_factors_ - want).max() > 1e-3
    assert calls[-3:] == [2, named.train_.nnz, 2]


def test_the_constants_are_in_the_file_and_older_files_load(named, tmp_path, monkeypatch):
    path, older = tmp_path / "m", tmp_path / "older"
    named.save(path)
    tensors = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, "numpy") as file:
        about = file.metadata()
    assert about["format_version"] == "2.2" and set(json.loads(about["constants"])) == {
        "mean_power",
        "usable_share",
        "penalty",
    }
    del about["constants"], about["sha256"]
    about["format_version"] = "2.0"
    about["sha256"] = model_file._digest(tensors, about)
    safetensors.numpy.save_file(tensors, older, about)
    basket = (["x", "x"], ["i3", "i4"])
    want = named.fold_in(basket).user_factors_
    np.testing.assert_array_equal(mf.MFAUC.load(older).fold_in(basket).user_factors_, want)
    problem = mf.MFAUC.problem
    changed = mf.MFAUC.load(path, penalty=mf.Auto(strength=4.0))
    assert np.abs(changed.fold_in(basket).user_factors_ - want).max() > 1e-3
    monkeypatch.setattr(mf.MFAUC, "problem", None)  # the file's constants are enough
    np.testing.assert_array_equal(mf.MFAUC.load(path).fold_in(basket).user_factors_, want)
    monkeypatch.setattr(mf.MFAUC, "problem", problem)


def test_a_penalty_without_constants_still_folds_in(monkeypatch):
    model = mf.MFAUC(rank=3, solver=Alternating(3)).fit(X)
    new = quiet(DENSE[:3])
    want = model.fold_in(new).user_factors_
    of = mf.Auto.of
    monkeypatch.setattr(
        mf.Auto, "of", lambda *given, **new: of(*given, **new)._replace(constants=None)
    )
    again = mf.MFAUC(rank=3, solver=Alternating(3))._keep(X, Fitted(model.factors_, [], ""))
    assert again.problem(X).constants is None
    np.testing.assert_allclose(again.fold_in(new).user_factors_, want)


def test_users_with_everything_and_with_nothing_get_zero(named):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everything = named.fold_in(
            (["x"] * named.train_.num_items + ["y"], [*named.train_.item_ids, "i3"])
        )
    assert not everything.user_factors_[0].any() and everything.user_factors_[1].any()
    assert isinstance(everything.train_, Interactions)
