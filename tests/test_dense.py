"""The dense solver: products of batches with all items, unit rows, and what a shared sample of items does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet, random_factors

import mfauc_jax as mf
from mfauc_jax import Dense, FullBatch, Problem
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import equation, exact, losses, slopes, weightings
from mfauc_jax.objective.penalties import Reg, Sphere, scored_rows, unit_rows
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import base, dense, strata

M, N, P = 10, 12, 4  # every user has P positives, so that all of them fit the layout of drawn ones
CHOSEN = np.argsort(np.random.default_rng(0).random((M, N)), 1)[:, :P]
MATRIX = np.zeros((M, N), bool)
np.put_along_axis(MATRIX, CHOSEN, True, 1)
X = quiet(MATRIX)
AT = random_factors(1, X, scale=0.7)
BETA = losses.Exponential(beta=2.0)
SOFTMAX = equation.make(BETA, weightings.Log())
SPHERE = SOFTMAX._replace(reg=Sphere())
LONGER = SOFTMAX._replace(reg=Sphere(jnp.linspace(0.5, 2.0, N)))  # rows of V of other lengths
REG = Reg(jnp.linspace(0.1, 0.5, M), jnp.linspace(0.2, 0.4, N))


def laid_out(objective, solver, tau_neg=0.0, interactions=X):
    problem = Problem(interactions, Weights(0.3, tau_neg, 0.5).of(interactions), objective)
    return problem, solver.prepare(problem)


def everyone(data):
    """One batch of all users, with all their positives."""
    batch = strata.batch_of(data, data.strata[:, 0])
    return batch, slopes.Positives(batch.row, batch.items, batch.g)


def scored_exactly(objective, problem, at):
    """∇ of the exact θ as a function of the stored rows, without the penalty."""
    plain = objective._replace(reg=0.0)
    plan = exact.plan(plain, problem.X, problem.weights)
    return jax.grad(lambda at: exact.value(plain, scored_rows(objective.reg, at), plan))(at)


@pytest.mark.parametrize("tau_neg", [0.0, 0.7])
@pytest.mark.parametrize(
    "objective",
    [
        SOFTMAX,
        SPHERE,
        LONGER,
        equation.make(BETA, weightings.Log(c=3.0), spread=0.6),
        equation.make(BETA, weightings.Log(c=3.0))._replace(reg=Sphere()),
        equation.make("logistic", spread=0.4),
        equation.make("square_hinge", weightings.Tanh(rho=0.7)),
        equation.make("square")._replace(reg=Sphere()),
    ],
    ids=lambda o: f"{o.loss.name}-{o.weighting.name}-{type(o.reg).__name__}",
)
def test_the_products_give_the_exact_gradient_over_all_pairs(objective, tau_neg):
    """Kills: positives among the negatives, g′ without its mass, the chain rule of u/|u|, tanh's sampling bias."""
    problem, data = laid_out(objective, Dense(batch=M), tau_neg)
    batch, positives = everyone(data)
    columns = strata.Columns(None, None, 0, N)
    rows = Factors(AT.U[batch.users], AT.V)
    du, dv = dense.gradients(objective, rows, data, batch, positives, columns, None)
    truth = scored_exactly(objective, problem, AT)
    np.testing.assert_allclose(du, M * truth.U[batch.users], atol=1e-10)
    np.testing.assert_allclose(dv, N * truth.V, atol=1e-10)


def over_windows(objective, width):
    """The mean gradient over all windows of an order of the items: each item is a column equally often."""
    problem, data = laid_out(objective, Dense(batch=M), 0.7)
    batch, positives = everyone(data)
    order = jnp.asarray(np.random.default_rng(3).permutation(N))
    inverse = jnp.argsort(order)
    total = Factors(jnp.zeros((M, 3)), jnp.zeros((N, 3)))
    for start in range(N):
        columns = strata.Columns(order, inverse, start, width)
        touched = jnp.concatenate([columns.items(N), positives.items])
        rows = Factors(AT.U[batch.users], AT.V[touched])
        du, dv = dense.gradients(objective, rows, data, batch, positives, columns, touched)
        total = Factors(total.U.at[batch.users].add(du / N), total.V.at[touched].add(dv / N))
    truth = scored_exactly(objective, problem, AT)
    return total, Factors(M * truth.U, N * truth.V)


@pytest.mark.parametrize("reg", [0.0, LONGER.reg], ids=["free", "sphere"])
def test_a_shared_sample_is_unbiased_for_the_identity(reg):
    """Kills: the weight n/Q, a positive scored as a column, a column of another item, or with its length."""
    mean, truth = over_windows(equation.make("logistic", reg=reg), 5)
    np.testing.assert_allclose(mean.U, truth.U, atol=1e-10)
    np.testing.assert_allclose(mean.V, truth.V, atol=1e-10)


