"""The bench of tuned methods: what is paired with `tune`, and fits made again from their records."""

import dataclasses

import numpy as np
import pytest
from toys import quiet

from experiments import bench_tune, opponents, results
from mfauc_jax import evaluate, tuning
from mfauc_jax.data import splits

TASTE = np.random.default_rng(1)
LIKED = (TASTE.normal(size=(60, 3)) @ TASTE.normal(size=(3, 40))) > 0.8
SPLIT = splits.hold_out(0, quiet(LIKED), 2)


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_tune, "split_of", lambda config, name: SPLIT)
    paths = {"values": str(tmp_path / "values"), "results": str(tmp_path / "tune.jsonl")}
    methods = ("tune", "default", "BPR", "EASE")
    return bench_tune.Config(
        datasets=("ml-100k",), methods=methods, budget=2, rank=4, starts=2, **paths
    )


def test_values_of_a_peer_that_are_missing_are_fitted_again_from_its_record(config, monkeypatch):
    """Kills: another setting or method than the record's, pairs of the wrong sign, and a silent difference."""
    records = bench_tune.run(config)
    gaps = bench_tune.paired(config, records)
    assert [g["method"] for g in gaps] == ["default", "BPR", "EASE"]
    by_method = {r["method"]: r for r in records}
    for gap in gaps:
        between = by_method["tune"]["ndcg@20"] - by_method[gap["method"]]["ndcg@20"]
        assert gap["tune_minus"]["ndcg@20"][0] == pytest.approx(between, abs=1e-6)
    monkeypatch.setattr(opponents, "searched", None)  # nothing is searched again
    for record in records[1:]:
        path = bench_tune._path(config, record)
        kept = bench_tune.of_record(config, record)
        path.unlink()
        again = bench_tune.of_record(config, record)
        np.testing.assert_allclose(again["ndcg@20"], kept["ndcg@20"], atol=1e-6)
        path.unlink()
        with pytest.raises(ValueError, match="its record"):
            bench_tune.of_record(config, record | {"ndcg@20": 1.1 * record["ndcg@20"]})


def test_values_of_another_run_are_not_taken_for_those_of_the_record(config):
    """Kills: a file that is read without a look at what it holds."""
    tuned, default, *_ = bench_tune.run(config)
    path = bench_tune._path(config, default)
    kept = bench_tune.of_record(config, default)
    bench_tune._keep(path, {name: values / 2 for name, values in kept.items()})
    np.testing.assert_array_equal(bench_tune.of_record(config, default)["auc"], kept["auc"])
    with pytest.raises(LookupError, match="is not of the record of tune"):
        bench_tune.of_record(config, tuned | {"auc": 0.5 * tuned["auc"]})


def test_a_row_of_tune_is_the_mean_over_starts(config):
    """Kills: one start shown as all, the same start twice."""
    (record,) = (r for r in bench_tune.run(config) if r["method"] == "tune")
    first, second = record["ndcg@20 by start"]
    assert record["ndcg@20"] == pytest.approx((first + second) / 2)
    model = bench_tune._chosen(config, record).with_params(seed=1).fit(SPLIT.train)
    assert second == pytest.approx(evaluate(model, *SPLIT, (20,))["ndcg@20"], abs=1e-6)


@pytest.mark.parametrize("member", ["square", "softmax"])
def test_a_fit_from_a_record_takes_the_iterations_that_were_chosen(config, member):
    """Kills: one member's iterations that do not reach its other fits."""
    (own,) = (m for m in tuning.members(4) if m.name == member)
    params = {name: values[1] for name, values in own.axes.items()}
    told = {"dataset": "a/b", "method": "tune", "rank": 4, "seed": 0, "member": member}
    results.write(config.results, config, [told | {"chosen": params | {"iterations": 17}}])
    model = bench_tune._chosen(config, told)
    assert model.chosen_solver.iterations == 17 and model.rank == 4
    assert {name: model.get_params()[name] for name in params} == params


def test_every_method_is_known_by_the_name_that_a_flag_can_give(config):
    """Kills: a name with a comma, and a misspelt one that is met after hours."""
    assert not any("," in name for name in bench_tune.METHODS)
    wrong = dataclasses.replace(config, methods=("tune", "ALS"))
    with pytest.raises(ValueError, match="ALS: known are tune, default"):
        bench_tune.run(wrong)


def test_as_published_holds_out_a_tenth_and_at_least_one_and_lists_it(config, monkeypatch):
    """Kills: a part other than the published one, and lists that leave out what did not train."""
    X = SPLIT.train
    train, held_out = bench_tune.tenth_and_one(0, X)
    lengths, many = X.on_host()[2], held_out.on_host()[2]
    wanted = np.minimum(np.maximum(lengths // 10, 1), np.maximum(lengths - 1, 0))
    np.testing.assert_array_equal(many, wanted)
    both = train.to_scipy() + held_out.to_scipy()
    assert (both != X.to_scipy()).nnz == 0
    monkeypatch.setattr(bench_tune, "split_of", lambda config, name: SPLIT)
    config = dataclasses.replace(
        config, datasets=("a/b",), methods=("tune", bench_tune.PUBLISHED), starts=1
    )
    tuned, published = bench_tune.run(config)
    model = bench_tune._chosen(config, tuned).fit(train)
    found = evaluate(model.factors_, train, SPLIT.test, (20,))
    assert published["positives"] == train.nnz
    assert published["ndcg@20"] == pytest.approx(found["ndcg@20"], abs=1e-6)
