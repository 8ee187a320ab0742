"""Ten changes, and how few rooms each touches: what is added at run time walks through every door."""

import importlib.util
import io
import pathlib
from contextlib import redirect_stderr, redirect_stdout
from typing import ClassVar
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest

import mfauc_jax as mf
from mfauc_jax import cli, losses
from mfauc_jax._core import settings
from mfauc_jax._core.fields import count, number
from mfauc_jax.evaluation import formulas
from mfauc_jax.objective import penalties
from mfauc_jax.solvers import SOLVERS, base

ROOT = pathlib.Path(__file__).parent.parent
LIKED = np.random.default_rng(3).random((24, 18)) < 0.35


@pytest.fixture(autouse=True)
def as_it_was():
    """The registries after a test are those before it."""
    registries = (losses.LOSSES, SOLVERS, formulas.METRICS, penalties.PENALTIES)
    before, families = [dict(r) for r in registries], list(settings.FAMILIES)
    with mock.patch.object(cli, "_set_up_jax"):
        yield
    for registry, kept in zip(registries, before, strict=True):
        registry.clear()
        registry.update(kept)
    settings.FAMILIES[:] = families


@pytest.fixture
def ratings(tmp_path):
    path = tmp_path / "likes.csv"
    pairs = [f"u{i},v{j}" for i, j in zip(*np.nonzero(LIKED), strict=True)]
    path.write_text("\n".join(["user,item", *pairs]) + "\n")
    return path


def command(*words) -> str:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main([str(word) for word in words])
    assert code == 0, err.getvalue()
    return out.getvalue()


def docs():
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_loss_is_its_function(ratings, tmp_path):
    def soft(x, beta=1.0):
        """A toy: softplus with another slope."""
        return jnp.logaddexp(0.0, -beta * x)

    losses.LOSSES["soft"] = soft
    train = mf.Interactions.of(LIKED.astype(float))
    by_name = mf.MFAUC(rank=2, loss="soft", solver=mf.Minibatch(2)).fit(train)
    logistic = mf.MFAUC(rank=2, loss="logistic", solver=mf.Minibatch(2)).fit(train)
    np.testing.assert_allclose(by_name.user_factors_, logistic.user_factors_, rtol=1e-6)
    steep = mf.MFAUC(rank=2, loss="soft").set_params(loss__beta=2.0)
    assert steep.loss.beta == 2.0
    grid = {"loss__beta": [0.5, 2.0]}
    found = mf.selection.select(0, by_name, train, grid, splits=1, per_user=1, progress=False)
    assert found.best["loss__beta"] in (0.5, 2.0)
    out = ("--out", tmp_path / "m", "--rank", 2, "--iterations", 2, "--solver", "minibatch")
    command("fit", ratings, *out, "--loss", "soft", "--quiet")
    assert mf.MFAUC.load(tmp_path / "m").loss.name == "soft"
    assert "soft" in command("fit", "--help")
    assert set(losses.PAPER_LOSSES) == {"square_hinge", "square", "sigmoid", "logistic"}


def test_a_loss_in_the_library_is_a_class_with_its_numbers(ratings, tmp_path):
    class Shifted(losses.Loss):
        """exp(−βx), a toy."""

        beta: float = number(1.0, above=0, help="β")
        shift: float = number(0.0, least=0, help="a toy number")

        def __call__(self, x):
            return jnp.exp(-self.beta * jnp.clip(x, -10, 10)) + self.shift

    out = ("--out", tmp_path / "m", "--rank", 2, "--iterations", 2)
    flags = ("--loss", "shifted", "--beta", 0.5, "--shift", 0.25)
    command("fit", ratings, *out, *flags, "--quiet")
    assert mf.MFAUC.load(tmp_path / "m").loss == Shifted(beta=0.5, shift=0.25)
    assert "| `shift` | `0.0` |" in docs().settings("parts")
    with pytest.raises(ValueError, match=r"Shifted: shift = -1 must be .* ≥ 0"):
        Shifted(shift=-1)