def test_the_bias_of_a_shared_sample_under_softmax_falls_with_its_size():
    """It is there, as the docstring says, and is gone with all items."""
    off = []
    for width in (4, 8, N):
        mean, truth = over_windows(SOFTMAX, width)
        off.append(float(jnp.linalg.norm(mean.V - truth.V) / jnp.linalg.norm(truth.V)))
    assert off[0] > 1.5 * off[1] > 0.01 and off[2] < 1e-10


def test_an_iteration_visits_every_usable_user_once_with_all_its_positives():
    """Rows of length 0, 1, …, n; the layout is static. Kills: a stratum narrower than its longest row."""
    rng = np.random.default_rng(0)
    matrix = np.array(
        [rng.permutation(N) < length for length in (0, N, 1, 1, 3, 5, 7, 11, 2, 4, 4)]
    )
    ragged = quiet(matrix)
    problem, data = laid_out(SOFTMAX, Dense(batch=4), interactions=ragged)
    found = []
    for t in range(data.strata.shape[1]):
        batch = strata.batch_of(data, data.strata[:, t])
        users = np.asarray(batch.users)[np.asarray(batch.row)]
        real = np.asarray(batch.items) < N
        found += zip(users[real], np.asarray(batch.items)[real], strict=True)
        assert (np.asarray(batch.g)[~real] == 0).all()
    usable = np.isin(np.arange(len(matrix)), problem.weights.usable)
    assert sorted(found) == [tuple(pair) for pair in np.argwhere(matrix & usable[:, None])]


def fitted(objective, solver, iterations, interactions=X):
    problem, data = laid_out(objective, solver, interactions=interactions)
    state = solver.init(problem, random_factors(1, interactions, scale=0.7))
    for _ in range(iterations):
        state, _ = base.run(solver, objective, jax.random.key(0), state, data)
    return problem, state


BOUNDED = equation.make(BETA, weightings.Log(c=3.0), reg=REG)  # the pure log has no minimum here


@pytest.mark.parametrize("objective", [SPHERE, LONGER, BOUNDED], ids=["sphere", "lengths", "ridge"])
@pytest.mark.parametrize("num_items", [None, 6])
def test_it_comes_near_the_minimum_of_full_batch(objective, num_items):
    """Kills: a ridge that acts in part, a row that leaves the sphere. A sample of items is biased, so only near."""
    problem, best = fitted(objective, FullBatch(), 150)
    solver = Dense(batch=5, learning_rate=0.1, num_items=num_items, average=mf.Averaging(100))
    _, state = fitted(objective, solver, 200)
    plan = exact.plan(objective, X, problem.weights)
    low, near = (float(exact.value(objective, s.average, plan)) for s in (best, state))
    start = float(exact.value(objective, scored_rows(objective.reg, AT), plan))
    assert near - low < (0.02 if num_items is None else 0.15) * (start - low)
    if isinstance(objective.reg, Sphere):
        # state.factors too: steps of longer rows would turn them less
        for U, V in (state.average, state.factors, best.average):
            np.testing.assert_allclose(jnp.linalg.norm(U, axis=1), 1.0, atol=1e-12)
            np.testing.assert_allclose(jnp.linalg.norm(V, axis=1) / objective.reg.item, 1.0)


def test_a_row_of_u_counts_iterations_and_rests_between_visits():
    """Kills: an optimiser's count that grows by steps, and updates of users who are not in the batch."""
    matrix = MATRIX.copy()
    matrix[0] = False
    ragged = quiet(matrix)
    _, state = fitted(SPHERE, Dense(batch=3), 2, ragged)
    start = random_factors(1, ragged, scale=0.7)
    moved = np.abs(np.asarray(state.factors.U - unit_rows(start.U))).max(1)
    assert moved[0] < 1e-12 and (moved[1:] > 1e-3).all()
    sums = next(leaf for leaf in jax.tree.leaves(state.extra[0]) if jnp.shape(leaf) == (M, 3))
    assert (np.asarray(sums[0]) == 0).all() and (np.asarray(sums[1:]) > 0).all()


MODEL = mf.MFAUC(
    3, losses.Exponential(beta=5.0), weightings.Log(), penalty=mf.UnitRows(), solver=Dense(20)
)


