"""`tune`: what it searches, in which order, what it chooses and what it refuses."""

import logging

import numpy as np
import polars as pl
import pytest
from command import run, untouched_jax  # noqa: F401
from toys import quiet

import mfauc_jax as mf
from mfauc_jax import tuning
from mfauc_jax.data import splits
from mfauc_jax.evaluation import metrics
from mfauc_jax.training import climbing
from mfauc_jax.training.climbing import Member, Search, Trial

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 40)) + 0.3 * RNG.normal(size=(60, 40))
LIKED = np.quantile(TASTE, 0.7, axis=1, keepdims=True) < TASTE
AXES = {"a": (0, 1, 2, 3, 4), "b": (0, 1, 2)}


class Landscape:
    """Members whose metric is a formula, and the fits that a search makes of them."""

    def __init__(self, **formulas):
        self.formulas, self.points = formulas, []

    def members(self, middle=(2, 1)):
        known = []
        for name in self.formulas:
            member = Member(name, mf.MFAUC(), AXES)
            known.append(member)
        self.middle = middle
        return known

    def fit(self, member, params):
        self.points.append((member.name, tuple(params.values())))
        value = self.formulas[member.name](*params.values())
        return Trial(member.name, params, value, 1, 0.0, np.zeros(2), {})

    def search(self, budget, monkeypatch):
        known = self.members()
        monkeypatch.setattr(climbing, "_middle", lambda member: self.middle)
        search = Search(known, self.fit, budget)
        search.run()
        return search


def bowl(best, height=1.0):
    return lambda a, b: height - 0.01 * ((a - best[0]) ** 2 + (b - best[1]) ** 2)


def test_the_search_finds_the_top_of_a_bowl_in_either_member(monkeypatch):
    for heights in ((1.0, 1.1), (1.1, 1.0)):
        world = Landscape(one=bowl((4, 2), heights[0]), two=bowl((0, 0), heights[1]))
        search = world.search(100, monkeypatch)
        best = max(search.trials, key=lambda trial: trial.metric)
        wanted = ("one", (4, 2)) if heights[0] > heights[1] else ("two", (0, 0))
        assert (best.member, tuple(best.params.values())) == wanted


def test_no_point_is_fitted_twice_and_the_budget_holds(monkeypatch):
    for budget in (1, 2, 5, 9, 30):
        world = Landscape(one=bowl((4, 2)), two=bowl((0, 0), 1.05))
        search = world.search(budget, monkeypatch)
        assert len(set(world.points)) == len(world.points) == len(search.trials) <= budget
        assert world.points[:2] == [("one", (2, 1)), ("two", (2, 1))][:budget]


def test_a_member_that_begins_far_behind_is_left_out(monkeypatch):
    world = Landscape(one=bowl((4, 2)), two=bowl((0, 0), 0.7))
    world.search(100, monkeypatch)
    assert [point for point in world.points if point[0] == "two"] == [("two", (2, 1))]


def test_the_other_member_is_searched_too_unless_it_is_far_behind(monkeypatch):
    """Kills: only the best member's axes are climbed, and BEHIND without effect."""
    for height, searched in ((0.97, True), (0.85, False)):
        world = Landscape(one=bowl((2, 1)), two=bowl((2, 0), height))
        world.search(100, monkeypatch)
        assert (("two", (2, 0)) in world.points) == searched
        assert ("two", (1, 1)) in world.points


def test_the_middle_of_every_member_is_its_model():
    for member in tuning.members(rank=(64, 32)):
        point = climbing._middle(member)
        values = {n: v[p] for p, (n, v) in zip(point, member.axes.items(), strict=True)}
        assert member.model.with_params(**values) == member.model
        assert all(list(v) == sorted(v) for v in member.axes.values())
    assert tuning.members()[0].model == mf.MFAUC()


class FakeFit:
    """A model whose metric after each iteration is given; `_fit` judges it as a real one."""

    def __init__(self, monkeypatch, curve, model=mf.MFAUC(), longest=60, every=5):
        self.curve, self.done = curve, 0
        fake = self

        def fit(model, X, callbacks, progress):
            for s in range(1, model.chosen_solver.iterations + 1):
                fake.done = s
                now = mf.Factors(np.full((1, 1), s), np.ones((1, 1)))
                if any([call(s, now, {}) for call in callbacks]):
                    break
            model.stopped_ = "callback"

        monkeypatch.setattr(mf.MFAUC, "fit", fit)
        self.member = Member("any", model, {}, longest, every).longer()
        self.run = lambda: tuning._fit(
            quiet(LIKED), lambda now: np.full(3, curve(now.U[0, 0])), self.member, {}
        )


