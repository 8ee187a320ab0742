"""The rows of the paper's tables by name, and the methods beyond them, in four settings.

    factors = methods.get("WRMF", "authors").fit(key, X, rank=8, reg=0.125)

`authors`: as the authors' ranking tables ran them (docs/derivations.md#authors). MFAUC is Algorithm 1 with α times
1000, from an SVD, rows projected to norm 10. `text`: the MFAUC rows of `authors` with the search of the paper's text,
three folds, α from 2⁻¹ to 2⁻⁸, λ from 1 to 2⁻¹⁰, on the synthetic data. `ours`: the same
objectives by the faster routes, the square loss alternating, the others in minibatches from an SVD. "tanh" weighs the
square hinge; in minibatches it sees 30 negatives of each user and not 20, since a sampled inner sum biases it.
`parallel`: the rows of `ours` that have minibatches, with the λ chosen there, fitted by the paper's parallel algorithm
in 8 × 8 blocks, as the paper's final fits on real data.

Every number of the paper's rows is written here, so that the defaults of the library may change without making
another row of them: the records in results/ say the same numbers. "MFAUC" is our default, `MFAUC()` as it is today,
whose penalties follow from the data's shape; "MFAUC tuned" multiplies them.

"BPR" is Rendle et al.'s own weighting, all triples alike; "MFAUC logistic" is the same loss with
all users alike, which the paper counts as its comparison with BPR (theory/README.md, E11).
`tune` chooses by validation positives, never by the test ones.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from mfauc_jax import (
    MFAUC,
    Alternating,
    Averaging,
    Blockwise,
    Fixed,
    Minibatch,
    Sequential,
    baselines,
    losses,
    weightings,
)
from mfauc_jax._core import registry
from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines import soft_impute, warp
from mfauc_jax.data import splits
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics
from mfauc_jax.objective.losses import Loss
from mfauc_jax.objective.weightings import Weighting

REGS = tuple(2.0**-a for a in range(10))  # the authors' λ for MFAUC
WRMF_REGS = tuple(2.0**a for a in range(1, -12, -2))  # 2¹, 2⁻¹, … 2⁻¹¹
FINE = tuple(2.0**-a for a in (2, 2.5, 3, 3.5, 4, 5, 6))  # λ of the same in setting ours
RHOS = (0.5, 1.0, 2.0, 5.0)
REG, RATE, ITERATIONS = "penalty__reg", "solver__learning_rate", "solver__iterations"
USERS = "solver__num_users"
STRENGTH = "penalty__strength"

TABLES = Sequential(  # Algorithm 1 as the authors' ranking tables ran it
    iterations=2000,
    learning_rate=2.0**-4,
    num_users=30,
    num_items=10,
    step_rule="thousand",
    fixed_order=True,
    new_user=True,
    max_norm=10.0,
    average=Averaging(start=100, eta=20.0, since=0),
)
SWEEPS = Alternating(iterations=8, user_steps=6, item_steps=3)
BATCHES = Minibatch(  # later iterates weigh more in the average
    iterations=40,
    learning_rate=0.3,
    optimiser="adagrad",
    batch=128,
    num_pos=10,
    num_neg=20,
    average=Averaging(start=0, eta=3.0),
)


@dataclasses.dataclass(frozen=True)
class Method:
    """A row: how to fit it, and what is tried to tune it."""

    fit: Callable[..., Factors]  # (key, X, rank=…, **hyper)
    grid: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    large: Mapping[str, Sequence[Any]] = dataclasses.field(
        default_factory=dict
    )  # the same, large data
    default: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # where nothing is tried
    model: MFAUC | None = None  # what `selection.select` sweeps, for the MFAUC rows
    in_paper: bool = False


def mfauc(key: jax.Array, X: Interactions, *, model: MFAUC, **hyper: Any) -> Factors:
    """`model` with `hyper` set, fitted from the key."""
    seed = int(jax.random.bits(key, (), np.uint32) >> 1)
    return model.with_params(seed=seed, **hyper).fit(X, progress=False).factors_


def authors_model(loss: Loss, weighting: Weighting = weightings.identity) -> MFAUC:
    """Algorithm 1 as the authors' ranking tables ran it."""
    penalty = Fixed(reg=2.0**-3, spread=0.0)
    return MFAUC.paper(loss, weighting=weighting, penalty=penalty, solver=TABLES, start="svd")


def our_model(loss: Loss, weighting: Weighting = weightings.identity) -> MFAUC:
    """The paper's objective by the route that suits it."""
    solver = SWEEPS if isinstance(loss, losses.Square) else BATCHES
    if isinstance(weighting, weightings.Tanh):
        solver = solver.replace(num_neg=30)
    penalty = Fixed(reg=0.1, spread=0.0)
    return MFAUC.paper(loss, weighting=weighting, penalty=penalty, solver=solver, start="svd")


def in_blocks(row: Method) -> Method:
    """A row of minibatches by the paper's parallel algorithm."""
    assert row.model is not None and isinstance(row.model.solver, Minibatch)
    same = row.model.solver.get_params(deep=False)
    model = row.model.with_params(solver=Blockwise(**same, blocks=8))
    return dataclasses.replace(row, model=model, fit=partial(mfauc, model=model))