def test_a_metric_is_its_formula(ratings, tmp_path):
    @formulas.metric
    def first_place(counts, size):
        """A toy: whether the best of the list is held out, whatever its length."""
        del size
        return (np.minimum.reduceat(counts.place, counts.starts) == 0).astype(float)

    train, test = mf.data.splits.hold_out(
        mf._core.host.keys(0, 1)[0], mf.Interactions.of(LIKED.astype(float)), 2
    )
    model = mf.MFAUC(rank=2, loss="logistic", solver=mf.Minibatch(3))
    model.fit(train, test, watch=mf.Watch(metric="first_place@4", patience=2))
    assert {"first_place@4", "first_place@1"} <= model.history_[-1].keys()
    found = mf.evaluate(model, train, test, at=(1,), intervals="normal")
    assert found["first_place@1"] == found["precision@1"]
    grid = {"solver__learning_rate": [0.1, 0.3]}
    options = {"splits": 1, "per_user": 1, "criterion": "first_place@2", "progress": False}
    assert mf.selection.select(0, model, train, grid, **options).criterion == "first_place@2"
    split = ("--train", tmp_path / "a.csv", "--test", tmp_path / "b.csv", "--per_user", 1)
    command("data", "split", ratings, *split, "--quiet")
    command("fit", tmp_path / "a.csv", "--out", tmp_path / "m", "--rank", 2, "--quiet")
    assert "first_place" in command("evaluate", tmp_path / "m", tmp_path / "b.csv", "--quiet")
    assert "first_place@ℓ" in docs().metrics()


def test_a_solver_is_its_class_and_a_parameter_its_field(ratings, tmp_path):
    class Shrinking(base.Solver):
        """A toy: multiplies the factors."""

        steps_seen: ClassVar[list] = []
        iterations: int = count(3, least=1, help="T")
        ratio: float = number(0.5, above=0, most=1, help="what the factors are multiplied by")

        def prepare(self, problem):
            return problem.X

        def step(self, objective, key, state, data):
            self.steps_seen.append(1)
            factors = mf.Factors(*(self.ratio * F for F in state.factors))
            after = state._replace(factors=factors, average=factors, iteration=state.iteration + 1)
            return after, base.change(state.factors, factors)

    train = mf.Interactions.of(LIKED.astype(float))
    start = mf.MFAUC(rank=2, solver=Shrinking(1, ratio=1.0)).fit(train).user_factors_
    shrunk = mf.MFAUC(rank=2, solver="shrinking").fit(train).user_factors_
    np.testing.assert_allclose(shrunk, start / 8, rtol=1e-6)
    traces = len(Shrinking.steps_seen)
    mf.MFAUC(rank=2, solver=Shrinking(2, ratio=0.9)).fit(train)
    assert len(Shrinking.steps_seen) == traces  # another number and T: not compiled again
    grid = {"solver__ratio": [0.2, 0.9]}
    model = mf.MFAUC(rank=2, solver="shrinking")
    found = mf.selection.select(0, model, train, grid, splits=1, per_user=1, progress=False)
    assert found.best["solver__ratio"] in (0.2, 0.9)
    assert len(Shrinking.steps_seen) == traces + 1  # the whole grid is one program
    out = ("--out", tmp_path / "m", "--rank", 2, "--solver", "shrinking", "--ratio", 0.25)
    command("fit", ratings, *out, "--quiet")
    assert mf.MFAUC.load(tmp_path / "m").solver == Shrinking(ratio=0.25)
    assert "--ratio" in command("fit", "--help")
    assert "| `ratio` | `0.5` | a finite number > 0 and ≤ 1 |" in docs().settings("parts")
    with pytest.raises(ValueError, match="ratio = 2"):
        Shrinking(ratio=2)


def test_a_rule_for_the_penalties_is_its_class(ratings, tmp_path):
    class Constant(penalties.Penalty):
        """A toy: one λ for users, another for items."""

        user: float = number(0.1, least=0, help="λ of users", swept=False)
        item: float = number(0.2, least=0, help="λ of items", swept=False)

        def of(self, X, weights, new=None):
            return penalties.Strengths(penalties.Reg(self.user, self.item), 0.0)

    command(
        "fit",
        ratings,
        "--out",
        tmp_path / "m",
        "--rank",
        2,
        "--penalty",
        "constant",
        "--user",
        0.3,
        "--quiet",
    )
    model = mf.MFAUC.load(tmp_path / "m")
    assert model.penalty == Constant(user=0.3)
    assert model.problem(model.train_).objective.reg == penalties.Reg(0.3, 0.2)
