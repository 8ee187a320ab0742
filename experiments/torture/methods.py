"""Nonsense as arguments of methods and functions: a clear refusal, or a sound answer."""

import math
import pathlib
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse

import mfauc_jax as mf
from experiments.torture import samples
from experiments.torture.tally import EQUAL, SILENT, Outcome, refusal
from mfauc_jax.data import splits

NAN = math.nan


def count(quick: bool) -> int:
    return 800 if quick else 4_000


class Bench:
    """A fitted model with ids and one without, held-out positives for each, and a folder."""

    def __init__(self, home: pathlib.Path) -> None:
        """Fit the models."""
        self.folder = home / "methods"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.named, self.plain = samples.fitted(), samples.fitted(ids=False)
        self.X = samples.matrix()
        self.held_out = samples.held_out(self.X)
        self.values = self._values()
        self.calls = self._calls()

    def _values(self) -> list[Any]:
        """Nonsense, and some sense."""
        X, users = self.X, np.arange(5)
        frame = pl.DataFrame({"user": ["ü1", "ü2"], "item": [101, 999]})
        return [
            *(
                None,
                True,
                0,
                1,
                5,
                -1,
                23,
                24,
                2**31,
                2**63,
                10**30,
                0.5,
                NAN,
                math.inf,
                1j,
                "",
                "ü1",
                "\0",
            ),
            *(
                b"x",
                "nobody",
                [],
                [[]],
                [0],
                [0, 0],
                [0, "ü1"],
                [None],
                [NAN],
                [[0, 1], [2, 3]],
                (),
                {},
                {1},
            ),
            *(
                object(),
                ...,
                len,
                range(3),
                users,
                users.astype(float),
                users.astype(np.uint8),
                users[:0],
            ),
            *(
                users.astype("datetime64[s]"),
                users.astype(bool),
                users.astype(complex),
                np.array(3),
            ),
            *(np.array(["ü1", "ü2"]), np.array(["ü1"], object), np.array([b"x"]), np.array([NAN])),
            *(
                X,
                X[:, :3],
                X[:3],
                -X,
                X * NAN,
                X.astype(bool),
                X[None],
                X[:0],
                X[:, :0],
                X * 0,
                X * 0 + 1,
            ),
            *(scipy.sparse.csr_array(X), scipy.sparse.coo_array(X), scipy.sparse.csr_array((3, 3))),
            *(
                frame,
                frame[:0],
                frame["user"],
                frame.to_dict(as_series=False),
                (users, users),
                (users, users[:2]),
            ),
            *(
                ([], []),
                (["a", None], [1, 2]),
                mf.Interactions.of(X),
                self.held_out,
                "raise",
                "skip",
                "popular",
            ),
            *(
                self.folder,
                self.folder / "x" / "y",
                "/nowhere/at/all",
                "/dev/null/x",
                self.plain,
                self.named,
            ),
        ]

    def _calls(self) -> dict[str, tuple[Callable, int]]:
        """Calls by name, each with the number of values that it takes."""
        two = {"named": self.named, "plain": self.plain}
        found: dict[str, tuple[Callable, int]] = {}
        for name, m in two.items():
            one = "ü1" if name == "named" else 1
            held = self.held_out
            found |= {
                f"{name}.recommend": (lambda a, m=m: m.recommend(a), 1),
                f"{name}.recommend n": (lambda a, m=m, o=one: m.recommend(o, a), 1),
                f"{name}.recommend both": (lambda a, b, m=m: m.recommend(a, b), 2),
                f"{name}.recommend filter_items": (
                    lambda a, m=m, o=one: m.recommend(o, filter_items=a),
                    1,
                ),
                f"{name}.recommend allow_items": (
                    lambda a, m=m, o=one: m.recommend(o, allow_items=a),
                    1,
                ),
                f"{name}.recommend unknown": (lambda a, b, m=m: m.recommend(a, unknown=b), 2),
                f"{name}.recommend popular": (lambda a, m=m: m.recommend(a, unknown="popular"), 1),
                f"{name}.recommend skip": (lambda a, m=m: m.recommend(a, unknown="skip"), 1),
                f"{name}.similar_items": (lambda a, m=m: m.similar_items(a), 1),
                f"{name}.similar_items both": (lambda a, b, m=m: m.similar_items(a, b), 2),
                f"{name}.predict": (lambda a, b, m=m: m.predict(a, b), 2),
                f"{name}.evaluate": (lambda a, m=m: m.evaluate(a), 1),
                f"{name}.evaluate at": (lambda a, m=m, h=held: m.evaluate(h, at=a), 1),
                f"{name}.certify": (lambda a, m=m: m.certify(a), 1),
                f"{name}.certify delta": (lambda a, m=m, h=held: m.certify(h, a), 1),
                f"{name}.fold_in": (lambda a, m=m: m.fold_in(a), 1),
                f"{name}.partial_fit": (lambda a, m=m: _copy(m).partial_fit(a), 1),
                f"{name}.partial_fit iterations": (
                    lambda a, m=m: _copy(m).partial_fit(self.X, _few(a)),
                    1,
                ),
                f"{name}.save": (lambda a, m=m: m.save(self._path(a)), 1),
                f"{name}.export.table": (lambda a, m=m: mf.export.table(m, self._path(a)), 1),
                f"{name}.export.user_vectors": (lambda a, m=m: mf.export.user_vectors(m, a), 1),
            }
        return found | {
            "fit": (lambda a: mf.MFAUC(rank=2).fit(a), 1),
            "fit validation": (lambda a: mf.MFAUC(rank=2).fit(self.X, a), 1),
            "fit callbacks": (lambda a: mf.MFAUC(rank=2).fit(self.X, callbacks=a), 1),
            "fit checkpoints": (
                lambda a: mf.MFAUC(rank=2).fit(self.X, checkpoints=self._path(a)),
                1,
            ),
            "load": (mf.MFAUC.load, 1),
            "evaluate": (lambda a, b: mf.evaluate(a, b, b), 2),
            "Interactions.of": (mf.Interactions.of, 1),
            "Interactions.from_pairs": (mf.Interactions.from_pairs, 2),
            "hold_out": (lambda a: splits.hold_out(0, self.X, a), 1),
            "hold_out key": (lambda a: splits.hold_out(a, self.X), 1),
            "hold_out X": (lambda a: splits.hold_out(0, a, 1), 1),
            "k_fold": (lambda a: list(splits.k_fold(0, self.X, a)), 1),
            "leave_last_out": (lambda a: splits.leave_last_out(mf.Interactions.of(self.X), a), 1),
            "select grid": (
                lambda a: mf.selection.select(0, self.plain, self.X, {"rank": a}, splits=1),
                1,
            ),
            "select splits": (
                lambda a: mf.selection.select(0, self.plain, self.X, {"rank": [2]}, splits=_few(a)),
                1,
            ),
            "read_ratings": (mf.data.read_ratings, 1),
        }

    def _path(self, value: Any) -> Any:
        """A path that stays in the folder of this bench, or nonsense."""
        return self.folder / value if isinstance(value, str) and value.isalnum() else value


