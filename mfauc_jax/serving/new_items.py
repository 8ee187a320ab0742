"""Items that come after the fit with features: their columns of X, their rows of features, and A f_j as their prior."""

import dataclasses
from typing import Any

import numpy as np

from mfauc_jax.data import ids
from mfauc_jax.data.features import Features
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.training.side_information import Learned


def padded(learned: Learned | None, num_items: int) -> Learned | None:
    """What was learned, with rows of zeros for items that came later, up to `num_items`."""
    if learned is None:
        return None
    more = num_items - learned.features.matrix.shape[0]
    return learned._replace(features=_below(learned.features, _zeros(more, learned)))


def known_by(
    learned: Learned | None, given: Any, old: int, X: Interactions, new: Interactions | None
) -> tuple[Interactions, Learned | None]:
    """X with the new items of `given`, and the features of all its items; the rest is as in `added`.

    Args:
        learned: the features of the first `old` items of X, or None.
        given: features of new items as the caller gives them, or None.
        old: the number of items that the model has.
        X: the positives, old and new.
        new: the new ones, or None.
    """
    if given is None:
        if new is None:
            raise ValueError("give positives of new items, their item_features, or both")
        return X, padded(learned, X.num_items)
    if learned is None:
        raise ValueError("fit was given no item_features: fit again with them")
    return added(learned, learned.features.like(given), old, X)


def added(
    learned: Learned, given: Features, old: int, X: Interactions
) -> tuple[Interactions, Learned]:
    """X and what was learned, with the items that are new in `given`; features of items before `old` stay.

    Args:
        learned: the features of the first `old` items of X.
        given: the same features of other items: with ids if X has ids, else row r is item `old` + r.
        old: the number of items that the model has.
        X: the positives, whose columns from `old` on may be new items too.
    """
    n, names = X.num_items, X.item_ids
    if names is not None and given.ids is None:
        raise TypeError("fit was given item ids: give the features of new items with ids, too")
    rows = np.arange(given.matrix.shape[0])
    wanted = given.ids if names is not None else old + rows
    assert wanted is not None
    place, is_known = ids.known("item", names, wanted, n)
    if names is not None:
        place = np.where(is_known, place, n + np.cumsum(~is_known) - 1)
    else:
        place = wanted
    size = max(n, int(place.max(initial=-1)) + 1)
    row_of = np.full(size - old, -1)
    fresh = place >= old
    row_of[place[fresh] - old] = rows[fresh]
    features = _below(learned.features, given.take(row_of).matrix)
    if names is not None:
        names = np.concatenate([names, wanted[~is_known]])
    return dataclasses.replace(X, num_items=size, item_ids=names), learned._replace(
        features=features
    )


def _zeros(rows: int, learned: Learned) -> Any:
    import scipy.sparse

    return scipy.sparse.csr_array((rows, learned.features.matrix.shape[1]))


def _below(features: Features, rows: Any) -> Features:
    import scipy.sparse

    matrix = scipy.sparse.csr_array(scipy.sparse.vstack([features.matrix, rows]))
    return dataclasses.replace(features, matrix=matrix, ids=None)
