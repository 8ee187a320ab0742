"""The comparison of Section 5: select on training positives, fit, rank what was held out.

A cell is one selection, or one fit of (data set, setting, method, split). A split holds out five
positives of every user. Hyper-parameters are chosen once per data set, as the authors did, on the
training positives of its first split, by random hold-outs of three per user:

- `authors`: MFAUC by their two stages (`selection.authors_rule`), the others by F1@5.
- `text`: the same two stages over the grids of the paper's text with its T, and three folds in place of hold-outs.
- `ours`: MFAUC's λ and where to stop by F1@5 among the points whose AUC is within .001 of the best;
  the others by F1@5.
- `parallel`: chooses nothing; its rows take what `ours` chose for them, as the paper fits in parallel what it has
  selected in one process.

Algorithm 1 (`authors`, `text`) does not run on the data sets with more than LARGE positives.

The constants of `MFAUC()` were chosen on splits 0 to 4 of these data, so its rows, tuned or not, have splits from
FIRST_UNSEEN on, on which nothing was chosen.

The fit then has all training positives. It reports the exact AUC and, beside it, the authors' AUC
from one random negative. Data are read when the first cell needs them: finished cells are found without.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from experiments import flags, methods, paper, results, together
from experiments.methods import ITERATIONS, RATE, REG, USERS, Method
from mfauc_jax import MFAUC, Minibatch, data
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import splits, synthetic
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import curves, metrics
from mfauc_jax.training import selection

SYNTHETIC = {
    "synthetic1": synthetic.synthetic1,
    "synthetic1_table": synthetic.synthetic1_table,
    "synthetic2": lambda key: synthetic.synthetic2(),
}
SLACK = 0.001  # of AUC, within which F1@5 decides
LARGE = 100_000  # positives, from which on a data set gets fewer splits and a smaller search
BEYOND = ("MFAUC", "MFAUC tuned", "BPR", "Popularity", "WARP", "CLiMF", "Item-factor AUC")
ROWS = (*methods.AUTHORS, *BEYOND)
DEFAULTS = ("MFAUC", "MFAUC tuned")  # rows whose constants were chosen on the first splits
FIRST_UNSEEN = 100  # the first split of those rows
TEXT_FOLDS, TEXT_ITERATIONS = 3, 500
TEXT_ALPHAS, TEXT_LAMBDAS = (tuple(2.0**-a for a in range(1, 9)), tuple(2.0**-a for a in range(11)))
SKIPPED_IF_LARGE = ("MFAUC tuned", "CLiMF", "Item-factor AUC")  # beyond the paper, and slow there


@dataclasses.dataclass(frozen=True)
class Config:
    """What a table compares, and with how much effort."""

    data_dir: str = flags.option("", "folder of the real data sets")
    datasets: tuple[str, ...] = ("synthetic2",)
    settings: tuple[str, ...] = ("authors", "ours")
    methods: tuple[str, ...] = flags.option(("all",), "rows of the table, or all")
    rank: int = flags.option(8, "k")
    splits: int = 5
    iterations: int = flags.option(2000, "T, authors")
    select: bool = flags.option(True, "choose hyper-parameters; no: take each method's defaults")
    select_splits: int = flags.option(3, "hold-outs of three per user, authors; 1 for ours")
    first_rank: int = flags.option(64, "k while α is selected, authors")
    select_iterations: int = flags.option(1000, "T of each fit while selecting, authors")
    alphas: tuple[float, ...] = tuple(2.0**-a for a in range(1, 8))
    lambdas: tuple[float, ...] = tuple(2.0**-a for a in range(10))
    num_users: int = flags.option(30, "κ_W, authors and text")
    stops: tuple[int, ...] = flags.option((30, 80), "T tried, ours, minibatch")
    large_splits: int = 2
    large_select: int = flags.option(
        0, "users are sampled until so many positives, minibatch; 0: all training positives"
    )
    large_stops: tuple[int, ...] = (60,)
    limit: int = flags.option(0, "stop after so many new cells; 0: no limit")
    results: str = "out/table.jsonl"


def run(config: Config) -> list[dict]:
    """One record per selection and fit; one that says so for a data set that is needed and not there."""
    cells = results.Cells(config.results, config.limit)
    records = []
    for dataset in config.datasets:
        try:
            for setting in config.settings:
                records += _compare(config, cells, dataset, setting)
        except FileNotFoundError as error:
            job, note = {"kind": "missing", "dataset": dataset}, {"note": str(error).split("\n")[0]}
            records += cells.run([job], lambda job, note=note: note)
    return records


def main(config: Config) -> int:
    """What a table's command does: its records; `experiments.regenerate` sets them."""
    run(config)
    print(config.results)
    return 0


