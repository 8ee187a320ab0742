"""Dislikes: negatives of more weight in Eq. 3, by a loop over all pairs, in every route that takes them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import quiet, random_factors

import mfauc_jax as mf
from mfauc_jax import Alternating, Dense, Fixed, Interactions, Problem, Weights, data
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import dislikes, joining, splits
from mfauc_jax.data.digest import digest
from mfauc_jax.objective import equation, exact, losses, sampling, slopes, weightings
from mfauc_jax.serving import fold_in, fold_in_items
from mfauc_jax.solvers import dense as products
from mfauc_jax.solvers import minibatch

pytestmark = pytest.mark.filterwarnings("ignore:interactions")
RNG = np.random.default_rng(0)
M, N = 12, 10
LIKED = RNG.random((M, N)) < 0.3
REJECTED = (RNG.random((M, N)) < 0.25) & ~LIKED
LIKED[~LIKED.any(1), 0], REJECTED[:, 0] = True, False
LIKED[2], REJECTED[2] = False, False  # no positive
LIKED[3], REJECTED[3] = True, False  # no negative
REJECTED[4] = False  # dislikes nothing
LIKED[5] = np.arange(N) < 4
REJECTED[5] = ~LIKED[5]  # dislikes every negative
X = dislikes.attached(quiet(LIKED), REJECTED.astype(float))
AT = random_factors(1, X, 3, 0.7)
SOFTMAX = equation.make(losses.Exponential(beta=2.0), weightings.Log(c=3.0), spread=0.6, reg=0.2)
OBJECTIVES = [
    equation.make("square", reg=0.2, spread=0.7),
    equation.make("square", "tanh", reg=0.2),
    equation.make("square_hinge", reg=0.2, spread=0.7),
    equation.make("logistic", reg=0.2, spread=0.7),
    SOFTMAX,
]
WEIGHTS = [Weights(-0.1, 0.0, 0.5, 3.0), Weights(-0.5, 0.6, 0.5, 5.0)]


def by_hand(objective, U, V, weights: Weights, liked=LIKED, rejected=REJECTED):
    """Eq. 3 by loops in Python floats; g′ of a disliked item is c times as large before it is normalised."""
    U, V, (m, n) = np.asarray(U), np.asarray(V), liked.shape
    share = liked.sum(0) / m
    tau_neg = weights.tau if weights.tau_neg is None else weights.tau_neg
    usable = [i for i in range(m) if liked[i].any() and not liked[i].all()]
    w = np.array([liked[i].sum() ** weights.user_power for i in usable])
    total = 0.0
    for i, weight in zip(usable, w / w.mean(), strict=True):
        s, pos, neg = V @ U[i], np.flatnonzero(liked[i]), np.flatnonzero(~liked[i])
        g = np.array([share[p] ** weights.tau for p in pos])
        h = np.array([(1 - share[q]) ** tau_neg for q in neg])
        h = np.array(
            [c * (weights.dislikes if rejected[i, q] else 1) for c, q in zip(h, neg, strict=True)]
        )
        g, h = g / g.sum(), h / h.sum()
        for p, g_p in zip(pos, g, strict=True):
            inner = sum(
                h_q * float(objective.loss(s[p] - s[q])) for q, h_q in zip(neg, h, strict=True)
            )
            total += weight * g_p * float(objective.weighting(inner))
        variance = h @ s[neg] ** 2 - (h @ s[neg]) ** 2
        total += weight * 0.5 * objective.spread * variance
    norms = (U**2).sum() / m + (V**2).sum() / n
    return total / len(usable) + 0.5 * objective.reg * norms


@pytest.mark.parametrize("weights", WEIGHTS, ids=["uniform", "tau"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: f"{o.loss.name}-{o.weighting.name}")
def test_the_exact_value_is_the_loop_and_its_gradient_the_difference_quotient(objective, weights):
    """Kills: c on b but not in the mass, a dislike with g, c − 1 read as c, dislikes of the wrong row."""
    pairs = weights.of(X)
    plan, listed = exact.plan(objective, X, pairs, block=20), sampling.everything(X, pairs)
    truth = by_hand(objective, *AT, weights)
    value, slope = exact.value_and_grad(objective, AT, plan)
    assert float(value) == pytest.approx(truth, rel=1e-9)
    assert float(equation.value(objective, AT, listed)) == pytest.approx(truth, rel=1e-9)
    assert float(exact.value(objective, AT, plan)) == pytest.approx(truth, rel=1e-9)
    for F, dF, at in ((0, slope.U, (5, 1)), (1, slope.V, (7, 2)), (1, slope.V, (0, 0))):
        step = np.zeros(AT[F].shape)
        step[at] = 1e-5
        ends = ([AT[i] + s * step if i == F else AT[i] for i in (0, 1)] for s in (1, -1))
        above, below = (by_hand(objective, *end, weights) for end in ends)
        assert float(dF[at]) == pytest.approx((above - below) / 2e-5, rel=1e-5, abs=1e-8)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 2.5, 1e4]))
def test_any_rows_give_the_loop(seed, factor):
    rng = np.random.default_rng(seed)
    kind = rng.permutation(np.arange(40) % 3).reshape(5, 8)  # as many of each: one compilation
    if not (kind == 0).any() or not ((kind == 0).any(1) & (kind != 0).any(1)).any():
        return
    own = dislikes.attached(quiet(kind == 0), (kind == 1).astype(float))
    weights, objective = Weights(0.0, 0.0, 0.5, factor), OBJECTIVES[0]
    at = random_factors(seed, own, 2)
    plan = exact.plan(objective, own, weights.of(own))
    truth = by_hand(objective, *at, weights, kind == 0, kind == 1)
    assert float(exact.value(objective, at, plan)) == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("weights", WEIGHTS, ids=["uniform", "tau"])
def test_alternating_ends_where_the_exact_gradient_is_zero(weights):
    """Kills a sweep that forgets the dislikes in a row of U, in a row of V or in the Gram matrix."""
    solver = Alternating(150, user_steps=6, item_steps=6)
    model = mf.MFAUC(
        rank=2, weights=weights, penalty=Fixed(reg=0.3, spread=0.5), solver=solver
    ).fit(X)
    problem = model.problem(X)
    plan = exact.plan(problem.objective, X, problem.weights)
    _, slope = exact.value_and_grad(problem.objective, model.factors_, plan)
    assert max(float(jnp.abs(dF).max()) for dF in slope) < 1e-7
    plain = mf.MFAUC(rank=2, weights=weights, penalty=Fixed(reg=0.3, spread=0.5), solver=solver)
    assert np.abs(plain.fit(quiet(LIKED)).user_factors_ - model.user_factors_).max() > 1e-3


@pytest.mark.parametrize("weights", WEIGHTS, ids=["uniform", "tau"])
def test_draws_are_unbiased(weights):
    """z-scores of the mean weight of each item against g′; kills a coin of the other side, a table of another row."""
    pairs, count = weights.of(X), 40_000
    users = np.array([0, 1, 4, 5])
    items, g = sampling.draw_negatives(jax.random.key(3), X, pairs, jnp.asarray(users), count)
    listed = sampling.everything(X, pairs)
    for row, i in enumerate(users):
        place = int(np.flatnonzero(np.asarray(listed.users) == i)[0])
        truth = np.bincount(np.asarray(listed.neg)[place], np.asarray(listed.g_neg)[place], N)
        found = np.bincount(np.asarray(items)[row], np.asarray(g)[row], N)
        spread = np.sqrt(truth * (1 - truth) / count) + 1e-12
        assert (np.abs(found - truth) / spread).max() < 4.5
        np.testing.assert_allclose(
            np.asarray(g)[row], 1 / count, rtol=1e-4
        )  # so Var is unbiased too


def test_sampled_gradients_are_unbiased():
    """The mean of many sampled gradients against the exact one, by z-scores; φ = identity, with the spread."""
    objective, pairs = OBJECTIVES[3]._replace(reg=0.0), WEIGHTS[1].of(X)
    truth = jax.grad(exact.value, 1)(objective, AT, exact.plan(objective, X, pairs))

    @jax.jit
    def one(key):
        sample = sampling.uniform(key, X, pairs, pairs.usable, 3, 4)
        return jax.grad(equation.value, 1)(objective, AT, sample)

    drawn = jax.lax.map(one, jax.random.split(jax.random.key(0), 4000), batch_size=100)
    for many, exactly in zip(drawn, truth, strict=True):
        error = many.std(0) / np.sqrt(len(many)) + 1e-9
        assert float((jnp.abs(many.mean(0) - exactly) / error).max()) < 4.5


def test_the_expected_number_of_draws_counts_dislikes():
    pairs = WEIGHTS[1].of(X)
    listed = sampling.everything(X, pairs)
    found = minibatch.expected_draws(X, pairs, 2, 5)
    truth = 2 * np.bincount(np.asarray(listed.pos).ravel(), np.asarray(listed.g_pos).ravel(), N)
    truth += 5 * np.bincount(np.asarray(listed.neg).ravel(), np.asarray(listed.g_neg).ravel(), N)
    np.testing.assert_allclose(found, truth, rtol=1e-9)


@pytest.mark.parametrize("weights", WEIGHTS, ids=["uniform", "tau"])
@pytest.mark.parametrize(
    "objective", [SOFTMAX, equation.make("logistic", spread=0.4)], ids=["softmax", "logistic"]
)
def test_products_with_all_items_give_the_exact_gradient(objective, weights):
    """Kills a dislike without its factor, or with it twice, in `slopes`; equal rows, as drawn positives want."""
    liked = np.zeros((6, N), bool)
    np.put_along_axis(liked, np.argsort(RNG.random((6, N)), 1)[:, :4], True, 1)
    own = dislikes.attached(quiet(liked), ((RNG.random((6, N)) < 0.4) & ~liked).astype(float))
    problem = Problem(own, weights.of(own), objective._replace(reg=0.0))
    prepared = Dense(batch=6).prepare(problem)
    batch = products.batch_of(prepared, prepared.strata[:, 0])
    positives = slopes.Positives(batch.row, batch.items, batch.g)
    at = random_factors(4, own, 3, 0.7)
    rows, columns = Factors(at.U[batch.users], at.V), products.Columns(None, None, 0, N)
    du, dv = products.gradients(problem.objective, rows, prepared, batch, positives, columns, None)
    plan = exact.plan(problem.objective, own, problem.weights)
    _, truth = exact.value_and_grad(problem.objective, at, plan)
    np.testing.assert_allclose(du, 6 * truth.U[batch.users], atol=1e-9)
    np.testing.assert_allclose(dv, N * truth.V, atol=1e-9)


@pytest.mark.parametrize("objective", [OBJECTIVES[0], OBJECTIVES[3]], ids=["square", "logistic"])
def test_folded_users_are_the_minimum(objective):
    pairs = WEIGHTS[1].of(X)
    folded = fold_in.fold_in(objective, AT.V, X, pairs, usable_share=len(pairs.usable) / M)
    plan = exact.plan(objective, X, pairs)
    _, slope = exact.value_and_grad(objective, Factors(jnp.asarray(folded.U), AT.V), plan)
    assert float(jnp.abs(slope.U).max()) < 1e-3 and folded.gap.max() < 1e-6


@pytest.mark.parametrize("weights", WEIGHTS, ids=["uniform", "tau"])
def test_folded_items_are_the_minimum(weights):
    objective, pairs = OBJECTIVES[0], weights.of(X)
    problem, items = Problem(X, pairs, objective), np.array([0, 4, 9])
    solved = fold_in_items.solve(problem, AT, items)
    plan = exact.plan(objective, X, pairs)
    for j, v in zip(items, solved, strict=True):
        _, slope = exact.value_and_grad(objective, Factors(AT.U, AT.V.at[j].set(v)), plan)
        assert float(jnp.abs(slope.V[j]).max()) < 1e-7


PEOPLE, THINGS = (
    np.char.add(letter, np.arange(size).astype(str)) for letter, size in (("u", M), ("i", N))
)


def named(dense):
    users, items = np.nonzero(dense)
    return PEOPLE[users], THINGS[items]


@pytest.fixture(scope="module")
def model():
    return mf.MFAUC(rank=3).fit(named(LIKED), dislikes=named(REJECTED))


def test_dislikes_are_joined_by_ids_and_never_recommended(model, tmp_path):
    assert model.train_.dislikes.nnz == REJECTED.sum()
    for user in (0, 1, 6, 11):
        listed = {item for item in model.recommend(f"u{user}", n=N).items if item}
        assert listed == {f"i{j}" for j in np.flatnonzero(~LIKED[user] & ~REJECTED[user])}
        free = model.recommend(f"u{user}", n=N, exclude_seen=False).items
        assert len(set(free)) == N
    model.save(tmp_path / "a.model")
    again = mf.MFAUC.load(tmp_path / "a.model")
    np.testing.assert_array_equal(again.train_.dislikes.indices, model.train_.dislikes.indices)
    assert again.recommend("u0", n=2).items.tolist() == model.recommend("u0", n=2).items.tolist()
    basket = named(LIKED[:2])
    one, other = (m.fold_in(basket, dislikes=named(REJECTED[:2])) for m in (model, again))
    np.testing.assert_array_equal(one.user_factors_, other.user_factors_)
    listed = {item for item in one.recommend("u0", n=N).items if item}
    assert listed == {f"i{j}" for j in np.flatnonzero(~LIKED[0] & ~REJECTED[0])}
    _, parts, score, rest = one.explain("u0", "i7")
    assert abs(rest) < 1e-5 and parts.sum() + rest == pytest.approx(score)
    assert np.abs(model.fold_in(basket).user_factors_ - one.user_factors_).max() > 1e-4


def test_with_factor_one_dislikes_only_leave_the_lists():
    one = mf.MFAUC(rank=3, weights=Weights(dislikes=1.0)).fit(
        named(LIKED), dislikes=named(REJECTED)
    )
    plain = mf.MFAUC(rank=3).fit(named(LIKED))
    np.testing.assert_allclose(one.user_factors_, plain.user_factors_, atol=1e-8)


def test_held_out_positives_are_judged_without_dislikes(model):
    split = splits.hold_out(0, model.train_, 1)
    assert split.train.dislikes is model.train_.dislikes and split.test.dislikes is None
    found = mf.evaluate(model, split.train, split.test, per_user=True)
    U, V = model.factors_
    for user, auc in zip(found["user"], found["auc"], strict=True):
        s, test = V @ U[user], np.asarray(split.test.take(np.array([user])).indices)
        rejected = REJECTED[int(model.train_.user_ids[user][1:])]
        seen = np.asarray(split.train.to_scipy()[[user]].toarray()[0] != 0) | rejected
        others = np.setdiff1d(np.flatnonzero(~seen), test)
        if len(others):
            truth = (s[test][:, None] > s[others][None, :]).mean()
            assert auc == pytest.approx(truth)


def test_rows_columns_and_further_positives_keep_the_dislikes():
    both = dislikes.attached(Interactions.of(named(LIKED)), named(REJECTED))
    kept = splits.k_core(both, 3, 3)
    truth = {
        (u, i)
        for u, i in zip(*named(REJECTED), strict=True)
        if u in kept.user_ids and i in kept.item_ids
    }
    rows, columns, _ = kept.dislikes.on_host()
    assert set(zip(kept.user_ids[rows], kept.item_ids[columns], strict=True)) == truth
    user, item = next(zip(*named(REJECTED), strict=True))
    later = joining.joined(
        both, ([user, "new"], [item, "more"])
    )  # now liked, so no longer a dislike
    assert later.dislikes.nnz == both.dislikes.nnz - 1 and later.shape == (
        M,
        N + 1,
    )  # u2 had no positive
    assert digest(both) != digest(dataclasses.replace(both, dislikes=None))
    back = jax.tree.map(lambda leaf: leaf, both)
    assert back.dislikes.nnz == both.dislikes.nnz and "dislikes" in repr(both)


def test_what_is_both_counts_as_liked_and_strangers_are_counted():
    pairs = (
        ["u0", "u0", "ghost", "u1"],
        ["i0", THINGS[np.flatnonzero(LIKED[0])[0]], "i1", "nowhere"],
    )
    liked = {f"i{j}" for j in np.flatnonzero(LIKED[0])}
    lost, same = 2, len({"i0", pairs[1][1]} & liked)
    with pytest.warns(
        UserWarning, match=f"left out {lost} of 4.*; {same} items both liked and disliked"
    ):
        found = dislikes.attached(Interactions.of(named(LIKED)), pairs)
    kept = 0 if found.dislikes is None else found.dislikes.nnz
    assert kept == len({"i0", pairs[1][1]} - liked)
    with pytest.raises(ValueError, match="the dislikes are .* give both with ids, or one shape"):
        dislikes.attached(quiet(LIKED), np.eye(3))


@pytest.mark.parametrize(
    "model",
    [mf.MFAUC.paper(), mf.MFAUC(loss="logistic", solver="blockwise")],
    ids=["paper", "blockwise"],
)
def test_routes_that_cannot_say_so(model):
    with pytest.raises(ValueError, match="takes no dislikes: use solver='alternating'"):
        model.fit(X)
    with pytest.raises(ValueError, match="sampler of Algorithm 1 takes no dislikes"):
        sampling.for_item(jax.random.key(0), X, WEIGHTS[0].of(X), jnp.asarray(0), 2, 2)
    with pytest.raises(ValueError, match="dislikes = 0.5"):
        Weights(dislikes=0.5)


def test_low_ratings_are_dislikes(tmp_path):
    path = tmp_path / "ratings.csv"
    rows = [
        "user,item,rating",
        "a,x,5",
        "a,y,1",
        "a,z,3",
        "b,y,4",
        "b,x,2",
        "b,q,1",
        "c,x,1",
        "a,w,4",
        "a,w,1",
        "b,w,5",
    ]
    path.write_text("\n".join(rows) + "\n")
    with pytest.warns(
        UserWarning, match="1 items both liked and disliked by a user count as liked"
    ):
        found = data.read_ratings(path, min_rating=4, dislikes_below=3)
    rows, columns, _ = found.dislikes.on_host()
    pairs = set(zip(found.user_ids[rows], found.item_ids[columns], strict=True))
    assert pairs == {("a", "y"), ("b", "x")} and found.nnz == 4  # q and c have no positive
    for bad in ({"dislikes_below": 3}, {"dislikes_below": 4.5, "min_rating": 4}):
        with pytest.raises(ValueError, match="would make positives dislikes"):
            data.read_ratings(path, **bad)
    with pytest.raises(ValueError, match="not a finite number"):
        data.read_ratings(path, min_rating=4, dislikes_below=float("nan"))
