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


def over(data: Any, X: Interactions) -> Interactions:
    """Held-out positives as Interactions over the rows and columns of X, whatever the order of their ids."""
    held_out = Interactions.of(data)
    users = _elsewhere("user", held_out.user_ids, X.user_ids)
    items = _elsewhere("item", held_out.item_ids, X.item_ids)
    if users is not None or items is not None:
        users = np.arange(held_out.num_users) if users is None else users
        items = np.arange(held_out.num_items) if items is None else items
        return _moved(held_out, users, items, X.shape, None, None)
    if held_out.shape != X.shape:
        raise ValueError(
            f"the held-out positives are {held_out.shape}, the training catalogue is {X.shape}: "
            "drop what is outside it, or give both with ids"
        )
    return held_out


def _elsewhere(kind: str, mine: np.ndarray | None, theirs: np.ndarray | None) -> np.ndarray | None:
    """The place of each id of mine among theirs; None if they agree, or if either has positions."""
    if mine is None or theirs is None or np.array_equal(mine, theirs):
        return None
    return places(kind, theirs, mine, len(theirs))


def matches(ids: np.ndarray, wanted: Any) -> np.ndarray:
    """The place of each wanted id, compared as text, as a command line gives it; −1 for unknown ones."""
    at = {str(name): place for place, name in enumerate(ids.tolist())}
    return np.array([at.get(str(name), -1) for name in wanted], np.int64)


def of(X: Interactions, kind: str) -> np.ndarray:
    """The ids of X's users or items; positions if it was read without ids."""
    given, size = {"user": (X.user_ids, X.num_users), "item": (X.item_ids, X.num_items)}[kind]
    return np.arange(size) if given is None else given


def over_items(data: Any, X: Interactions) -> Interactions:
    """Other users' positives over the columns of X."""
    new, (_, n) = Interactions.of(data), X.shape
    if new.item_ids is None and new.num_items != n:
        raise ValueError(
            f"the matrix has {new.num_items} columns, one per item, but there are {n} items"
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
        warnings.simplefilter("ignore")  # X was already reported on when it was read
        moved = Interactions.from_pairs(
            users[X.on_host()[0]],
            items[np.asarray(X.indices)],
            shape=shape,
            confidence=X.confidence,
        )
    return dataclasses.replace(moved, user_ids=user_ids, item_ids=item_ids)
