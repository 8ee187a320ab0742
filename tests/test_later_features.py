"""Items and users that come after a fit with features, through every route; and features together with dislikes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from feature_toys import FRAME, LIKES, K, M, N, P, shop, theta, world

import mfauc_jax as mf
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import exact
from mfauc_jax.objective.penalties import by_row
from mfauc_jax.training import side_information

LOGISTIC: dict[str, Any] = {"loss": "logistic"}
SOFTMAX: dict[str, Any] = {"loss": "exponential", "weighting": mf.weightings.Log(c=1000.0)}
ROUTES = pytest.mark.parametrize(
    "route", [{}, LOGISTIC, SOFTMAX], ids=["square", "logistic", "softmax"]
)
LATER = pl.DataFrame({"sku": ["late", "a"], "kind": ["y", "y"], "size": [5.0, 9.0]})
PEOPLE = {"user": [f"u{i}" for i in range(1, 9)], "taste": ["y", "x"] * 4}


@ROUTES
def test_cold_items_are_served_alike_whatever_the_route(route, tmp_path):
    model = shop(**route)
    for user, mine, other in (("u2", "new", "newer"), ("u1", "newer", "new")):
        items, _ = model.recommend(user, n=8)
        assert items.tolist().index(mine) < items.tolist().index(other)
    assert set(model.similar_items("new", 3)[0]) == {"a", "b", "c"}
    grown = model.fold_in_items(item_features=LATER)
    items, _ = grown.recommend("u1", n=9)
    assert items.tolist().index("late") < items.tolist().index("new")
    assert np.allclose(grown.item_factors_[:8], model.item_factors_)
    model.save(tmp_path / "shop.model")
    loaded = mf.MFAUC.load(tmp_path / "shop.model")
    again = loaded.fold_in_items(item_features=LATER)
    assert (again.item_factors_ == grown.item_factors_).all()


def test_softmax_items_with_positives_are_left_to_partial_fit():
    with pytest.raises(ValueError, match="use partial_fit"):
        shop(**SOFTMAX).fold_in_items((["u2"], ["new"]))


@pytest.mark.parametrize(("route", "near"), [({}, 1e-7), (LOGISTIC, 1e-5)])
def test_an_item_with_positives_is_solved_around_its_features(route, near):
    """v_j minimises the joint objective over v_j: its gradient vanishes. Kills: λ pulls to 0."""
    _, cold, F, _ = world()
    model = mf.MFAUC(rank=K, **route).fit(cold[:, 2:].astype(float), item_features=F[2:])
    more = np.zeros((M, N - 1))
    more[:4, N - 2] = 1
    grown = model.fold_in_items(more, item_features=F[[0]])
    assert grown.item_features_ is not None
    problem = grown.problem(grown.train_).with_features(grown.item_features_.features.matrix)
    plan = exact.plan(problem.objective, problem.X, problem.weights)
    reg = np.asarray(by_row(problem.objective.reg, M, N - 1).item)[-1]
    prior = jnp.asarray(grown.item_features_.rows()[-1])

    def joint(v):
        V = jnp.asarray(grown.item_factors_).at[-1].set(v)
        alone = exact.value(problem.objective._replace(reg=0.0), Factors(grown.factors_.U, V), plan)
        return alone + 0.5 * reg * ((v - prior) ** 2).sum() / (N - 1)

    assert np.allclose(jax.grad(joint)(jnp.asarray(grown.item_factors_[-1])), 0, atol=near)


@ROUTES
def test_partial_fit_takes_positives_and_features_of_new_items(route):
    model = shop(**route)
    before = model.item_factors_.copy()
    more = pl.DataFrame({"sku": ["late", "never"], "kind": ["y", "x"], "size": [5.0, 1.0]})
    model.partial_fit((["u2", "u2", "u9", "u1"], ["new", "b", "a", "late"]), item_features=more)
    learned = model.item_features_
    assert learned is not None and model.train_.item_ids is not None
    assert model.train_.item_ids.tolist()[6:] == ["new", "newer", "late", "never"]
    assert not np.allclose(model.item_factors_[6], before[6])  # its first positive
    assert np.allclose(model.item_factors_[[7, 9]], learned.rows()[[7, 9]])  # still cold
    assert not np.allclose(model.item_factors_[8], learned.rows()[8])
    items, _ = model.recommend("u1", n=10)
    assert items.tolist().index("newer") < items.tolist().index("never")


@ROUTES
def test_further_iterations_move_a_and_leave_cold_items_out_of_the_fit(route):
    model = shop(**route)
    assert model.item_features_ is not None
    before = model.item_features_.factors.copy()
    model.partial_fit((["u2"], ["b"]), iterations=2)
    learned = model.item_features_
    assert learned is not None and not np.allclose(learned.factors, before)
    assert np.allclose(model.item_factors_[6:], learned.rows()[6:])
    items, _ = model.recommend("u1", n=8)
    assert items.tolist().index("newer") < items.tolist().index("new")


@pytest.mark.parametrize("route", [{}, LOGISTIC], ids=["square", "logistic"])
def test_new_users_with_features_are_solved_around_them(route):
    """The gradient of the joint objective in U is 0 at the U of fold_in. Kills: no B g, λ of u_i instead of e_i."""
    X, _, _, G = world()
    dense = X.astype(float)
    model = mf.MFAUC(rank=K, **route).fit(dense, user_features=G)
    folded = model.fold_in(dense, user_features=G)
    assert model.user_features_ is not None and folded.user_features_ is not None
    problem = model.problem(dense).with_features(users=G)
    B, V = jnp.asarray(model.user_features_.factors), jnp.asarray(model.item_factors_)
    slope = jax.grad(lambda U: theta(problem, U, V, None, B))(jnp.asarray(folded.user_factors_))
    assert np.allclose(slope, 0, atol=1e-5)
    without = model.fold_in(dense)  # then g = 0
    slope = jax.grad(lambda U: theta(problem, U, V, None, 0 * B))(
        jnp.asarray(without.user_factors_)
    )
    assert np.allclose(slope, 0, atol=1e-5)
    _, contributions, score, rest = folded.explain(3, 5)
    assert np.isclose(contributions.sum() + rest, score)


def taste(**route: Any) -> mf.MFAUC:
    """A shop that knows the tastes of its users, and nothing about its items."""
    likes = tuple(zip(*LIKES, strict=True))
    return mf.MFAUC(rank=2, **route).fit(likes, user_features=pl.DataFrame(PEOPLE))


@ROUTES
def test_users_known_by_features_only_are_folded_in(route, tmp_path):
    fitted = taste(**route)
    fitted.save(tmp_path / "taste.model")
    model = mf.MFAUC.load(tmp_path / "taste.model")
    new = pl.DataFrame({"user": ["x9", "y9"], "taste": ["x", "y"]})
    folded = model.fold_in(user_features=new)
    assert set(folded.recommend("x9", n=3)[0]) == {"a", "b", "c"}
    assert set(folded.recommend("y9", n=3)[0]) == {"d", "e", "f"}
    some = model.fold_in((["x9"], ["a"]), user_features=new)
    assert set(some.recommend("x9", n=2)[0]) == {"b", "c"}
    assert np.allclose(some.user_factors_[1], folded.user_factors_[1])


def test_fold_in_says_what_it_lacks():
    new = pl.DataFrame({"user": ["x9"], "taste": ["x"]})
    with pytest.raises(ValueError, match="fit was given no user_features: fit again with them"):
        shop().fold_in(user_features=new)
    with pytest.raises(ValueError, match="give positives of new users, their user_features"):
        taste().fold_in()
    with pytest.raises(ValueError, match="fit was given no user_features: fit again with them"):
        shop().partial_fit((["u2"], ["b"]), user_features=new)


@ROUTES
def test_partial_fit_takes_features_of_new_users(route):
    model = taste(**route)
    new = pl.DataFrame({"user": ["x9", "y9"], "taste": ["x", "y"]})
    model.partial_fit((["x9", "u2"], ["a", "b"]), user_features=new)
    learned = model.user_features_
    assert learned is not None and model.train_.user_ids is not None
    assert model.train_.user_ids.tolist()[8:] == ["x9", "y9"]
    assert np.allclose(model.user_factors_[9], learned.rows()[9])
    assert not np.allclose(model.user_factors_[8], learned.rows()[8])
    assert set(model.recommend("x9", n=2)[0]) == {"b", "c"}
    assert set(model.recommend("y9", n=3)[0]) == {"d", "e", "f"}


def test_features_and_dislikes_have_one_minimum_in_the_alternating_route():
    """The joint gradient with dislikes vanishes after many sweeps; dislikes of cold items are kept out of the fit."""
    _, cold, F, G = world()
    rng = np.random.default_rng(5)
    rejected = (rng.random((M, N)) < 0.2) & ~cold
    fitted = np.flatnonzero(cold.any(0))
    assert rejected[:, ~cold.any(0)].any()
    solver = mf.Alternating(iterations=300, user_steps=6, item_steps=20)
    give = {"item_features": F, "user_features": G}
    model = mf.MFAUC(rank=K, solver=solver).fit(
        cold.astype(float), dislikes=rejected.astype(float), **give
    )
    likes, dislikes = (a[:, fitted].astype(float) for a in (cold, rejected))
    X = mf.MFAUC(rank=K).fit(likes, dislikes=dislikes).train_
    assert X.dislikes is not None
    problem = model.problem(X).with_features(F[fitted], G)
    assert problem.weights.disliked is not None
    assert model.item_features_ is not None and model.user_features_ is not None
    at = *model.factors_, model.item_features_.factors, model.user_features_.factors
    U, V, A, B = map(jnp.asarray, at)
    slopes = jax.grad(lambda *a: theta(problem, *a), argnums=(0, 1, 2, 3))(U, V[fitted], A, B)
    assert max(float(jnp.abs(slope).max()) for slope in slopes) < 1e-5
    lists, _ = model.recommend(np.arange(M), n=5)
    assert not np.take_along_axis(rejected, lists, 1).any()


@pytest.mark.parametrize("route", [LOGISTIC, SOFTMAX], ids=["minibatch", "dense"])
def test_the_sampled_routes_take_features_and_dislikes(route):
    _, cold, F, _ = world()
    rejected = (np.random.default_rng(5).random((M, N)) < 0.2) & ~cold
    plain, with_dislikes = (
        mf.MFAUC(rank=K, **route).fit(
            cold.astype(float), dislikes=dislikes, item_features=F, watch=mf.Watch(record_every=10)
        )
        for dislikes in (None, rejected.astype(float))
    )
    values = [record["objective"] for record in with_dislikes.history_ if "objective" in record]
    assert values[-1] < values[0]
    mean = [(m.user_factors_ @ m.item_factors_.T)[rejected].mean() for m in (plain, with_dislikes)]
    assert mean[1] < mean[0]
    lists, _ = with_dislikes.recommend(np.arange(M), n=5)
    assert not np.take_along_axis(rejected, lists, 1).any()
    assert with_dislikes.item_features_ is not None
    assert with_dislikes.item_features_.factors.shape == (P, K)


def test_several_processes_are_refused(monkeypatch):
    X, F = mf.Interactions.of(np.eye(3)), mf.Features.of(np.eye(3))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="a fit with features runs in one process, not in 2"):
        side_information.over(X, F, None, 3)


def test_a_frame_without_a_column_of_the_fit_is_refused():
    with pytest.raises(ValueError, match="the user features lack the column 'taste'"):
        taste().fold_in(user_features=pl.DataFrame({"user": ["x9"], "age": [3]}))
    assert set(FRAME) == {"sku", "kind", "size"}