def _compare(config: Config, cells: results.Cells, dataset: str, setting: str) -> list[dict]:
    """Every selection, then every fit with what was selected."""
    large = is_large(dataset, config.data_dir)
    if large and setting in methods.SEQUENTIAL:
        return []
    rows = chosen(config, dataset, setting, large)
    hyper = {name: dict(method.default) for name, method in rows.items()}
    found, read = [], functools.partial(load, dataset, config.data_dir)
    if config.select:
        by = "ours" if setting == "parallel" else setting
        selected = {name: methods.get(name, by) for name in rows}
        jobs = [
            _select_job(config, dataset, by, name, method, large)
            for name, method in selected.items()
            if (method.large if large else method.grid)
        ]
        found = cells.run(jobs, lambda job: _select(read(), job))
        hyper |= {record["method"]: record["hyper"] for record in found}
        found = found if by == setting else []  # they are the records of another setting
    jobs = [
        _fit_job(config, dataset, setting, name, method, hyper[name], seed)
        for name, method in rows.items()
        for seed in range(
            _first(name), _first(name) + (config.large_splits if large else config.splits)
        )
    ]
    return found + cells.run_together(jobs, lambda part: _fit(read(), part), _fitted_together)


def _first(name: str) -> int:
    """The first split of a row."""
    return FIRST_UNSEEN if name in DEFAULTS else 0


def is_large(dataset: str, data_dir: str) -> bool:
    """Whether a data set has more than LARGE positives: as the paper prints, or those it has."""
    printed = paper.DATASETS.get(dataset)
    return (load(dataset, data_dir).nnz if printed is None else printed[2]) > LARGE


@functools.cache
def load(dataset: str, data_dir: str) -> Interactions:
    """A data set by name: drawn, or read from `data_dir`."""
    if dataset in SYNTHETIC:
        return SYNTHETIC[dataset](jax.random.key(0))
    return data.load(dataset, data_dir)


def chosen(config: Config, dataset: str, setting: str, large: bool) -> dict[str, Method]:
    """The rows wanted; all: those the paper prints for the data set, and ours beyond them."""
    known = methods.SETTINGS[setting]
    if config.methods != ("all",):
        elsewhere = {name for rows in methods.SETTINGS.values() for name in rows} - set(known)
        return {n: methods.get(n, setting) for n in config.methods if n not in elsewhere}
    printed = (paper.TABLE_2 | paper.TABLE_4).get(dataset, {})
    return {
        name: method
        for name, method in known.items()
        if name in ROWS
        and not (method.in_paper and name.endswith("5.0") and name not in printed)
        and not (large and name in SKIPPED_IF_LARGE)
    }


def _select_job(
    config: Config, dataset: str, setting: str, name: str, method: Method, large: bool
) -> dict[str, Any]:
    job = {
        "kind": "select",
        "dataset": dataset,
        "setting": setting,
        "method": name,
        "seed": _first(name),
        "rank": config.rank,
        "splits": config.select_splits,
        "model": _objects(method),
    }
    grid = {k: list(v) for k, v in (method.large if large else method.grid).items()}
    if method.model is not None and setting in methods.SEQUENTIAL:
        grid = {RATE: list(config.alphas), REG: list(config.lambdas)}
        job |= {"iterations": config.select_iterations, "num_users": config.num_users}
        job["first_rank"] = config.first_rank
        if setting == "text":
            grid = {RATE: list(TEXT_ALPHAS), REG: list(TEXT_LAMBDAS)}
            job |= {"folds": TEXT_FOLDS, "iterations": TEXT_ITERATIONS, "first_rank": config.rank}
    elif method.model is not None and isinstance(method.model.chosen_solver, Minibatch):
        grid[ITERATIONS] = list(config.large_stops if large else config.stops)
        if large and config.large_select:
            job["positives"] = config.large_select
    if large or setting == "ours":
        job["splits"] = 1
    return job | {"grid": grid}


def _fit_job(config, dataset, setting, name, method, hyper, seed) -> dict[str, Any]:
    job = {
        "kind": "fit",
        "dataset": dataset,
        "setting": setting,
        "method": name,
        "seed": seed,
        "rank": config.rank,
        "hyper": hyper,
        "model": _objects(method),
    }
    if method.model is not None and setting in methods.SEQUENTIAL:
        iterations = TEXT_ITERATIONS if setting == "text" else config.iterations
        job["hyper"] = {**hyper, ITERATIONS: iterations, USERS: config.num_users}
    return job


def _objects(method: Method) -> dict[str, Any]:
    """What an MFAUC row consists of; a baseline is known by its name and hyper-parameters."""
    return {} if method.model is None else results.described(method.model)


def _split(X: Interactions, seed: int) -> splits.Split:
    return splits.hold_out(jax.random.key(seed), X, 5)


