"""Artefacts at a tiny size: run, stop, go on, draw, report."""

import dataclasses
import pathlib
import types

import numpy as np
import pytest

from experiments import (
    fig_blocks,
    fig_bounds,
    fig_loss_plots,
    fig_roc,
    protocol,
    regenerate,
    report,
    report_page,
    results,
    tab_real,
    tab_synthetic,
    together,
)
from mfauc_jax import MFAUC, Interactions


def tiny(key):
    del key
    rng = np.random.default_rng(0)
    groups = np.kron(np.eye(2), np.ones((16, 12)))
    return Interactions.from_scipy(groups * (rng.random((32, 24)) < 0.8))


@pytest.fixture(scope="module", autouse=True)
def small():
    """Every artefact at a size that compiles a handful of programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(protocol.SYNTHETIC, "synthetic1", tiny)
        patch.setitem(protocol.SYNTHETIC, "synthetic2", tiny)
        protocol.load.cache_clear()
        few = {
            "rank": 2,
            "splits": 2,
            "select_splits": 1,
            "datasets": ("synthetic2",),
            "methods": ("WRMF", "MFAUC hinge", "Popularity"),
            "settings": ("ours",),
        }
        patch.setattr(tab_synthetic, "QUICK", few | {"select": False})
        patch.setattr(tab_real, "QUICK", few | {"datasets": ("flixster",), "select": False})
        patch.setattr(
            fig_roc,
            "QUICK",
            {"repeats": 1, "iterations": 2, "values": (1.0,), "losses": ("hinge",)},
        )
        patch.setattr(
            fig_bounds,
            "QUICK",
            fig_bounds.QUICK
            | {"users": (30, 60), "scales": (0.1, 1.0), "sizes": (5, 20), "designs": (16, 32)}
            | {"num_items": 40, "draws": 5, "repeats": 5},
        )
        yield
    protocol.load.cache_clear()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All but the timing figure, once."""
    out = tmp_path_factory.mktemp("whole")
    names = [name for name in regenerate.ARTEFACTS if name != "fig_timings"]
    config = regenerate.Config(out=str(out), only=tuple(names), data_dir=str(out / "no data"))
    assert regenerate.main(config) == 0
    return config


def lines(config, name):
    return results.read(f"{config.out}/{name}.jsonl")


def test_every_artefact_has_records_figures_and_a_place_in_the_report(whole):
    out = dataclasses.asdict(whole)["out"]
    page = report.write(out)[0].read_text()
    plain = report.write(out)[1].read_text()
    for title in ("Fig. 1", "Fig. 2", "Fig. 3", "Table 2", "Table 3", "Table 4"):
        assert title in page and title in plain
    assert page.count("data:image/png;base64,") == 3 + 4  # Figs 1 to 3, and four of Section 3
    assert 'src="http' not in page and "fig_roc.png" not in page  # self-contained
    assert "could not be obtained" in plain and "(.984)" in plain
    assert "MFAUC hinge" in plain and "one negative" in plain
    records = lines(whole, "tab_synthetic")
    assert {r["kind"] for r in records} == {"fit"} and len(records) == 6
    assert {"commit", "device", "versions", "seed", "seconds"} <= set(records[0])


def test_a_second_run_computes_nothing_and_draws_the_same_bytes(whole, monkeypatch, tmp_path):
    before = {p.name: p.read_bytes() for p in fig_paths(whole.out)}
    for module in (fig_loss_plots, fig_blocks, fig_bounds):
        monkeypatch.setattr(module, "run", refuse)
    for module, name in ((protocol, "_fit"), (protocol, "_select"), (fig_roc, "_curves")):
        monkeypatch.setattr(module, name, refuse)
    for path in fig_paths(whole.out):
        path.unlink()
    assert regenerate.main(whole) == 0
    assert {p.name: p.read_bytes() for p in fig_paths(whole.out)} == before
    monkeypatch.setattr(fig_roc, "run", refuse)
    assert regenerate.main(dataclasses.replace(whole, draw_only=True)) == 0


def refuse(*args):
    pytest.fail(f"computed again: {args}")


