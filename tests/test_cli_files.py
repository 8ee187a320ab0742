"""`mfauc info`, `update`, `fold_in`, `export`, `explore`; formats, titles, hyphens, progress, and life without a home."""

import csv
import io
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import faiss
import hnswlib
import numpy as np
import polars as pl
import pytest
from command import TINY, fails, home, run, table, untouched_jax  # noqa: F401

from mfauc_jax import MFAUC, Alternating, Watch, cli, data
from mfauc_jax.data.digest import digest
from mfauc_jax.serving import model_file
from mfauc_jax.training import loop

ROOT = pathlib.Path(__file__).parent.parent


# --- info, and metadata at save ---


def test_info_tells_what_is_in_the_file_in_three_formats(home, tmp_path):
    out = tmp_path / "m"
    said = ("--metadata", "trained=2024-05-01", "--metadata", "note=a=b, 日本")
    assert run("fit", home / "train.csv", "--out", out, *said, *TINY).code == 0
    facts = json.loads(run("info", out, "--format", "json").out)
    X = data.read_ratings(home / "train.csv")
    assert (facts["users"], facts["items"], facts["positives"]) == (*X.shape, X.nnz)
    assert facts["data_digest"] == digest(X) and facts["rank"] == 2
    assert facts["metadata"] == {"trained": "2024-05-01", "note": "a=b, 日本"}
    assert facts["model"] == repr(MFAUC(rank=2, solver=Alternating(2)))
    lines = run("info", out).out.splitlines()
    assert any(line.split(maxsplit=1) == ["metadata.note", "a=b, 日本"] for line in lines)
    rows = dict(csv.reader(io.StringIO(run("info", out, "--format", "csv").out)))
    assert rows["data_digest"] == digest(X) and rows["metadata.note"] == "a=b, 日本"
    other = json.loads(run("info", home / "model", "--format", "json").out)
    assert other["data_digest"] == digest(X) and other["metadata"] == {}
    assert other["sha256"] != facts["sha256"]
    assert "write NAME=TEXT" in fails(
        "fit", home / "train.csv", "--out", out, "--metadata", "x", code=2
    )
    assert "is no model file" in fails("info", home / "train.csv")


def test_metadata_are_text_and_come_back(home, tmp_path):
    model = MFAUC.load(home / "model")
    assert dict(model.metadata_) == dict(MFAUC().metadata_) == {}
    model.save(tmp_path / "m", metadata={"a": "1"})
    assert MFAUC.load(tmp_path / "m").metadata_ == {"a": "1"}
    for wrong in ({"a": 1}, {1: "a"}, ["a"]):
        with pytest.raises(TypeError, match="must be"):
            model_file.check_metadata(wrong)
        with pytest.raises(TypeError):
            model.save(tmp_path / "other", metadata=wrong)
    assert not (tmp_path / "other").exists()


# --- update, fold_in, export ---


def test_update_is_partial_fit(home, tmp_path):
    new = pl.DataFrame({"user": ["zoe", "zoe", "ann"], "item": ["i0", "new", "new"]})
    new.write_csv(tmp_path / "new.csv")
    command = ("update", home / "model", tmp_path / "new.csv", "--out", tmp_path / "m")
    ran = run(*command, "--metadata", "night=1")
    assert ran.code == 0 and "1 new user, 1 new item, 3 new positives" in ran.err
    made, same = MFAUC.load(tmp_path / "m"), MFAUC.load(home / "model").partial_fit(new)
    assert np.array_equal(made.user_factors_, same.user_factors_)
    assert made.train_.item_ids.tolist() == same.train_.item_ids.tolist()
    assert made.metadata_ == {"night": "1"}
    again = ("update", tmp_path / "m", tmp_path / "new.csv", "--out", tmp_path / "n")
    assert run(*again, "--metadata", "next=2").code == 0
    assert MFAUC.load(tmp_path / "n").metadata_ == {"night": "1", "next": "2"}
    both = (home / "model", tmp_path / "new.csv", "--out", home / "model")
    assert "is the file that is the model" in fails("update", *both, code=2)


def test_fold_in_lists_for_users_who_were_not_in_training(home, tmp_path):
    pl.DataFrame({"user": [1, 1, 2], "item": ["i0", "i1", "i5"]}).write_csv(tmp_path / "new.csv")
    ran = run("fold-in", home / "model", tmp_path / "new.csv", "--n", "3", "--quiet")
    assert ran.code == 0 and ran.err == ""
    model = MFAUC.load(home / "model")
    folded = model.fold_in(pl.DataFrame({"user": ["1", "1", "2"], "item": ["i0", "i1", "i5"]}))
    items, _ = folded.recommend(["1", "2"], n=3)
    assert table(ran.out)["item"].to_list() == items.ravel().tolist()
    pl.DataFrame({"user": ["x", "x"], "item": ["i0", "nix"]}).write_csv(tmp_path / "odd.csv")
    ran = run("fold_in", home / "model", tmp_path / "odd.csv", "--format", "json")
    assert json.loads(ran.out)[0]["user"] == "x" and "left out 1 of 2" in ran.err
    said = fails("fold_in", home / "model", tmp_path / "odd.csv", "--unknown", "raise")
    assert "unknown item 'nix'" in said