def _select(X: Interactions, job: dict) -> dict[str, Any]:
    """Hyper-parameters from the training positives of one split."""
    method, train = methods.get(job["method"], job["setting"]), _split(X, job["seed"]).train
    key = jax.random.key(1000 + job["seed"])
    if method.model is None:
        found = methods.tune(
            key, method, train, job["grid"], repeats=job["splits"], rank=job["rank"]
        )
        return {"hyper": found.best, "scores": found.scores}
    if "positives" in job:
        train = splits.subsample_users(key, train, job["positives"])
    model = method.model.with_params(rank=job["rank"])
    if job["setting"] in methods.SEQUENTIAL:
        best = selection.authors_rule(
            key,
            model.with_params(**{ITERATIONS: job["iterations"], USERS: job["num_users"]}),
            train,
            learning_rates=job["grid"][RATE],
            regs=job["grid"][REG],
            ranks=(job["rank"],),
            first_rank=job["first_rank"],
            splits=job["splits"],
            folds=job.get("folds"),
            progress=False,
        )
        before = [] if best.before is None else best.before.means()
        hyper = {k: v for k, v in best.best.items() if k != "rank"}
        return {"hyper": hyper, "scores": before + best.means()}
    found = selection.select(key, model, train, job["grid"], splits=job["splits"], progress=False)
    scores = _means(found.table, list(job["grid"]))
    return {"hyper": both(scores), "scores": scores}


def _means(table: list[dict], names: list[str]) -> list[dict[str, Any]]:
    """The mean F1@5 and AUC of each point of a selection's table."""
    points: dict[tuple, list[dict]] = {}
    for record in table:
        points.setdefault(tuple(record[name] for name in names), []).append(record)
    return [
        dict(zip(names, values, strict=True))
        | {c: float(np.mean([r.get(c, np.nan) for r in rs])) for c in ("f1@5", "auc")}
        for values, rs in points.items()
    ]


def both(scores: list[dict[str, Any]]) -> dict[str, Any]:
    """The point with the largest F1@5 among those whose AUC is within SLACK of the best."""
    finite = [s for s in scores if np.isfinite(s["auc"])]
    if not finite:
        raise ArithmeticError(f"all {len(scores)} points diverged: try more reg")
    top = max(s["auc"] for s in finite)
    best = max((s for s in finite if s["auc"] >= top - SLACK), key=lambda s: s["f1@5"])
    return {k: v for k, v in best.items() if k not in ("f1@5", "auc")}


def _fitted_together(job: dict) -> Any:
    """Algorithm 1 on all splits at once (and tanh at all ρ); other fits alone."""
    if job["setting"] not in methods.SEQUENTIAL or not job["model"]:
        return id(job)
    shape = {**job["model"], "weighting": job["model"]["weighting"]["name"]}
    return job["dataset"], str(shape), job["rank"], job["hyper"][ITERATIONS]


def _fit(X: Interactions, jobs: list[dict]) -> list[dict[str, Any]]:
    """Fit each job's training positives and rank its test positives."""
    parts = [_split(X, job["seed"]) for job in jobs]
    rows = [methods.get(job["method"], job["setting"]) for job in jobs]
    model = rows[0].model
    if model is not None and jobs[0]["setting"] in methods.SEQUENTIAL:
        models = [_model(row, job) for row, job in zip(rows, jobs, strict=True)]
        models, fits = _stable(models, [part.train for part in parts])
        return [
            _ranked(fit.factors, part, job)
            | {"objective": {"half": fit.half, "last": fit.last}, "learning_rate": _rate(m)}
            for m, fit, part, job in zip(models, fits, parts, jobs, strict=True)
        ]
    (job,), (part,), (row,) = jobs, parts, rows
    if model is not None:
        fitted = _model(row, job).fit(part.train, progress=False)
        return [_ranked(fitted.factors_, part, job)]
    hyper = {k: tuple(v) if isinstance(v, list) else v for k, v in job["hyper"].items()}
    found = row.fit(jax.random.key(job["seed"]), part.train, rank=job["rank"], **hyper)
    return [_ranked(found, part, job)]


def _stable(
    models: list[MFAUC], trains: list[Interactions]
) -> tuple[list[MFAUC], list[together.Fit]]:
    """All fits, again with half of α if one ends worse than a model that scores everything 0.

    The α with the lowest objective on one split may be at the edge of what is stable on another.
    """
    while True:
        fits = together.fit(models, trains)
        if all(fit.last < fit.zero for fit in fits):  # not if nan
            return models, fits
        models = [m.with_params(**{RATE: _rate(m) / 2}) for m in models]


def _rate(model: MFAUC) -> float:
    return model.get_params()[RATE]


def _model(row: Method, job: dict) -> MFAUC:
    assert row.model is not None
    return row.model.with_params(rank=job["rank"], seed=job["seed"], **job["hyper"])


def _ranked(found: Factors, part: splits.Split, job: dict) -> dict[str, Any]:
    per_user = metrics.evaluate(found, *part, per_user=True)
    one = curves.one_negative_auc(jax.random.key(job["seed"] + 1), found, *part)
    return {"metrics": summary(per_user), "auc_one_negative": one}


def summary(per_user: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """The mean over users of each of the paper's columns, and its standard error."""
    found = {}
    for name in (*paper.COLUMNS, "f1@5", "ndcg@5"):
        known = per_user[name][~np.isnan(per_user[name])]
        error = known.std(ddof=1) / np.sqrt(len(known))
        found[name] = {"mean": float(known.mean()), "error": float(error)}
    return found