def test_the_lengths_of_items_are_a_power_of_their_popularity():
    """Their mean over the positives is 1, and no item is lost. Kills: the mean over items, 0 to a negative power."""
    matrix = MATRIX.copy()
    matrix[:, 5] = False
    rarely = quiet(matrix)
    p = np.maximum(matrix.sum(0), 1)
    for c in (-0.5, 0.0, 0.3):
        penalty = mf.UnitRows(popularity=c)
        length = np.asarray(Problem.of(rarely, penalty=penalty).objective.reg.item)
        np.testing.assert_allclose(length / length[5], p**c)
        assert length @ p == pytest.approx(p.sum())
        for solver in (Dense(3), FullBatch(3)):
            fit = MODEL.with_params(penalty=penalty, solver=solver).fit(rarely)
            np.testing.assert_allclose(np.linalg.norm(fit.factors_.V, axis=1), length)
            np.testing.assert_allclose(np.linalg.norm(fit.factors_.U[1:], axis=1), 1.0)


def test_auto_chooses_dense_by_the_types_of_the_objective():
    exponential, log = losses.Exponential(), weightings.Log(c=9.0)
    for model in (
        mf.MFAUC(loss=exponential, weighting=log),
        mf.MFAUC(penalty=mf.UnitRows()),
        mf.MFAUC(loss="exponential", weighting="log", penalty="unit_rows"),
    ):
        assert model.chosen_solver == Dense()
    assert mf.MFAUC(loss=exponential).chosen_solver == mf.Minibatch()
    changed = mf.MFAUC(loss=exponential).set_params(weighting=log, solver__batch=7)
    assert changed.solver == Dense(batch=7)


@pytest.mark.parametrize("solver", [mf.Alternating(), mf.Minibatch(), mf.Sequential()])
def test_other_solvers_refuse_unit_rows_with_a_sentence(solver):
    with pytest.raises(ValueError, match=f"{solver.name} does not keep rows at length one"):
        mf.MFAUC(penalty=mf.UnitRows(), solver=solver)


def test_the_log_refuses_what_has_no_minimum():
    with pytest.raises(ValueError, match="above 0, but square reaches 0"):
        mf.MFAUC(weighting="log")
    with pytest.raises(ValueError, match=r"not bounded below.*UnitRows\(\) or weighting=Log\(c="):
        mf.MFAUC(loss="exponential", weighting="log")
    assert mf.MFAUC(loss="exponential", weighting=weightings.Log(c=1.0)).chosen_solver == Dense()


@pytest.mark.parametrize("popularity", [0.0, 0.4])
def test_a_model_of_unit_rows_is_kept_continued_and_folded_in(popularity, tmp_path, recwarn):
    given = MODEL.with_params(penalty__popularity=popularity)
    model = mf.MFAUC.load(saved(given.with_params().fit(X), tmp_path / "model.safetensors"))
    assert model == given and model.chosen_solver == Dense(20)
    length = MATRIX.sum(0) ** popularity * MATRIX.sum() / (MATRIX.sum(0) ** (1 + popularity)).sum()
    np.testing.assert_allclose(np.linalg.norm(model.factors_.U, axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(model.factors_.V, axis=1), length, atol=1e-12)
    folded = model.fold_in(X)
    again = np.asarray(folded.factors_.U)
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1.0, atol=1e-12)
    assert np.isnan(folded.fold_in_gap_).all()
    objective, weights = model.problem(X).objective, model.problem(X).weights
    plan = exact.plan(objective, X, weights)

    def value(U):
        return float(exact.value(objective, model.factors_._replace(U=jnp.asarray(U)), plan))

    rng = np.random.default_rng(0)
    moves = [unit_rows(again + 0.05 * rng.normal(size=again.shape)) for _ in range(20)]
    assert value(again) <= min(map(value, [model.factors_.U, *moves])) + 1e-9
    assert not [w for w in recwarn if "convex" in str(w.message)]
    model.partial_fit(MATRIX[:, ::-1].astype(float))
    assert model.factors_.U.shape == (M, 3) or model.factors_.U.shape == (2 * M, 3)
    length = model.problem(model.train_).objective.reg.item  # of all positives that it knows now
    np.testing.assert_allclose(np.linalg.norm(model.factors_.U, axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(model.factors_.V, axis=1) / length, 1.0, atol=1e-12)


def saved(model, path):
    model.save(path)
    return path


def test_softmax_without_unit_rows_folds_in_with_a_bound(recwarn):
    """It is convex in u. Kills: Newton steps whose Hessian overflows or leaves out φ″."""
    model = MODEL.with_params(penalty=mf.Fixed(reg=0.01), weighting=weightings.Log(c=9.0)).fit(X)
    gap = model.fold_in(X).fold_in_gap_
    assert (gap <= 1e-6).all() and not [w for w in recwarn if "convex" in str(w.message)]
