"""Selection of hyper-parameters by held-out positives: the best point of a grid over several splits.

Names are those of `MFAUC.get_params`: `rank`, `penalty__reg`, `solver__learning_rate`. Points that differ only in
numbers that can be swept (λ, α, β, ρ, …) run as one program with the same random draws, see `batched`; each value of
the others (rank, loss, …) is a program of its own. A point whose factors do not stay finite in some split has the
criterion nan: it does not disturb the others and is never chosen.
"""

import dataclasses
import itertools
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key
from tqdm.auto import tqdm

from mfauc_jax._core import host, registry
from mfauc_jax._core.settings import Settings
from mfauc_jax.data import splits as splitting
from mfauc_jax.data.digest import digest
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
    folder: str | os.PathLike | None = None,
    at_once: int | None = None,
    progress: bool | None = None,
) -> Selection:
    """Fit every point of the grid on every split and choose by the mean of the criterion.

    Each fit is `model.fit(train)` with the values of the point, with the same start and random stream (`model.seed`),
    and without an early stop. Several processes, each with its own users, fit the points one after the other; their
    random splits are other ones than those of one process.

    Args:
        key: for the random splits; an integer is a seed.
        model: an MFAUC, whose other settings all points share; it is not changed.
        X: the positives, as for `MFAUC.fit`.
        grid: values to try by name, such as {"penalty__reg": [.1, 1], "rank": [8, 16]}.
        splits: the number of random hold-outs, or a list of your own pairs (train, test).
        per_user: positives held out per user in a random hold-out.
        folds: k ≥ 2 for k folds instead of random hold-outs.
        criterion: a metric such as "ndcg@10", or a function of `counts.Counts`, of which the largest mean wins; or
            "objective", the exact θ on the training positives, of which the smallest mean wins.
        folder: where finished cells (one program on one split) are kept; a second call with the same arguments
            does not repeat them, and a call with other arguments is refused.
        at_once: grid points per program; None: as many as memory allows.
        progress: whether to show a progress bar; None: on a terminal only.
    """
    X, points = Interactions.of(X), grid_points(model, grid)
    key = jax.random.key(key) if isinstance(key, int) else key
    if folder and jax.process_count() > 1:
        folder = os.path.join(folder, f"process-{jax.process_index()}-of-{jax.process_count()}")
    parts = _splits(key, X, splits, per_user, folds)
    groups = _by_program(model, points)
    cells = [(number, split, group) for number, split in enumerate(parts) for group in groups]
    _check_criterion(criterion)
    finished = Cells(
        folder,
        {
            "model": model.describe(),
            "formulas": model.describe(identity=True),
            "float": str(jax.dtypes.canonicalize_dtype(float)),
            "grid": dict(grid),
            "criterion": formulas.name_of(criterion),
            "data": digest(X),
            "splits": [digest(split.train) for split in parts],
        },
    )
    table = []
    hide = not sys.stderr.isatty() if progress is None else not progress
    for place, (number, split, group) in enumerate(tqdm(cells, desc="select", disable=hide)):
        records = finished.read(place)
        everywhere = host.everyone(np.int32(records is not None)).all()
        if records is None or not everywhere:
            records = batched.score(model, group, X, split, criterion, at_once=at_once)
            records = [{"split": number, **record} for record in records]
            finished.write(place, records)
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
    folder: str | os.PathLike | None = None,
    **options: Any,
) -> Selection:
    """The authors' two stages: α by the training objective, then (k, λ) by F1@5 on hold-3 splits.

    The first stage takes the α with the lowest exact θ of all X, at λ = `first_reg` and k = `first_rank` (the authors
    used a sampled θ′). The defaults are the authors' grids for the small data sets. `Selection.before` is the first
    stage.

    Args:
        key: for the random splits; an integer is a seed.
        model: an MFAUC, whose other settings all points share.
        X: the positives, as for `MFAUC.fit`.
        learning_rates: values of α, for the first stage.
        regs: values of λ, for the second stage.
        ranks: values of k, for the second stage.
        first_reg: λ of the first stage.
        first_rank: k of the first stage.
        folder: where finished cells are kept, as in `select`; one subfolder per stage.
        options: options of `select`, for the second stage.
    """
    X = Interactions.of(X)
    shared = {name: options[name] for name in ("at_once", "progress") if name in options}
    subfolder = (lambda name: None) if folder is None else (lambda name: f"{folder}/{name}")
    first = select(
        key,
        model.with_params(rank=first_rank, penalty__reg=first_reg),
        X,
        {"solver__learning_rate": list(learning_rates)},
        splits=[Split(X, _nothing(X))],
        criterion="objective",
        folder=subfolder("learning_rate"),
        **shared,
    )
    second = select(
        key,
        model.with_params(**first.best),
        X,
        {"rank": list(ranks), "penalty__reg": list(regs)},
        folder=subfolder("rank_reg"),
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
    """Select among points that Optuna proposes instead of a grid; points proposed together run as one program.

    Args:
        key, model, X, splits, per_user, criterion: as in `select`.
        space: by name, a tuple (low, high), which is searched on a log scale if low > 0 and in whole numbers if both
            are; or a list of choices.
        trials: number of points, ≥ 1.
        together: points that Optuna proposes before it is told their results, ≥ 1.
        seed: of Optuna's sampler.
        study: an Optuna study to continue, such as one in a database; None: a new one.
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "selection.search needs Optuna: pip install 'mfauc_jax[search]'"
        ) from error
    X = Interactions.of(X)
    key = jax.random.key(key) if isinstance(key, int) else key
    # raises for unknown names and empty ranges
    grid_points(model, {name: list(values) for name, values in space.items()})
    if min(trials, together) < 1:
        raise ValueError(f"trials = {trials} and together = {together} must be ≥ 1")
    parts = _splits(key, X, splits, per_user, None)
    _check_criterion(criterion)
    if study is None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        direction = "minimize" if criterion in MINIMISED else "maximize"
        study = optuna.create_study(
            direction=direction, sampler=optuna.samplers.TPESampler(seed=seed)
        )
    points, table = [], []
    while len(points) < trials:
        requested = [study.ask() for _ in range(min(together, trials - len(points)))]
        proposed = [
            {name: _suggest(trial, name, space[name]) for name in space} for trial in requested
        ]
        records: dict[int, list[dict]] = {place: [] for place in range(len(proposed))}
        for (number, split), group in itertools.product(
            enumerate(parts), _by_program(model, proposed)
        ):
            for point, record in zip(
                group, batched.score(model, group, X, split, criterion), strict=True
            ):
                place = next(p for p, other in enumerate(proposed) if other is point)
                records[place].append({"split": number, **record})
        for place, trial in enumerate(requested):
            mean = float(
                np.mean([record[formulas.name_of(criterion)] for record in records[place]])
            )
            if math.isnan(mean):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, mean)
            table += records[place]
        points += proposed
    return Selection.choose(model, dict(space), formulas.name_of(criterion), points, table)


def _suggest(trial: Any, name: str, values: Any) -> Any:
    if not (isinstance(values, tuple) and len(values) == 2):
        return trial.suggest_categorical(name, list(values))
    low, high = values
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=low > 0)
    return trial.suggest_float(name, low, high, log=low > 0)


def grid_points(model: Any, grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of a grid, the values of its last name changing fastest; all are checked against the model."""
    if not grid:
        raise ValueError(
            "the grid is empty: give at least one name, such as {'rank': [16, 32, 64]}"
        )
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
        model.with_params(**point)  # raises for a bad name or value before anything is fitted
    return points


def _splits(key, X, splits, per_user, folds) -> list[Split]:
    if jax.process_count() > 1:
        key = jax.random.fold_in(key, jax.process_index())
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
    """The points in groups that differ only in numbers that can be swept."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        changed = model.with_params(**point)
        shape = {name: value for name, value in point.items() if not _swept(changed, name)}
        groups.setdefault(repr(shape), []).append(point)
    return list(groups.values())


def _swept(model: Any, name: str) -> bool:
    """Whether the field with this nested name can be swept."""
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
