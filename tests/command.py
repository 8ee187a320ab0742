"""The `mfauc` command as its tests call it: a home with ratings and a model, and `run`."""

import contextlib
import functools
import io
import sys
from unittest import mock

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from mfauc_jax import cli
from mfauc_jax._core.factors import Factors
from mfauc_jax.training.loop import Fitted

USERS = ["ann", "böb", "日本", "9" * 30, "a,b", "-5", 'q"q', "u7", "u8", "u9", "all", "one"]
ITEMS = [f"i{j}" for j in range(8)] + ["naïve ☕"]
TINY = ("--rank", "2", "--iterations", "2")


def ratings() -> pl.DataFrame:
    """Twelve users with odd names, nine items; `all` likes everything, `one` a single item."""
    liked = np.random.default_rng(0).random((12, 9)) < 0.5
    liked[:, :3] |= np.eye(12, 3, dtype=bool) | np.eye(12, 3, -3, dtype=bool)
    liked[10], liked[11] = True, np.arange(9) == 4
    users, items = np.nonzero(liked)
    stars = np.where((users + items) % 4 == 0, 2, 5)
    return pl.DataFrame(
        {"user": [USERS[i] for i in users], "item": [ITEMS[j] for j in items], "stars": stars}
    )


@pytest.fixture(scope="module", autouse=True)
def untouched_jax():
    """The command sets JAX up for a process of its own; here it shares one, and so its parser."""
    once = functools.cache(cli.parser)
    with mock.patch.object(cli, "_set_up_jax"), mock.patch.object(cli, "parser", once):
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """ratings.csv, its split into train.csv and test.csv, and a model of train.csv."""
    folder = tmp_path_factory.mktemp("cli")
    ratings().write_csv(folder / "ratings.csv")
    split = ("--train", folder / "train.csv", "--test", folder / "test.csv", "--per_user", 1)
    assert run("data", "split", folder / "ratings.csv", *split).code == 0
    assert run("fit", folder / "train.csv", "--out", folder / "model", *TINY).code == 0
    return folder


class Ran:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


def run(*argv, stdin="") -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "stdin", io.StringIO(stdin)),
    ):
        code = cli.main([str(word) for word in argv])
    return Ran(code, out.getvalue(), err.getvalue())


def fails(*argv, code=1) -> str:
    """The one-line message of a command that fails without a traceback."""
    ran = run(*argv)
    assert ran.code == code, ran.err
    assert ran.out == "" and "Traceback" not in ran.err and "internal error" not in ran.err
    assert ran.err.startswith("mfauc")
    return ran.err


def table(text: str) -> pl.DataFrame:
    return pl.read_csv(io.StringIO(text), schema_overrides={"user": pl.String})


def no_fit(model, X, validation=None, **options):
    """As `MFAUC.fit` ends, without the work: for tests of what comes before and after."""
    del validation, options
    rank = min(max(model.rank, 1), 3)
    factors = Factors(jnp.ones((X.num_users, rank)), jnp.ones((X.num_items, rank)))
    model._keep(X, Fitted(factors, [{"iteration": 1, "auc": 0.5}], "iterations"))
    return model
