"""The bench of published lists, on a folder of a few users."""

import dataclasses
import gzip
import json

import numpy as np
import pytest
from toys import quiet

from experiments import bench_lists
from mfauc_jax import MFAUC, Auto, Weights
from mfauc_jax.data import splits

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


def test_the_curves_are_of_held_out_tenths_one_row_per_start(config):
    """Kills: test records among them, a column of another iteration."""
    config = dataclasses.replace(config, test=False, every=5, seeds=1)
    (record,) = bench_lists.run(config)
    other = dataclasses.replace(
        config, params=json.dumps(json.loads(config.params) | {"start": "gaussian"})
    )
    lines = bench_lists.curves(
        [record, *bench_lists.run(other), record | {"kind": "test"}]
    ).splitlines()
    assert len(lines) == 4 and "`least_squares`" in lines[2] and "`gaussian`" in lines[3]
    at = {iteration: f"{ndcg:.4f}".lstrip("0") for iteration, _, ndcg, _ in record["curve"]}
    assert lines[2].endswith(f"| {at[5]} | {at[10]} |  |  |  |")


def test_items_of_a_user_are_compared_within_and_between_train_and_test(monkeypatch):
    """Against a loop over pairs; kills a mean that counts an item with itself."""
    liked = np.random.default_rng(0).random((12, 60)) < 0.5
    split = splits.hold_out(0, quiet(liked), 6)
    monkeypatch.setattr(bench_lists, "split", lambda config, name: split)
    found = bench_lists.alike(bench_lists.Config(), "toy")
    fitted = MFAUC(weights=Weights(tau=-0.4), penalty=Auto(strength=0.15)).fit(split.train)
    V = fitted.item_factors_ - fitted.item_factors_.mean(0)
    V = V / np.linalg.norm(V, axis=1, keepdims=True)
    a, b = (part.to_scipy().toarray() > 0 for part in split)
    within = [
        np.mean([V[i] @ V[j] for i in r.nonzero()[0] for j in r.nonzero()[0] if i != j]) for r in b
    ]
    between = [
        np.mean([V[i] @ V[j] for i in r.nonzero()[0] for j in s.nonzero()[0]])
        for r, s in zip(a, b, strict=True)
    ]
    assert found["users"] == 12
    assert found["test, test"] == pytest.approx(np.mean(within), abs=1e-5)
    assert found["train, test"] == pytest.approx(np.mean(between), abs=1e-5)


def test_shares_of_test_vary_by_chance_in_a_random_split_and_more_in_a_stretch_of_time():
    """Kills: counts of train in place of both, a variance that is not by the number of positives."""
    rng = np.random.default_rng(0)
    liked = rng.random((3000, 80)) < np.r_[np.full(60, 0.1), np.full(20, 0.4)]
    for share, low, high in ((np.full(80, 0.2), 0.7, 1.4), (rng.uniform(0.05, 0.35, 80), 15, 99)):
        drawn = rng.random(liked.shape) < share
        found = bench_lists.shares(quiet(liked & ~drawn), quiet(liked & drawn))
        assert set(found) == {"200 to 500", "500 to inf", "variance over chance"}
        wanted = (liked & drawn)[:, 60:].sum() / liked[:, 60:].sum()
        assert found["500 to inf"] == pytest.approx(wanted)
        assert low < found["variance over chance"] < high
