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
