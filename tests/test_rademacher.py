"""R̂ of Q_h: Lemma 3.1, Theorem 3.7 where it is true and where it is not, the floor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds, spectral
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import losses
from mfauc_jax.solvers.base import gaussian
from theory import rademacher
from theory.function_class import extended, paper_losses

KEY = jax.random.key(0)


def design(seed=0, m=6, n=7):
    rng = np.random.default_rng(seed)
    dense = (rng.random((m, n)) < 0.5).astype(float)
    dense[:, 0], dense[:, 1] = 1, 0
    return Interactions.from_scipy(dense), jnp.asarray(dense)


# --- Lemma 3.1 --------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(1, 4))
def test_sup_trace_is_sigma_1_at_a_family_of_points(seed, k):
    rng = np.random.default_rng(seed)
    A, C = rng.normal(size=(5, 4)), rng.normal(size=(1, k))
    value, point = rademacher.sup_trace(A, C)
    assert np.linalg.norm(point.U) == pytest.approx(1)
    assert np.linalg.norm(point.V) == pytest.approx(1)
    assert rademacher.trace_value(A, point) == pytest.approx(value)
    for _ in range(20):  # no feasible point does better
        U, V = rng.normal(size=(5, k)), rng.normal(size=(4, k))
        other = Factors(jnp.asarray(U / np.linalg.norm(U)), jnp.asarray(V / np.linalg.norm(V)))
        assert rademacher.trace_value(A, other) <= value + 1e-12


def test_a_repeated_sigma_1_has_more_maximisers():
    A = np.diag([2.0, 2.0, 1.0])
    value, point = rademacher.sup_trace(A, np.array([[1.0, 2.0], [-1.0, 0.5]]))
    assert value == rademacher.trace_value(A, point) == pytest.approx(2)
    with pytest.raises(ValueError, match="σ₁ has 2 copies"):
        rademacher.sup_trace(A, np.ones((1, 2)))


def test_the_printed_maximiser_is_not_one():
    A = np.random.default_rng(0).normal(size=(6, 6))
    assert rademacher.printed_sup_trace(A, 3) < 0.9 * np.linalg.norm(A, 2)


# --- Theorem 3.7 ------------------------------------------------------------------------------


def test_linear_h_gives_equality_for_every_sign_vector():
    X, dense = design()
    printed = rademacher.printed_bound(X, 1.0, 3.0)
    for nu in rademacher.sign_vectors(6)[::7]:
        assert 2 / 6 * rademacher.linear_supremum(X, nu, 3.0) == pytest.approx(printed)
    climbed = rademacher.ascent(
        KEY, lambda x: x, dense, jnp.asarray(nu), 3.0, rank=2, steps=600, starts=4
    )
    assert 2 / 6 * float(climbed) == pytest.approx(printed, rel=0.02)
    assert 2 / 6 * float(climbed) <= printed


@pytest.mark.parametrize("name", ["logistic", "square"])
def test_printed_theorem_is_refuted_at_256_by_2560(name):
    X, rho = rademacher.half_and_half(0, 2560, 256), 6 * np.sqrt(256 * 2560)
    B = bounds.constants(name, 12.0).lipschitz
    lower = rademacher.two_valued_excess(paper_losses()[name], X, 12.0)
    expected = {"logistic": (2.66, 1.97), "square": (36.1, 25.6)}[name]
    printed = rademacher.printed_bound(X, B, rho)
    assert (lower, printed) == pytest.approx(expected, rel=0.01)
    assert lower > printed
    assert lower < rademacher.corrected_bound(KEY, X, B, rho, draws=2)
    assert lower < rademacher.crude_bound(2560, B, rho)


@pytest.mark.parametrize("name", losses.PAPER_LOSSES)
def test_a_loss_is_continued_by_its_tangents(name):
    loss = paper_losses()[name]
    h, x = extended(loss, 3.0), jnp.linspace(-3.0, 3.0, 50)
    np.testing.assert_allclose(h(x), loss(x), atol=1e-12)
    for side in (-1.0, 1.0):
        slope = jax.grad(loss)(3.0 * side)
        assert h(10.0 * side) == pytest.approx(float(loss(3.0 * side) + 7 * side * slope))


def test_the_corrected_bound_is_attained_by_two_items():
    """Kills: the corrected Theorem 3.7 × ½. With one pair per user G is E − Ē, and linear h gives equality."""
    X = Interactions.from_scipy(np.eye(2)[[0, 1, 1, 0, 1]])
    bound = rademacher.corrected_bound(KEY, X, 1.0, 3.0, draws=2)
    assert bound == pytest.approx(2 / 5 * 3.0 * np.sqrt(2 * 5))  # ‖G‖₂ = √2 √m
    for nu in rademacher.sign_vectors(5)[::5]:
        assert 2 / 5 * rademacher.linear_supremum(X, nu, 3.0) == pytest.approx(bound)


@pytest.mark.parametrize("name", losses.PAPER_LOSSES)
def test_the_two_valued_excess_is_the_loss_of_explicit_factors(name):
    X, loss = rademacher.half_and_half(1, 30, 12), paper_losses()[name]
    v = jnp.where(jnp.arange(12) < 6, 2.0, -2.0)[:, None]
    T = bounds.user_risks(loss, Factors(jnp.full((30, 1), 1.5), v), X)
    excess = rademacher.two_valued_excess(loss, X, 6.0)
    assert excess == pytest.approx(float(T.mean() - loss(0.0)))


def test_hadamard_with_all_signs_refutes_it_too():
    X = Interactions.from_scipy(np.asarray(rademacher.hadamard_design()))
    nus = rademacher.sign_vectors(7)
    printed = rademacher.printed_bound(X, 1.0, 80.0)
    assert printed == pytest.approx(56.57 * 2 / 7, rel=1e-3)
    lower = rademacher.lower_bound(
        KEY, losses.logistic, rademacher.hadamard_design(), 80.0, nus, rank=1, steps=80, starts=1
    )
    assert printed < lower < rademacher.corrected_bound(KEY, X, 1.0, 80.0, draws=50)


@pytest.mark.parametrize("seed", range(3))
def test_jensen_runs_the_other_way(seed):
    X, _ = design(seed)
    norms = spectral.sampled_norms(KEY, X, spectral.one_pair_each, 200)
    assert norms.mean() >= spectral.spectral_norm(spectral.mean_difference(X))


@pytest.mark.parametrize("name", losses.PAPER_LOSSES)
def test_the_corrected_bound_is_above_the_ascent(name):
    X, dense = design(3, 5, 6)
    rho = 2.0
    gamma = 2 * rho  # |s_p − s_q| ≤ √2 ρ
    nus = rademacher.sign_vectors(5)
    lower = rademacher.lower_bound(
        KEY, paper_losses()[name], dense, rho, nus, rank=2, steps=100, starts=1
    )
    B = bounds.constants(name, gamma).lipschitz
    assert 0 < lower <= rademacher.corrected_bound(KEY, X, B, rho, draws=200)


def test_contraction_holds_for_scalar_classes():
    rng = np.random.default_rng(0)
    for _ in range(20):
        F, slopes = rng.normal(size=(5, 6)), rng.uniform(0.1, 2, 6)
        phis = [lambda x, b=b: np.abs(b * x - 0.3) for b in slopes]
        left, right = rademacher.contraction_sides(F, phis, slopes)
        assert left <= right + 1e-12


def test_contraction_fails_for_one_sign_on_an_average():
    """E38 in miniature: φ of each margin, averaged, is not φ of the mean margin."""
    margins = np.array([[3.0, -3.0], [0.0, 0.0]])  # two functions, one user, two pairs
    T = np.abs(margins).mean(1)
    left = np.mean([(nu * T).max() for nu in (-1, 1)])
    right = np.mean([(nu * margins.mean(1)).max() for nu in (-1, 1)])
    assert left > right


def test_multiplicative_perturbation():
    rng = np.random.default_rng(0)
    for _ in range(10):
        B, left, right = rng.normal(size=(4, 5)), rng.normal(size=(4, 4)), rng.normal(size=(5, 5))
        low, moved, high = rademacher.perturbed_singular_values(B, left, right)
        assert (low <= moved + 1e-12).all() and (moved <= high + 1e-12).all()


# --- The floor --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", losses.PAPER_LOSSES)
def test_empirical_risk_plus_rademacher_is_at_least_the_zero_models(name):
    """R̂ itself, with all 64 signs, is at least what zeroing and flipping rows give."""
    X, dense = design(2)
    loss, model = paper_losses()[name], gaussian(KEY, 6, 7, 2, 0.8)
    S, zero = model.U @ model.V.T, float(loss(0.0))
    risk = float(bounds.user_risks(loss, model, X).mean())
    zeroed, flipped = [], []
    for nu in rademacher.sign_vectors(6):
        rows = jnp.asarray(nu)[:, None]
        zeroed.append(nu @ rademacher.dense_risks(loss, jnp.where(rows < 0, S, 0), dense))
        flipped.append(nu @ rademacher.dense_risks(loss, -rows * S, dense))
    assert 2 / 6 * np.mean(zeroed) == pytest.approx(rademacher.zeroed(loss, model, X))
    assert 2 / 6 * np.mean(flipped) == pytest.approx(rademacher.flipped(loss, model, X))
    assert risk + rademacher.zeroed(loss, model, X) == pytest.approx(zero)
    assert risk + rademacher.flipped(loss, model, X) >= 2 * zero - risk - 1e-12
