"""A score is split into the user's positives: the parts sum to it, and each is what its positive adds."""

import numpy as np
import pytest
from toys import quiet

import mfauc_jax as mf
from mfauc_jax import Alternating, Minibatch

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 30)) + 0.3 * RNG.normal(size=(60, 30))
DENSE = np.quantile(TASTE, 0.75, axis=1, keepdims=True) < TASTE
DENSE[2] = True
DENSE[3] = False
LOSSES = {
    "square": mf.MFAUC(rank=4, solver=Alternating(20)),
    "square_hinge": mf.MFAUC(rank=4, loss="square_hinge", solver=Minibatch(10)),
    "logistic": mf.MFAUC(rank=4, loss="logistic", solver=Minibatch(10)),
}


@pytest.mark.filterwarnings("ignore:interactions")
@pytest.mark.parametrize("name", LOSSES)
def test_the_parts_of_folded_users_sum_to_every_score(name):
    """Kills a system that is not the one which u solves: λ, σ, weights, share, centring."""
    model = LOSSES[name].with_params().fit(quiet(DENSE[:40]))
    folded = model.fold_in(quiet(DENSE))
    for user in (0, 1, 45, 59):
        for item in range(30):
            items, parts, score, rest = folded.explain(user, item)
            assert abs(parts.sum() - score) < 1e-5 and abs(rest) < 1e-5
            assert set(items) == set(np.flatnonzero(DENSE[user])) and (np.diff(parts) <= 0).all()
            np.testing.assert_allclose(score, folded.predict(user, item)[0])


def test_each_part_is_the_solution_with_that_target_alone():
    """The square loss by brute force: H from all pairs, r_p = g_p (v_p − v̈)."""
    model = mf.MFAUC(rank=3, weights=mf.Weights.paper(), penalty=mf.Fixed(reg=0.2, spread=0.5))
    model.fit(quiet(DENSE[4:40]))
    V, positives = model.item_factors_, np.flatnonzero(DENSE[4])
    negatives, g = np.setdiff1d(np.arange(30), positives), 1 / len(positives)
    H = 0.2 * np.eye(3)
    for p in positives:
        for q in negatives:
            H += g / len(negatives) * np.outer(V[p] - V[q], V[p] - V[q])
    H += 0.5 * np.cov(V[negatives].T, bias=True)
    far = V[negatives].mean(0)
    want = {p: V[7] @ np.linalg.solve(H, g * (V[p] - far)) for p in positives}
    items, parts, score, rest = model.explain(0, 7)
    np.testing.assert_allclose(parts, [want[p] for p in items], rtol=1e-6)
    assert score == pytest.approx(model.predict(0, 7)[0]) and rest == pytest.approx(
        score - parts.sum()
    )


@pytest.mark.filterwarnings("ignore:interactions")
def test_users_who_tell_nothing_and_losses_that_cannot():
    model = mf.MFAUC(rank=3).fit(quiet(DENSE))
    for user in (2, 3):
        items, parts, score, rest = model.explain(user, 7)
        assert score == rest == 0 and not parts.any() and len(items) == DENSE[user].sum()
    concave = mf.MFAUC(rank=3, loss="sigmoid", weighting="tanh", solver=Minibatch(1)).fit(
        quiet(DENSE[4:])
    )
    with pytest.raises(
        ValueError, match="explained for a convex loss .* not for sigmoid with tanh"
    ):
        concave.explain(0, 7)
    with pytest.raises(ValueError, match="item 99 is outside"):
        model.explain(0, 99)


def test_ids_go_in_and_come_out():
    users, items = np.nonzero(DENSE[4:])
    model = mf.MFAUC(rank=3).fit(
        (np.char.add("u", users.astype(str)), np.char.add("i", items.astype(str)))
    )
    found = model.explain("u5", "i7").items
    assert set(found) == {f"i{j}" for j in np.flatnonzero(DENSE[9])}
