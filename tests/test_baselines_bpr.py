import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mfauc_jax import Factors, Interactions
from mfauc_jax.baselines import bpr, pairwise
from mfauc_jax.baselines.pairwise import Descent, Examples, Picked, Table
from mfauc_jax.objective import equation, lookups, losses, sampling
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import base

KEY = jax.random.key(0)


def random_rows(lengths, n=12, seed=0):
    rng = np.random.default_rng(seed)
    dense = np.zeros((len(lengths), n))
    for row, length in zip(dense, lengths, strict=True):
        row[rng.choice(n, length, replace=False)] = 1
    return dense, Interactions.from_scipy(dense)


def triple_loop(U, V, dense, reg):
    total, triples = 0.0, 0
    for i, row in enumerate(dense):
        for p in np.flatnonzero(row):
            for q in np.flatnonzero(row == 0):
                gamma = U[i] @ (V[p] - V[q])
                squares = U[i] @ U[i] + V[p] @ V[p] + V[q] @ V[q]
                total += np.log1p(np.exp(-gamma)) + 0.5 * reg * squares
                triples += 1
    return total / triples


def test_objective_is_the_triple_loop():
    dense, X = random_rows((1, 3, 9, 5, 11))
    f = base.gaussian(KEY, 5, 12, 3, 1.0)
    expected = triple_loop(np.asarray(f.U), np.asarray(f.V), dense, 0.3)
    np.testing.assert_allclose(bpr.objective(f, X, reg=0.3), expected, rtol=1e-12)


def test_bpr_is_logistic_and_identity_only_if_all_users_have_as_many_positives():
    """E11: BPR weighs user i by N_i M_i where the framework weighs all alike."""
    goal, value = equation.make("logistic"), jax.jit(equation.value)
    for lengths, equal in (((4, 4, 4, 4), True), ((1, 2, 6, 10), False)):
        _, X = random_rows(lengths, seed=1)
        f = base.gaussian(KEY, 4, 12, 3, 1.0)
        weights = Weights.paper().of(X)
        sample = sampling.everything(X, weights)
        framework = float(value(goal, f, sample))
        own = float(bpr.objective(f, X))
        assert (abs(framework - own) < 1e-12) == equal
        share = np.array([N * (12 - N) for N in lengths], float)
        reweighted = sample._replace(user_weight=jnp.asarray(share / share.mean()))
        np.testing.assert_allclose(value(goal, f, reweighted), own, rtol=1e-12)


def test_ascent_is_monotone_under_exact_gradients():
    _, X = random_rows((2, 3, 5, 4, 6), seed=2)
    f = base.gaussian(KEY, 5, 12, 3)
    step = jax.value_and_grad(lambda f: bpr.objective(f, X, reg=0.01))
    values = []
    for _ in range(20):
        value, gradient = step(f)
        values.append(float(value))
        f = jax.tree.map(lambda x, g: x - 2.0 * g, f, gradient)
    assert (np.diff(values) < 0).all() and values[-1] < 0.9 * values[0]


def test_bootstrap_triples_are_uniform_on_d():
    dense, X = random_rows((1, 6, 11), seed=3)
    count = 200_000
    key_slot, key_pick = jax.random.split(KEY)
    slot = pairwise.below(key_slot, (count,), X.nnz)
    users = X.rows[slot]
    u = jnp.zeros((count, 1))
    pos, neg, weight = bpr.Triple()(key_pick, X, Examples(users, X.indices[slot], u, u[:12]))
    kept = np.asarray(weight) > 0
    cells = np.ravel_multi_index([np.asarray(a)[kept] for a in (users, pos, neg)], (3, 12, 12))
    counts = np.bincount(cells, minlength=3 * 144).reshape(3, 12, 12)
    triples = (dense[:, :, None] > 0) & (dense[:, None, :] == 0)
    assert (counts[~triples] == 0).all()
    seen, expected = counts[triples], kept.sum() / triples.sum()
    assert ((seen - expected) ** 2 / expected).sum() < triples.sum() + 5 * np.sqrt(
        2 * triples.sum()
    )


def test_more_tries_skip_positives_and_popular_follows_the_columns():
    dense, X = random_rows((2, 2, 2, 2, 11), seed=4)
    users = jnp.zeros(50_000, jnp.int32)
    at = Examples(users, jnp.full(50_000, X.indices[0]), jnp.zeros((50_000, 1)), jnp.zeros((12, 1)))
    _, neg, weight = bpr.Triple(tries=20, popular=True)(KEY, X, at)
    assert (np.asarray(weight) == 1).all()
    share = np.where(dense[0] > 0, 0, dense.sum(0))
    np.testing.assert_allclose(
        np.bincount(neg, minlength=12) / 50_000, share / share.sum(), atol=0.01
    )


