"""A grid as one program, and what is chosen from it."""

import dataclasses
import json
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet, triple_loop

from mfauc_jax import routes
from mfauc_jax.data import splits
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics
from mfauc_jax.model import MFAUC
from mfauc_jax.objective import weights as item_weights
from mfauc_jax.solvers import base
from mfauc_jax.training import batched as sweep
from mfauc_jax.training import selection

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(30, 3)) @ RNG.normal(size=(3, 20)) + 0.3 * RNG.normal(size=(30, 20))
DENSE = np.quantile(TASTE, 0.65, axis=1, keepdims=True) < TASTE
X = quiet(DENSE)
SMALL = {"rank": 3, "iterations": 6, "progress": False}
SEQUENTIAL = MFAUC.authors(average_start=2, num_users=5, num_items=4, **SMALL)
MINIBATCH = MFAUC(loss="logistic", weighting="tanh", solver="minibatch", batch=8, **SMALL)
ALTERNATING = MFAUC(solver="alternating", spread=0.5, **SMALL)
GRID = {"learning_rate": [0.5, 0.05], "reg": [1.0, 0.1, 0.01]}


def loop(model, points, split):
    """What separate fits find."""
    for point in points:
        yield dataclasses.replace(model, **point).fit(split.train).factors_


def swept(model, points, split, monkeypatch, **options):
    """The factors of `sweep.score`'s one program."""
    kept, fit = [], sweep.fit
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "fit", lambda *a, **k: kept.append(fit(*a, **k)) or kept[-1])
        sweep.score(model, points, X, split, "auc", **options)
    (one,) = kept
    return one


@pytest.mark.parametrize(
    "model, grid",
    [
        (SEQUENTIAL, GRID),
        (MINIBATCH, {"learning_rate": [0.3, 0.03], "rho": [0.5, 1.0], "beta": [1.0, 2.0]}),
        (MINIBATCH, {"beta": [(0.5, 1.0, 2.0), 1.5]}),
        (ALTERNATING, {"reg": [1.0, 0.1, 0.01]}),
    ],
    ids=["sequential", "minibatch", "continuation", "alternating"],
)
def test_one_program_finds_what_separate_fits_find(model, grid, monkeypatch):
    split = splits.hold_out(jax.random.key(1), X, 3)
    points = selection.grid_points(grid)
    found = swept(model, points, split, monkeypatch)
    assert found.finite.all()
    for g, alone in enumerate(loop(model, points, split)):
        for many, one in zip(found.factors, alone, strict=True):
            np.testing.assert_allclose(many[g], one, atol=1e-8, rtol=0)
    assert np.ptp(found.factors.U, axis=0).max() > 1e-3  # the points do differ


def test_parts_of_a_grid_find_the_same(monkeypatch):
    split = splits.hold_out(jax.random.key(1), X, 3)
    points = selection.grid_points({"reg": [1.0, 0.1, 0.01]})
    whole, parts = (swept(ALTERNATING, points, split, monkeypatch, at_once=n) for n in (None, 2))
    np.testing.assert_allclose(whole.factors.V, parts.factors.V, atol=1e-10)


def test_draws_and_searches_carry_no_grid_axis():
    weights = item_weights.make(X)
    solver = routes.solver(SEQUENTIAL, routes.objective(SEQUENTIAL, X, weights))
    state = solver.init(routes.start(SEQUENTIAL, jax.random.key(0), X))
    data, key = solver.prepare(X, weights), jax.random.key(0)
    leaves, structure = jax.tree.flatten(solver.step)
    numbers = tuple(jnp.full(7, leaf, float) for leaf in leaves[:1]) + tuple(leaves[1:])
    varies = (True,) + (False,) * (len(leaves) - 1)
    states = jax.tree.map(lambda a: jnp.broadcast_to(a, (7, *a.shape)), state)
    states = states._replace(iteration=state.iteration)
    many = jax.make_jaxpr(sweep.step, static_argnums=(0, 1))(
        structure, varies, numbers, key, states, jnp.ones(7, bool), data
    )
    alone = jax.make_jaxpr(base.run)(solver.step, key, state, data)
    for primitive in ("shift_right_logical", "sort", "gather"):  # hashes; of indices
        kinds = "iu"
        assert shapes(many.jaxpr, primitive, kinds) == shapes(alone.jaxpr, primitive, kinds) != []
    assert shapes(many.jaxpr, "gather", "f") != shapes(alone.jaxpr, "gather", "f")


def shapes(jaxpr, primitive, kinds):
    """The output shapes of all equations of a kind with such dtypes, nested ones too."""
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == primitive and eqn.outvars[0].aval.dtype.kind in kinds:
            found.append([v.aval.shape for v in eqn.outvars])
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(value):
                found += shapes(getattr(value, "jaxpr", value), primitive, kinds)
    return sorted(found)


