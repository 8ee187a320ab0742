"""What a fit records, which factors it keeps, when it stops; metrics by name and as functions."""

import jax
import numpy as np
import pytest
from toys import quiet

import mfauc_jax as mf
from mfauc_jax import MFAUC, Minibatch, Watch
from mfauc_jax.data import splits
from mfauc_jax.evaluation import counts as counting
from mfauc_jax.evaluation import formulas, metrics
from mfauc_jax.objective import exact
from mfauc_jax.training import selection

RNG = np.random.default_rng(0)
TASTE = RNG.normal(size=(40, 3)) @ RNG.normal(size=(3, 30)) + 0.3 * RNG.normal(size=(40, 30))
X = quiet(np.quantile(TASTE, 0.7, axis=1, keepdims=True) < TASTE)
TRAIN, TEST = splits.hold_out(jax.random.key(0), X, 2)
MODEL = MFAUC(rank=4, loss="square_hinge", solver=Minibatch(60, learning_rate=0.5))


@pytest.fixture(autouse=True)
def own_metrics(monkeypatch):
    monkeypatch.setattr(formulas, "METRICS", dict(formulas.METRICS))


def last_place(counts):
    """Minus the worst place of a user's held-out items."""
    return -np.maximum.reduceat(counts.place, counts.starts).astype(float)


def worst(counts):
    """One number for all."""
    return -float(counts.place.max())


def watched(metric, **options):
    """A fit that watches a metric, and the factors after each of its iterations."""
    seen = []
    watch = Watch(metric=metric, **options)
    keep = [lambda s, factors, record: seen.append(factors)]
    return MODEL.with_params().fit(TRAIN, TEST, watch=watch, callbacks=keep), seen


@pytest.mark.parametrize("metric", ["auc", "precision@3", "ndcg@7", last_place, worst])
def test_the_best_factors_are_kept_and_patience_stops(metric):
    """Kills: a metric that is not computed at its own ℓ, so that nothing is kept and nothing stops."""
    model, seen = watched(metric, patience=3)
    name = metric if isinstance(metric, str) else metric.__name__
    values = [record[name] for record in model.history_]
    truth = [metrics.scores(at, TRAIN, TEST, metric)[name] for at in seen]
    assert values == pytest.approx(truth, abs=1e-12) and len(set(values)) > 1
    best = int(np.argmax(values))
    assert model.stopped_ == "patience" and len(values) == best + 1 + 3 < 60
    np.testing.assert_array_equal(model.user_factors_, seen[best].U)
    if callable(metric):  # by hand, from the counts
        by_hand = np.mean(metric(counting.count(seen[best], TRAIN, TEST)))
        assert max(values) == pytest.approx(by_hand, abs=1e-12)
    else:
        length = formulas.parse(metric)[1]
        by_hand = mf.evaluate(model, TRAIN, TEST, at=(length or 1,))[metric]
        assert max(values) == pytest.approx(by_hand, abs=1e-12)


def test_a_metric_entered_at_run_time_is_known_everywhere():
    @formulas.metric
    def reach(counts, size):
        """The share of users with all held-out items among the first ℓ."""
        return counts.per_user(counts.hit(size)) == counts.num_pos

    model, _ = watched("reach@6", patience=2)
    assert model.stopped_ == "patience"
    told = mf.evaluate(model, TRAIN, TEST, at=(6,))
    assert told["reach@6"] == max(record["reach@6"] for record in model.history_) > 0
    assert told["reach@6"] <= told["recall@6"]
    found = selection.select(
        0, MODEL.with_params(solver__iterations=2), X, {"seed": [1]}, splits=1, criterion="reach@6"
    )
    assert 0 <= found.score <= 1 and found.criterion == "reach@6"
    with pytest.raises(ValueError, match="did you mean 'reach@ℓ'"):
        Watch(metric="raech@6")


@pytest.mark.parametrize("metric", ["precison@3", "auc@3", "precision", "ndcg@0", "", "loss"])
def test_an_unknown_metric_is_refused_before_anything_is_fitted(metric):
    with pytest.raises(
        ValueError, match=rf"Watch: metric = '{metric}' must be one of auc, precision@ℓ"
    ):
        Watch(metric=metric)
    with pytest.raises(ValueError, match=f"unknown criterion '{metric}'"):
        selection.select(0, MODEL, X, {"seed": [1, 2]}, criterion=metric)


@pytest.mark.parametrize("metric", [lambda: 0.0, lambda a, b: 0.0, mf.losses.square, float, 7])
def test_what_is_no_function_of_the_counts_is_refused(metric):
    with pytest.raises(TypeError, match="Watch: metric = .* must be one of auc"):
        Watch(metric=metric)
    with pytest.raises((TypeError, ValueError), match="criterion"):
        selection.select(0, MODEL, X, {"seed": [1, 2]}, criterion=metric)


@pytest.mark.parametrize("answer", [None, "high", [1.0, 2.0], {}])
def test_a_function_that_answers_no_number_is_named(answer):
    def strange(counts):
        return answer

    with pytest.raises(TypeError, match=r"the metric strange .* each of the 40 users"):
        MODEL.with_params().fit(TRAIN, TEST, watch=Watch(metric=strange))


def test_a_metric_without_a_value_is_named_and_no_divergence():
    with pytest.raises(ValueError, match="diversity@1 has no value for any user of validation"):
        MODEL.with_params().fit(TRAIN, TEST, watch=Watch(metric="diversity@1"))
    with pytest.raises(ValueError, match="auc has no value for any user of validation"):
        MODEL.with_params().fit(TRAIN, selection._nothing(X))


def test_validation_is_computed_when_it_is_due():
    model, _ = watched("auc", validate_every=25)
    assert [r["iteration"] for r in model.history_ if "auc" in r] == [25, 50, 60]
    best = max((r for r in model.history_ if "auc" in r), key=lambda r: r["auc"])
    assert mf.evaluate(model, TRAIN, TEST)["auc"] == pytest.approx(best["auc"])
    assert {"auc", "ndcg@1", "ndcg@5", "ndcg@10"} <= best.keys()


def test_the_recorded_objective_is_theta():
    seen = []
    keep = [lambda s, factors, record: seen.append(factors)]
    short = MODEL.with_params(solver__iterations=5)
    model = short.fit(TRAIN, watch=Watch(record_every=2), callbacks=keep)
    told = {r["iteration"]: r["objective"] for r in model.history_ if "objective" in r}
    problem = model.problem(TRAIN)
    plan = exact.plan(problem.objective, TRAIN, problem.weights)
    assert told == {
        s: pytest.approx(float(exact.value(problem.objective, seen[s - 1], plan)))
        for s in (2, 4, 5)
    }
    np.testing.assert_array_equal(model.user_factors_, seen[-1].U)  # θ decides nothing


def test_patience_needs_validation():
    with pytest.raises(
        ValueError, match=r"patience = 3 counts validations: pass fit\(X, validation"
    ):
        MODEL.with_params().fit(TRAIN, watch=Watch(patience=3))
    unwatched = MODEL.with_params(solver__iterations=3).fit(TRAIN)
    assert all(
        record.keys() == {"iteration", "step_size", "seconds"} for record in unwatched.history_
    )
