import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet, random_factors

from mfauc_jax.objective import equation, sampling
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.objective.weights import Weights

X = quiet(np.random.default_rng(0).random((9, 7)) < 0.4)
WEIGHTS = Weights(0.3, None, user_power=0.5).of(X)
AT = random_factors(0, X)


def spliced(objective, v, sample):
    """Σ_i w_i user_risk with v in slot 0 of the positives and of the negatives: the atom itself."""
    total = 0.0
    for t in range(len(sample.users)):
        V_pos = AT.V[sample.pos[t]].at[0].set(v)
        V_neg = AT.V[sample.neg[t]].at[0].set(v)
        u, weights = AT.U[sample.users[t]], (sample.g_pos[t], sample.g_neg[t])
        total += sample.user_weight[t] * equation.user_risk(
            objective, u, V_pos, V_neg, *weights, objective.spread, sample.spread_scale
        )
    return total / len(sample.users)


@pytest.mark.parametrize("loss", ["square_hinge", "logistic"])
@pytest.mark.parametrize("weighting", ["identity", "tanh"])
def test_item_risk_is_the_users_atom_with_v_in_its_place(loss, weighting):
    objective = equation.make(loss, weighting, reg=0.1, spread=0.7)

    @jax.jit
    def both(key, j):
        sample = sampling.for_item(key, X, WEIGHTS, j, 6, 4)
        slow = jax.value_and_grad(lambda v: spliced(objective, v, sample))(AT.V[j])
        return slow, jax.value_and_grad(equation.item_risk, 1)(objective, AT.V[j], AT, sample)

    for j in range(X.num_items):
        (a, da), (b, db) = both(jax.random.key(j), jnp.asarray(j))
        np.testing.assert_allclose(a, b, rtol=1e-12)
        np.testing.assert_allclose(da, db, atol=1e-12)


def test_the_penalty_is_always_in_full_and_may_differ_by_row():
    U, V = (np.asarray(F) for F in AT)
    flat = 0.15 * ((U**2).sum() / 9 + (V**2).sum() / 7)
    assert float(equation.penalty(equation.make(reg=0.3), AT)) == pytest.approx(flat)
    by_user, by_item = np.linspace(0.1, 1, 9), np.linspace(0.2, 2, 7)
    reg = Reg(jnp.asarray(by_user), jnp.asarray(by_item))
    rows = 0.5 * (by_user @ (U**2).sum(1) / 9 + by_item @ (V**2).sum(1) / 7)
    assert float(equation.penalty(equation.make(reg=reg), AT)) == pytest.approx(rows)


def test_pairs_of_equal_weight_are_no_pairs():
    """The variance by pairs, ½ Σ_qq′ g′ g′ (s − s′)², is the variance about the mean."""
    objective, rng = equation.make("logistic"), np.random.default_rng(0)
    u, V_pos, V_neg = (jnp.asarray(rng.normal(size=shape)) for shape in ((3,), (4, 3), (5, 3)))
    g_pos, g_neg = (jnp.asarray(rng.dirichlet(np.ones(size))) for size in (4, 5))
    rows = (objective, u, V_pos, V_neg, g_pos, g_neg, 0.7, 1.2)
    ones = sampling.Pairs(jnp.ones((4, 5)), jnp.ones((5, 5)))
    assert equation.user_risk(*rows, pairs=ones) == pytest.approx(float(equation.user_risk(*rows)))


def test_richardsons_correction_is_the_value_itself_without_a_bias():
    """With φ = identity the two halves of the negatives have θ′ as their mean: 2 θ′ − θ′."""
    objective = equation.make("logistic", reg=0.3)
    sample = sampling.uniform(jax.random.key(0), X, WEIGHTS, WEIGHTS.usable, 3, 6)
    assert equation.richardson(objective, AT, sample) == pytest.approx(
        float(equation.value(objective, AT, sample))
    )
    tilted = equation.make("logistic", "tanh", reg=0.3)
    whole = float(equation.value(tilted, AT, sample))
    halves = [float(equation.value(tilted, AT, half)) for half in sampling.halves(sample)]
    corrected = float(equation.richardson(tilted, AT, sample))
    assert corrected == pytest.approx(whole + (whole - np.mean(halves)))
    assert abs(whole - np.mean(halves)) > 1e-4
