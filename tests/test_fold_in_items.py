"""Items folded in: v_j is the minimum of Eq. 3 over that row, by autodiff of the objective itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet, random_factors

from mfauc_jax import MFAUC, Auto, Fixed, Minibatch, Problem, Weights
from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import dislikes
from mfauc_jax.objective import exact
from mfauc_jax.serving import fold_in_items, item_newton
from mfauc_jax.training.loop import Fitted

RNG = np.random.default_rng(0)
DENSE = RNG.random((30, 20)) < 0.3
DENSE[3] = True  # no usable pair
DENSE[4] = False
DENSE[:, 19] = np.arange(30) == 7  # one positive
DENSE[:, 18] = False
X = quiet(DENSE)


@pytest.mark.parametrize("penalty", [Auto(), Fixed(reg=0.2, spread=0.7)], ids=lambda p: p.name)
@pytest.mark.parametrize("weights", [Weights(), Weights(-0.5, 0.5, 0.5)], ids=["default", "tau"])
def test_each_row_is_the_minimum_while_the_others_stay(penalty, weights):
    """Kills any missing term of H or of the gradient: λ_j, the variance's own square, users without a pair, b_j."""
    problem = Problem.of(X, weights=weights, penalty=penalty)
    factors = random_factors(0, X, 3, 0.7)
    items = np.array([0, 18, 19, 5])
    solved = fold_in_items.solve(problem, factors, items)
    plan = exact.plan(problem.objective, X, problem.weights)
    for j, v in zip(items, solved, strict=True):

        def theta(v, j=j):
            return exact.value(problem.objective, Factors(factors.U, factors.V.at[j].set(v)), plan)

        value, slope = jax.value_and_grad(theta)(jnp.asarray(v))
        assert jnp.abs(slope).max() < 1e-7 and value < theta(factors.V[j])


def test_the_start_of_a_row_does_not_matter():
    problem = Problem.of(X)
    U, V = random_factors(1, X, 3, 0.7)
    one, other = (
        fold_in_items.solve(problem, Factors(U, V.at[5].set(start)), np.array([5]))
        for start in (0.0, 9.0)
    )
    np.testing.assert_allclose(one, other, atol=1e-6)


def named(dense):
    users, items = np.nonzero(dense)
    return np.char.add("u", users.astype(str)), np.char.add("i", items.astype(str))


@pytest.fixture(scope="module")
def model():
    return MFAUC(rank=3).fit(named(DENSE[:25, :15]))


def copied(model):
    copy = model.with_params()
    return copy._keep(model.train_, Fitted(model.factors_, model.history_, ""))


@pytest.mark.filterwarnings("ignore:interactions")
def test_folded_items_are_ranked_among_the_others_and_the_model_stays(model):
    before = model.item_factors_.copy()
    with pytest.warns(UserWarning, match="skipped 1 unknown of 4, 'stranger'"):
        grown = model.fold_in_items((["u0", "u1", "u7", "stranger"], ["new", "new", "more", "new"]))
    assert grown.train_.shape == (model.train_.num_users, model.train_.num_items + 2)
    assert (model.item_factors_ == before).all() and (grown.item_factors_[:-2] == before).all()
    assert (grown.user_factors_ == model.user_factors_).all()
    assert "new" in grown.recommend("u3", n=17)[0] and "new" not in grown.recommend("u0", n=17)[0]
    problem = grown.problem(grown.train_)
    zero = Factors(grown.factors_.U, grown.factors_.V.at[-2:].set(0.0))
    want = fold_in_items.solve(problem, zero, np.arange(len(before), len(before) + 2))
    np.testing.assert_array_equal(grown.item_factors_[-2:], want)
    assert grown.fold_in((["x"], ["new"])).user_factors_.any()
    with pytest.raises(ValueError, match="unknown user 'stranger'"):
        model.fold_in_items((["stranger", "u1"], ["new", "new"]), unknown="raise")
    with pytest.raises(ValueError, match="none is left"):
        model.fold_in_items((["stranger"], ["new"]))
    with pytest.raises(
        ValueError, match="for a convex loss .* not for sigmoid with identity: use partial_fit"
    ):
        MFAUC(rank=3, loss="sigmoid", solver=Minibatch(1)).fit(X).fold_in_items(X)


REJECTED = (RNG.random(DENSE.shape) < 0.2) & ~DENSE


@pytest.mark.parametrize("weights", [Weights(), Weights(-0.5, 0.5, 0.5)], ids=["default", "tau"])
@pytest.mark.parametrize("loss", ["square", "square_hinge", "logistic"])
def test_newton_finds_the_minimum_of_each_row(loss, weights):
    """Kills: comparisons with a user's other items left out, m_ij with j in it, dislikes, λ_j, users without a pair."""
    own = dislikes.attached(X, REJECTED.astype(float))
    problem = Problem.of(own, loss, weights=weights, penalty=Fixed(reg=0.2, spread=0.7))
    factors, items = random_factors(0, own, 3, 0.7), np.array([0, 18, 19, 5])
    found = item_newton.solve(problem, factors, items, tolerance=1e-12)
    assert found.gap.max() < 1e-9
    plan = exact.plan(problem.objective, own, problem.weights)
    for j, v in zip(items, found.V, strict=True):
        moved = Factors(factors.U, factors.V.at[j].set(v))
        value, slope = exact.value_and_grad(problem.objective, moved, plan)
        before = exact.value(problem.objective, factors, plan)
        assert jnp.abs(slope.V[j]).max() < 1e-6 and value < before
    if loss == "square":
        np.testing.assert_allclose(found.V, fold_in_items.solve(problem, factors, items), atol=1e-6)


