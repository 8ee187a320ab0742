"""A small world with features, a shop, and the joint objective written out: what several tests of features share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import scipy.sparse

import mfauc_jax as mf
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import exact
from mfauc_jax.objective.penalties import by_row

M, N, P, Q, K = 30, 20, 4, 3, 3


def world(seed: int = 0) -> tuple[np.ndarray, np.ndarray, Any, Any]:
    """X of which the first two items have no positive, and features of items and users."""
    rng = np.random.default_rng(seed)
    F, G = (rng.normal(size=shape) * (rng.random(shape) < 0.7) for shape in ((N, P), (M, Q)))
    S = (G @ rng.normal(size=(Q, K)) + rng.normal(size=(M, K))) @ (F @ rng.normal(size=(P, K))).T
    X = np.argsort(np.argsort(-S, axis=1), axis=1) < 5
    cold = X.copy()
    cold[:, :2] = False
    return X, cold, scipy.sparse.csr_array(F), scipy.sparse.csr_array(G)


def theta(problem: mf.Problem, U, V, A, B) -> jax.Array:
    """The joint objective of derivations.md#features, written out with dense features."""
    assert problem.sides is not None
    objective, (items, users) = problem.objective, problem.sides
    plan = exact.plan(objective, problem.X, problem.weights)
    data = exact.value(objective._replace(reg=0.0), Factors(U, V), plan)
    reg, total = by_row(objective.reg, len(U), len(V)), data
    for rows, own, side, C in ((V, reg.item, items, A), (U, reg.user, users, B)):
        mean = jnp.zeros_like(rows) if side is None else jnp.asarray(side.matrix.toarray()) @ C
        fitted = 1.0 if side is None else jnp.asarray(side.row_reg > 0, float)
        total = total + 0.5 * (own * fitted * ((rows - mean) ** 2).sum(1)).mean()
        if side is not None:
            total = total + 0.5 * (jnp.asarray(side.reg) * (C**2).sum(1)).sum() / len(rows)
    return total


def problem_of(model: mf.MFAUC, items: bool, users: bool, seed: int = 0) -> mf.Problem:
    X, _, F, G = world(seed)
    return model.problem(X.astype(float)).with_features(F if items else None, G if users else None)


FRAME = {
    "sku": ["a", "b", "c", "d", "e", "f", "new", "newer"],
    "kind": ["x", "x", "x", "y", "y", "y", "x", "y"],
    "size": [1.0, 2.0, 1.0, 5.0, 6.0, 5.0, 1.5, 5.5],
}
LIKES = [
    (user, item)
    for i, user in enumerate(["u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"])
    for item in ("abc" if i % 2 else "def")
    if (i + ord(item)) % 4
]


def shop(**settings: Any) -> mf.MFAUC:
    """Odd users like x, even ones y; "new" and "newer" are known by features only."""
    model = mf.MFAUC(rank=2, **settings)
    return model.fit(tuple(zip(*LIKES, strict=True)), item_features=pl.DataFrame(FRAME))
