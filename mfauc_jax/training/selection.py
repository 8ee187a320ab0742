"""Hyper-parameters by held-out positives: splits × grid → the best point, its table and heat map.

Names are those of `MFAUC.get_params`: `rank`, `penalty__reg`, `solver__learning_rate`. Points that share shapes
(λ, α, β, ρ, …) run as one program with one sampling key, see `batched`; each value of the others (rank, loss, …)
is a program of its own. A point whose factors do
not stay finite in some split has criterion nan: it disturbs no other and is never chosen.
"""

import dataclasses
import hashlib
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key
from tqdm import tqdm

from mfauc_jax._core import registry
from mfauc_jax._core.settings import Settings
from mfauc_jax.data import splits as splitting
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.splits import Split
from mfauc_jax.evaluation import formulas
from mfauc_jax.training import batched
from mfauc_jax.training.outcome import MINIMISED, Cells, Selection


def select(
    key: int | Key[Array, ""],
    model: Any,
    X: Any,
    grid: Mapping[str, Any],
    *,
    splits: int | Sequence[Any] = 3,
    per_user: int = 3,
    folds: int | None = None,
    criterion: str | Callable = "f1@5",
    folder: Any = None,
    at_once: int | None = None,
    progress: bool | None = None,
) -> Selection:
    """Fit every point of the grid on every split and choose by the mean of the criterion.

    Each fit is `model.fit(train)` with the point's values: the same start, the same random stream
    (`model.seed`), all its iterations.

    Args:
        key: decides the splits; an integer is a seed.
        model: the base setting, left as it is.
        X: the positives, as for `MFAUC.fit`.
        grid: values to try by name, such as {"penalty__reg": [.1, 1], "rank": [8, 16]}.
        splits: how many random hold-outs, or pairs (train, test) of one's own.
        per_user: positives of each user held out in a random split.
        folds: k, for k folds instead of random hold-outs.
        criterion: a metric such as "ndcg@10" or a function of `counts.Counts`, the largest mean wins; or
            "objective", the exact θ on the training positives, of which the smallest wins.
        folder: where finished cells (a split and a program) are kept; a second call with the same
            arguments repeats none of them, and one with others is refused.
        at_once: grid points in a program; by default as many as memory allows.
        progress: a bar; None shows it on a terminal only.
    """
    X, points = Interactions.of(X), grid_points(model, grid)
    key = jax.random.key(key) if isinstance(key, int) else key
    parts = _splits(key, X, splits, per_user, folds)
    groups = _by_program(model, points)
    cells = [(number, split, group) for number, split in enumerate(parts) for group in groups]
    _check_criterion(criterion)
    kept = Cells(
        folder,
        {
            "model": model.describe(),
            "grid": dict(grid),
            "criterion": formulas.name_of(criterion),
            "data": digest(X),
            "splits": [digest(split.train) for split in parts],
        },
    )
    table = []
    hide = not sys.stderr.isatty() if progress is None else not progress
    for place, (number, split, group) in enumerate(tqdm(cells, desc="select", disable=hide)):
        records = kept.read(place)
        if records is None:
            records = batched.score(model, group, X, split, criterion, at_once=at_once)
            records = [{"split": number, **record} for record in records]
            kept.write(place, records)
        table += [record | point for record, point in zip(records, group, strict=True)]
    return Selection.choose(model, dict(grid), formulas.name_of(criterion), points, table)


def authors_rule(
    key: int | Key[Array, ""],
    model: Any,
    X: Any,
    *,
    learning_rates: Sequence[float] = tuple(2.0**-a for a in range(1, 8)),
    regs: Sequence[float] = tuple(2.0**-a for a in range(10)),
    ranks: Sequence[int] = (64,),
    first_reg: float = 0.01,
    first_rank: int = 64,
    folder: Any = None,
    **options: Any,
) -> Selection:
    """The authors' two stages: α by the training objective, then (k, λ) by F1@5 on hold-3 splits.

    α is the one with the lowest exact θ of all X at λ = .01 and k = 64 (the authors: a sampled θ′).
    The defaults are their grids for the small data sets; `Selection.before` is the first stage.

    Args:
        options: of `select`, for the second stage.
    """
    X = Interactions.of(X)
    at = {name: options[name] for name in ("at_once", "progress") if name in options}
    inside = (lambda name: None) if folder is None else (lambda name: f"{folder}/{name}")
    first = select(
        key,
        model.with_params(rank=first_rank, penalty__reg=first_reg),
        X,
        {"solver__learning_rate": list(learning_rates)},
        splits=[Split(X, _nothing(X))],
        criterion="objective",
        folder=inside("learning_rate"),
        **at,
    )
    second = select(
        key,
        model.with_params(**first.best),
        X,
        {"rank": list(ranks), "penalty__reg": list(regs)},
        folder=inside("rank_reg"),
        **options,
    )
    return dataclasses.replace(second, best=first.best | second.best, before=first)


