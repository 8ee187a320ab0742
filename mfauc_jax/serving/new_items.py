"""Items and users that come after the fit with features: their place in X, and their rows of features."""

import dataclasses
from typing import Any

import numpy as np

from mfauc_jax.data import ids, interactions, joining
from mfauc_jax.data.features import Features
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.training import side_information
from mfauc_jax.training.side_information import Learned


def known_by(
    kind: str, learned: Learned | None, given: Any, old: int, X: Interactions
) -> tuple[Interactions, Learned | None]:
    """X with the new items of `given`, and the features of all its items; rows of zeros where nothing is given.

    Args:
        kind: "item" or "user".
        learned: the features of the first `old` items (or users) of X, or None.
        given: features of new items as the caller gives them, or None.
        old: the number of items that the model has.
        X: the positives, whose columns (or rows) from `old` on are new.
    """
    if given is None:
        if learned is None:
            return X, None
        more = X.shape[kind == "item"] - learned.features.matrix.shape[0]
        return X, learned._replace(features=_below(learned.features, _zeros(more, learned)))
    if learned is None:
        raise ValueError(f"fit was given no {kind}_features: fit again with them")
    return _added(kind, learned, learned.features.like(given, kind), old, X)


def of_new_users(
    learned: Learned | None, given: Any, X: Interactions | None, item_ids: np.ndarray | None, n: int
) -> tuple[Interactions, Learned | None]:
    """The positives of new users, with those users whom only the features know, and the features of them all.

    Args:
        learned: what `fit` learned about users, or None.
        given: features of the new users, or None.
        X: their positives over the items of the model; None: there are none.
        item_ids: the ids of those items.
        n: their number.
    """
    if given is None:
        if X is None:
            raise ValueError("give positives of new users, their user_features, or both")
        rows = None if learned is None else _zeros(X.num_users, learned)
        return X, None if learned is None else _with_rows(learned, rows)
    if learned is None:
        raise ValueError("fit was given no user_features: fit again with them")
    found = learned.features.like(given, "user")
    if X is None:
        indptr = np.zeros(found.matrix.shape[0] + 1, int)
        X = interactions.built(indptr, np.zeros(0, int), None, n, found.ids, item_ids)
        return X, _with_rows(learned, found.matrix)
    everything, user_ids = side_information.aligned(found, X.user_ids, X.num_users, "user")
    assert everything is not None
    wide = joining.widened(X, (everything.matrix.shape[0], n), user_ids, X.item_ids)
    return wide, _with_rows(learned, everything.matrix)


def _added(
    kind: str, learned: Learned, given: Features, old: int, X: Interactions
) -> tuple[Interactions, Learned]:
    """X and what was learned, with the items that are new in `given`; features of items before `old` stay.

    `given` has ids if X has ids; else its row r is item `old` + r.
    """
    (m, n), is_item = X.shape, kind == "item"
    count, names = (n, X.item_ids) if is_item else (m, X.user_ids)
    if names is not None and given.ids is None:
        raise TypeError(f"fit was given {kind} ids: give the features of new {kind}s with ids, too")
    rows = np.arange(given.matrix.shape[0])
    wanted = given.ids if names is not None else old + rows
    assert wanted is not None
    place, is_known = ids.known(kind, names, wanted, count)
    if names is not None:
        place = np.where(is_known, place, count + np.cumsum(~is_known) - 1)
        names = np.concatenate([names, wanted[~is_known]])
    else:
        place = wanted
    size = max(count, int(place.max(initial=-1)) + 1)
    row_of = np.full(size - old, -1)
    fresh = place >= old
    row_of[place[fresh] - old] = rows[fresh]
    features = _below(learned.features, given.take(row_of).matrix)
    wide = ((m, size), X.user_ids, names) if is_item else ((size, n), names, X.item_ids)
    return joining.widened(X, *wide), learned._replace(features=features)


def _with_rows(learned: Learned, rows: Any) -> Learned:
    """What was learned, for other rows of features."""
    return learned._replace(features=dataclasses.replace(learned.features, matrix=rows, ids=None))


def _zeros(rows: int, learned: Learned) -> Any:
    import scipy.sparse

    return scipy.sparse.csr_array((rows, learned.features.matrix.shape[1]))


def _below(features: Features, rows: Any) -> Features:
    import scipy.sparse

    matrix = scipy.sparse.csr_array(scipy.sparse.vstack([features.matrix, rows]))
    return dataclasses.replace(features, matrix=matrix, ids=None)