def _is_jaxpr(value):
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def test_three_splits_compile_once_and_the_winner_is_the_loops():
    before = sweep.step._cache_size()
    found = selection.select(3, SEQUENTIAL, X, GRID, criterion="ndcg@4")
    assert sweep.step._cache_size() <= before + 1
    means = {}
    for number, key in enumerate(jax.random.split(jax.random.key(3), 3)):
        split = splits.hold_out(key, X, 3)
        for point, alone in zip(found.points, loop(SEQUENTIAL, found.points, split), strict=True):
            value = metrics.evaluate(alone, split.train, split.test, (4,))["ndcg@4"]
            means.setdefault(tuple(point.values()), []).append(value)
            record = next(
                r for r in found.table if r["split"] == number and point.items() <= r.items()
            )
            assert record["ndcg@4"] == pytest.approx(value, abs=1e-12)
    winner = max(means, key=lambda point: np.mean(means[point]))
    assert tuple(found.best.values()) == winner
    assert found.score == pytest.approx(np.mean(means[winner]))
    assert found.best_model().reg == found.best["reg"] and found.best_model().rank == 3
    assert len(found.table) == 18 and len(str(found).splitlines()) == 7
    assert str(found).splitlines()[1].split()[2] == f"{found.score:.4f}"


def test_auto_and_a_number_are_programs_of_their_own():
    grid = {"rank": [3], "reg": ["auto", 0.1]}
    split = splits.hold_out(jax.random.key(1), X, 3)
    found = selection.select(0, MINIBATCH, X, grid, splits=[split], criterion="auc")
    assert len(found.table) == 2
    for record in found.table:
        model = dataclasses.replace(MINIBATCH, rank=record["rank"], reg=record["reg"])
        alone = metrics.evaluate(model.fit(split.train).factors_, split.train, split.test)
        assert record["auc"] == pytest.approx(alone["auc"], abs=1e-12)


class _Calls(list):
    stop_at = None


@pytest.fixture
def scored(monkeypatch):
    """`sweep.score` replaced by a formula; its calls, with what they were given."""
    calls = _Calls()

    def formula(model, points, X, split, criterion, **options):
        calls.append((points, split))
        if calls.stop_at == len(calls):
            raise KeyboardInterrupt
        return [{**p, criterion: -abs(math.log10(p["reg"]) + 1), "diverged": False} for p in points]

    monkeypatch.setattr(sweep, "score", formula)
    return calls


def test_folds_test_every_positive_once(scored):
    found = selection.select(0, ALTERNATING, X, {"reg": [1.0, 0.1]}, folds=3)
    assert [r["split"] for r in found.table] == [0, 0, 1, 1, 2, 2]
    tested = sum(split.test.to_scipy().toarray() for _, split in scored)
    np.testing.assert_array_equal(tested, DENSE)


def test_each_rank_is_a_cell(scored):
    found = selection.select(0, ALTERNATING, X, {"reg": [1.0, 0.1], "rank": [2, 3]}, splits=1)
    assert [[p["rank"] for p in points] for points, _ in scored] == [[2, 2], [3, 3]]
    assert found.best == {"reg": 0.1, "rank": 2}  # the earlier of equals
    assert [p["rank"] for p in found.points] == [2, 3, 2, 3]


def test_a_point_that_diverges_is_never_chosen():
    model = MFAUC(loss="square", solver="minibatch", optimiser="sgd", spread=0.0, **SMALL)
    grid = {"learning_rate": [1e30, 0.01], "reg": [0.1]}
    split = splits.hold_out(jax.random.key(0), X, 3)
    found = selection.select(0, model, X, grid, splits=[split])
    assert found.best["learning_rate"] == 0.01
    bad, good = found.table
    assert bad["diverged"] and math.isnan(bad["f1@5"])
    alone = dataclasses.replace(model, **found.best).fit(split.train).factors_
    assert good["f1@5"] == metrics.evaluate(alone, split.train, split.test)["f1@5"] > 0
    assert "diverged" in str(found).splitlines()[-1]
    with pytest.raises(ArithmeticError, match="smaller learning"):
        selection.select(0, model, X, {"learning_rate": [1e30, 1e29]}, splits=[split])


def test_a_second_call_repeats_nothing_and_a_killed_one_goes_on(tmp_path, scored):
    grid = {"rank": [2, 3], "reg": [1.0, 0.1]}

    def run(**changes):
        arguments = {"splits": 2, "folder": tmp_path / "kept", "criterion": "auc"} | changes
        return selection.select(0, ALTERNATING, X, grid, **arguments)

    scored.stop_at = 3
    with pytest.raises(KeyboardInterrupt):
        run()
    first = run()
    assert len(scored) == 3 + 2  # 2 splits × 2 ranks: two were done when the third was killed
    again = run()
    assert len(scored) == 5
    assert again.table == first.table and again.best == first.best
    lines = [p.read_text().splitlines() for p in sorted((tmp_path / "kept").glob("cell-*.jsonl"))]
    assert [json.loads(line) for part in lines for line in part] == first.table
    with pytest.raises(ValueError, match=r"holds another selection .criterion"):
        run(criterion="f1@5")
    assert run(folder=None).best == first.best and len(scored) == 9