def search(
    key: int | Key[Array, ""],
    model: Any,
    X: Any,
    space: Mapping[str, Any],
    *,
    trials: int = 64,
    together: int = 16,
    splits: int | Sequence[Any] = 3,
    per_user: int = 3,
    criterion: str | Callable = "f1@5",
    seed: int = 0,
    study: Any = None,
) -> Selection:
    """Ask Optuna for points instead of a grid; those asked together run as one program.

    Args:
        key, model, X, splits, per_user, criterion: as in `select`.
        space: by name a range (low, high), searched on a log scale if low > 0 and in
            whole numbers if both are, or a list of choices.
        trials: points in all.
        together: points asked for before any of them is told.
        seed: of Optuna's sampler.
        study: an Optuna study to go on with, such as one in a database.
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "selection.search needs Optuna: pip install 'mfauc_jax[search]'"
        ) from error
    X = Interactions.of(X)
    key = jax.random.key(key) if isinstance(key, int) else key
    grid_points(
        model, {name: list(values) for name, values in space.items()}
    )  # names and emptiness
    if min(trials, together) < 1:
        raise ValueError(f"trials = {trials} and together = {together} must be ≥ 1")
    parts = _splits(key, X, splits, per_user, None)
    _check_criterion(criterion)
    if study is None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        towards = "minimize" if criterion in MINIMISED else "maximize"
        study = optuna.create_study(
            direction=towards, sampler=optuna.samplers.TPESampler(seed=seed)
        )
    points, table = [], []
    while len(points) < trials:
        asked = [study.ask() for _ in range(min(together, trials - len(points)))]
        fresh = [{name: _suggest(trial, name, space[name]) for name in space} for trial in asked]
        records: dict[int, list[dict]] = {place: [] for place in range(len(fresh))}
        for (number, split), group in itertools.product(
            enumerate(parts), _by_program(model, fresh)
        ):
            for point, record in zip(
                group, batched.score(model, group, X, split, criterion), strict=True
            ):
                place = next(p for p, other in enumerate(fresh) if other is point)
                records[place].append({"split": number, **record})
        for place, trial in enumerate(asked):
            mean = float(
                np.mean([record[formulas.name_of(criterion)] for record in records[place]])
            )
            if math.isnan(mean):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, mean)
            table += records[place]
        points += fresh
    return Selection.choose(model, dict(space), formulas.name_of(criterion), points, table)


def _suggest(trial: Any, name: str, values: Any) -> Any:
    if not (isinstance(values, tuple) and len(values) == 2):
        return trial.suggest_categorical(name, list(values))
    low, high = values
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=low > 0)
    return trial.suggest_float(name, low, high, log=low > 0)


def grid_points(model: Any, grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination, the last name's values running fastest; names and values checked."""
    if not grid:
        raise ValueError("the grid is empty: give at least one, such as {'rank': [16, 32, 64]}")
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
            raise TypeError(f"grid[{name!r}] = {values!r} must be a list of values")
        if not len(values):
            raise ValueError(f"grid[{name!r}] is empty: give at least one value")
    plain = {
        name: [v.item() if isinstance(v, np.generic) else v for v in values]
        for name, values in grid.items()
    }
    points = [
        dict(zip(plain, values, strict=True)) for values in itertools.product(*plain.values())
    ]
    for point in points:
        model.with_params(**point)  # names, values and bounds, before anything is fitted
    return points


def digest(X: Interactions) -> str:
    """A fingerprint of the positives."""
    arrays = (X.indptr, X.indices) + (() if X.confidence is None else (X.confidence,))
    joined = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
    return f"{X.num_users} × {X.num_items}, {hashlib.sha256(joined).hexdigest()[:16]}"


def _splits(key, X, splits, per_user, folds) -> list[Split]:
    if folds is not None:
        return list(splitting.k_fold(key, X, folds))
    if not isinstance(splits, int):
        given = [Split(*map(Interactions.of, split)) for split in splits]
        for split in given:
            if split.train.shape != X.shape:
                raise ValueError(f"a split is {split.train.shape}, X is {X.shape}")
        splits = len(given)
    else:
        given = [splitting.hold_out(k, X, per_user) for k in jax.random.split(key, max(splits, 0))]
    if splits < 1:
        raise ValueError(f"splits = {splits} must be ≥ 1, or a list of splits")
    return given


def _nothing(X: Interactions) -> Interactions:
    return splitting.select(X, np.zeros(X.nnz, bool))


def _by_program(model: Any, points: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Points in groups that agree in everything but numbers that can be swept."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        made = model.with_params(**point)
        shape = {name: value for name, value in point.items() if not _swept(made, name)}
        groups.setdefault(repr(shape), []).append(point)
    return list(groups.values())


def _swept(model: Any, name: str) -> bool:
    """Whether the field that a nested name leads to may be swept."""
    *parts, field = name.split("__")
    owner = model
    for part in parts:
        owner = owner.chosen_solver if part == "solver" and owner is model else getattr(owner, part)
    return isinstance(owner, Settings) and owner.specs()[field].swept


def _check_criterion(criterion: str | Callable) -> None:
    if callable(criterion):
        if formulas.not_a_metric(criterion):
            raise TypeError(f"criterion = {criterion!r} must be a metric {formulas.NO_METRIC}")
        return
    if criterion in MINIMISED or criterion in formulas.KNOWN:
        return
    registry.lookup("criterion", dict.fromkeys([*MINIMISED, *formulas.KNOWN]), criterion)
