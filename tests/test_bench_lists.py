"""The bench of published lists, on a folder of a few users."""

import dataclasses
import gzip
import json

import numpy as np
import pytest

from experiments import bench_lists

LIKED = np.kron(np.eye(2), np.ones((12, 12))) * (np.random.default_rng(0).random((24, 24)) < 0.8)


@pytest.fixture
def config(tmp_path):
    """Two groups of users, each with items of its own; every fifth positive is in test."""
    (tmp_path / "toy").mkdir()
    users, items = np.nonzero(LIKED)
    held_out = np.arange(len(users)) % 5 == 0
    for name, chosen in (("train", ~held_out), ("test", held_out)):
        lines = [f"{u}\t{i}" for u, i in zip(users[chosen], items[chosen], strict=True)]
        with gzip.open(tmp_path / "toy" / f"{name}.tsv.gz", "wt") as file:
            file.write("\n".join(["user\titem", *lines]) + "\n")
    params = json.dumps(
        {
            "loss__beta": 3.0,
            "solver__iterations": 10,
            "solver__batch": 8,
            "solver__learning_rate": 0.2,
        }
    )
    return bench_lists.Config(
        str(tmp_path), ("toy",), params=params, rank=2, results=str(tmp_path / "lists.jsonl")
    )


def test_a_tenth_of_train_judges_without_test_and_a_finished_cell_is_read_back(config, tmp_path):
    """Kills: choosing by test, which is not there, and lists that leave out nothing."""
    (tmp_path / "toy" / "test.tsv.gz").unlink()
    (record,) = bench_lists.run(config)
    assert [row[0] for row in record["curve"]] == [5, 10] and record["kind"] == "tenth"
    assert record["recall@20"] == 1.0  # 24 items, of which a user has seen more than four
    assert record["auc"] > 0.7 and record["model"]["solver"]["name"] == "dense"
    assert bench_lists.run(config) == [record]


def test_the_rate_counts_the_flops_of_three_products(config, monkeypatch):
    monkeypatch.setattr(bench_lists.measure, "warm_seconds", lambda work, repeats: 2.0)
    found = bench_lists.speed(config, "toy")
    assert found["gflops"] == found["products_gflops"] == 6 * 24 * 24 * 2 / 2.0 / 1e9


def test_the_table_has_the_means_over_starts(tmp_path, config):
    """Kills: one start shown as all, and records of held-out tenths among those of test."""
    config = dataclasses.replace(config, test=True, seeds=2)
    records = bench_lists.run(config)
    tenth = bench_lists.run(dataclasses.replace(config, test=False, seeds=1))
    lines = bench_lists.table(records + tenth).splitlines()
    means = (np.mean([r[name] for r in records]) for name in ("recall@20", "ndcg@20", "auc"))
    shown = " | ".join(f"{mean:.4f}".lstrip("0") for mean in means)
    assert len(lines) == 3 and f"10 iterations | 2 | {shown} |" in lines[2]
