"""The rows of the paper's tables by name, and the methods beyond them, behind one `fit`.

    factors = methods.get("WRMF").fit(key, X, rank=8, reg=0.125)

"BPR" is Rendle et al.'s own weighting, all triples alike; "MFAUC logistic" is the same loss with
all users alike, which the paper counts as its comparison with BPR (theory/README.md, E11). "tanh"
weighs the square hinge. `tune` chooses by validation positives, never by the test ones.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from mfauc_jax import MFAUC, baselines, metrics, names, ranking
from mfauc_jax.baselines import soft_impute, warp
from mfauc_jax.data import splits
from mfauc_jax.factors import Factors
from mfauc_jax.interactions import Interactions

REGS = tuple(2.0**-a for a in range(10))  # the authors' λ for MFAUC
WRMF_REGS = tuple(2.0**a for a in range(1, -12, -2))  # 2¹, 2⁻¹, … 2⁻¹¹


@dataclasses.dataclass(frozen=True)
class Method:
    """A row: how to fit it, and what is tried to tune it."""

    fit: Callable[..., Factors]  # (key, X, **hyper)
    grid: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    model: MFAUC | None = None  # what `selection.select` sweeps, for the MFAUC rows
    in_paper: bool = False


def mfauc(key: jax.Array, X: Interactions, *, model: MFAUC, **hyper: Any) -> Factors:
    """`model` with `hyper` set, fitted from the key."""
    seed = int(jax.random.bits(key, (), np.uint32) >> 1)
    fitted = dataclasses.replace(model, seed=seed, progress=False, **hyper).fit(X)
    return ranking.factors_of(fitted)


def _mfauc(loss: str, **changes: Any) -> Method:
    model = MFAUC.paper(loss, **changes)
    return Method(partial(mfauc, model=model), {"reg": REGS}, model, True)


METHODS: dict[str, Method] = {
    "SoftImpute": Method(
        baselines.get("soft_impute"),
        {"rhos": [soft_impute.RHOS[: stop + 1] for stop in range(len(soft_impute.RHOS))]},
        in_paper=True,
    ),
    "WRMF": Method(partial(baselines.get("wrmf"), sweeps=100), {"reg": WRMF_REGS}, in_paper=True),
    "MFAUC hinge": _mfauc("square_hinge"),
    "MFAUC square": _mfauc("square"),
    "MFAUC sigmoid": _mfauc("sigmoid"),
    "MFAUC logistic": _mfauc("logistic"),
    **{
        f"MFAUC tanh ρ={rho}": _mfauc("square_hinge", weighting="tanh", rho=rho)
        for rho in (0.5, 1.0, 2.0, 5.0)
    },
    "BPR": Method(baselines.get("bpr"), {"reg": (0.0, 0.002, 0.02), "epochs": (20, 60)}),
    "MFAUC": Method(partial(mfauc, model=MFAUC()), {}, MFAUC()),
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


def get(name: str) -> Method:
    """The row by its name."""
    return names.lookup("method", METHODS, name)


def tune(
    key: jax.Array,
    method: Method,
    X: Interactions,
    *,
    repeats: int = 2,
    per_user: int = 3,
    criterion: str = "f1@5",
    **fixed: Any,
) -> dict[str, Any]:
    """The grid point with the largest mean criterion over random hold-outs of X's own positives.

    Args:
        key: for the splits and the fits.
        method: whose grid is tried.
        X: the training positives.
        repeats: hold-outs.
        per_user: positives of a user held out.
        criterion: a key of `metrics.evaluate` at 5.
        fixed: hyper-parameters that are not tried, such as the rank.
    """
    points = list(_points(method.grid))
    scores = np.zeros((repeats, len(points)))
    for r in range(repeats):
        key_split, key_fit = jax.random.split(jax.random.fold_in(key, r))
        split = splits.hold_out(key_split, X, per_user=per_user)
        for place, point in enumerate(points):
            factors = method.fit(key_fit, split.train, **fixed, **point)
            scores[r, place] = metrics.evaluate(factors, split.train, split.test, (5,))[criterion]
    return points[int(np.nan_to_num(scores.mean(0), nan=-np.inf).argmax())]


def _points(grid: Mapping[str, Sequence[Any]]) -> Iterable[dict[str, Any]]:
    return (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
