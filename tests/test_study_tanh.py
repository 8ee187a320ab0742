"""The authors' tanh gradient: right where φ is the identity, and their error, in a loop, where it is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import methods, study_tanh
from mfauc_jax import Interactions, Sequential
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import equation, losses, sampling, weightings
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.weights import Weights

RNG = np.random.default_rng(0)
X = Interactions.from_scipy((RNG.random((9, 14)) < 0.4).astype(float))
AT = Factors(jnp.asarray(RNG.normal(size=(9, 3))), jnp.asarray(RNG.normal(size=(14, 3))))
WEIGHTS = Weights.paper().of(X)


def gradients(solver, weighting, item, key):
    objective = Objective(losses.SquareHinge(), weighting, 0.0)
    sample = sampling.for_item(key, X, WEIGHTS, jnp.asarray(item), 5, 4)
    mine = jax.grad(lambda v: solver.item_risk(objective, v, AT, sample))(AT.V[item])
    return sample, np.asarray(mine)


def test_the_hook_of_algorithm_1_is_the_equation():
    objective = Objective(losses.SquareHinge(), weightings.Tanh(rho=0.7), 0.0)
    sample, mine = gradients(Sequential(num_items=4), objective.weighting, 3, jax.random.key(1))
    right = jax.grad(lambda v: equation.item_risk(objective, v, AT, sample))(AT.V[3])
    np.testing.assert_array_equal(mine, right)


@pytest.mark.parametrize("item", range(4))
def test_without_tanh_nothing_is_wrong(item):
    wrong = study_tanh.AuthorsTanh(num_items=4)
    sample, mine = gradients(wrong, weightings.identity, item, jax.random.key(item))
    objective = Objective(losses.SquareHinge(), weightings.identity, 0.0)
    right = jax.grad(lambda v: equation.item_risk(objective, v, AT, sample))(AT.V[item])
    np.testing.assert_allclose(mine, right, rtol=1e-10)


@pytest.mark.parametrize("item", range(4))
def test_the_error_is_the_authors(item):
    """A loop: ρ h tanh′(ρζ), with ζ of the sample over the mass of all negatives where v_j is a negative."""
    rho, kappa = 0.8, 4
    wrong = study_tanh.AuthorsTanh(num_items=kappa)
    sample, mine = gradients(wrong, study_tanh.HalfTanh(rho=rho), item, jax.random.key(item))
    U, V = (np.asarray(F) for F in AT)
    dense = X.to_scipy().toarray() > 0
    total = np.zeros(3)
    for b, i in enumerate(np.asarray(sample.users)):
        negatives = V[np.asarray(sample.neg)[b, 1:]] @ U[i]
        s = V[item] @ U[i]
        if dense[i, item]:
            h = np.maximum(0, 1 - (s - negatives))
            zeta, slope = (h**2).mean(), -h.mean() / dense[i].sum()
            total += U[i] * slope * rho * (1 - np.tanh(rho * zeta) ** 2)
        else:
            for p in np.asarray(sample.pos)[b, 1:]:
                zeta = (np.maximum(0, 1 - (V[p] @ U[i] - negatives)) ** 2).sum() / (~dense[i]).sum()
                h = max(0.0, 1 - (V[p] @ U[i] - s)) / kappa / (~dense[i]).sum()
                total += U[i] * h * rho * (1 - np.tanh(rho * zeta) ** 2)
    np.testing.assert_allclose(mine, total / len(sample.users), rtol=1e-9)


def test_the_row_has_the_settings_of_the_authors_and_their_gradient():
    right = methods.authors_model(losses.SquareHinge(), weightings.Tanh(rho=2.0))
    model = study_tanh.wrong(right, 2.0)
    assert isinstance(model.chosen_solver, study_tanh.AuthorsTanh)
    assert model.chosen_solver.describe() == right.chosen_solver.describe()
    assert float(model.weighting(0.3)) == pytest.approx(0.5 * np.tanh(2 * 2.0 * 0.3))


def test_the_table_has_both_distances():
    columns = {c: {"mean": 0.4, "error": 0.0} for c in study_tanh.paper.COLUMNS}
    record = {"dataset": "synthetic2", "rho": 0.5, "seed": 0, "metrics": columns, "ours": columns}
    assert study_tanh.draw([record]).splitlines()[-1] == "| Synthetic2 | 0.5 | 1 | 0.391 | 0.391 |"
