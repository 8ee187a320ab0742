"""What the speed benchmarks make of their measurements; no time is asserted."""

import json

import jax
import numpy as np
import pytest

from experiments import bench_scaling, speed_report
from mfauc_jax.data import synthetic


def record(method, *points, **more):
    return {
        "dataset": "ml-1m",
        "method": method,
        "points": list(points),
        "compile": 0.0,
        "cached": 0.0,
        **more,
    }


def test_ratios_are_of_the_first_time_both_levels_are_reached():
    ours = record("MFAUC", (1.0, 0.93, 0.1), (2.0, 0.94, 0.15), (3.0, 0.95, 0.16))
    als = record("implicit ALS", (1.0, 0.9, 0.1), (4.0, 0.935, 0.155))
    warp = record("lightfm WARP", (10.0, 0.939, 0.1))
    found = {what: ratio for what, ratio, _ in speed_report.targets([ours, als, warp], "ml-1m")}
    assert list(found.values()) == [0.2, 0.75]
    slow = record("MFAUC", (1.0, 0.9, 0.1))
    assert speed_report.targets([slow, als, warp], "ml-1m")[0][1] is None
    with_rows = [ours, als, warp, {"dataset": "ml-1m", "rows": {"a": 30.0, "implicit BPR": 60.0}}]
    assert speed_report.targets(with_rows, "ml-1m")[-1][1:] == (0.5, 1.0)


def test_whole_fits_are_compared_by_medians_and_only_with_the_quality():
    """Kills: a mean, a fast fit that is not good enough, a ratio upside down."""

    def whole(auc):
        ours = {"auc": auc, "precision@5": 0.149, "seconds": [0.3, 0.5, 9.0]}
        peer = {"auc": 0.94, "precision@5": 0.14, "seconds": [1.0, 1.0, 7.0]}
        return {"dataset": "ml-1m", "whole": {"MFAUC": ours, "implicit ALS": peer}}

    assert [row[1:] for row in speed_report.targets([whole(0.945)], "ml-1m")] == [(0.5, 0.5)]
    assert [row[1] for row in speed_report.targets([whole(0.943)], "ml-1m")] == [None]


def test_compilation_counts_cold_and_from_the_cache():
    ours = record("MFAUC", (1.0, 0.95, 0.1)) | {"dataset": "ml-100k", "compile": 3.0, "cached": 0.5}
    others = [
        record(m, (2.0, 0.95, 0.1)) | {"dataset": "ml-100k"}
        for m in ("implicit ALS", "lightfm WARP")
    ]
    found = [ratio for _, ratio, _ in speed_report.targets([ours, *others], "ml-100k")]
    assert found == [0.5, 2.0, 0.75]


def test_exponents_are_slopes_without_what_an_idle_process_holds():
    records = [
        {
            "route": "a",
            "series": "nnz",
            "nnz": nnz,
            "seconds": 1e-6 * nnz,
            "compile": 2.0,
            "memory": 0.3 + 1e-7 * nnz**0.5,
            "idle": 0.3,
        }
        for nnz in (10, 10**6, 10**8, 10**10)
    ]
    found = bench_scaling.exponents(records, least=1000)
    assert found["a", "nnz", "seconds"] == pytest.approx(1.0)
    assert found["a", "nnz", "compile"] == pytest.approx(0.0, abs=1e-9)
    assert found["a", "nnz", "memory"] < 1.1


def test_a_point_is_measured_from_its_file(tmp_path, capsys):
    X = synthetic.power_law(jax.random.key(0), 30, 20, 150)
    path = tmp_path / "x.npz"
    np.savez(path, indptr=np.asarray(X.indptr), indices=np.asarray(X.indices))
    job = {"n": 20, "k": 2, "route": "alternating", "path": str(path)}
    assert bench_scaling.main(bench_scaling.Config(point=json.dumps(job))) == 0
    found = json.loads(capsys.readouterr().out)
    # the kernel's peak and its present value are counted apart, by pages
    assert found["seconds"] > 0 and found["memory"] >= 0.999 * found["idle"] > 0
