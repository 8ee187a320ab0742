"""The study at a tiny size: every part runs once, is read back, and is drawn from its records."""

import dataclasses
import zlib

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import frontier, results, study_top
from experiments.study_top import Config
from experiments.variants import ALS, LEVERS, OURS
from mfauc_jax import MFAUC, Auto
from mfauc_jax._core.factors import Factors


def write_likes(folder, seed=0, users=60, items=40):
    """Two tastes, as a MovieLens file and as Gowalla's two."""
    rng = np.random.default_rng(seed)
    alike = rng.integers(2, size=(users, 1)) == rng.integers(2, size=(1, items))
    liked = rng.random((users, items)) < np.where(alike, 0.6, 0.1)
    for name in ("ml-100k", "gowalla"):
        (folder / name).mkdir(parents=True)
    pairs = np.argwhere(liked)
    (folder / "ml-100k" / "u.data").write_text("".join(f"{u}\t{j}\t5\t0\n" for u, j in pairs))
    held_out = rng.random(liked.shape) < 0.2
    for file, mine in (("train", liked & ~held_out), ("test", liked & held_out)):
        lines = (" ".join(map(str, [u, *np.flatnonzero(row)])) for u, row in enumerate(mine))
        (folder / "gowalla" / f"{file}.txt").write_text("\n".join(lines) + "\n")


def popular(row, train, rank):
    """In place of a fit: popularity, blurred differently by each row."""
    rng = np.random.default_rng(zlib.crc32(str(row).encode()))
    counts = np.bincount(np.asarray(train.indices), minlength=train.num_items)[:, None]
    return Factors(
        jnp.ones((train.num_users, 1)), jnp.asarray(counts + rng.normal(size=counts.shape))
    )


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_likes(folder)
    return Config(
        data_dir=str(folder),
        datasets=("ml-100k",),
        methods=(OURS, "our WRMF"),
        seeds=2,
        lever_seeds=2,
        rank=4,
        levers=("no spread penalty", "σ doubled", "3 seeds averaged"),
        gowalla_ranks=(4,),
        results=str(folder / "study.jsonl"),
        out=str(folder),
        images=str(folder),
    )


@pytest.fixture(scope="module")
def records(config):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_top, "fitted", popular)
        patch.setattr(
            study_top, "GOWALLA", {OURS: {}, "strength .5": {"penalty": Auto(strength=0.5)}}
        )
        study_top.run(config)
        return study_top.run(dataclasses.replace(config, data_dir="nowhere"))  # all read back


def test_each_row_of_a_table_is_paired_with_the_one_it_is_set_against(records):
    found = {r.method: r for r in frontier.rows(records, LEVERS | {OURS: {}}, OURS)}
    assert set(found) == {OURS, "no spread penalty", "σ doubled", "3 seeds averaged"}
    lever = found["σ doubled"]
    assert not found[OURS].against and lever.splits == 2
    assert lever.against["AUC"].difference == pytest.approx(
        lever.mean["AUC"] - found[OURS].mean["AUC"]
    )


def test_a_lever_changes_fields_constants_of_the_rule_and_seeds(config):
    X, _ = study_top._split("ml-100k", config.data_dir, 0, 5)

    def fitted(**more):
        same = {"solver__iterations": 2, "penalty": Auto(strength=0.3), "seeds": 1}
        return study_top.fitted(study_top.setting(same | more, 4), X, 4)

    model = MFAUC(rank=4, penalty=Auto(strength=0.3)).with_params(solver__iterations=2)
    alone = fitted()
    np.testing.assert_array_equal(alone.V, model.fit(X).factors_.V)
    both = fitted(seeds=2)
    assert both.V.shape == (X.num_items, 8)
    np.testing.assert_array_equal(both.V[:, :4], alone.V)
    weaker = fitted(penalty=Auto(strength=0.3, reg_item_power=0.0))
    assert not np.allclose(weaker.V, alone.V)
    assert fitted(rank=3).V.shape == (X.num_items, 3)


def test_a_cell_says_every_number_of_its_row():
    row = study_top.setting(LEVERS["square hinge"], 64)
    assert row["solver"]["name"] == "minibatch" and row["solver"]["batch"] == 128
    assert study_top.setting({"peer": "als"}, 64, "ml-1m")["tuned"] == [60.0, 4.0]
    with pytest.raises(ValueError, match="no tuned peers for 'gowalla'"):
        study_top.setting({"peer": "als"}, 64, "gowalla")


def test_gowalla_shows_its_test_positives_to_the_default_and_the_best_of_validation(records):
    tried = [r for r in records if r["kind"] == "gowalla-validation"]
    best = max(tried, key=lambda r: r["recall@20"])["method"]
    assert len(tried) == 2
    assert {r["method"] for r in records if r["kind"] == "gowalla"} == {OURS, best}


def test_figures_and_tables_come_from_the_records(config, records, tmp_path):
    assert all(p.exists() for p in frontier.draw(records, tmp_path))
    assert all(p.exists() for p in frontier.draw_picture(records, tmp_path))
    page = frontier.write_tables(records, tmp_path).read_text()
    assert (
        "| MovieLens 100K, 2 | our WRMF |" in page and "| MovieLens 100K, 2 | σ doubled |" in page
    )
    assert "| LightGCN, published | 64 | .1820" in page
    assert len(results.read(config.results)) == len({r["cell"] for r in records})


def test_a_missed_target_is_told():
    def cells(method, auc):
        return [
            {
                "kind": "split",
                "dataset": "epinions",
                "method": method,
                "seed": s,
                "rank": 64,
                "precision@1": 0.1,
                "precision@3": 0.1,
                "precision@5": 0.1 + s / 100,
                "auc": auc,
            }
            for s in range(3)
        ]

    told = frontier.missed(cells(OURS, 0.85) + cells(ALS, 0.8))
    assert told == ["epinions: AUC 0.8500 < 0.86", "epinions: p@5 +0.0000 [+0.0000, +0.0000]"]


def test_unknown_parts_and_rows_are_named(config):
    with pytest.raises(ValueError, match="parts = 'lever': choose from picture"):
        study_top.run(Config(parts=("lever",)))
    with pytest.raises(ValueError, match="no row 'WRMF': choose from MFAUC"):
        study_top.run(dataclasses.replace(config, parts=("methods",), methods=("WRMF",)))
