"""Nonsense as settings, for every declared field, by constructor and `set_params`; then a fit of what was accepted."""

import dataclasses
import math
import pathlib
import warnings
from typing import Any

import numpy as np
import optax

import mfauc_jax as mf
from experiments.torture import samples
from experiments.torture.tally import EQUAL, REFUSED, SILENT, Outcome, refusal
from mfauc_jax._core.settings import FAMILIES
from mfauc_jax.training.loop import DivergedError

NONSENSE: tuple[Any, ...] = (
    *(None, True, False, "", "nonsense", "auc", b"x", "nan", "1", (), [], {}, object(), ...),
    *(
        math.nan,
        math.inf,
        -math.inf,
        0,
        1,
        -1,
        2,
        3,
        7,
        0.0,
        -0.0,
        0.5,
        1.5,
        -1.5,
        1e-30,
        1e-6,
        1e3,
    ),
    *(1e6, 1e12, 1e30, 1e308, -1e308, 2**31 - 1, 2**31, 2**63, 10**40, 1 + 2j, (1.0, 0.5), (1.0,)),
    *(np.float32(0.3), np.int64(3), np.array(0.2), np.array([1.0, 2.0]), np.nan * np.ones(3)),
    *(np.datetime64("2020-01-01"), np.bool_(True), range(3), {1, 2}, math.sin, len, lambda: 0),
    *(lambda x: x, lambda x: math.nan * x, lambda x, y: x, type, int, mf.Weights(), mf.Fixed()),
    *(mf.Alternating(), mf.Watch(), "svd", "minibatch", "logistic", "tanh", "\0", "x" * 10_000),
    *(optax.sgd, optax.adam, optax.adam(0.1)),
)
HEAVY = 512  # larger sizes and counts are accepted, but not fitted here: they are slow, not wrong


FREE = ("seed", "start", "since", "every", "keep")  # numbers that cost nothing


def count(quick: bool) -> int:
    return 250 if quick else 5_000


def prepare(home: pathlib.Path) -> Any:
    """Every class with its fields, and the data."""
    del home
    classes = [
        mf.MFAUC,
        *(cls for cls in FAMILIES if not getattr(cls, "abstract", False) and cls.specs()),
    ]
    fields = [(cls, name) for cls in classes for name in cls.specs()]
    return fields, samples.matrix()


def attempt(bench: Any, seed: int, case: int) -> Outcome:
    """Give one field a value, by one of two doors; fit a model with it if it was accepted."""
    fields, X = bench
    rng = np.random.default_rng([seed, case])
    cls, name = fields[case % len(fields)]
    value: Any = NONSENSE[int(rng.integers(len(NONSENSE)))] if rng.random() < 0.8 else drawn(rng)
    detail = f"{cls.__name__}({name}={_short(value)})"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = _base(cls).replace(**{name: value}) if cls is not mf.MFAUC else None
            if made is None and rng.random() < 0.5:
                made = mf.MFAUC(**{name: value})
            made = made or mf.MFAUC().set_params(**{name: value})
    except BaseException as error:
        outcome = refusal(error, name)
        return Outcome(outcome.what, f"{detail}: {outcome.detail}")
    outcome = fitted(made, X)
    return Outcome(outcome.what, f"{detail}: {outcome.detail}")


def drawn(rng: np.random.Generator) -> float | int:
    """A random number of any size."""
    number = float(rng.choice([-1, 1])) * 10 ** rng.uniform(-12, 12)
    return number if rng.random() < 0.5 else int(number)


def _base(cls: Any) -> Any:
    return cls("folder") if cls is mf.Checkpoints else cls()


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) < 60 else f"{shown[:60]}…"


def model_with(part: Any) -> tuple[mf.MFAUC, dict[str, Any]]:
    """A model that uses an object of settings, and the options of `fit` that use it."""
    if isinstance(part, mf.MFAUC):
        return part, {}
    if isinstance(part, mf.Watch):
        X = samples.matrix()
        return mf.MFAUC(rank=2), {"watch": part, "validation": samples.held_out(X)}
    if isinstance(part, mf.Averaging):
        return mf.MFAUC(rank=2, loss="logistic", solver=mf.Minibatch(3, batch=8, average=part)), {}
    if isinstance(part, mf.Checkpoints):
        return mf.MFAUC(rank=2), {}
    if isinstance(part, mf.Sequential):
        return mf.MFAUC.paper(rank=2, solver=part), {}
    spec = mf.MFAUC.specs()
    field = next(n for n, s in spec.items() if s.base is not None and isinstance(part, s.base))
    others: dict[str, Any] = {"rank": 2}
    if field == "solver":
        others["loss"] = "square" if isinstance(part, mf.Alternating) else "logistic"
    if field in ("loss", "weighting"):
        others["solver"] = mf.Minibatch(3, batch=8)
    if field == "weighting":
        others["loss"] = "logistic"
    others[field] = part
    return mf.MFAUC(**others), {}


def _is_heavy(part: Any) -> bool:
    """Whether a size makes the program slow or large, which is the caller's right."""
    for name, spec in part.specs().items():
        value = getattr(part, name)
        if spec.kind in ("size", "count") and name not in FREE and (value or 0) > HEAVY:
            return True
        if dataclasses.is_dataclass(value) and hasattr(value, "specs") and _is_heavy(value):
            return True
    return False


def fitted(made: Any, X: np.ndarray) -> Outcome:
    """How a fit with accepted settings ends: finite factors that rank, or an error, or a warning."""
    if _is_heavy(made):
        return Outcome(EQUAL, "accepted, too large to fit here")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model, options = model_with(made)
            model = model.with_params().fit(X, callbacks=[lambda s, *_: s >= 3], **options)
    except DivergedError as error:
        return Outcome(REFUSED, str(error))
    except BaseException as error:
        outcome = refusal(error)
        return Outcome(outcome.what, f"fit: {outcome.detail}")
    return judged(model.user_factors_, model.item_factors_, [str(w.message) for w in said])


def judged(U: np.ndarray, V: np.ndarray, said: list[str]) -> Outcome:
    """Whether factors are finite and rank items; constant scores need a warning."""
    if not (np.isfinite(U).all() and np.isfinite(V).all()):
        return Outcome(SILENT, "factors that are not finite")
    with np.errstate(all="ignore"):
        scores = U @ V.T
    if not np.isfinite(scores).all():
        return Outcome(SILENT, "scores that are not finite")
    spread = np.ptp(scores, axis=1).max() if scores.size else 0.0
    if spread <= 1e-12 * max(np.abs(scores).max(), 1e-30) and not said:
        return Outcome(SILENT, "every item has the same score, without a word")
    return Outcome(EQUAL)
