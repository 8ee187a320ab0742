"""The `mfauc` command under faults and nonsense: full disks, closed pipes, random words and files."""

import contextlib
import errno
import functools
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

import polars as pl
from command import TINY, fails, home, no_fit, run, untouched_jax  # noqa: F401
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mfauc_jax import cli
from mfauc_jax.data import layouts
from mfauc_jax.model import MFAUC

# --- faults ---


def test_no_output_replaces_another_one_or_an_input(home, tmp_path):
    """Every command, before it reads or writes: it kills a check that a command forgot."""
    model, train, test = (tmp_path / name for name in ("m", "train.csv", "test.csv"))
    for path, name in ((model, "model"), (train, "train.csv"), (test, "test.csv")):
        shutil.copy(home / name, path)
    ids = tmp_path / "ids.txt"
    ids.write_text("ann\n")
    params = tmp_path / "p.json"
    params.write_text("{}")
    link = tmp_path / "link"
    link.symlink_to(model)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    picture, folder = tmp_path / "a.png", tmp_path / "x.csv"
    refused = [
        (("fit", train, "--out", train), "is the file that is read"),
        (("fit", train, "--out", picture, "--plot", picture), "are the same file"),
        (("fit", train, "--out", params, "--params", params), "is the file that is read by --par"),
        (("fit", tmp_path / "tr*.csv", "--out", train), "is the file that is read"),
        (("select", train, "--grid", "rank=2,3", "--out", train), "is the file that is read"),
        (("evaluate", model, test, "--out", model), "is the file that is the model"),
        (("evaluate", model, test, "--out", link), "is the file that is the model"),
        (("evaluate", model, test, "--out", test), "is the file that is read"),
        (("evaluate", model, test, "--out", picture, "--plot", picture), "are the same file"),
        (("certify", model, test, "--out", model), "is the file that is the model"),
        (("recommend", model, "--out", model), "is the file that is the model"),
        (("recommend", model, "--users_file", ids, "--out", ids), "is the file that is read for"),
        (("similar", model, "--out", model), "is the file that is the model"),
        (
            ("data", "split", train, "--train", folder, "--test", tmp_path / "X.csv"),
            "the same file",
        ),
    ]
    for words, said in refused:
        assert said in fails(*words, code=2), words
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    both = ("--train", folder, "--test", tmp_path / "y.csv")
    assert run("data", "split", train, "--quiet", *both).code == 0
    (tmp_path / "X.csv").write_text("another file, whose name differs in case")
    assert run("data", "split", train, "--train", folder, "--test", tmp_path / "X.csv").code == 0


FORMULAS = ["=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-2+3", "\t=1", "＝1"]
PLAIN = ["-5", "+5.5", "a=b", "ann", "'=1"]


def test_formulas_are_told_or_escaped_and_ids_go_round(tmp_path):
    """The file has the ids as they are, so that our own reader finds them; a flag makes it safe for a spreadsheet."""
    users = [*FORMULAS, *PLAIN]
    likes = pl.DataFrame({"user": users, "item": [f"i{j}" for j in range(len(users))]})
    likes.write_csv(tmp_path / "a.csv")
    with mock.patch.object(MFAUC, "fit", no_fit):
        assert run("fit", tmp_path / "a.csv", "--quiet", "--out", tmp_path / "m").code == 0
    out = ("--out", tmp_path / "lists.csv", "--n", 2)
    ran = run("recommend", tmp_path / "m", *out)
    assert ran.code == 0 and f"{2 * len(FORMULAS)} cells begin with = + - @" in ran.err
    found = pl.read_csv(tmp_path / "lists.csv", infer_schema=False)
    assert set(found["user"]) == set(users)
    ran = run("recommend", tmp_path / "m", *out, "--escape_formulas")
    assert ran.code == 0 and "cells begin" not in ran.err
    found = pl.read_csv(tmp_path / "lists.csv", infer_schema=False)
    assert set(found["user"]) == {*PLAIN, *("'" + one for one in FORMULAS)}
    assert found["item"].str.starts_with("i").all()
    halves = ("--train", tmp_path / "b.csv", "--test", tmp_path / "c.csv")
    both = pl.concat([likes, likes.with_columns(item=pl.lit("z"))])
    both.write_csv(tmp_path / "a.csv")
    ran = run("data", "split", tmp_path / "a.csv", *halves, "--per_user", 1)
    assert ran.code == 0 and f"{tmp_path / 'b.csv'}: {len(FORMULAS)} cells begin" in ran.err
    assert set(pl.read_csv(tmp_path / "b.csv", infer_schema=False)["user"]) == set(users)