def test_exported_vectors_serve_faiss_and_hnswlib(home, tmp_path):
    ran = run("export", home / "model", "--out", tmp_path / "v")
    assert ran.out.split() == [
        str(tmp_path / "v" / n) for n in ("items.npy", "item_ids.npy", "users.npy", "user_ids.npy")
    ]
    items, names, users, people = (np.load(path) for path in ran.out.split())
    _, best = MFAUC.load(home / "model").recommend(people, n=4, exclude_seen=False)
    flat = faiss.IndexFlatIP(items.shape[1])
    flat.add(items)
    graph = hnswlib.Index("ip", items.shape[1])
    graph.init_index(len(items), random_seed=0)
    graph.add_items(items)
    for found in (flat.search(users, 4)[1], graph.knn_query(users, 4)[0]):
        mine = np.einsum("uk,unk->un", users, items[found.astype(int)])
        np.testing.assert_allclose(np.sort(mine)[:, ::-1], best, atol=1e-6)
    known = MFAUC.load(home / "model").predict(people[0], names)
    np.testing.assert_allclose(items @ users[0], known, atol=1e-6)
    for kind in ("csv", "parquet"):
        files = run("export", home / "model", "--out", tmp_path / "t", "--format", kind).out.split()
        frame = (pl.read_csv if kind == "csv" else pl.read_parquet)(files[0])
        assert frame["id"].to_list() == names.tolist() and frame.columns[1:] == ["v0", "v1"]
        np.testing.assert_allclose(frame.drop("id").to_numpy(), items, rtol=1e-6)
    assert "invalid choice: 'xml'" in fails(
        "export", home / "model", "--out", tmp_path, "--format", "xml", code=2
    )


# --- formats and titles ---


@pytest.fixture
def titles(tmp_path):
    path = tmp_path / "titles.csv"
    path.write_text("item,name,genre\n" + "".join(f"i{j},The {j}th,G{j % 2}|x\n" for j in range(7)))
    return path


def test_a_table_has_titles_short_scores_and_each_user_once(home, titles):
    command = ("recommend", home / "model", "böb", "ann", "--n", "2", "--titles", titles)
    lines = run(*command, "--format", "table").out.splitlines()
    assert lines[0].split() == ["user", "item", "title", "rank", "score"] and len(lines) == 5
    items, scores = MFAUC.load(home / "model").recommend(["böb", "ann"], n=2)
    names = [f"The {i[1:]}th" if i in {f"i{j}" for j in range(7)} else i for i in items.ravel()]
    for line, name, score in zip(lines[1:], names, scores.ravel(), strict=True):
        assert name in line and line.split()[-1] == f"{score:.4g}"
    assert [line[:3].strip() for line in lines[1:]] == ["böb", "", "ann", ""]
    rows = table(run(*command).out)  # not a terminal
    assert rows["title"].to_list() == names
    lists = json.loads(run(*command, "--format", "json").out)
    assert [entry["title"] for one in lists for entry in one["list"]] == names
    near = run("similar", home / "model", "i1", "--n", "1", "--titles", titles).out
    assert near.splitlines()[0] == "item,similar,title,rank,cosine"


def test_titles_in_parquet_and_faults_of_titles(home, titles, tmp_path, monkeypatch):
    monkeypatch.setattr("mfauc_jax.serving.export.BLOCK", 5)
    command = ("recommend", home / "model", "--n", "2", "--titles")
    assert run(*command, titles, "--out", tmp_path / "a.parquet").code == 0
    found = pl.read_parquet(tmp_path / "a.parquet")
    assert found.columns == ["user", "item", "title", "rank", "score"]
    assert found.rows() == pl.read_parquet(tmp_path / "a.parquet").rows() and found.height >= 20
    said = fails(*command, titles, "--title_column", "nix")
    assert "no column 'nix' for --title_column: it has item, name, genre" in said
    assert "needs --titles" in fails("recommend", home / "model", "--title_column", "x", code=2)
    assert "is the file that is read for titles" in fails(*command, titles, "--out", titles, code=2)


def test_on_a_terminal_lists_are_a_table():
    args = cli.parser().parse_args(["recommend", "m"])
    with mock.patch.object(sys.stdout, "isatty", lambda: True, create=True):
        assert cli.lists.form(args) == "table"
    with mock.patch.object(sys.stdout, "isatty", lambda: False, create=True):
        assert cli.lists.form(args) == "csv"


@pytest.mark.parametrize("flag", ["--with-seen", "--with_seen"])
def test_hyphens_are_underscores_in_options_but_not_in_values(home, flag):
    ran = run("recommend", home / "model", "one", "--n=99", flag, "--no-cache")
    assert ran.code == 0 and table(ran.out).height == 9
    assert "-5" in run("recommend", home / "model", "--", "-5").out
    odd = fails("recommend", home / "model", "--", "--with-seen")
    assert "unknown user '--with-seen'" in odd
    args = cli.parser().parse_args(["fit", "r", "--out=a-b", "--user-column=c-d", "--help-all"][:4])
    assert (args.out, args.user_column) == ("a-b", "c-d")