def test_a_fit_goes_on_while_it_gains_and_keeps_its_best_iteration(monkeypatch):
    rising = FakeFit(monkeypatch, lambda s: 1.0 + 0.01 * s).run()
    assert rising.iterations == 60 and list(rising.curve) == list(range(5, 61, 5))
    flat = FakeFit(monkeypatch, lambda s: 1.0 + 0.01 * min(s, 20) - 0.001 * max(s - 20, 0))
    trial = flat.run()
    assert trial.iterations == 20 and flat.done == 30
    np.testing.assert_allclose(trial.values, 1.2)


def test_both_members_are_judged_at_their_own_steps_and_fitted_for_as_long_as_was_best(monkeypatch):
    """Kills: only softmax has a longer fit, or its iterations alone reach the model."""
    for member in tuning.members():
        fake = FakeFit(monkeypatch, lambda s: 1.0 + s, member.model, member.longest, member.every)
        trial = fake.run()
        assert (
            trial.iterations == fake.done == member.longest > member.model.chosen_solver.iterations
        )
        assert list(trial.curve) == list(range(member.every, member.longest + 1, member.every))
        assert trial.model(member) == fake.member.model
        assert type(trial.model(member).chosen_solver) is type(member.model.chosen_solver)


def test_a_member_that_is_far_behind_has_no_longer_fit(monkeypatch):
    for share, longer in ((0.97, {"square", "softmax"}), (0.9, {"softmax"})):
        fitted = []

        def fit(train, judge, member, params, share=share, fitted=fitted):
            fitted.append((member.name, member.model.chosen_solver.iterations))
            values = np.full(60, share if member.name == "square" else 1.0)
            return Trial(member.name, params, values[0], 4, 0.0, values, {})

        monkeypatch.setattr(tuning, "_fit", fit)
        mf.tune(quiet(LIKED), budget=2, rank=4, progress=False)
        assert {name for name, iterations in fitted if iterations >= 40} == longer


@pytest.fixture(scope="module")
def tuned():
    return mf.tune(quiet(LIKED), budget=6, rank=4, criterion="ndcg@5", progress=False)


def test_what_is_returned_is_the_best_trial_fitted_to_everything(tuned):
    tuning_ = tuned.tuning_
    assert len(tuning_.trials) in (7, 8)  # one more per member that is not far behind
    assert tuning_.trials[0].params["penalty__strength"] == 0.4
    assert tuning_.best.metric == max(t.metric for t in tuning_.trials)
    assert tuned.train_.nnz == LIKED.sum()
    (member,) = (m for m in tuning.members(4) if m.name == tuning_.chosen.member)
    again = tuning_.chosen.model(member).fit(quiet(LIKED))
    np.testing.assert_array_equal(tuned.factors_.V, again.factors_.V)
    gap = tuning_.best.values.mean() - tuning_.trials[0].values.mean()
    assert tuning_.difference.difference == pytest.approx(gap)
    assert f"{tuning_.best.metric:.4f}" in str(tuning_) and " fits in " in tuning_.sentence()


@pytest.mark.parametrize("gain, wins", [(0.2, True), (0.0005, False)])
def test_another_than_the_default_must_be_better_beyond_chance(gain, wins, monkeypatch):
    """Both trials of softmax have a larger mean; only a large gain is beyond the noise of the judges."""
    noise = np.random.default_rng(3).normal(scale=0.05, size=(4, 200))
    calls = iter(range(99))

    def fit(train, judge, member, params):
        noise_ = noise[next(calls)]
        values = noise_ - noise_.mean() + 0.5 + gain * (member.name == "softmax")
        return Trial(member.name, params, values.mean(), 7, 0.0, values, {})

    monkeypatch.setattr(tuning, "_fit", fit)
    model = mf.tune(quiet(LIKED), budget=2, rank=4, progress=False)
    assert model.tuning_.best.member == "softmax"
    assert model.tuning_.chosen.member == ("softmax" if wins else "square")
    assert isinstance(model.penalty, mf.UnitRows) == wins
    assert ("not better beyond chance" in model.tuning_.sentence()) == (not wins)
    if wins:
        assert model.solver.iterations == 7


def test_the_metric_of_a_trial_is_that_of_a_plain_fit_on_the_same_split(tuned):
    train, held_out = next(splits.k_fold(0, quiet(LIKED), tuning.FOLDS))
    found = metrics.evaluate(mf.MFAUC(rank=4).fit(train), train, held_out, (5,))
    assert tuned.tuning_.trials[0].metric == pytest.approx(found["ndcg@5"], rel=1e-6)