def prepare(home: pathlib.Path) -> Bench:
    return Bench(home)


def _copy(model: mf.MFAUC) -> mf.MFAUC:
    """A model of its own, which may be changed."""
    new = model.with_params()
    new.__dict__.update({k: v for k, v in model.__dict__.items() if k.endswith("_")})
    return new


def _few(value: Any) -> Any:
    """The value, unless it is a large number, which is slow and not wrong."""
    return 2 if isinstance(value, int) and value > 50 else value


def attempt(bench: Bench, seed: int, case: int) -> Outcome:
    """Call something with values that it was not made for."""
    rng = np.random.default_rng([seed, case])
    name = list(bench.calls)[case % len(bench.calls)]
    call, arity = bench.calls[name]
    values = [bench.values[i] for i in rng.integers(len(bench.values), size=arity)]
    shown = f"{name}({', '.join(_shown(v) for v in values)})"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = call(*values)
    except BaseException as error:
        outcome = refusal(error)
        return Outcome(outcome.what, f"{shown}: {outcome.detail}")
    complaint = unsound(answer)
    return Outcome(SILENT, f"{shown}: {complaint}") if complaint else Outcome(EQUAL, shown)


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return f"{type(value).__name__} {text[:50]}"


def unsound(answer: Any) -> str | None:
    """What is wrong with an answer, or None: not-a-number anywhere, or lists that are not sorted."""
    if isinstance(answer, mf.MFAUC):
        answer = {"U": answer.user_factors_, "V": answer.item_factors_}
    if isinstance(answer, mf.Interactions):
        answer = np.asarray(answer.indices)
        return "negative item" if answer.size and answer.min() < 0 else None
    if hasattr(answer, "users") and hasattr(answer, "scores"):
        scores = np.asarray(answer.scores, float)
        if len(scores) != len(answer.users) and scores.ndim == 2:
            return f"{len(scores)} lists for {len(answer.users)} users"
        if np.isnan(scores).any() or (scores[..., :-1] < scores[..., 1:]).any():
            return "scores that are not a number, or not sorted"
        return None
    if isinstance(answer, dict):
        bad = [k for k, v in answer.items() if isinstance(v, np.ndarray | float) and _is_nan(v)]
        return f"{bad[0]} is not a number" if bad else None
    if isinstance(answer, np.ndarray | float) and _is_nan(answer):
        return "not a number"
    return None


def _is_nan(value: Any) -> bool:
    value = np.asarray(value)
    return value.dtype.kind == "f" and value.size > 0 and bool(np.isnan(value).all())
