import hashlib
import warnings

import jax
import numpy as np
import pytest
import scipy.sparse.linalg

from mfauc_jax.data import splits, synthetic


def dense(X):
    return X.to_scipy().toarray().astype(bool)


def test_synthetic2_is_the_authors_matrix_bit_for_bit():
    X = dense(synthetic.synthetic2())
    assert X.shape == (573, 300) and X.sum() == 17_796
    digest = hashlib.sha256(np.packbits(X)).hexdigest()
    assert digest == "ab1af7c6d202b9d3ce3a44fc695df9cea9e5074542e6621686f5fefd1888b580"


def test_synthetic1_has_the_texts_size():
    draws = [synthetic.synthetic1(jax.random.key(seed)) for seed in range(12)]
    assert {X.shape for X in draws} == {(500, 200)}
    nnz = np.array([X.nnz for X in draws])
    assert 12_000 < nnz.mean() < 13_000
    assert (np.abs(nnz - 12_500) < 2_000).all()
    assert all(np.asarray(X.row_lengths).min() >= 10 for X in draws)


def test_synthetic1_of_the_table_is_another_matrix():
    draws = [synthetic.synthetic1_table(jax.random.key(seed)) for seed in range(12)]
    users, nnz = np.array([X.num_users for X in draws]), np.array([X.nnz for X in draws])
    assert 405 < users.mean() < 425
    assert 22_500 < nnz.mean() < 24_500
    assert {X.num_items for X in draws} == {200}


def test_without_noise_synthetic1_thresholds_each_row_at_its_quantile():
    """The recipe once more, row by row with np.quantile."""
    key = jax.random.key(3)
    X = dense(synthetic.synthetic1(key, 60, 50, 4, relevant=0.37, noise=0, user_min=1))
    rng = splits.generator(key)
    U, V = np.linalg.qr(rng.random((60, 4)))[0], np.linalg.qr(rng.random((50, 4)))[0]
    Z = U @ np.diag(rng.random(4)) @ V.T
    columns = rng.integers(50, size=50)
    for z, x in zip(Z, X, strict=True):
        np.testing.assert_array_equal(x, z >= np.quantile(z[columns], 0.63))


def test_draws_follow_the_key():
    first, again, other = (synthetic.synthetic1(jax.random.key(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(dense(first), dense(again))
    assert (dense(first) != dense(other)).any()


@pytest.mark.parametrize(("m", "n", "nnz"), [(300, 80, 300), (2000, 500, 40_000), (50, 40, 1000)])
def test_power_law_has_exactly_the_positives_asked_for(m, n, nnz):
    X = synthetic.power_law(jax.random.key(0), m, n, nnz)
    assert X.shape == (m, n) and X.nnz == nnz
    lengths, matrix = np.asarray(X.row_lengths), X.to_scipy()
    assert 1 <= lengths.min() <= lengths.max() <= n // 2
    assert 2 ** (X.row_bits - 1) <= lengths.max() < 2**X.row_bits
    assert matrix.has_canonical_format and matrix.nnz == nnz  # sorted, no pair twice
    assert np.asarray(X.indices).max() < n


def test_power_law_joins_its_chunks(monkeypatch):
    monkeypatch.setattr(synthetic, "CHUNK", 700)
    X = synthetic.power_law(jax.random.key(0), 400, 90, 5000)
    assert X.nnz == 5000 and np.asarray(X.indptr)[-1] == 5000
    assert X.to_scipy().has_canonical_format


def test_power_law_has_heavy_users_and_popular_items():
    X = synthetic.power_law(jax.random.key(1), 5000, 2000, 100_000)
    lengths = np.asarray(X.row_lengths)
    counts = np.bincount(np.asarray(X.indices), minlength=2000)
    assert lengths.min() == 10 and lengths.max() > 20 * np.median(lengths)
    assert np.sort(counts)[-200:].sum() > 0.4 * X.nnz  # a tenth of the items
    assert abs(np.corrcoef(np.arange(5000), lengths)[0, 1]) < 0.1  # shuffled


def test_power_law_can_be_learned():
    """Held-out items outrank others by a truncated SVD, further than by popularity."""
    X = synthetic.power_law(jax.random.key(2), 1500, 300, 45_000)
    train, test = splits.hold_out(jax.random.key(0), X, 3)
    T, held_out, known = train.to_scipy().astype(float), dense(test), dense(X)
    u, s, vt = scipy.sparse.linalg.svds(T, k=8, random_state=0)
    popularity = np.tile(np.asarray(T.sum(0)).ravel(), (X.num_users, 1))

    def mean_auc(scores):
        aucs = []
        for i in range(X.num_users):
            positive, negative = scores[i, held_out[i]], scores[i, ~known[i]]
            aucs.append((positive[:, None] > negative[None, :]).mean())
        return np.mean(aucs)

    svd, pop = mean_auc((u * s) @ vt), mean_auc(popularity)
    assert pop > 0.6
    assert svd > pop + 0.05


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda key: synthetic.power_law(key, 10, 10, 5), "nnz = 5 must be between m = 10"),
        (lambda key: synthetic.power_law(key, 10, 10, 51), "and m·⌊n/2⌋ = 50"),
        (lambda key: synthetic.power_law(key, 0, 10, 5), "num_users = 0"),
        (lambda key: synthetic.synthetic1(key, rank=201), "rank = 201"),
        (lambda key: synthetic.synthetic1(key, relevant=1.5), "relevant = 1.5"),
        (lambda key: synthetic.synthetic1(key, user_min=201), "user_min = 201"),
    ],
)
def test_bad_sizes_are_named(call, message):
    with pytest.raises(ValueError, match=message), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(jax.random.key(0))
