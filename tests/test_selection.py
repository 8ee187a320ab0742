"""A grid as one program, and what is chosen from it."""

import json
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import quiet, triple_loop

from mfauc_jax import Alternating, Auto, Averaging, Continuation, Fixed, Minibatch
from mfauc_jax.data import splits
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics
from mfauc_jax.model import MFAUC
from mfauc_jax.solvers import base
from mfauc_jax.training import batched, selection

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(30, 3)) @ RNG.normal(size=(3, 20)) + 0.3 * RNG.normal(size=(30, 20))
DENSE = np.quantile(TASTE, 0.65, axis=1, keepdims=True) < TASTE
X = quiet(DENSE)
SEQUENTIAL = MFAUC.authors(
    rank=3, solver__iterations=6, solver__average__start=2, solver__num_users=5, solver__num_items=4
)
MINIBATCH = MFAUC(rank=3, loss="logistic", weighting="tanh", solver=Minibatch(6, batch=8))
RISING = MINIBATCH.with_params(solver=Continuation(Minibatch(6, batch=8)), loss="sigmoid")
ALTERNATING = MFAUC(rank=3, penalty=Fixed(spread=0.5), solver=Alternating(6))
RATE, REG = "solver__learning_rate", "penalty__reg"
GRID = {RATE: [0.5, 0.05], REG: [1.0, 0.1, 0.01]}


def loop(model, points, split):
    """What separate fits find."""
    for point in points:
        yield model.with_params(**point).fit(split.train).factors_


def swept(model, points, split, monkeypatch, **options):
    """The factors of `batched.score`'s one program."""
    kept, fit = [], batched.fit
    with monkeypatch.context() as patch:
        patch.setattr(batched, "fit", lambda *a, **k: kept.append(fit(*a, **k)) or kept[-1])
        batched.score(model, points, X, split, "auc", **options)
    (one,) = kept
    return one


@pytest.mark.parametrize(
    "model, grid",
    [
        (SEQUENTIAL, GRID),
        (MINIBATCH, {RATE: [0.3, 0.03], "weighting__rho": [0.5, 1.0], "loss__beta": [1.0, 2.0]}),
        (RISING, {"solver__inner__learning_rate": [0.3, 0.03], "weighting__rho": [0.5, 1.0]}),
        (ALTERNATING, {REG: [1.0, 0.1, 0.01]}),
    ],
    ids=["sequential", "minibatch", "continuation", "alternating"],
)
def test_one_program_finds_what_separate_fits_find(model, grid, monkeypatch):
    split = splits.hold_out(jax.random.key(1), X, 3)
    points = selection.grid_points(model, grid)
    found = swept(model, points, split, monkeypatch)
    assert found.finite.all()
    for g, alone in enumerate(loop(model, points, split)):
        for many, one in zip(found.factors, alone, strict=True):
            np.testing.assert_allclose(many[g][: len(one)], one, atol=1e-8, rtol=0)
            assert not many[g][len(one) :].any()  # padding stays 0
    assert np.ptp(found.factors.U, axis=0).max() > 1e-3  # the points do differ


def test_parts_of_a_grid_find_the_same(monkeypatch):
    split = splits.hold_out(jax.random.key(1), X, 3)
    points = selection.grid_points(ALTERNATING, {REG: [1.0, 0.1, 0.01]})
    whole, parts = (swept(ALTERNATING, points, split, monkeypatch, at_once=n) for n in (None, 2))
    np.testing.assert_allclose(whole.factors.V, parts.factors.V, atol=1e-10)


def test_draws_and_searches_carry_no_grid_axis():
    problem, solver, key = SEQUENTIAL.problem(X), SEQUENTIAL.solver, jax.random.key(0)
    data, state = solver.prepare(problem), solver.init(problem, base.gaussian(key, *X.shape, 3))
    program = batched.Program(solver, problem.objective)
    paths, structure = jax.tree_util.tree_flatten_with_path(program)
    varies = tuple(jax.tree_util.keystr(path).endswith("learning_rate") for path, _ in paths)
    assert sum(varies) == 1
    numbers = tuple(
        jnp.full(7, leaf, float) if varied else leaf
        for (_, leaf), varied in zip(paths, varies, strict=True)
    )
    states = jax.tree.map(lambda a: jnp.broadcast_to(a, (7, *a.shape)), state)
    states = states._replace(iteration=state.iteration)
    many = jax.make_jaxpr(batched.step, static_argnums=(0, 1))(
        structure, varies, numbers, key, states, jnp.ones(7, bool), data
    )
    alone = jax.make_jaxpr(base.run)(*program, key, state, data)
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
    before = batched.step.made
    found = selection.select(3, SEQUENTIAL, X, GRID, criterion="ndcg@4")
    assert batched.step.made <= before + 1
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
    assert found.best_model().penalty == Fixed(reg=found.best[REG]) and found.best_model().rank == 3
    assert len(found.table) == 18 and len(str(found).splitlines()) == 7
    assert str(found).splitlines()[1].split()[2] == f"{found.score:.4f}"


