"""Small problems and slow truths that several tests share."""

import warnings

import jax
import numpy as np
from hypothesis import strategies as st

from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions


def quiet(matrix, **kwargs) -> Interactions:
    """Interactions without the report on empty and full rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Interactions.of(np.asarray(matrix, float), **kwargs)


@st.composite
def matrices(draw, max_users=7, max_items=9):
    """A random 0/1 matrix with a user of one positive, one of all but one, and perhaps odd ones."""
    m = draw(st.integers(2, max_users))
    n = draw(st.integers(2, max_items))
    bits = draw(st.lists(st.booleans(), min_size=m * n, max_size=m * n))
    dense = np.array(bits).reshape(m, n)
    dense[0], dense[1] = False, True
    dense[0, draw(st.integers(0, n - 1))] = True
    dense[1, draw(st.integers(0, n - 1))] = False
    return dense


@st.composite
def one_shape(draw, n=9):
    """Random rows: one positive, all but one, none, all, and in between.

    Their lengths are fixed and so is nnz: one compilation per case, which is where the time goes.
    """
    dense = np.zeros((8, n), bool)
    for row, length in zip(dense, (1, n - 1, 0, n, 2, 4, 5, 7), strict=True):
        row[draw(st.permutations(range(n)))[:length]] = True
    return np.array(draw(st.permutations(list(dense))))


def random_factors(seed: int, X: Interactions, rank: int = 3, scale: float = 1.0):
    keys = jax.random.split(jax.random.key(seed))
    drawn = (jax.random.normal(k, (count, rank)) for k, count in zip(keys, X.shape, strict=True))
    return Factors(*(scale * F for F in drawn))


def triple_loop(objective, U, V, dense, tau=0.0, user_power=0.0, reg=0.0, spread=0.0):
    """Eq. 3 (with the w and σ of docs/derivations.md#spread) by three loops in plain Python floats."""
    U, V = np.asarray(U), np.asarray(V)
    m, n = dense.shape
    frequency = dense.sum(0) / m
    usable = [i for i in range(m) if dense[i].any() and (~dense[i]).any()]
    b = (1 - frequency) ** tau
    usable = [i for i in usable if b[~dense[i]].sum() > 0]
    w = np.array([dense[i].sum() ** user_power for i in usable])
    total = 0.0
    for i, weight in zip(usable, w / w.mean(), strict=True):
        s = V @ U[i]
        pos, neg = np.flatnonzero(dense[i]), np.flatnonzero(~dense[i])
        g = frequency[pos] ** tau / (frequency[pos] ** tau).sum()
        g_neg = b[neg] / b[neg].sum()
        for p, g_p in zip(pos, g, strict=True):
            inner = 0.0
            for q, g_q in zip(neg, g_neg, strict=True):
                inner += g_q * float(objective.loss(s[p] - s[q]))
            total += weight * g_p * float(objective.weighting(inner))
        variance = g_neg @ s[neg] ** 2 - (g_neg @ s[neg]) ** 2
        total += weight * 0.5 * spread * variance
    norms = (U**2).sum() / m + (V**2).sum() / n
    return total / len(usable) + 0.5 * reg * norms