def test_the_same_seed_chooses_the_same_and_another_splits_otherwise(tuned):
    X = quiet(LIKED)
    same = mf.tune(X, budget=6, rank=4, criterion="ndcg@5", progress=False)
    assert [t.metric for t in same.tuning_.trials] == [t.metric for t in tuned.tuning_.trials]
    np.testing.assert_array_equal(same.factors_.U, tuned.factors_.U)
    other = mf.tune(X, budget=1, rank=4, criterion="ndcg@5", seed=1, progress=False)
    assert other.tuning_.trials[0].metric != tuned.tuning_.trials[0].metric


def test_the_callers_own_split_decides():
    train, held_out = splits.hold_out(7, quiet(LIKED), 2)
    model = mf.tune(quiet(LIKED), budget=1, rank=4, split=(train, held_out), progress=False)
    found = metrics.evaluate(mf.MFAUC(rank=4).fit(train), train, held_out, (20,))
    assert model.tuning_.chosen.metric == pytest.approx(found["ndcg@20"], rel=1e-6)
    assert model.train_.nnz == LIKED.sum()


def test_one_fit_is_the_default(caplog):
    with caplog.at_level(logging.INFO, "mfauc_jax"):
        model = mf.tune(quiet(LIKED), budget=1, rank=4, progress=False)
    plain = mf.MFAUC(rank=4).fit(quiet(LIKED))
    np.testing.assert_array_equal(model.factors_.U, plain.factors_.U)
    assert "tune chose square" in caplog.text and "from MFAUC()" not in caplog.text


def test_large_data_are_searched_on_a_sample(monkeypatch):
    monkeypatch.setattr(tuning, "USERS", 30)
    monkeypatch.setattr(tuning, "JUDGES", 10)
    model = mf.tune(quiet(LIKED), budget=2, rank=4, progress=False)
    assert len(model.tuning_.chosen.values) == 10 and model.factors_.U.shape == (60, 4)


def test_several_ranks_are_an_axis():
    model = mf.tune(quiet(LIKED), budget=12, rank=(4, 2, 8), criterion="auc", progress=False)
    assert {t.params["rank"] for t in model.tuning_.trials} > {4}


def test_a_tuned_model_is_saved_and_loaded_as_any_other(tuned, tmp_path):
    tuned.save(tmp_path / "m")
    np.testing.assert_array_equal(mf.MFAUC.load(tmp_path / "m").factors_.V, tuned.factors_.V)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"budget": 0}, "budget = 0 must be"),
        ({"criterion": "ndcg"}, "criterion = 'ndcg'"),
        ({"criterion": "objective"}, "criterion = 'objective'"),
        ({"rank": ()}, r"rank = \(\) is empty"),
        ({"rank": 0}, "rank = 0 must be"),
    ],
)
def test_nonsense_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        mf.tune(quiet(LIKED), **options)


def test_data_without_anything_to_hold_out_are_refused():
    with pytest.raises(ValueError, match="0 users have two positives"):
        mf.tune(quiet(np.eye(9, 12)))


def test_the_command_tunes(tmp_path):
    users, items = np.nonzero(LIKED)
    rows = "\n".join(f"u{i},i{j}" for i, j in zip(users, items, strict=True))
    (tmp_path / "likes.csv").write_text(f"user,item\n{rows}\n")
    ran = run("fit", tmp_path / "likes.csv", "--out", tmp_path / "m", "--tune", 3, "--rank", 4)
    assert ran.code == 0 and "ndcg@20  iterations" in ran.out and " fits in " in ran.out
    frame = pl.read_csv(tmp_path / "likes.csv")
    again = mf.tune(frame, budget=3, rank=4, progress=False)
    np.testing.assert_array_equal(mf.MFAUC.load(tmp_path / "m").factors_.V, again.factors_.V)


def test_the_command_refuses_settings_beside_tune(tmp_path):
    (tmp_path / "likes.csv").write_text("user,item\na,b\n")
    for extra in (("--loss", "logistic"), ("--validate",), ("--patience", 3), ("--strength", 1)):
        ran = run("fit", tmp_path / "likes.csv", "--out", tmp_path / "m", "--tune", *extra)
        assert (
            ran.code == 2 and "--tune chooses the settings itself" in ran.err
        ) or "patience" in ran.err
        assert not (tmp_path / "m").exists()
