"""The spectral start of the alternating route: against NumPy's decompositions, on any number of devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet

from mfauc_jax import MFAUC, Alternating, Gaussian, Svd, Watch
from mfauc_jax.solvers import alternating, base, range_finder

RNG = np.random.default_rng(5)
SCORES = (RNG.random((90, 4)) ** 4) @ RNG.random((4, 40))
DENSE = np.quantile(SCORES, 0.7) < SCORES
DENSE[3], DENSE[4] = False, True  # no positive, no negative
X = quiet(DENSE)
KEY = jax.random.key(2)


def test_eigenvectors_are_numpys():
    """Kills: a pair that never meets, a rotation by the wrong angle, an order that is not the eigenvalues'."""
    A = RNG.standard_normal((22, 30)) * np.geomspace(1, 0.01, 30)
    H = A @ A.T
    squares, axes = range_finder.eigenvectors(jnp.asarray(H))
    np.testing.assert_allclose(squares, np.linalg.eigvalsh(H)[::-1], atol=1e-10 * squares[0])
    np.testing.assert_allclose(axes @ jnp.diag(squares) @ axes.T, H, atol=1e-10 * squares[0])
    np.testing.assert_allclose(axes.T @ axes, np.eye(22), atol=1e-12)


def test_the_inverse_root_keeps_lost_directions_short():
    Q = np.linalg.qr(RNG.standard_normal((12, 12)))[0]
    squares = np.array([1.0] * 4 + [1e-2] * 4 + [1e-14] * 4)
    G = Q * squares[None, :] @ Q.T
    T = np.asarray(range_finder.inverse_root(jnp.asarray(G)))
    found = np.diagonal(Q.T @ T @ G @ T @ Q)
    np.testing.assert_allclose(found[:8], 1, atol=1e-6)
    assert (np.abs(found[8:]) < 1e-6).all()


def start(rank, passes, devices=1):
    return Alternating(passes=passes, devices=devices).start(Gaussian(), KEY, X, rank)


def test_many_passes_find_the_singular_vectors():
    """Kills: a wrong product, a scale other than √σ, columns that are not orthogonal, unusable users that count."""
    rank = 3
    U, V = start(rank, 30)
    assert not np.asarray(U).any() and U.shape == (90, rank)
    rows = DENSE & ~DENSE.all(1, keepdims=True)
    _, sigma, right = np.linalg.svd(rows.astype(float), full_matrices=False)
    wanted = right[:rank].T * np.sqrt(sigma[:rank])[None, :]
    wanted *= np.sign(wanted[np.abs(wanted).argmax(0), np.arange(rank)])[None, :]
    ratio = np.asarray(V) / wanted
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-6)
    assert 0.05 < np.sqrt(np.mean(np.asarray(V) ** 2)) < 0.6  # about the size of a Gaussian start


def test_two_passes_come_near():
    captured = []
    for passes in (1, 2, 4):
        basis = np.linalg.qr(np.asarray(start(3, passes).V))[0]
        captured.append(np.linalg.norm(DENSE @ basis))
    assert captured[0] <= captured[1] * 1.001 and captured[1] > 0.995 * captured[2]


@pytest.mark.parametrize("rank", [3, 8])
def test_the_start_is_the_same_on_any_number_of_devices(rank, monkeypatch):
    monkeypatch.setattr(alternating, "BUDGET", 128)
    alone = start(rank, 2).V
    for devices in (2, 4):
        np.testing.assert_allclose(start(rank, 2, devices).V, alone, rtol=0, atol=1e-11)


def test_columns_beyond_the_rank_of_X_are_not_zero():
    """Kills: a saddle, where these columns would stay for ever, and rounding in place of the random start."""
    two = quiet(np.repeat([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0]], 20, 0))
    V = np.asarray(Alternating().start(Gaussian(), KEY, two, 5).V)
    sizes = np.sqrt((V**2).mean(0))
    assert (sizes[:2] > 0.05).all() and (sizes[2:] < 0.01).all() and (sizes[2:] > 1e-4).all()
    drawn = np.asarray(base.gaussian(KEY, 0, 6, 5 + range_finder.OVERSAMPLE + 1, 0.1).V)
    np.testing.assert_allclose(V[:, 2:], range_finder.NOISE * drawn[:, 2:5])
    assert np.isfinite(MFAUC(5).fit(two).item_factors_).all()


def test_other_starts_and_updates_are_left_as_they_are():
    svd = Alternating().start(Svd(), KEY, X, 3)
    np.testing.assert_array_equal(svd.V, base.randomised_svd(KEY, X, 3).V)
    plain = Alternating(passes=0).start(Gaussian(), KEY, X, 3)
    np.testing.assert_array_equal(plain.U, base.gaussian(KEY, 90, 40, 3).U)


def test_four_sweeps_from_it_are_below_nine_from_a_gaussian():
    """The reason for it, on a toy of another kind than the data that it was chosen on."""

    def theta(solver):
        model = MFAUC(6, solver=solver)
        return model.fit(X, watch=Watch(record_every=solver.iterations)).history_[-1]["objective"]

    assert theta(Alternating()) < theta(Alternating(9, user_steps=4, passes=0)) + 1e-3
