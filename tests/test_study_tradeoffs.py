"""The trade-offs: a list of every diversity against `evaluate`, and the pictures from the records alone."""

import numpy as np
import pytest
from toys import quiet

from experiments import bench_tune, study_relatives, study_tradeoffs
from mfauc_jax import MFAUC, evaluate
from mfauc_jax.data import splits

LIKED = np.random.default_rng(0).random((40, 150)) < 0.1


def test_without_diversity_the_figures_are_those_of_evaluate():
    split = splits.hold_out(0, quiet(LIKED), 3)
    model = MFAUC(rank=4).fit(split.train)
    curve = study_tradeoffs.varied(model, split, block=7)
    found = evaluate(model, split.train, split.test, (10,))
    assert curve[0][0] == 0 and curve[0][1] == pytest.approx(found["ndcg@10"], rel=1e-6)
    assert curve[0][2] == pytest.approx(found["coverage@10"], rel=1e-6)
    assert len(curve) == len(study_tradeoffs.DIVERSITIES)


def test_pictures_need_only_the_records(tmp_path):
    records = [
        {"dataset": "a", "kind": "strength", "strength": s, "ndcg@20": s, "auc": 1 - s}
        for s in (0.4, 0.2)
    ]
    records.append({"dataset": "a", "kind": "diversity", "curve": [[0, 0.3, 0.1], [0.5, 0.2, 0.4]]})
    paths = study_tradeoffs.draw(records, str(tmp_path))
    assert {p.stem for p in paths} == {"tradeoff_strength", "tradeoff_diversity"}


def test_the_table_of_tuned_methods_has_the_paired_difference():
    common = {"dataset": "ml-100k", "seed": 0, "tune_seconds": 3.0, "fit_seconds": 0.5}
    values = {"recall@20": 0.3, "ndcg@20": 0.2, "precision@5": 0.1, "auc": 0.9}
    gap = {"kind": "paired", "method": "default", "tune_minus": {"ndcg@20": [0.01, -0.01, 0.03]}}
    records = [
        {**common, **values, "method": "default"},
        {**common, **values, "method": "tune", "member": "square", "chosen": {"a__b": 2.0}},
        {**common, **gap},
    ]
    lines = bench_tune.table(records).splitlines()
    assert lines[2].startswith("| ml-100k | tune | .3000 | .2000") and "square: b 2" in lines[2]
    assert "+0.0100 [-0.0100, +0.0300]" in lines[3]


def test_the_relatives_are_their_formulas():
    x = np.linspace(-1.5, 1.5, 7)
    found = study_relatives.relatives(3.0)
    tiny = study_relatives.TINY
    np.testing.assert_allclose(found["PSL tanh"]["loss"](x), (1 + np.tanh(-x)) ** 3 + tiny)
    np.testing.assert_allclose(found["PSL relu"]["loss"](x), np.maximum(1 - x, 0) ** 3 + tiny)
    np.testing.assert_allclose(found["p-norm push"]["weighting"](x**2), np.cbrt(x**2))
    positive = np.exp(x)
    np.testing.assert_allclose(study_relatives.top_weighted(1e12)(positive), x, atol=1e-9)
    np.testing.assert_allclose(
        study_relatives.top_weighted(0.3)(positive), -np.log(1 / positive + 1 / 0.3)
    )


def test_the_table_has_the_best_beta_of_each_relative():
    own = {"dataset": "a", "relative": "softmax", "recall@20": 0.1, "auc": 0.5}
    records = [{**own, "beta": beta, "ndcg@20": beta / 100} for beta in (3.0, 8.0, 5.0)]
    assert "| a | softmax | 8 | .0800 | .1000 | .5000 |" in study_relatives.table(records)