def test_a_full_disk_leaves_the_old_file(home, tmp_path):
    target = tmp_path / "a.csv"
    target.write_text("old")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch.object(pl.DataFrame, "write_csv", side_effect=full):
        assert "No space left" in fails("recommend", home / "model", "ann", "--out", target)
    shutil.copy(home / "model", tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        said = fails("fit", home / "train.csv", "--quiet", "--out", tmp_path / "m", *TINY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot write" in said and (tmp_path / "m").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "m"]
    assert target.read_text() == "old"


def test_debug_shows_where(home):
    ran = run("recommend", home / "model", "nobody", "--debug")
    assert ran.code == 1 and "Traceback" in ran.err and "unknown user 'nobody'" in ran.err
    with mock.patch.object(MFAUC, "load", side_effect=KeyError("oops")):
        ran = run("recommend", home / "model", "ann")
    assert ran.code == 1 and "internal error, KeyError: 'oops' (--debug tells where)" in ran.err


def test_as_a_process_it_caches_programs_and_a_closed_pipe_is_silent(home, tmp_path):
    words = [sys.executable, "-m", "mfauc_jax.cli", "recommend", str(home / "model"), "--n", "9"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "COLUMNS": "80"}
    command = " ".join(f"'{word}'" for word in words)
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true; echo $?"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert (ran.stdout, ran.stderr) == ("0\n", "")
    judged = [*words[:3], "evaluate", str(home / "model"), str(home / "test.csv")]
    subprocess.run(judged, env=environment, capture_output=True, check=True, timeout=120)
    assert list((tmp_path / "mfauc").iterdir())


# --- fuzz ---

NAMES = [ending.lstrip(".") if "." not in ending[1:] else ending for ending, _ in layouts.ENDINGS]
FILES = ["ratings.csv", "model", "missing", "folder", "empty.csv", "noise.csv", "new", "new.csv"]
WORDS = [
    *FILES,
    "ann",
    "nobody",
    "日本",
    "\udcff",
    "",
    "-",
    "--",
    "0",
    "1",
    "-1",
    "2",
    "1e309",
    "nan",
    "none",
    "9" * 40,
    "strength=0.1,1",
    "rank=x",
    "=",
    "csv",
    "json",
    "parquet",
    "square",
    "tanh",
    "held_out_all",
    "ml-100k",
    "utf-16",
    "user",
    "true",
    "a\0b",
]


@functools.cache
def flags() -> list[str]:
    found, left = set(), [cli.parser()]
    while left:
        for action in left.pop()._actions:
            found |= set(action.option_strings)
            if isinstance(action.choices, dict) and action.nargs == "A...":
                left += action.choices.values()
    return sorted(found)


COMMANDS = [
    ["fit"],
    ["select"],
    ["recommend"],
    ["similar"],
    ["evaluate"],
    ["certify"],
    ["data", "list"],
    ["data", "download"],
    ["data", "describe"],
    ["data", "split"],
]
PREFIX = {
    "fit": ["ratings.csv", "--out", "new"],
    "select": ["ratings.csv", "--grid", "strength=1,2"],
    "recommend": ["model"],
    "similar": ["model"],
    "evaluate": ["model", "ratings.csv"],
    "certify": ["model", "ratings.csv"],
    "describe": ["ratings.csv"],
    "split": ["ratings.csv", "--train", "new.csv", "--test", "new2.csv"],
}


@st.composite
def command_lines(draw):
    words = draw(st.sampled_from(COMMANDS))
    words = words + (PREFIX.get(words[-1], []) if draw(st.booleans()) else [])
    option = st.tuples(st.sampled_from(flags()), st.sampled_from(WORDS)).map(list)
    bare = st.sampled_from([*WORDS, *flags()]).map(lambda word: [word])
    for part in draw(
        st.lists(
            st.one_of(option, option, bare, st.text(max_size=5).map(lambda t: [t])), max_size=5
        )
    ):
        words = words + part
    return words


@settings(max_examples=80)
@given(words=command_lines())
def test_no_arguments_lead_to_a_traceback_or_a_partial_file(home, words):
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        here = pathlib.Path(name)
        for file in ("ratings.csv", "model"):
            shutil.copy(home / file, here / file)
        (here / "folder").mkdir()
        (here / "empty.csv").touch()
        (here / "noise.csv").write_bytes(bytes(range(256)))
        before = {path.name: path.is_file() and path.read_bytes() for path in here.iterdir()}
        with (
            mock.patch.object(MFAUC, "fit", no_fit),
            mock.patch(
                "mfauc_jax.training.selection.select", side_effect=ArithmeticError("all diverged")
            ),
            mock.patch("mfauc_jax.data.download", side_effect=ConnectionError("no network")),
        ):
            ran = run(*words, stdin="ann\n")
        assert ran.code in (0, 1, 2), words
        assert "Traceback" not in ran.err or "--debug" in words
        assert "internal error" not in ran.err, ran.err
        after = {path.name: path.is_file() and path.read_bytes() for path in here.iterdir()}
        assert not [file for file in after if file.startswith(".")]
        if ran.code != 0:
            assert ran.err and after == before


LINES = st.lists(
    st.lists(
        st.sampled_from(
            [
                "1",
                "2",
                "user",
                "item",
                "rating",
                "x",
                "",
                "3.5",
                "nan",
                "1e400",
                '"',
                '"a"',
                "é",
                "user_id:token",
                "item_id:float",
                "9" * 30,
                "-0",
                "007",
                "2007-10-10",
                "\0",
                "\r",
            ]
        ),
        min_size=1,
        max_size=5,
    ),
    max_size=6,
)
CONTENT = st.one_of(
    st.binary(max_size=60),
    st.tuples(LINES, st.sampled_from([",", "\t", "::", ";", '";"', " "])).map(
        lambda t: "\n".join(t[1].join(line) for line in t[0]).encode()
    ),
    st.sampled_from(
        ["user,item,rating\n", "user\titem\n", "user_id:token\titem_id:token\n"]
    ).flatmap(
        lambda head: st.text(max_size=40).map(
            lambda tail: (head + tail).encode("utf-8", "surrogatepass")
        )
    ),
)


@settings(max_examples=100)
@given(content=CONTENT, name=st.sampled_from([f"x.{n}" if "." not in n else n for n in NAMES]))
@example(content=b"user,item\r1,2\r", name="x.csv")
@example(content=b'user,item\n1,"2\n3,4', name="x.csv")
def test_no_file_of_ratings_leads_to_a_traceback(content, name):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, name)
        path.write_bytes(content)
        ran = run("data", "describe", path)
        assert ran.code in (0, 1) and (ran.code == 0) == bool(ran.out)
        assert "Traceback" not in ran.err and "internal error" not in ran.err, ran.err
