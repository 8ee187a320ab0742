"""Items folded in: v_j is the minimum of Eq. 3 over that row, by autodiff of the objective itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet, random_factors

from mfauc_jax import Auto, Fixed, Problem, Weights
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import exact
from mfauc_jax.serving import fold_in_items

RNG = np.random.default_rng(0)
DENSE = RNG.random((30, 20)) < 0.3
DENSE[3] = True  # no usable pair
DENSE[4] = False
DENSE[:, 19] = np.arange(30) == 7  # one positive
DENSE[:, 18] = False
X = quiet(DENSE)


@pytest.mark.parametrize("penalty", [Auto(), Fixed(reg=0.2, spread=0.7)], ids=lambda p: p.name)
@pytest.mark.parametrize("weights", [Weights(), Weights(-0.5, 0.5, 0.5)], ids=["default", "tau"])
def test_each_row_is_the_minimum_while_the_others_stay(penalty, weights):
    """Kills any missing term of H or of the gradient: λ_j, the variance's own square, users without a pair, b_j."""
    problem = Problem.of(X, weights=weights, penalty=penalty)
    factors = random_factors(0, X, 3, 0.7)
    items = np.array([0, 18, 19, 5])
    solved = fold_in_items.solve(problem, factors, items)
    plan = exact.plan(problem.objective, X, problem.weights)
    for j, v in zip(items, solved, strict=True):

        def theta(v, j=j):
            return exact.value(problem.objective, Factors(factors.U, factors.V.at[j].set(v)), plan)

        value, slope = jax.value_and_grad(theta)(jnp.asarray(v))
        assert jnp.abs(slope).max() < 1e-7 and value < theta(factors.V[j])


def test_the_start_of_a_row_does_not_matter():
    problem = Problem.of(X)
    U, V = random_factors(1, X, 3, 0.7)
    one, other = (
        fold_in_items.solve(problem, Factors(U, V.at[5].set(start)), np.array([5]))
        for start in (0.0, 9.0)
    )
    np.testing.assert_allclose(one, other, atol=1e-6)
