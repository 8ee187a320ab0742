"""The `mfauc` command as a person or a script meets it: answers, exit codes, wrong usage."""

import io
import json
import pathlib
import re
from unittest import mock

import numpy as np
import polars as pl
import pytest
from command import TINY, USERS, fails, home, no_fit, ratings, run, table, untouched_jax  # noqa: F401

from mfauc_jax import (
    Alternating,
    Auto,
    Continuation,
    Dense,
    Fixed,
    Minibatch,
    Watch,
    Weights,
    cli,
    data,
)
from mfauc_jax.model import MFAUC
from mfauc_jax.solvers import SOLVERS
from mfauc_jax.training.watch import Watcher

# --- help ---


@pytest.mark.parametrize(
    "command",
    [
        "fit",
        "select",
        "recommend",
        "similar",
        "fold_in",
        "evaluate",
        "certify",
        "info",
        "update",
        "export",
        "explore",
        "data describe",
    ],
)
def test_help_fits_a_screen_and_tells_exit_codes(command):
    ran = run(*command.split(), "--help")
    assert ran.code == 0
    assert len(ran.out.splitlines()) <= 46
    assert all(len(line) <= 80 for line in ran.out.splitlines())
    assert "130 interrupted" in " ".join(ran.out.split())


def test_every_setting_is_an_option_with_its_default():
    short, whole = run("fit", "--help").out, " ".join(run("fit", "--help_all").out.split())
    own = MFAUC().get_params(deep=False).keys() - {"seed", "weights"}  # a flag of its own; one kind
    parts = [own, Weights.specs(), Auto.specs(), Fixed.specs(), Watch.specs()]
    parts += [solver.specs() for solver in SOLVERS.values()]
    for name in set().union(*parts) - {"average"}:
        assert f"--{name}" in whole
        assert f"--{name}" in short or name in Watch.specs()
    for name, default in (
        ("rank", 64),
        ("learning_rate", "0.3 or 0.02 or 0.05"),
        ("strength", 0.4),
    ):
        assert re.search(rf"--{name} X [^-]*\({default}\)", whole), name
    assert "--start_scale" in whole and "--average_eta" in whole


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--learning_rate", "0.1"),
            "belongs to Minibatch, Blockwise, Dense, Sequential, and the solver is Alternating",
        ),
        (("--solver", "minibatch", "--blocks", "2"), "--blocks 2 belongs to Blockwise"),
        (("--reg", "0.1"), "belongs to Fixed, and the penalty is Auto: add --penalty fixed"),
        (("--penalty", "fixed", "--strength", "1"), "--strength 1.0 belongs to Auto"),
        (
            ("--beta", "2"),
            "--beta 2.0 belongs to Sigmoid, Logistic, Exponential, and the loss is Square",
        ),
        (
            ("--loss", "logistic", "--beta", "-7"),
            "Logistic: beta = -7.0 must be a finite number > 0",
        ),
        (
            ("--solver", "minibatch", "--batch", "-1"),
            "Minibatch: batch = -1 must be a whole number ≥ 1",
        ),
        (("--solver", "newton"), "solver = 'newton' must be one of auto, "),
        (
            ("--loss", "logistic", "--solver", "alternating"),
            "minimises the square loss, not logistic",
        ),
        (("--metric", "acu"), "metric = 'acu' must be one of auc"),
        (("--patience", "3"), "--patience 3 counts validations: add --validate"),
        (("--checkpoint_every", "3"), "--checkpoint_every needs --checkpoint_folder"),
    ],
)
def test_a_setting_that_nothing_would_read_is_refused_by_name(home, tmp_path, flags, message):
    said = fails("fit", home / "train.csv", "--out", tmp_path / "m", *flags, code=2)
    assert message in said and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "required: COMMAND"),
        (("fitt",), "invalid choice: 'fitt'"),
        (("fit", "r.csv"), "required: --out"),
        (("fit", "--out", "m"), "give a file of ratings, or --dataset"),
        (("fit", "r.csv", "--dataset", "ml-1m", "--out", "m"), "give a file of ratings, or"),
        (
            ("fit", "r.csv", "--out", "m", "--rank", "two"),
            "--rank: 'two' is not a whole number ≥ 1",
        ),
        (("fit", "r.csv", "--out", "m", "--seed", "-1"), "--seed: -1 is not in [0"),
        (("fit", "r.csv", "--out", "m", "--ranc", "2"), "unrecognized arguments: --ranc"),
        (("recommend", "m", "--n", "0"), "--n: 0 is not in [1, inf]"),
        (("recommend", "m", "--format", "parquet"), "parquet needs --out"),
        (("recommend", "m", "--format", "parquet", "--out", "a.csv"), "needs --out FILE.parquet"),
        (("recommend", "m", "ann", "--users_file", "f"), "not both"),
        (("select", "r.csv", "--grid", "reg"), "write NAME=A,B"),
        (("select", "r.csv", "--grid", "rank=2,x"), "'x' is not a whole number"),
        (("certify", "m", "h.csv", "--delta", "1"), "--delta: 1 is not in"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(argv, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = fails(*argv, code=2)
    assert message in said and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


# --- fit ---


def test_fit_is_the_librarys_fit(home):
    X = data.read_ratings(home / "train.csv")
    model, same = MFAUC.load(home / "model"), MFAUC(rank=2, solver=Alternating(2)).fit(X)
    assert np.array_equal(model.user_factors_, same.user_factors_)
    assert sorted(model.train_.user_ids.tolist()) == sorted(USERS)


def test_ratings_below_the_threshold_are_not_relevant(home, tmp_path):
    options = ("--rating_column", "stars", "--min_rating", "5")
    with mock.patch.object(MFAUC, "fit", no_fit):
        assert run("fit", home / "ratings.csv", "--out", tmp_path / "m", *options).code == 0
    kept = ratings().filter(pl.col("stars") >= 5).height
    assert MFAUC.load(tmp_path / "m").train_.nnz == kept
    said = fails("fit", home / "ratings.csv", "--out", tmp_path / "x", *options[:3], "6")
    assert "is above 6" in said and not (tmp_path / "x").exists()


def test_params_come_from_preset_file_and_flags_in_that_order(home, tmp_path):
    path = tmp_path / "p.json"
    path.write_text('{"rank": 3, "reg": 0.5, "num_users": 7, "fixed_order": false}')
    argv = ["fit", "r.csv", "--out", "m", "--preset", "authors", "--params", str(path)]
    flags = ("--reg", "0.7", "--average_eta", "2", "--tau_neg", "0.5")
    made = cli.settings.model(cli.parser().parse_args([*argv, *flags]))
    expected = MFAUC.authors(
        rank=3,
        penalty__reg=0.7,
        weights__tau_neg=0.5,
        solver__num_users=7,
        solver__fixed_order=False,
        solver__average__eta=2.0,
    )
    assert made.get_params() == expected.get_params()
    for text, message, code in (
        ("[1]", "must hold an object", 1),
        ("{", "is not JSON", 1),
        ('{"rnk": 3}', "did you mean 'rank'", 1),
        ('{"rank": "x"}', "rank: 'x' is not a whole number", 1),
        ('{"blocks": 3}', "belongs to Blockwise", 2),
    ):
        path.write_text(text)
        assert message in fails(*argv, code=code)


def test_a_series_of_slopes_is_a_solver_around_a_solver(home):
    argv = ["fit", "r.csv", "--out", "m", "--loss", "sigmoid", "--solver", "continuation"]
    argv += ["--betas", "0.5,1", "--inner", "minibatch", "--batch", "4"]
    made = cli.settings.model(cli.parser().parse_args(argv))
    assert made.solver == Continuation(Minibatch(batch=4), betas=(0.5, 1.0))


def test_validation_chooses_the_iteration_and_then_everything_trains(home, tmp_path):
    out = tmp_path / "m"
    ran = run(
        "fit",
        home / "train.csv",
        "--out",
        out,
        "--validate",
        "1",
        "--plot",
        tmp_path / "p.png",
        "--checkpoint_folder",
        tmp_path / "states",
        *TINY,
    )
    assert ran.code == 0 and "held-out auc" in ran.err
    model = MFAUC.load(out)
    assert model.train_.nnz == data.read_ratings(home / "train.csv").nnz
    assert (tmp_path / "p.png").stat().st_size > 1000
    known = ("--validate", "1", "--metric", "ndcg@3", *TINY)
    assert "held-out ndcg@3" in run("fit", home / "train.csv", "--out", out, *known).err


def test_a_path_that_cannot_be_written_is_told_before_the_fit(home, tmp_path):
    with mock.patch.object(MFAUC, "fit", side_effect=AssertionError("fitted")):
        for out, why in (
            (tmp_path, "it is a folder"),
            (tmp_path / "no" / "m", "is not a folder"),
            (home / "model" / "m", "is not a folder"),
            (tmp_path / ("m" * 300), "File name too long"),
            ("/dev/null", "not a regular file"),
            ("/proc/m", "cannot write /proc/m"),
        ):
            assert why in fails("fit", home / "train.csv", "--out", out)
        plot = ("--out", tmp_path / "m", "--plot")
        assert "is not a folder" in fails(
            "fit", home / "train.csv", *plot, tmp_path / "no" / "p.png"
        )
        assert "must end in .png" in fails("fit", home / "train.csv", *plot, "p.xyz", code=2)
    assert pathlib.Path("/dev/null").is_char_device()


def test_ctrl_c_keeps_what_there_is_and_exits_with_130(home, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    with mock.patch.object(Watcher, "see", interrupted):
        ran = run("fit", home / "train.csv", "--out", tmp_path / "m", "--record_every", "1", *TINY)
    assert ran.code == 130 and "interrupted" in ran.err
    assert run("recommend", tmp_path / "m", "ann").code == 0
    with mock.patch.object(MFAUC, "fit", side_effect=KeyboardInterrupt):
        ran = run("fit", home / "train.csv", "--out", tmp_path / "other", *TINY)
    assert ran.code == 130 and ran.err.endswith("mfauc: interrupted\n")
    assert not (tmp_path / "other").exists()


def test_a_diverged_fit_writes_nothing(home, tmp_path):
    steep = ("--loss", "square_hinge", "--optimiser", "sgd", "--learning_rate", "1e6", "--float64")
    steep += ("--rank", "2", "--iterations", "60")
    said = fails("fit", home / "train.csv", "--out", tmp_path / "m", "--quiet", *steep)
    assert "learning_rate is 1000000.0" in said and not list(tmp_path.iterdir())
    said = fails("fit", home / "train.csv", "--out", tmp_path / "m", "--strength", "nan", code=2)
    assert "strength = nan must be" in said


# --- recommend, similar ---


def test_recommendations_are_the_models_in_the_callers_ids(home):
    requested = ["böb", "9" * 30, "a,b", 'q"q']
    found = table(run("recommend", home / "model", *requested, "--n", "2").out)
    items, scores = MFAUC.load(home / "model").recommend(requested, n=2)
    assert found["user"].to_list() == [user for user in requested for _ in range(2)]
    assert found["item"].to_list() == items.ravel().tolist()
    assert found["rank"].to_list() == [1, 2] * 4
    np.testing.assert_allclose(found["score"], scores.ravel(), rtol=5e-6)  # six digits


def test_users_come_from_a_file_or_stdin_or_are_all(home, tmp_path):
    (tmp_path / "users.txt").write_text("ann\r\n\nböb\n", encoding="utf-8")
    named = run("recommend", home / "model", "ann", "böb").out
    assert run("recommend", home / "model", "--users_file", tmp_path / "users.txt").out == named
    ran = run("recommend", home / "model", "--users_file", "-", stdin="ann\nböb\n")
    assert ran.out == named
    everyone = run("recommend", home / "model", "--quiet")
    assert set(table(everyone.out)["user"]) == set(USERS) and everyone.err == ""
    assert "-5" in run("recommend", home / "model", "--", "-5").out


def test_csv_parquet_and_json_say_the_same(home, tmp_path):
    requested = ("recommend", home / "model", "ann", "日本", "--n", "3", "--out")
    for name in ("a.csv", "a.parquet", "a.json"):
        assert run(*requested, tmp_path / name).code == 0
    rows = pl.read_csv(tmp_path / "a.csv").rows()
    whole = pl.read_parquet(tmp_path / "a.parquet")
    assert whole.with_columns(pl.col("score").round_sig_figs(6)).rows() == rows
    lists = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    flat = [
        (one["user"], pick["item"], rank, pick["score"])
        for one in lists
        for rank, pick in enumerate(one["list"], 1)
    ]
    assert flat == rows
    assert json.loads(run(*requested[:-1], "--format", "json").out) == lists
    assert run("recommend", home / "model", "ann", "ann", "--n", "3").out.count("\n") == 4
    said = fails("recommend", home / "model", "--out", tmp_path / "a.trec")
    assert "has white space" in said and not (tmp_path / "a.trec").exists()
    assert "item 'naïve ☕'" in said


def test_unknown_ids_are_named_or_skipped(home):
    said = fails("recommend", home / "model", "ann", "nobody", "böb", "nil")
    assert "unknown user 'nobody', 'nil': " in said and "lacks 2 of 4; --unknown skip" in said
    ran = run("recommend", home / "model", "ann", "nobody", "--unknown", "skip", "--n", "1")
    assert ran.code == 0 and ran.out.count("\n") == 2 and "skipped 1 unknown users of 2" in ran.err
    said = fails("recommend", home / "model", "x", "y", "--unknown", "skip")
    assert "another catalogue" in said and "its users are" in said
    assert "unknown item 'i99'" in fails("similar", home / "model", "i1", "i99")


def test_lists_end_where_the_catalogue_does(home):
    found = table(run("recommend", home / "model", "one", "--n", "1000000000").out)
    assert found.height == 8 and "i4" not in found["item"].to_list()
    ran = run("recommend", home / "model", "all", "one", "--n", "3")
    everything = data.read_ratings(home / "ratings.csv")
    assert everything.shape == (12, 9) and ran.code == 0
    shown = run("recommend", home / "model", "one", "--n", "99", "--with_seen").out
    assert table(shown).height == 9


def test_a_user_who_has_seen_everything_has_an_empty_list(home, tmp_path):
    with mock.patch.object(MFAUC, "fit", no_fit):
        assert run("fit", home / "ratings.csv", "--out", tmp_path / "m").code == 0
    ran = run("recommend", tmp_path / "m", "all")
    assert ran.code == 0 and ran.out == "user,item,rank,score\n"
    assert "nothing left to list for 1 users, such as 'all'" in ran.err
    assert json.loads(run("recommend", tmp_path / "m", "all", "--format", "json").out) == [
        {"user": "all", "list": []}
    ]


def test_similar_items_are_the_models(home):
    found = pl.read_csv(
        io.StringIO(run("similar", home / "model", "i1", "naïve ☕", "--n", "4").out)
    )
    near, cosines = MFAUC.load(home / "model").similar_items(["i1", "naïve ☕"], n=4)
    assert found["similar"].to_list() == near.ravel().tolist()
    np.testing.assert_allclose(found["cosine"], cosines.ravel(), rtol=5e-6)
    assert found.columns == ["item", "similar", "rank", "cosine"]


def test_integer_ids_are_asked_for_as_they_are_written(home, tmp_path):
    numbered = ratings().with_columns(
        pl.col("user").replace_strict(USERS, range(12)),
        pl.col("item").str.slice(1, 1).rank("dense"),
    )
    numbered.write_csv(tmp_path / "n.csv")
    with mock.patch.object(MFAUC, "fit", no_fit):
        assert run("fit", tmp_path / "n.csv", "--out", tmp_path / "m").code == 0
    assert table(run("recommend", tmp_path / "m", "3", "--n", "1").out)["user"].to_list() == ["3"]
    assert "unknown user '03'" in fails("recommend", tmp_path / "m", "03", "3")


@pytest.mark.parametrize(
    "content", [b"", b"user,item\n1,2\n", b"\x00" * 100], ids=["empty", "text", "zeros"]
)
def test_a_file_that_is_no_model_is_named_as_such(tmp_path, home, content):
    (tmp_path / "bad").write_bytes(content)
    assert str(tmp_path / "bad") in fails("recommend", tmp_path / "bad", "ann")
    whole = (home / "model").read_bytes()
    (tmp_path / "bad").write_bytes(whole[:-20])
    assert "truncated" in fails("evaluate", tmp_path / "bad", home / "test.csv")
    assert "No such file" in fails("similar", tmp_path / "none", "i1")


# --- evaluate, certify ---


def test_evaluation_is_the_librarys(home):
    found = json.loads(run("evaluate", home / "model", home / "test.csv", "--format", "json").out)
    model, held_out = MFAUC.load(home / "model"), data.read_ratings(home / "test.csv")
    expected = model.evaluate(held_out, at=(1, 3, 5, 10), intervals="normal")
    assert found == pytest.approx({k: None if np.isnan(v) else v for k, v in expected.items()})
    shown = run("evaluate", home / "model", home / "test.csv").out
    assert f"AUC {expected['auc']:.4f} ± " in shown and "@10" in shown
    plain = run(
        "evaluate", home / "model", home / "test.csv", "--intervals", "none", "--at", "2"
    ).out
    assert "±" not in plain and "@2" in plain and "@10" not in plain


def test_a_certificate_is_the_librarys(home, tmp_path):
    requested = ("certify", home / "model", home / "test.csv", "--delta", "0.1")
    model, held_out = MFAUC.load(home / "model"), data.read_ratings(home / "test.csv")
    expected = model.certify(held_out, 0.1)
    assert run(*requested).out == f"{expected}\n"
    assert run(*requested, "--format", "json", "--out", tmp_path / "c.json").code == 0
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["bound"] == expected.bound and found["sentence"] == expected.sentence


@pytest.mark.parametrize("command", ["evaluate", "certify"])
def test_pairs_that_trained_and_strangers_are_refused_or_skipped(home, tmp_path, command):
    said = fails(command, home / "model", home / "ratings.csv")
    assert "were in training, such as user" in said and "mfauc data split" in said
    right = run(command, home / "model", home / "test.csv").out
    assert run(command, home / "model", home / "ratings.csv", "--skip_seen").out == right
    held_out = pl.read_csv(home / "test.csv")
    strange = pl.concat([held_out, pl.DataFrame({"user": ["eve", "ann"], "item": ["i1", "new"]})])
    strange.write_csv(tmp_path / "t.csv")
    refused = fails(command, home / "model", tmp_path / "t.csv", "--unknown", "raise")
    assert "unknown user 'eve'" in refused and "--unknown skip" in refused
    assert run(command, home / "model", tmp_path / "t.csv").out == right
    (tmp_path / "t.csv").write_text("user,item\n1,2\n3,4\n")
    assert "another catalogue" in fails(command, home / "model", tmp_path / "t.csv")


def test_an_evaluation_is_drawn(home, tmp_path):
    drawn = ("--plot", tmp_path / "roc.png")
    assert run("evaluate", home / "model", home / "test.csv", *drawn).code == 0
    assert (tmp_path / "roc.png").stat().st_size > 1000


# --- select, data ---


def test_selection_writes_what_fit_reads(home, tmp_path):
    requested = ("select", home / "train.csv", *TINY, "--splits", "1", "--per_user", "1")
    ran = run(
        *requested,
        "--penalty",
        "fixed",
        "--grid",
        "reg=0.1,1",
        "--criterion",
        "auc",
        "--out",
        tmp_path / "best.json",
        "--plot",
        tmp_path / "map.png",
    )
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0].split()[:2] == ["reg", "auc"]
    best = json.loads((tmp_path / "best.json").read_text())
    assert best["rank"] == 2 and best["iterations"] == 2 and best["penalty"] == "fixed"
    out = ("--out", tmp_path / "m", "--params", tmp_path / "best.json")
    assert run("fit", home / "train.csv", *out).code == 0
    assert MFAUC.load(tmp_path / "m").rank == 2
    assert "did you mean 'reg'" in fails(*requested, "--grid", "regg=1,2", code=2)
    assert "belongs to Fixed" in fails(*requested, "--grid", "reg=1,2", code=2)


def test_data_sets_are_listed_fetched_described(tmp_path, home):
    listed = run("data", "list", "--data_dir", tmp_path)
    assert listed.code == 0 and listed.out.startswith("ml-100k")
    (tmp_path / "ml-100k").mkdir()
    lines = "".join(f"{u}\t{i}\t{(u * i) % 5 + 1}\t0\n" for u in range(1, 40) for i in range(1, 60))
    (tmp_path / "ml-100k" / "u.data").write_text(lines)
    assert f"in {tmp_path}/ml-100k" in run("data", "list", "--data_dir", tmp_path).out
    named = ("--dataset", "ml-100k", "--data_dir", tmp_path)
    found = json.loads(run("data", "describe", *named, "--format", "json").out)
    X = data.load("ml-100k", tmp_path)
    assert (found["users"], found["items"], found["positives"]) == (*X.shape, X.nnz)
    assert f"{X.nnz} positives" in run("data", "describe", *named).out
    assert "did you mean 'ml-100k'" in fails("data", "describe", "--dataset", "ml-100")
    assert "sha256" in fails("data", "download", "ml-100k", "--data_dir", tmp_path)
    assert "cannot be downloaded" in fails("data", "download", "flixster", "--data_dir", tmp_path)


def test_a_split_loses_and_repeats_nothing(home):
    whole = set(ratings().select("user", "item").rows())
    train, test = (set(pl.read_csv(home / f"{part}.csv").rows()) for part in ("train", "test"))
    assert train | test == whole and not train & test
    assert "must end in .csv, .parquet or .inter" in fails(
        "data", "split", home / "ratings.csv", "--train", "a.txt", "--test", "b.csv", code=2
    )


def test_many_bad_lines_are_five_and_a_count(tmp_path):
    with (tmp_path / "u.data").open("w") as file:
        file.write("1\t2\t3\t4\n" * 7 + "1\t2\tgood\t4\n" * 30_000)
    said = fails("data", "describe", tmp_path / "u.data")
    assert "has 30000 bad lines, the first 5 of them" in said
    assert said.count("\n") == 6 and "line 8: rating 'good'" in said and "line 12:" in said
    (tmp_path / "a.csv").write_text("")
    assert "is empty" in fails("data", "describe", tmp_path / "a.csv")


def test_an_id_of_a_page_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\nann,tea\nbob," + "x" * 5000 + "\n")
    said = fails("data", "describe", tmp_path / "a.csv")
    assert "of rating 2 has 5000 characters, more than 1000" in said and len(said) < 300


def test_advice_is_in_options_of_the_command(tmp_path):
    (tmp_path / "a.csv").write_text("user,thing\n1,2\n")
    assert "pass --item_column and" in fails("data", "describe", tmp_path / "a.csv")
    said = fails(
        "data", "describe", tmp_path / "a.csv", "--item_column", "thing", "--min_rating", "3"
    )
    assert "no column that looks like ratings" in said and "pass --rating_column" in said
    (tmp_path / "a.b").touch()
    assert "pass --layout, one of u.data" in fails("data", "describe", tmp_path / "a.b")
    assert "is a folder" in fails("data", "describe", tmp_path)
    said = fails("data", "describe", "--dataset", "ml-1m", "--data_dir", tmp_path)
    assert "get it by `mfauc data download ml-1m` or https" in said


def test_softmax_with_unit_rows_is_four_flags(home, tmp_path):
    """The solver follows from them, and so do its own flags. Kills: an `auto` that looks at the loss alone."""
    flags = ("--loss", "exponential", "--beta", "5", "--weighting", "log", "--penalty", "unit_rows")
    out = ("--out", tmp_path / "m", "--num_items", "4", *TINY)
    assert run("fit", home / "train.csv", *flags, *out).code == 0
    model = MFAUC.load(tmp_path / "m")
    assert model.chosen_solver == Dense(iterations=2, num_items=4) and model.loss.beta == 5.0
    np.testing.assert_allclose(np.linalg.norm(model.factors_.V, axis=1), 1.0, rtol=1e-6)
    refused = fails("fit", home / "train.csv", *flags, *out, "--solver", "alternating", code=2)
    assert "length one" in refused or "belongs to Dense" in refused
