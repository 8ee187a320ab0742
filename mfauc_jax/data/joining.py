"""Further positives over the users and items of a training set: of new users, of known users, or both added to it."""

import dataclasses
from typing import Any

import jax
import numpy as np

from mfauc_jax._core import host
from mfauc_jax.data import dislikes, ids, interactions, reading
from mfauc_jax.data.interactions import Interactions


def over_items(data: Any, X: Interactions, unknown: str = "raise") -> Interactions:
    """The positives of other users, over the items of X.

    Args:
        data: anything that `Interactions.of` reads.
        X: the training set.
        unknown: "raise" raises if X lacks the item of a positive; "skip" leaves such positives out, and one warning
            counts them. A user may be left without a positive.
    """
    ids.check_unknown(unknown, "raise", "skip")
    new, (_, n) = ids.over_another(data), X.shape
    if new.item_ids is None and new.num_items != n:
        raise ValueError(
            f"the matrix has {new.num_items} columns, one per item, but there are {n} items"
        )
    items, is_known = np.arange(n), np.ones(n, bool)
    if new.item_ids is not None:
        items, is_known = ids.known("item", X.item_ids, new.item_ids, n)
    rows, columns, lengths = new.on_host()
    keep = is_known[columns]
    if not keep.all():
        lost = new.item_ids[np.unique(columns[~keep])]  # type: ignore[index]
        if unknown == "raise":
            ids.places("item", X.item_ids, lost, n)
        message = f"left out {(~keep).sum()} of {len(keep)}, training does not know {ids.counted(len(lost), 'item')}"
        empty = int(((np.bincount(rows[keep], minlength=len(lengths)) == 0) & (lengths > 0)).sum())
        none_left = (
            [f"u = 0 for {ids.counted(empty, 'user')} without a known item"] if empty else []
        )
        reading.warn("positives of new users", [message, *none_left])
    shape, users = (new.num_users, n), np.arange(new.num_users)
    kept = ids.moved(new, users, items, shape, new.user_ids, X.item_ids, keep)
    return dislikes.moved(kept, new, users, np.where(is_known, items, -1))


def of_known_users(data: Any, X: Interactions, unknown: str = "raise") -> Interactions:
    """The positives of users whom X knows, with ids of their own; the items may be any.

    Args:
        data: anything that `Interactions.of` reads.
        X: the training set.
        unknown: "raise" raises if X lacks a user; "skip" leaves such users out, and one warning counts them.
    """
    ids.check_unknown(unknown, "raise", "skip")
    new, m = ids.over_another(data), X.num_users
    wanted = ids.of(new, "user")
    if unknown == "raise":
        ids.places("user", X.user_ids, wanted, m)
    _, is_known = ids.known("user", X.user_ids, wanted, m)
    if not is_known.any():
        raise ValueError(ids.unknown_ids("user", wanted) + "; none is left")
    ids.without_unknown(wanted, is_known)
    kept = new.take(np.flatnonzero(is_known))
    return (
        kept if kept.user_ids is not None else dataclasses.replace(kept, user_ids=wanted[is_known])
    )


def rows_of(new: Interactions, X: Interactions) -> np.ndarray:
    """The rows of X of the users of `new` with a positive; X knows them all."""
    occurring = ids.of(new, "user")[np.diff(np.asarray(new.indptr)) > 0]
    return ids.places("user", X.user_ids, occurring, X.num_users)


def columns_of(new: Interactions, X: Interactions) -> np.ndarray:
    """The columns of X of the items of `new` with a positive; X knows them all."""
    occurring = ids.of(new, "item")[np.unique(np.asarray(new.indices))]
    return ids.places("item", X.item_ids, occurring, X.num_items)


def joined(X: Interactions, data: Any) -> Interactions:
    """X with further positives and dislikes; unseen users and items come after the known ones.

    An item that a user has ever liked counts as liked.
    """
    new = ids.over_another(data)
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
    both = interactions.merged(rows, columns, (m, n), confidence)
    both = dataclasses.replace(both, user_ids=user_ids, item_ids=item_ids)
    both = dislikes.moved(both, X, np.arange(X.num_users), np.arange(X.num_items))
    return dislikes.moved(both, new, users, items)


def widened(
    X: Interactions,
    shape: tuple[int, int],
    user_ids: np.ndarray | None,
    item_ids: np.ndarray | None,
) -> Interactions:
    """X with further users and items, without a positive, after its own; the ids are those of all."""
    rejected = None if X.dislikes is None else widened(X.dislikes, shape, None, None)
    indptr = np.pad(np.asarray(X.indptr), (0, shape[0] - X.num_users), mode="edge")
    return dataclasses.replace(
        X,
        indptr=host.ints(indptr),
        num_items=shape[1],
        user_ids=user_ids,
        item_ids=item_ids,
        dislikes=rejected,
    )


def _sizes(X: Interactions, new: Interactions, axis: int) -> tuple[int, int]:
    return X.shape[axis], new.shape[axis]


def _extended(kind: str, names, new_names, size: int, new_size: int):
    """The positions of the new rows, all ids, and the number of positions after the extension."""
    if names is None:
        wanted = np.arange(new_size) if new_names is None else new_names
        if not np.issubdtype(wanted.dtype, np.integer) or wanted.min() < 0:
            raise TypeError(f"{kind} {wanted[0]!r} is not a position: fit was given no ids")
        return wanted, None, max(size, int(wanted.max()) + 1)
    if new_names is None:
        raise TypeError(f"fit was given {kind} ids: give the new positives with ids, too")
    if (names.dtype.kind == "U") != (new_names.dtype.kind == "U"):
        raise TypeError(f"{kind} ids are {names.dtype}, not {new_names.dtype}")
    positions, is_known = ids.search(kind, names, new_names)
    unseen = new_names[~is_known]
    positions = np.where(is_known, positions, 0)
    positions[~is_known] = len(names) + np.arange(len(unseen))
    return positions, np.concatenate([names, unseen]), len(names) + len(unseen)


def of_all(X: Interactions) -> Interactions:
    """The rows of all processes, one process after the other, over the same items; X itself in one process."""
    if jax.process_count() == 1:
        return X
    lengths = host.everybody(np.diff(np.asarray(X.indptr)))
    items = host.everybody(np.asarray(X.indices))
    given = X.confidence is not None, X.user_ids is not None
    confidence = host.everybody(np.asarray(X.confidence)) if given[0] else None
    user_ids = host.everybody(np.asarray(X.user_ids)) if given[1] else None
    rows = np.repeat(np.arange(len(lengths)), lengths)
    shape = len(lengths), X.num_items
    whole = interactions.merged(rows, items, shape, confidence, user_ids, X.item_ids)
    return whole if X.dislikes is None else dataclasses.replace(whole, dislikes=of_all(X.dislikes))