def fixed_pick(key, X, examples):
    """The item after p, cyclically, if it is a negative."""
    neg = (examples.pos + 1) % X.num_items
    relevant, _ = lookups.contains(X, examples.users, neg)
    return Picked(examples.pos, neg, 1.0 - relevant)


@pytest.mark.parametrize(("bias", "bootstrap"), [(False, True), (True, False)])
def test_one_step_of_the_user_item_model_is_the_summed_gradient(bias, bootstrap):
    dense, X = random_rows((3, 5, 4), seed=5)
    key_start, key_epochs = jax.random.split(KEY)
    sizes = {"rank": 2, "batch": 64, "bias": bias, "adaptive": False, "bootstrap": bootstrap}
    descent = Descent(learning_rate=0.1, reg=0.3, epochs=1, **sizes)
    U, V = pairwise.start(key_start, X, 2, bias)
    result = pairwise.fit_users(KEY, X, losses.logistic, fixed_pick, descent)
    _, key = jax.random.split(key_epochs)  # of the order, of the epochs
    _, key_steps = jax.random.split(jax.random.fold_in(key, 0))
    _, key_slot = jax.random.split(jax.random.fold_in(key_steps, 0))
    drawn = np.asarray(pairwise.below(key_slot, (X.nnz,), X.nnz))
    slots = drawn if bootstrap else np.arange(X.nnz)
    rows, items = np.asarray(X.rows), np.asarray(X.indices)
    U, V = np.array(U), np.array(V)
    U1, V1 = U.copy(), V.copy()
    for t in slots:
        i, p = rows[t], items[t]
        q = (p + 1) % 12
        if dense[i, q]:
            continue
        slope = -1 / (1 + np.exp(U[i] @ (V[p] - V[q])))
        du = slope * (V[p] - V[q]) + 0.3 * U[i]
        U1[i] -= 0.1 * (du * np.array([1, 1, 0]) if bias else du)
        V1[p] -= 0.1 * (slope * U[i] + 0.3 * V[p])
        V1[q] -= 0.1 * (-slope * U[i] + 0.3 * V[q])
    np.testing.assert_allclose(result.U, U1, atol=1e-12)
    np.testing.assert_allclose(result.V, V1, atol=1e-12)


def test_an_epoch_meets_every_entry_of_the_order_once_in_new_company():
    order = jnp.arange(24).reshape(4, 6)
    turn = jnp.array([0, 3, 1, 2, 0, 1])
    met = np.array([pairwise.turned(order, turn, s) for s in range(4)])
    assert sorted(met.ravel()) == list(range(24))
    assert set(met[0]) != set(range(6))


def test_adagrad_counts_every_occurrence_of_a_row():
    table = Table(jnp.zeros((3, 2)), jnp.ones((3, 2)))
    gradient = jnp.array([[1.0, 2.0], [3.0, 0.0], [1.0, 1.0]])
    rows, squares = pairwise.descend(table, jnp.array([2, 2, 0]), gradient, 0.5, True)
    np.testing.assert_allclose(squares, [[2, 2], [1, 1], [11, 5]])
    expected = -0.5 * np.array([[1, 1], [0, 0], [4, 2]]) / np.sqrt([[2, 2], [1, 1], [11, 5]])
    np.testing.assert_allclose(rows, expected)


def test_two_groups_of_users_are_told_apart():
    rng = np.random.default_rng(6)
    dense = np.kron(np.eye(2), np.ones((20, 15))) * (rng.random((40, 30)) < 0.5)
    X = Interactions.from_scipy(dense)
    f = bpr.fit(KEY, X, rank=4, epochs=100)
    scores = np.asarray(f.U @ f.V.T)
    own = np.kron(np.eye(2), np.ones((20, 15))) > 0
    unseen = dense == 0
    wins = [
        (scores[i][own[i] & unseen[i]][:, None] > scores[i][~own[i]][None, :]).mean()
        for i in range(40)
    ]
    assert np.mean(wins) > 0.95
    assert isinstance(f, Factors)


def test_the_same_key_gives_the_same_model_and_epochs_do_not_recompile():
    _, X = random_rows((3, 5, 4), seed=7)
    first, second = (bpr.fit(KEY, X, rank=2, epochs=3) for _ in range(2))
    assert (first.V == second.V).all()
    before = pairwise._users.made
    bpr.fit(KEY, X, rank=2, epochs=5, learning_rate=0.2, reg=0.1)
    assert pairwise._users.made == before