@pytest.mark.filterwarnings("ignore:interactions")
def test_the_gap_bounds_what_is_missing():
    """The bound after few steps against the minimum after many, in m₊ θ."""
    problem = Problem.of(X, "logistic", penalty=Fixed(reg=0.3))
    factors, items = random_factors(2, X, 3, 2.0), np.array([0, 5])
    plan = exact.plan(problem.objective, X, problem.weights)
    best = item_newton.solve(problem, factors, items, tolerance=0.0)
    rough = item_newton.solve(problem, factors, items, tolerance=0.0, steps=1)
    usable = len(problem.weights.usable)
    for place, j in enumerate(items):
        values = [
            usable
            * float(
                exact.value(
                    problem.objective, factors._replace(V=factors.V.at[j].set(f.V[place])), plan
                )
            )
            for f in (rough, best)
        ]
        assert 0 <= values[0] - values[1] + 1e-12 <= rough.gap[place] + 1e-9
    model = MFAUC(rank=3, loss="logistic", solver=Minibatch(1)).fit(X)
    grown = model.fold_in_items(X)
    assert grown.fold_in_gap_.shape == (19,) and grown.fold_in_gap_.max() < 1e-5


@pytest.mark.filterwarnings("ignore:interactions")
def test_items_are_folded_in_by_position():
    model = MFAUC(rank=3).fit(quiet(DENSE[:, :18]))
    grown = model.fold_in_items(quiet(np.where(np.arange(20) >= 18, DENSE, False)))
    assert grown.item_factors_.shape == (20, 3) and grown.item_factors_[19].any()
    assert (grown.item_factors_[:18] == model.item_factors_).all()


def theta(model):
    problem = model.problem(model.train_)
    plan = exact.plan(problem.objective, problem.X, problem.weights)
    return float(exact.value(problem.objective, model.factors_, plan))


@pytest.mark.filterwarnings("ignore:interactions")
def test_an_update_moves_what_it_touches_and_lowers_the_objective(model):
    """Kills an update of everybody, one of nobody, and turns that undo each other."""
    new = (["u0", "u0", "u9", "mia"], ["i1", "i2", "cake", "cake"])
    grown = copied(model).partial_fit(new)
    names, columns = grown.train_.user_ids, grown.train_.item_ids
    m, n = map(len, model.factors_)
    moved = (grown.user_factors_[:m] != model.user_factors_).any(1)
    assert set(names[:m][moved]) == {"u0", "u9"}
    assert set(columns[:n][(grown.item_factors_[:n] != model.item_factors_).any(1)]) <= {"i1", "i2"}
    assert grown.user_factors_[m:].any(1).all() and grown.item_factors_[n:].any(1).all()
    start = copied(model)
    sizes = (len(F) for F in grown.factors_)
    padded = (host.padded(F, size) for F, size in zip(model.factors_, sizes, strict=True))
    start._keep(grown.train_, Fitted(Factors(*padded), [], ""))
    assert theta(grown) < theta(start)
    whole = copied(model).partial_fit(new, iterations=2)
    assert (whole.user_factors_[:m] != model.user_factors_).any(1).sum() > 15
    for longer, by in ((grown, 1), (whole, 2)):
        counted = [r["iteration"] for r in longer.history_]
        assert counted == [*range(1, len(model.history_) + by + 1)]


@pytest.mark.filterwarnings("ignore:interactions")
def test_an_item_waits_until_a_twentieth_of_its_positives_is_new(tmp_path, monkeypatch):
    """Also through a file. Kills an item that is never solved because each night adds too little."""
    dense = np.random.default_rng(0).random((80, 20)) < 0.4
    dense[:, 0] = np.arange(80) < 50
    model, solved = MFAUC(rank=2).fit(quiet(dense)), []
    solve = fold_in_items.solve
    monkeypatch.setattr(
        fold_in_items,
        "solve",
        lambda p, f, items, prior: solved.append(list(items)) or solve(p, f, items, prior),
    )
    for i in range(4):
        model.partial_fit((np.array([50 + i]), np.array([0])))
        model.save(tmp_path / "m")
        model = MFAUC.load(tmp_path / "m")
    assert solved == [[0]]  # the night after which 3 of 53 positives are new


def test_other_losses_go_on_over_all_positives():
    model = MFAUC(rank=3, loss="logistic", solver=Minibatch(2, batch=8)).fit(X)
    before = model.user_factors_.copy()
    model.partial_fit((np.array([0]), np.array([18])))
    assert (model.user_factors_ != before).any(1).sum() > 20 and len(model.history_) == 4


def test_a_model_that_was_given_its_factors_can_grow():
    """As one that an application puts together itself, without `fit`."""
    fitted = MFAUC(rank=2).fit(quiet(np.eye(9, 12) + np.eye(9, 12, 1) + np.eye(9, 12, 3)))
    bare = MFAUC(rank=2)
    bare.factors_, bare.train_, bare.history_ = fitted.factors_, fitted.train_, []
    bare.folded_from_ = None
    bare.partial_fit((np.array([0]), np.array([5])))
    assert bare.train_.nnz == fitted.train_.nnz + 1