def fig_paths(out):
    return sorted([*pathlib.Path(out).glob("*.png"), *pathlib.Path(out).glob("*.pdf")])


def test_a_run_stopped_half_way_repeats_no_finished_cell(whole, tmp_path, monkeypatch):
    done = []
    found = lines(whole, "tab_synthetic")[0]
    found = {k: found[k] for k in ("metrics", "auc_one_negative")}

    def fit(X, jobs):
        done.extend(jobs)
        return [found for _ in jobs]

    monkeypatch.setattr(protocol, "_fit", fit)
    config = regenerate.Config(out=str(tmp_path), only=("tab_synthetic",), limit=4)
    assert regenerate.main(config) == 0 and len(done) == 4
    assert "Synthetic2" in (tmp_path / "RESULTS.md").read_text()  # what is there is told
    assert regenerate.main(dataclasses.replace(config, limit=0)) == 0
    assert len(done) == 6 == len({results.identity(job) for job in done})


@pytest.mark.parametrize("setting", ["authors", "ours"])
def test_selection_sees_training_positives_only_and_its_choice_is_in_the_fit(
    setting, tmp_path, monkeypatch
):
    seen = []

    def choose(key, model, X, *args, **options):
        seen.append(X)
        row = {"penalty__reg": 0.5, "solver__iterations": 7, "f1@5": 0.1, "auc": 0.9}
        found = {
            "best": {"penalty__reg": 0.5, "solver__learning_rate": 0.1, "rank": 2},
            "before": None,
            "table": [row],
            "means": lambda: [row],
        }
        return types.SimpleNamespace(**found)

    monkeypatch.setattr(protocol.selection, "authors_rule", choose)
    monkeypatch.setattr(protocol.selection, "select", choose)
    monkeypatch.setattr(protocol, "_fit", lambda X, jobs: [{} for _ in jobs])
    config = tab_synthetic.Config(
        **tab_synthetic.QUICK
        | {
            "select": True,
            "methods": ("MFAUC hinge",),
            "settings": (setting,),
            "iterations": 9,
            "results": str(tmp_path / "t.jsonl"),
        }
    )
    _, *fits = protocol.run(config)
    test = protocol._split(tiny(None), 0).test.to_scipy()
    assert not seen[0].to_scipy().multiply(test).nnz and seen[0].nnz + test.nnz == tiny(None).nnz
    theirs = {"penalty__reg": 0.5, "solver__learning_rate": 0.1, "solver__iterations": 9}
    theirs |= {"solver__num_users": 30}
    mine = {"penalty__reg": 0.5, "solver__iterations": 7}
    assert [f["hyper"] for f in fits] == [theirs if setting == "authors" else mine] * 2


def test_the_parallel_rows_fit_in_blocks_what_ours_selected(tmp_path, monkeypatch):
    """Kills: a selection of its own, λ from the defaults, the selection reported twice, minibatches in its place."""
    asked, fitted = [], []

    def choose(X, job):
        asked.append(job)
        return {"hyper": {"penalty__reg": 0.75, "solver__iterations": 3}, "scores": []}

    monkeypatch.setattr(protocol, "_select", choose)
    monkeypatch.setattr(
        together, "fit", lambda *args: pytest.fail("Algorithm 1 does not run in this setting")
    )
    monkeypatch.setattr(
        protocol, "_ranked", lambda found, part, job: fitted.append(job) or {"metrics": {}}
    )
    config = tab_synthetic.Config(
        **tab_synthetic.QUICK
        | {
            "select": True,
            "methods": ("Popularity", "MFAUC hinge", "MFAUC square"),
            "settings": ("ours", "parallel"),
            "splits": 1,
            "results": str(tmp_path / "t.jsonl"),
        }
    )
    monkeypatch.setattr(protocol, "DEFAULTS", ())
    records = protocol.run(config)
    assert len(asked) == 2 and {job["setting"] for job in asked} == {"ours"}
    in_blocks = [r for r in records if r["setting"] == "parallel"]
    assert [(r["kind"], r["method"]) for r in in_blocks] == [("fit", "MFAUC hinge")]
    assert in_blocks[0]["hyper"] == {"penalty__reg": 0.75, "solver__iterations": 3}
    assert in_blocks[0]["model"]["solver"]["name"] == "blockwise"
    assert len(fitted) == 4