def _rows(
    make: Callable[..., MFAUC], regs: Sequence[float], large: Sequence[float] = ()
) -> dict[str, Method]:
    """The eight MFAUC rows of the paper."""
    models = {
        "hinge": make(losses.SquareHinge()),
        "square": make(losses.Square()),
        "sigmoid": make(losses.Sigmoid(beta=1.0)),
        "logistic": make(losses.Logistic(beta=1.0)),
    }
    models |= {
        f"tanh ρ={rho}": make(losses.SquareHinge(), weightings.Tanh(rho=rho)) for rho in RHOS
    }
    return {
        f"MFAUC {name}": Method(
            partial(mfauc, model=model), {REG: regs}, {REG: large}, {REG: 0.125}, model, True
        )
        for name, model in models.items()
    }


AUTHORS: dict[str, Method] = {
    "SoftImpute": Method(
        baselines.get("soft_impute"),
        {"rhos": [soft_impute.RHOS[: stop + 1] for stop in range(len(soft_impute.RHOS))]},
        in_paper=True,
    ),
    "WRMF": Method(
        partial(baselines.get("wrmf"), sweeps=100),
        {"reg": WRMF_REGS},
        default={"reg": 2.0},
        in_paper=True,
    ),
    **_rows(authors_model, REGS),
}

OURS: dict[str, Method] = {
    "SoftImpute": Method(
        baselines.get("soft_impute"),
        {"rhos": [(0.4,), (0.2,), (0.0,)], "iterations": (3, 10)},
        {"rhos": [(0.4,), (0.2,), (0.0,)], "iterations": (3,)},
        {"rhos": (0.0,), "iterations": 3},
        in_paper=True,
    ),
    "WRMF": Method(
        partial(baselines.get("wrmf"), cg_steps=3),
        {"alpha": (1.0, 3.0, 9.0), "reg": (2.0, 10.0, 30.0, 60.0)},
        {"alpha": (9.0, 19.0, 39.0), "reg": (50.0, 100.0, 200.0)},
        {"alpha": 3.0, "reg": 10.0},
        in_paper=True,
    ),
    **_rows(our_model, FINE, REGS[:6]),
    "MFAUC": Method(partial(mfauc, model=MFAUC()), model=MFAUC()),
    "MFAUC tuned": Method(
        partial(mfauc, model=MFAUC()), {STRENGTH: (0.3, 0.4, 0.6, 0.8)}, model=MFAUC()
    ),
    "BPR": Method(baselines.get("bpr"), {"reg": (0.002, 0.02), "epochs": (20, 60)}),
    "Popularity": Method(lambda key, X, rank=None: baselines.get("popularity")(key, X)),
    "PureSVD": Method(baselines.get("pure_svd"), {"rho": (0.0, 0.1, 0.2)}),
    "WARP": Method(baselines.get("warp"), {"epochs": (5, 10, 20, 40)}),
    "k-OS": Method(baselines.get("kos"), {"epochs": (10, 20, 40)}),
    "Item-factor AUC": Method(baselines.get("item_auc"), {"epochs": (20, 50, 100)}),
    "Item-factor WARP": Method(baselines.get("warp_items"), {"epochs": (20, 50, 100)}),
    "Item-factor k-OS": Method(
        partial(baselines.get("kos_items"), places=warp.MEDIAN), {"epochs": (20, 50, 100)}
    ),
    "CLiMF": Method(baselines.get("climf"), {"epochs": (5, 10, 20)}),
}
TEXT = {name: row for name, row in AUTHORS.items() if row.model is not None}
PARALLEL = {
    name: in_blocks(row)
    for name, row in OURS.items()
    if row.in_paper and row.model is not None and isinstance(row.model.solver, Minibatch)
}
SETTINGS = {"authors": AUTHORS, "text": TEXT, "ours": OURS, "parallel": PARALLEL}
SEQUENTIAL = ("authors", "text")  # settings whose MFAUC rows run Algorithm 1


def get(name: str, setting: str = "ours") -> Method:
    """The row by its name."""
    return registry.lookup("method", registry.lookup("setting", SETTINGS, setting), name)


class Tuned(NamedTuple):
    """What `tune` found."""

    best: dict[str, Any]
    scores: list[dict[str, Any]]  # one record per point: its values and its mean criterion


def tune(
    key: jax.Array,
    method: Method,
    X: Interactions,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    repeats: int = 2,
    per_user: int = 3,
    criterion: str = "f1@5",
    **fixed: Any,
) -> Tuned:
    """The grid point with the largest mean criterion over random hold-outs of X's own positives.

    Args:
        key: for the splits and the fits.
        method: what is fitted.
        X: the training positives.
        grid: what is tried; the method's own unless given.
        repeats: hold-outs.
        per_user: positives of each user held out.
        criterion: a key of `metrics.evaluate` at 5.
        fixed: hyper-parameters that are not tried, such as the rank.
    """
    points = list(_points(method.grid if grid is None else grid))
    scores = np.zeros((repeats, len(points)))
    for r in range(repeats):
        key_split, key_fit = jax.random.split(jax.random.fold_in(key, r))
        split = splits.hold_out(key_split, X, per_user=per_user)
        for place, point in enumerate(points):
            factors = method.fit(key_fit, split.train, **fixed, **point)
            scores[r, place] = metrics.evaluate(factors, split.train, split.test, (5,))[criterion]
    means = scores.mean(0)
    best = points[int(np.nan_to_num(means, nan=-np.inf).argmax())]
    return Tuned(
        best, [p | {criterion: float(mean)} for p, mean in zip(points, means, strict=True)]
    )


def _points(grid: Mapping[str, Sequence[Any]]) -> Iterable[dict[str, Any]]:
    return (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