def last_place(counts):
    """Minus the worst place of a user's held-out items: a metric of one's own."""
    return -np.maximum.reduceat(counts.place, counts.starts).astype(float)


@pytest.mark.parametrize(
    ("model", "grid", "criterion"),
    [
        (MINIBATCH, {"rank": [3], "penalty": [Auto(), Fixed(reg=0.1)]}, "auc"),
        (RISING, {"solver__betas": [(0.5, 1.0, 2.0), (1.5,)]}, last_place),
    ],
    ids=["λ by rule and λ", "one β and three"],
)
def test_what_shapes_the_program_is_a_program_of_its_own(model, grid, criterion, tmp_path):
    split = splits.hold_out(jax.random.key(1), X, 3)
    options = {"splits": [split], "criterion": criterion, "folder": tmp_path}
    found = selection.select(0, model, X, grid, **options)
    name = criterion if isinstance(criterion, str) else "last_place"
    assert len(found.table) == 2 and found.criterion == name
    for record in found.table:
        alone = model.with_params(**{field: record[field] for field in grid}).fit(split.train)
        value = metrics.scores(alone, split.train, split.test, criterion)[name]
        assert record[name] == pytest.approx(value, abs=1e-12)
    assert found.score == max(record[name] for record in found.table)
    assert selection.select(0, model, X, grid, **options).table == found.table  # from the folder


class _Calls(list):
    stop_at = None


@pytest.fixture
def scored(monkeypatch):
    """`batched.score` replaced by a formula; its calls, with what they were given."""
    calls = _Calls()

    def formula(model, points, X, split, criterion, **options):
        calls.append((points, split))
        if calls.stop_at == len(calls):
            raise KeyboardInterrupt
        return [{**p, criterion: -abs(math.log10(p[REG]) + 1), "diverged": False} for p in points]

    monkeypatch.setattr(batched, "score", formula)
    return calls


def test_folds_test_every_positive_once(scored):
    found = selection.select(0, ALTERNATING, X, {REG: [1.0, 0.1]}, folds=3)
    assert [r["split"] for r in found.table] == [0, 0, 1, 1, 2, 2]
    tested = sum(split.test.to_scipy().toarray() for _, split in scored)
    np.testing.assert_array_equal(tested, DENSE)


def test_each_rank_is_a_cell(scored):
    found = selection.select(0, ALTERNATING, X, {REG: [1.0, 0.1], "rank": [2, 3]}, splits=1)
    assert [[p["rank"] for p in points] for points, _ in scored] == [[2, 2], [3, 3]]
    assert found.best == {REG: 0.1, "rank": 2}  # the earlier of equals
    assert [p["rank"] for p in found.points] == [2, 3, 2, 3]


def test_a_point_that_diverges_is_never_chosen():
    solver = Minibatch(60, optimiser="sgd")
    model = MFAUC(rank=3, penalty=Fixed(), solver=solver)
    grid = {RATE: [1e6, 0.01], REG: [0.1]}
    split = splits.hold_out(jax.random.key(0), X, 3)
    found = selection.select(0, model, X, grid, splits=[split])
    assert found.best[RATE] == 0.01
    bad, good = found.table
    assert bad["diverged"] and math.isnan(bad["f1@5"])
    alone = found.best_model().fit(split.train).factors_
    assert good["f1@5"] == metrics.evaluate(alone, split.train, split.test)["f1@5"] > 0
    assert "diverged" in str(found).splitlines()[-1]
    with pytest.raises(ArithmeticError, match="smaller learning"):
        selection.select(0, model, X, {RATE: [1e6, 1e5]}, splits=[split])


def test_a_second_call_repeats_nothing_and_a_killed_one_goes_on(tmp_path, scored):
    grid = {"rank": [2, 3], REG: [1.0, 0.1]}

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
    files = sorted((tmp_path / "kept").glob("cell-*.jsonl"))
    lines = [p.read_text().splitlines()[:-1] for p in files]  # the last line is a checksum
    assert [json.loads(line) for part in lines for line in part] == first.table
    files[2].write_text(files[2].read_text().replace("0.", "0.1", 1))
    with pytest.warns(
        UserWarning, match=r"cell-0002.jsonl is damaged: this cell is computed again"
    ):
        assert run().table == first.table
    assert len(scored) == 6 and run().table == first.table
    with pytest.raises(ValueError, match=r"holds another selection .criterion"):
        run(criterion="f1@5")
    assert run(folder=None).best == first.best and len(scored) == 10
    (tmp_path / "kept" / "selection.json").write_bytes(b'{"data": "\xff')
    with pytest.raises(ValueError, match=r"selection.json is damaged .*delete the folder"):
        run()