def test_the_authors_two_stages(tmp_path):
    model = MFAUC(
        loss="square_hinge", solver="minibatch", spread=0.0, user_power=0.0, tau=0.0, **SMALL
    )
    found = selection.authors_rule(
        0,
        model,
        X,
        learning_rates=[0.3, 0.001],
        regs=[0.5, 0.1],
        ranks=[3],
        first_rank=3,
        splits=2,
        folder=tmp_path,
    )
    assert set(found.best) == {"learning_rate", "rank", "reg"}
    first = found.before
    assert first.criterion == "objective" and found.criterion == "f1@5"
    for record in first.table:  # θ of all X at λ = .01, by Eq. 3's three loops
        one = dataclasses.replace(model, rank=3, reg=0.01, learning_rate=record["learning_rate"])
        objective = routes.objective(one, X, item_weights.make(X))
        theta = triple_loop(objective, *one.fit(X).factors_, DENSE, reg=0.01)
        assert record["objective"] == pytest.approx(theta, rel=1e-6)
    lowest = min(first.table, key=lambda record: record["objective"])
    assert found.best["learning_rate"] == lowest["learning_rate"]
    assert found.best_model().learning_rate == lowest["learning_rate"]


def test_a_heat_map_is_drawn(tmp_path):
    points = selection.grid_points(GRID)
    table = [{"split": 0, "f1@5": 0.1 * p, "diverged": False, **at} for p, at in enumerate(points)]
    table[0]["f1@5"] = math.nan
    found = selection.Selection.choose(SEQUENTIAL, GRID, "f1@5", points, table)
    found.draw(tmp_path / "map.png")
    found.draw(tmp_path / "map.svg", x="reg", y="learning_rate")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "map.svg").read_text()
    with pytest.raises(ValueError, match="'rank' is not in the grid"):
        found.draw(tmp_path / "map.png", x="rank")


def test_optuna_asks_for_points_in_the_space(scored):
    space = {"reg": (0.001, 10.0), "rank": [2, 3], "batch": (4, 8)}
    found = selection.search(0, MINIBATCH, X, space, trials=30, together=5, splits=2)
    assert len(found.points) == 30 and len(found.table) == 60
    for point in found.points:
        assert 0.001 <= point["reg"] <= 10 and point["rank"] in (2, 3)
        assert isinstance(point["batch"], int) and 4 <= point["batch"] <= 8
    assert found.score == max(r["f1@5"] for r in found.table) > -0.3  # 10^±.3 about the optimum
    again = selection.search(0, MINIBATCH, X, space, trials=30, together=5, splits=2)
    assert again.points == found.points


def test_search_without_optuna_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"mfauc_jax\[search\]"):
        selection.search(0, ALTERNATING, X, {"reg": (0.1, 1.0)})


@pytest.mark.parametrize(
    "grid, options, error, words",
    [
        ({}, {}, ValueError, "the grid is empty"),
        ({"reg": []}, {}, ValueError, r"grid\['reg'\] is empty"),
        ({"reg": 0.1}, {}, TypeError, "must be a list"),
        ({"learning_rat": [1.0]}, {}, ValueError, "did you mean 'learning_rate'"),
        ({"tolerance": [1.0]}, {}, ValueError, "unknown hyper-parameter"),
        ({"reg": [-1.0]}, {}, ValueError, "must be ≥ 0"),
        ({"reg": [0.1]}, {"criterion": "f1@x"}, ValueError, "unknown criterion.*f1@"),
        ({"reg": [0.1]}, {"criterion": "aux"}, ValueError, "did you mean 'auc'"),
        ({"reg": [0.1]}, {"splits": 0}, ValueError, "splits = 0"),
        ({"beta": [1.0, 2.0]}, {}, ValueError, "beta changes nothing"),
        ({"learning_rate": [0.1, 1.0]}, {}, ValueError, "learning_rate changes nothing"),
    ],
)
def test_bad_input(grid, options, error, words):
    with pytest.raises(error, match=words):
        selection.select(0, ALTERNATING, X, grid, **options)


def test_a_split_of_another_shape_is_refused():
    other = Interactions.of(np.eye(4))
    with pytest.raises(ValueError, match="a split is"):
        selection.select(0, ALTERNATING, X, {"reg": [0.1]}, splits=[(other, other)])