def test_metrics_and_sizes_come_as_csv_too(home):
    command = ("evaluate", home / "model", home / "test.csv", "--at", "2", "--format")
    facts = json.loads(run(*command, "json").out)
    rows = dict(csv.reader(io.StringIO(run(*command, "csv").out)))
    assert rows.pop("name") == "value" and rows.keys() == facts.keys()
    assert float(rows["auc"]) == pytest.approx(facts["auc"], rel=1e-5)
    described = run("data", "describe", home / "train.csv", "--format", "csv").out
    assert dict(csv.reader(io.StringIO(described)))["positives_of_user.least"] == "1"


# --- explore ---


def test_explore_writes_a_page_with_titles_and_held_out_positives(home, titles, tmp_path):
    page = tmp_path / "page.html"
    told = ("--titles", titles, "--user", "böb", "--users", "3", "--out", page)
    ran = run("explore", home / "model", home / "test.csv", *told)
    assert ran.code == 0 and "MB: open it in a browser" in ran.err
    text = page.read_text("utf-8")
    shown = json.loads(text.split('id="contents">')[1].split("</script>")[0])
    assert shown["users"]["ids"][0] == "böb" and shown["users"]["count"] == 3
    assert "The 1th" in shown["items"]["titles"] and shown["items"]["categories"][:2] == [
        "G0",
        "G1",
    ]
    assert shown["quality"]["users"] > 0 and shown["name"] == str(home / "model")
    bare = run("explore", home / "model", "--out", tmp_path / "b.html", "--name", "shop")
    assert bare.code == 0 and '"name":"shop"' in (tmp_path / "b.html").read_text("utf-8")
    for wrong, why, code in (
        (("--out", tmp_path / "p.pdf"), "must end in .html", 2),
        (("--out", page, "--user", "nil"), "unknown user 'nil': the users of", 1),
        (("--out", page, "--category_column", "x"), "needs --titles", 2),
    ):
        assert why in fails("explore", home / "model", *wrong, code=code)
    assert "were in training" in fails("explore", home / "model", home / "train.csv", "--out", page)


# --- progress and logging ---


def test_without_a_terminal_a_line_of_the_log_tells_the_metric_first(caplog, monkeypatch):
    X = data.splits.hold_out(0, toy(), per_user=1)
    monkeypatch.setattr(loop, "EVERY", 0.0)
    with caplog.at_level(logging.INFO, logger="mfauc_jax"):
        MFAUC(rank=2, solver=Alternating(2)).fit(X[0], X[1], watch=Watch(metric="ndcg@5"))
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("fit: ")]
    assert len(lines) == 2 and lines[1].startswith("fit: ndcg@5 ")
    assert "iteration 2 of 2" in lines[1]
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="mfauc_jax"):
        MFAUC(rank=2, solver=Alternating(2)).fit(X[0], progress=False)
    monkeypatch.setattr(loop, "EVERY", 1e9)
    with caplog.at_level(logging.INFO, logger="mfauc_jax"):
        MFAUC(rank=2, solver=Alternating(2)).fit(X[0])
    assert not [r for r in caplog.records if r.getMessage().startswith("fit: ")]


def test_the_bar_has_the_metric_before_the_rest(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    bar = loop.Progress(4, 0, None, "auc")
    bar.update({"iteration": 1, "step_size": 0.25, "auc": 0.91234, "f1@5": 0.5, "seconds": 1.0})
    bar._bar.refresh()
    shown = screen.getvalue().split("\r")[-1]
    bar.close()
    assert shown.startswith("fit, auc 0.9123:") and shown.rstrip("\x1b[A ").endswith(
        "step_size 0.25]"
    )


def toy():
    rng = np.random.default_rng(0)
    return data.interactions.Interactions.of(rng.random((12, 9)) < 0.5)


# --- no home ---


def test_without_a_home_and_with_a_library_that_cannot_be_written_it_works_and_is_quiet(
    home, tmp_path
):
    env = {
        k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR")
    }
    env |= {"HOME": "/proc/none", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ("fit", home / "train.csv", "--out", tmp_path / "m", "--plot", tmp_path / "p.png")
    ran = subprocess.run(
        [sys.executable, "-m", "mfauc_jax.cli", *map(str, command), *TINY],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not re.search("note:|cache|atplotlib|/proc/none", ran.stderr), ran.stderr
    assert "wrote" in ran.stderr and (tmp_path / "p.png").exists()


def test_a_cache_that_cannot_be_written_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cli.cache_dir() == tmp_path / "mfauc"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cli.cache_dir() is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(pathlib.Path, "home", mock.Mock(side_effect=RuntimeError("no home")))
    assert cli.cache_dir() is None