def test_the_authors_two_stages(tmp_path):
    solver = Minibatch(6, average=Averaging())
    model = MFAUC.paper("square_hinge", rank=3, solver=solver)
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
    assert set(found.best) == {RATE, "rank", REG}
    first = found.before
    assert first.criterion == "objective" and found.criterion == "f1@5"
    for record in first.table:  # θ of all X at λ = .01, by Eq. 3's three loops
        one = model.with_params(**{"rank": 3, REG: 0.01, RATE: record[RATE]})
        theta = triple_loop(one, *one.fit(X).factors_, DENSE, reg=0.01)
        assert record["objective"] == pytest.approx(theta, rel=1e-6)
    lowest = min(first.table, key=lambda record: record["objective"])
    assert found.best[RATE] == lowest[RATE]
    assert found.best_model().solver == solver.replace(learning_rate=lowest[RATE])


def test_a_heat_map_is_drawn(tmp_path):
    points = selection.grid_points(SEQUENTIAL, GRID)
    table = [{"split": 0, "f1@5": 0.1 * p, "diverged": False, **at} for p, at in enumerate(points)]
    table[0]["f1@5"] = math.nan
    found = selection.Selection.choose(SEQUENTIAL, GRID, "f1@5", points, table)
    found.draw(tmp_path / "map.png")
    found.draw(tmp_path / "map.svg", x=REG, y=RATE)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "map.svg").read_text()
    with pytest.raises(ValueError, match="'rank' is not in the grid"):
        found.draw(tmp_path / "map.png", x="rank")


def test_optuna_asks_for_points_in_the_space(scored):
    space = {REG: (0.001, 10.0), "rank": [2, 3], "solver__batch": (4, 8)}
    model = MINIBATCH.with_params(penalty=Fixed())
    found = selection.search(0, model, X, space, trials=30, together=5, splits=2)
    assert len(found.points) == 30 and len(found.table) == 60
    for point in found.points:
        assert 0.001 <= point[REG] <= 10 and point["rank"] in (2, 3)
        assert isinstance(point["solver__batch"], int) and 4 <= point["solver__batch"] <= 8
    assert found.score == max(r["f1@5"] for r in found.table) > -0.3  # 10^±.3 about the optimum
    again = selection.search(0, model, X, space, trials=30, together=5, splits=2)
    assert again.points == found.points


def test_search_without_optuna_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"mfauc_jax\[search\]"):
        selection.search(0, ALTERNATING, X, {REG: (0.1, 1.0)})


@pytest.mark.parametrize(
    "grid, options, error, words",
    [
        ({}, {}, ValueError, "the grid is empty"),
        ({REG: []}, {}, ValueError, r"grid\['penalty__reg'\] is empty"),
        ({REG: 0.1}, {}, TypeError, "must be a list"),
        ({"solver__user_step": [1]}, {}, TypeError, "did you mean 'user_steps'"),
        ({"reg": [1.0]}, {}, TypeError, r"it belongs to Fixed\(reg=1.0\)"),
        ({"tolerance": [1.0]}, {}, TypeError, r"it belongs to Watch\(tolerance=1.0\)"),
        ({"penalty__strength": [1.0]}, {}, TypeError, "Fixed has no field 'strength'"),
        ({REG: [0.1, -1.0]}, {}, ValueError, "Fixed: reg = -1.0 must be a finite number ≥ 0"),
        ({REG: [0.1]}, {"criterion": "f1@x"}, ValueError, "unknown criterion.*f1@"),
        ({REG: [0.1]}, {"criterion": "aux"}, ValueError, "did you mean 'auc'"),
        ({REG: [0.1]}, {"splits": 0}, ValueError, "splits = 0"),
        ({"loss": ["square", "logistic"]}, {}, ValueError, "minimises the square loss"),
        ({"loss__beta": [1.0, 2.0]}, {}, TypeError, "Square has no field 'beta'"),
        ({RATE: [0.1, 1.0]}, {}, TypeError, "Alternating has no field 'learning_rate'"),
    ],
)
def test_bad_input(grid, options, error, words):
    with pytest.raises(error, match=words):
        selection.select(0, ALTERNATING, X, grid, **options)


def test_a_split_of_another_shape_is_refused():
    other = Interactions.of(np.eye(4))
    with pytest.raises(ValueError, match="a split is"):
        selection.select(0, ALTERNATING, X, {REG: [0.1]}, splits=[(other, other)])