def test_algorithm_1_is_not_run_on_large_data(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "is_large", lambda dataset, folder: True)
    config = tab_synthetic.Config(
        **tab_synthetic.QUICK
        | {"settings": ("authors", "text"), "results": str(tmp_path / "t.jsonl")}
    )
    assert protocol.run(config) == []


def test_an_alpha_that_one_split_does_not_stand_is_halved(monkeypatch):
    rates = []

    def fit(models, trains):
        rates.append([m.solver.learning_rate for m in models])
        last = np.nan if len(rates) == 1 else 0.1
        return [together.Fit(None, 0.2, value, 0.5) for value in (0.1, last)]

    monkeypatch.setattr(protocol.together, "fit", fit)
    started = [MFAUC.paper(solver__learning_rate=a) for a in (0.5, 0.25)]
    models, _ = protocol._stable(started, [])
    assert rates == [[0.5, 0.25], [0.25, 0.125]]
    assert [m.solver.learning_rate for m in models] == [0.25, 0.125]


def test_lambda_is_chosen_by_f1_among_the_best_in_auc():
    scores = [
        {"reg": 1.0, "auc": 0.900, "f1@5": 0.2},
        {"reg": 0.5, "auc": 0.8995, "f1@5": 0.3},
        {"reg": 0.1, "auc": 0.880, "f1@5": 0.9},
        {"reg": 0.0, "auc": np.nan, "f1@5": np.nan},
    ]
    assert protocol.both(scores) == {"reg": 0.5}
    with pytest.raises(ArithmeticError, match="diverged"):
        protocol.both(scores[3:])


def test_flixsters_path_works_on_a_file_of_its_layout(tmp_path):
    folder = tmp_path / "flixster"
    folder.mkdir()
    rng = np.random.default_rng(1)
    rows = [(u, i) for u in range(30) for i in range(20) if (i + u) % 2 or rng.random() < 0.3]
    text = "userid\tmovieid\trating\tdate\n"
    text += "".join(f"{u}\t{i}\t4.5\t2007-10-10 00:00:00\n" for u, i in rows)
    (folder / "Ratings.timed.txt").write_text(text)
    config = tab_real.Config(
        **tab_real.QUICK
        | {
            "data_dir": str(tmp_path),
            "methods": ("Popularity",),
            "results": str(tmp_path / "r.jsonl"),
        }
    )
    records = tab_real.run(config)
    assert [r["kind"] for r in records] == ["fit", "fit"]


def test_a_failing_artefact_does_not_take_the_others_with_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fig_blocks, "run", lambda config: 1 / 0)
    config = regenerate.Config(out=str(tmp_path), only=("fig_blocks", "fig_loss_plots"))
    assert regenerate.main(config) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert "Failed in this run" in (tmp_path / "RESULTS.md").read_text()
    assert (tmp_path / "fig_loss_plots.png").exists()


@pytest.mark.parametrize("wrong", [{"preset": "quik"}, {"only": ("fig_rock",)}])
def test_wrong_names_are_told_their_neighbours(wrong, tmp_path):
    with pytest.raises(ValueError, match="did you mean"):
        regenerate.main(regenerate.Config(out=str(tmp_path), **wrong))


def test_names_cannot_break_the_report(tmp_path):
    """A | would open a cell, a < an element of HTML, a line end a row."""
    section = report_page.Section(
        "a <b> | c", ["x <script>\n# y"], None, ["h|"], [["<i>\n|"], ["plain"]]
    )
    lines = report_page.markdown([section], tmp_path).splitlines()
    assert lines[0] == "# a &lt;b&gt; | c" and lines[2] == "x &lt;script&gt; # y"
    assert lines[4:] == ["| h\\| |", "| --- |", "| &lt;i&gt; \\| |", "| plain |"]
