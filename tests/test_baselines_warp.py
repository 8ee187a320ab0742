import jax
import numpy as np
import pytest

from mfauc_jax import Interactions
from mfauc_jax.baselines import item_auc, pairwise, warp
from mfauc_jax.baselines.pairwise import Examples

KEY = jax.random.key(0)


def sparse(seed=0, m=40, n=25, density=0.3):
    dense = (np.random.default_rng(seed).random((m, n)) < density).astype(float)
    dense[:, 0] = 1.0
    return dense, Interactions.from_scipy(dense)


def examples(X, count, scale=1.0, rank=3, seed=1):
    key_u, key_v, key_slot = jax.random.split(jax.random.key(seed), 3)
    slot = pairwise.below(key_slot, (count,), X.nnz)
    users = X.rows[slot]
    U = scale * jax.random.normal(key_u, (X.num_users, rank))
    V = scale * jax.random.normal(key_v, (X.num_items, rank))
    return Examples(users, X.indices[slot], U[users], V)


def test_phi_is_the_harmonic_sum():
    expected = [sum(1 / t for t in range(1, x + 1)) for x in range(30)]
    np.testing.assert_allclose([warp.harmonic(x) for x in range(30)], expected, rtol=1e-12)


@pytest.mark.parametrize("density", [0.1, 0.8])
def test_picks_are_what_drawing_one_by_one_finds(density):
    dense, X = sparse(density=density)
    at = examples(X, 300)
    pos, neg, weight = jax.jit(warp.FirstViolation(trials=6))(KEY, X, at)
    size = warp.GROUP  # examples that share a pool, each its own run of it
    pools = np.asarray(pairwise.below(KEY, (-(-300 // size), size), 25))
    drawn = [[pools[e // size, (e + t) % size] for t in range(6)] for e in range(300)]
    scores = np.asarray(at.u @ at.V.T)
    outcomes = set()
    for e, (i, p) in enumerate(zip(np.asarray(at.users), np.asarray(at.pos), strict=True)):
        assert pos[e] == p
        found = 0
        for trial, q in enumerate(drawn[e], 1):
            if scores[e, q] > scores[e, p] - 1 and not dense[i, q]:
                found = trial
                break
        outcomes.add(found)
        if found:
            assert neg[e] == drawn[e][found - 1]
            expected = sum(1 / t for t in range(1, (25 - 1) // found + 1))
            np.testing.assert_allclose(weight[e], expected, rtol=1e-12)
        else:
            assert weight[e] == 0
    assert {0, 1, 2} <= outcomes


def test_order_statistic_takes_the_best_or_the_worst_by_the_odds():
    dense, X = sparse()
    at = examples(X, 4000)
    scores = np.asarray(at.u @ at.V.T)
    relevant = dense[np.asarray(at.users)] > 0
    K = 60  # so many draws nearly surely meet every positive
    top = np.where(relevant, scores, -np.inf).argmax(1)
    bottom = np.where(relevant, scores, np.inf).argmin(1)
    pick = warp.OrderStatistic((0.25,) + (0.0,) * (K - 2) + (0.75,))
    mixed = np.asarray(jax.jit(pick)(KEY, X, at).pos)
    is_top, is_bottom = mixed == top, mixed == bottom
    assert abs(is_top.mean() - 0.25) < 0.05 and abs(is_bottom.mean() - 0.75) < 0.05


@pytest.mark.parametrize("pick", [warp.FirstViolation(10), warp.OrderStatistic()])
def test_gradients_are_finite_differences_given_the_sampled_ranks(pick):
    _, X = sparse(3)
    at = examples(X, 20, scale=0.7)
    pos, neg, weight = jax.jit(pick)(KEY, X, at)
    assert (np.asarray(weight) > 0).sum() > 10
    rows = at.u, at.V[pos], at.V[neg]
    gradients = jax.grad(pairwise.pair_loss, (0, 1, 2))(*rows, weight, pairwise.hinge, 0.1)

    def loss(u, v_pos, v_neg):
        hinge = np.maximum(0, 1 - (u * (v_pos - v_neg)).sum(1))
        squares = (u**2).sum(1) + (v_pos**2).sum(1) + (v_neg**2).sum(1)
        return (np.asarray(weight) * hinge + 0.05 * (np.asarray(weight) > 0) * squares).sum()

    rows = [np.array(r) for r in rows]
    for which, gradient in enumerate(gradients):
        for place in np.ndindex(gradient.shape):
            value = []
            for h in (1e-6, -1e-6):
                moved = [r.copy() for r in rows]
                moved[which][place] += h
                value.append(loss(*moved))
            np.testing.assert_allclose(gradient[place], (value[0] - value[1]) / 2e-6, atol=1e-6)


def test_rows_are_projected_to_the_ball_and_the_bias_column_of_u_stays_one():
    _, X = sparse()
    f = warp.fit(KEY, X, rank=3, epochs=20, max_norm=0.5, bias=True)
    norms = np.concatenate([np.linalg.norm(F[:, :3], axis=1) for F in f])
    assert norms.max() <= 0.5 + 1e-12 and (norms > 0.5 - 1e-9).any()
    assert (f.U[:, 3] == 1).all() and f.V.shape == (25, 4) and (abs(f.V[:, 3]) > 0.5).any()


@pytest.mark.parametrize(
    ("fit", "least"), [(warp.fit, 0.95), (warp.fit_items, 0.95), (warp.fit_kos, 0.75)]
)  # k-OS pushes one positive in ten
def test_groups_are_told_apart(fit, least):
    rng = np.random.default_rng(6)
    own = np.kron(np.eye(2), np.ones((20, 15))) > 0
    dense = own * (rng.random((40, 30)) < 0.5)
    X = Interactions.from_scipy(dense)
    f = fit(KEY, X, rank=4, epochs=60)
    scores = np.asarray(f.U @ f.V.T)
    wins = [
        (scores[i][own[i] & ~dense[i]][:, None] > scores[i][~own[i]][None, :]).mean()
        for i in range(40)
    ]
    assert np.mean(wins) > least


def test_item_model_returns_the_users_means():
    _, X = sparse(4)
    f = warp.fit_items(KEY, X, rank=3, epochs=4, places=warp.MEDIAN)
    np.testing.assert_allclose(f.U, item_auc.user_vectors(f.V, X), atol=1e-10)
