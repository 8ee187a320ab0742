"""The caller's ids and our positions: rows of U, columns of X."""

import dataclasses
import warnings
from typing import Any

import numpy as np

from mfauc_jax.data.interactions import Interactions


def places(kind: str, ids: np.ndarray | None, wanted: np.ndarray, size: int) -> np.ndarray:
    """The caller's names (or positions) as positions; a ValueError names the first unknown one."""
    if ids is None:
        if not np.issubdtype(wanted.dtype, np.integer):
            raise TypeError(f"{kind} {wanted.ravel()[0]!r} is not a position: fit was given no ids")
        bad = (wanted < 0) | (wanted >= size)
        if bad.any():
            raise ValueError(f"{kind} {wanted[bad][0]} is outside range({size})")
        return wanted
    found, known = search(kind, ids, wanted)
    if not known.all():
        bad = wanted[~known].tolist()
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise ValueError(f"unknown {kind} {bad[0]!r}{more}: it was not in the data given to fit")
    return found


def search(kind: str, ids: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each wanted id stands, and whether it is there at all."""
    order = np.argsort(ids, kind="stable")
    try:
        place = np.searchsorted(ids, wanted, sorter=order)
    except TypeError as error:
        raise TypeError(f"{kind} ids are {ids.dtype}, not {wanted.dtype}") from error
    found = order[np.minimum(place, len(ids) - 1)]
    return found, np.asarray(ids[found] == wanted)


def names(ids: np.ndarray | None, found: np.ndarray) -> np.ndarray:
    """Positions as the caller's names; −1 (nothing left) stays −1, or "" among strings."""
    if ids is None:
        return found
    empty = "" if ids.dtype.kind in "US" else -1
    return np.where(found >= 0, ids[np.maximum(found, 0)], np.asarray(empty, ids.dtype))


def aligned(data: Any, X: Interactions) -> Interactions:
    """Held-out positives as Interactions over the rows and columns of X."""
    held = Interactions.of(data)
    pairs = ((held.user_ids, X.user_ids), (held.item_ids, X.item_ids))
    if held.shape == X.shape and all(
        mine is None or theirs is None or np.array_equal(mine, theirs) for mine, theirs in pairs
    ):
        return held
    if held.user_ids is None or held.item_ids is None or X.user_ids is None:
        raise ValueError(f"held-out positives are {held.shape}, training was {X.shape}")
    users = places("user", X.user_ids, held.user_ids, X.num_users)
    items = places("item", X.item_ids, held.item_ids, X.num_items)
    return _moved(held, users, items, X.shape, None, None)


def over_items(data: Any, X: Interactions) -> Interactions:
    """Other users' positives over the columns of X."""
    new, (_, n) = Interactions.of(data), X.shape
    if new.item_ids is None and new.num_items != n:
        raise ValueError(
            f"the matrix has {new.num_items} columns, one an item, but there are {n} items"
        )
    items = np.arange(n)
    if new.item_ids is not None:
        items = places("item", X.item_ids, new.item_ids, n)
    shape = (new.num_users, X.num_items)
    return _moved(new, np.arange(new.num_users), items, shape, new.user_ids, X.item_ids)


def joined(X: Interactions, data: Any) -> Interactions:
    """X with further positives; unseen users and items come after the known ones."""
    new = Interactions.of(data)
    users, user_ids, m = _extended("user", X.user_ids, new.user_ids, *_sizes(X, new, 0))
    items, item_ids, n = _extended("item", X.item_ids, new.item_ids, *_sizes(X, new, 1))
    rows = np.concatenate([X.on_host()[0], users[new.on_host()[0]]])
    columns = np.concatenate([np.asarray(X.indices), items[np.asarray(new.indices)]])
    confidence = None
    if X.confidence is not None or new.confidence is not None:
        parts = (
            np.ones(Y.nnz) if Y.confidence is None else np.asarray(Y.confidence) for Y in (X, new)
        )
        confidence = np.concatenate(list(parts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a repeated positive is one
        both = Interactions.from_pairs(rows, columns, shape=(m, n), confidence=confidence)
    return dataclasses.replace(both, user_ids=user_ids, item_ids=item_ids)


def _sizes(X: Interactions, new: Interactions, axis: int) -> tuple[int, int]:
    return X.shape[axis], new.shape[axis]


def _extended(kind: str, ids, new_ids, size: int, new_size: int):
    """Where the new rows go, the ids after that, and how many there are."""
    if ids is None:
        wanted = np.arange(new_size) if new_ids is None else new_ids
        if not np.issubdtype(wanted.dtype, np.integer) or wanted.min() < 0:
            raise TypeError(f"{kind} {wanted[0]!r} is not a position: fit was given no ids")
        return wanted, None, max(size, int(wanted.max()) + 1)
    if new_ids is None:
        raise TypeError(f"fit was given {kind} ids: give the new positives with ids, too")
    if (ids.dtype.kind == "U") != (new_ids.dtype.kind == "U"):
        raise TypeError(f"{kind} ids are {ids.dtype}, not {new_ids.dtype}")
    found, known = search(kind, ids, new_ids)
    unseen = new_ids[~known]
    found = np.where(known, found, 0)
    found[~known] = len(ids) + np.arange(len(unseen))
    return found, np.concatenate([ids, unseen]), len(ids) + len(unseen)


def _moved(X: Interactions, users, items, shape, user_ids, item_ids) -> Interactions:
    """X with row i at users[i] and column j at items[j] of a matrix of the given shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what X is like was said when it was read
        moved = Interactions.from_pairs(
            users[X.on_host()[0]],
            items[np.asarray(X.indices)],
            shape=shape,
            confidence=X.confidence,
        )
    return dataclasses.replace(moved, user_ids=user_ids, item_ids=item_ids)
