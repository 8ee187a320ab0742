import jax
import jax.numpy as jnp
import numpy as np

from mfauc_jax import Interactions
from mfauc_jax.baselines import item_auc, pairwise
from mfauc_jax.baselines.pairwise import Descent, Examples, Picked
from mfauc_jax.objective import lookups

KEY = jax.random.key(0)


def sparse(seed=0, m=9, n=14):
    dense = (np.random.default_rng(seed).random((m, n)) < 0.35).astype(float)
    dense[:, 0], dense[:, 1] = 1.0, 0.0
    return dense, Interactions.from_scipy(dense)


def test_users_are_the_mean_of_their_items():
    dense, X = sparse()
    f = item_auc.fit(KEY, X, rank=3, epochs=5)
    means = dense @ np.asarray(f.V) / dense.sum(1, keepdims=True)
    np.testing.assert_allclose(f.U, means, atol=1e-10)
    np.testing.assert_allclose(item_auc.user_vectors(f.V, X), means, atol=1e-10)


def test_negatives_are_uniform_on_the_complement():
    dense, X = sparse(1)
    users = jnp.full(40_000, 4, jnp.int32)
    at = Examples(users, jnp.zeros_like(users), jnp.zeros((40_000, 1)), jnp.zeros((14, 1)))
    _, neg, weight = item_auc.Uniform()(KEY, X, at)
    assert (np.asarray(weight) == 1).all()
    share = (dense[4] == 0) / (dense[4] == 0).sum()
    np.testing.assert_allclose(np.bincount(neg, minlength=14) / 40_000, share, atol=0.01)


def second_item(key, X, examples):
    """Item 1, which nobody has."""
    return Picked(examples.pos, jnp.ones_like(examples.pos), jnp.ones_like(examples.u[:, 0]))


def test_one_step_is_the_finite_difference_gradient_through_the_mean():
    dense, X = sparse(2)
    sizes = {"rank": 3, "per_user": 2, "adaptive": False}
    descent = Descent(learning_rate=0.01, reg=0.2, epochs=1, **sizes)
    key_start, key_epochs = jax.random.split(KEY)
    V = np.asarray(pairwise.start(key_start, X, 3, False).V)
    result = pairwise.fit_items(KEY, X, pairwise.hinge, second_item, descent)
    # the one chunk holds all users by falling length; its positives come from this stream
    rows = np.argsort(-dense.sum(1), kind="stable")
    _, key_slot, _ = jax.random.split(jax.random.fold_in(key_epochs, 0), 3)
    users = np.repeat(rows, 2)
    drawn = pairwise.below(key_slot, (18,), jnp.asarray(dense.sum(1)[users], jnp.int32))
    pos = np.array([np.flatnonzero(dense[i])[t] for i, t in zip(users, drawn, strict=True)])

    def loss(V):
        total = 0.0
        for i, p in zip(users, pos, strict=True):
            u = V[dense[i] > 0].mean(0)
            total += max(0.0, 1 - u @ (V[p] - V[1])) / 2
            total += 0.5 * 0.2 * (u @ u + V[p] @ V[p] + V[1] @ V[1])
        return total

    gradient = np.zeros_like(V)
    for at in np.ndindex(V.shape):
        shift = np.zeros_like(V)
        shift[at] = 1e-6
        gradient[at] = (loss(V + shift) - loss(V - shift)) / 2e-6
    np.testing.assert_allclose(result.V, V - 0.01 * gradient, atol=1e-8)


def test_a_new_user_of_a_known_group_is_scored_without_training():
    rng = np.random.default_rng(3)
    groups = np.kron(np.eye(2), np.ones((20, 15)))
    X = Interactions.from_scipy(groups * (rng.random((40, 30)) < 0.4))
    f = item_auc.fit(KEY, X, rank=4, epochs=200)
    new = Interactions.from_pairs([0, 0, 1, 1], [0, 3, 20, 22], shape=(2, 30))
    scores = np.asarray(item_auc.user_vectors(f.V, new) @ f.V.T)
    assert (scores[0, :15, None] > scores[0, None, 15:]).mean() > 0.97
    assert (scores[1, 15:, None] > scores[1, None, :15]).mean() > 0.97


def test_users_with_every_item_have_no_pair():
    X = Interactions.from_pairs([0, 0, 1], [0, 1, 0], shape=(2, 2))
    users = jnp.array([0, 1], jnp.int32)
    picked = item_auc.Uniform()(
        KEY, X, Examples(users, users, jnp.zeros((2, 1)), jnp.zeros((2, 1)))
    )
    assert picked.weight.tolist() == [0.0, 1.0]
    assert picked.neg[1] == 1 and not lookups.contains(X, users[1], picked.neg[1])[0]
