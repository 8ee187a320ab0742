"""Lists with more variety: maximal marginal relevance on the item factors (Carbonell and Goldstein, 1998).

A list is filled one place at a time. The next item is the candidate with the largest

    (1 − d) r_j − d max_{c chosen} cos(v_j, v_c),

r_j being its score, scaled so that the user's candidates lie between 0 and 1, and d the diversity. With d = 0 the order
is that of the scores; with d = 1 only the first item follows them.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from mfauc_jax.data import ids
from mfauc_jax.evaluation.ranking import check_length
from mfauc_jax.serving.answers import Lists, Recommender


def diverse(
    model: Recommender, lists: tuple[Any, Any], n: int = 10, *, diversity: float = 0.3
) -> Lists:
    """Lists of n from longer lists of a model, with fewer items that resemble one another.

        items, scores = mf.diverse(model, model.recommend(users, n=100), n=10, diversity=0.3)

    Args:
        model: the fitted model that made the lists; its item factors say what resembles what.
        lists: items and scores as `recommend` returns them, best first, longer than n: the candidates.
        n: the length of the new lists, ≥ 1, at most that of `lists`.
        diversity: d in [0, 1].
    """
    items, scores = (np.asarray(part) for part in lists)
    n = check_length("n", n)
    if not 0 <= diversity <= 1:
        raise ValueError(f"diversity = {diversity} must be in [0, 1]")
    if items.shape != scores.shape or items.ndim not in (1, 2):
        raise ValueError(
            f"items of shape {items.shape} and scores of shape {scores.shape}: give what recommend returned"
        )
    V, names = model.item_factors_, model.train_.item_ids
    unit = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12)
    rows, wanted = np.atleast_2d(items), np.atleast_2d(scores)
    real = np.isfinite(wanted)  # a list that ran out of items ends in −inf
    columns = np.zeros(rows.shape, np.int64)
    if real.any():
        columns[real] = ids.places("item", names, rows[real], len(V))
    order = marginal_relevance(unit, columns, wanted, min(n, rows.shape[1]), diversity)
    chosen, kept = (np.take_along_axis(part, order, 1) for part in (rows, wanted))
    users = getattr(lists, "users", ())
    return Lists(chosen[0], kept[0], users) if items.ndim == 1 else Lists(chosen, kept, users)


def marginal_relevance(
    unit: Float[np.ndarray, "n k"],
    candidates: Int[np.ndarray, "b C"],
    scores: Float[np.ndarray, "b C"],
    length: int,
    diversity: float,
) -> Int[np.ndarray, "b length"]:
    """The places of the chosen candidates in the order of choice; of equals the earlier comes first.

    Args:
        unit: item factors of length one.
        candidates: the rows of `unit` that may be chosen, per user.
        scores: their scores; −inf marks a place without a candidate, which is chosen last.
        length: places to fill, at most C.
        diversity: d.
    """
    real = np.isfinite(scores)
    some = real.any(1, keepdims=True)
    low = np.where(some, np.where(real, scores, np.inf).min(1, keepdims=True, initial=np.inf), 0.0)
    high = np.where(
        some, np.where(real, scores, -np.inf).max(1, keepdims=True, initial=-np.inf), 0.0
    )
    width = np.where(high > low, high - low, 1.0)
    relevance = np.where(real, (np.where(real, scores, low) - low) / width, 0.0)
    vectors = unit[candidates]  # [b, C, k]
    users, nearest = np.arange(len(candidates)), np.full(scores.shape, -1.0)
    free, order = np.ones(scores.shape, bool), np.zeros((len(candidates), length), np.int64)
    best = relevance.argmax(1) if length else users
    for place in range(length):
        if place:
            worth = (1 - diversity) * relevance - diversity * nearest
            best = np.where(free, np.where(real, worth, -9.0), -np.inf).argmax(1)
        order[:, place] = best
        free[users, best] = False
        nearest = np.maximum(nearest, np.einsum("bck,bk->bc", vectors, vectors[users, best]))
    return order
