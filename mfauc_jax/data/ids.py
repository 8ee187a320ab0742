"""Conversion between the caller's ids and positions, which are rows and columns of X."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool

from mfauc_jax._core import host
from mfauc_jax.data import interactions, reading
from mfauc_jax.data.interactions import Interactions


def places(kind: str, ids: np.ndarray | None, wanted: np.ndarray, size: int) -> np.ndarray:
    """The positions of the caller's ids; a ValueError names the first unknown id.

    Args:
        kind: "user" or "item", for messages.
        ids: all ids in the order of their positions; None if the caller uses positions.
        wanted: the ids to look up, or positions if `ids` is None.
        size: the number of positions.
    """
    if not wanted.size:
        return np.zeros(wanted.shape, np.int64)
    if ids is None:
        if not np.issubdtype(wanted.dtype, np.integer):
            raise TypeError(f"{kind} {wanted.ravel()[0]!r} is not a position: fit was given no ids")
        bad = (wanted < 0) | (wanted >= size)
        if bad.any():
            raise ValueError(f"{kind} {wanted[bad][0]} is outside range({size})")
        return wanted
    positions, is_known = search(kind, ids, wanted)
    if not is_known.all():
        raise ValueError(unknown_ids(kind, wanted[~is_known]))
    return positions


def known(
    kind: str, ids: np.ndarray | None, wanted: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """The position of each wanted id, and whether it is known; the arguments are those of `places`."""
    if ids is not None:
        return search(kind, ids, wanted)
    if not np.issubdtype(wanted.dtype, np.integer):
        return places(kind, ids, wanted, size), np.ones(len(wanted), bool)  # raises TypeError
    is_known = (wanted >= 0) & (wanted < size)
    return np.where(is_known, wanted, 0), is_known


def check_unknown(unknown: str, *choices: str) -> None:
    """Raise ValueError if `unknown` is not one of the choices of the calling function."""
    if not isinstance(unknown, str) or unknown not in choices:
        raise ValueError(f"unknown = {unknown!r}: choose {' or '.join(map(repr, choices))}")


def unknown_ids(kind: str, bad: np.ndarray) -> str:
    """The message about ids that training lacks; it names the first."""
    others = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return f"unknown {kind} {bad.tolist()[0]!r}{others}: it was not in the data given to fit"


def requested(given: Any, names: np.ndarray | None = None) -> np.ndarray:
    """The ids of a request as a vector; ids that NumPy would change stay Python objects.

    `np.asarray` drops zero characters at the end, and makes text of the 1 in ["x", 1] and floats of [−1, 2**63].

    Args:
        given: one id, or several.
        names: the known ids, whose type an empty request gets; None: positions.
    """
    ids = _requested(given)
    if not ids.size:
        return np.zeros(0, np.int64 if names is None else names.dtype)
    if ids.ndim > 1:
        raise TypeError(f"ids of shape {ids.shape}: give one id, or one list of ids")
    return ids


def _requested(given: Any) -> np.ndarray:
    given = [given] if isinstance(given, str | int) else given
    if not isinstance(given, list | tuple):
        array = np.atleast_1d(given)
        if array.dtype.kind == "u":
            large = array.dtype == np.uint64 and array.size and array.max() >= 2**63
            return array.astype(object if large else np.int64)
        if array.dtype.kind == "T":
            return array.astype(object)
        return array
    kinds = set(map(type, given))
    if kinds == {str} and not any("\0" in name for name in given):
        return np.array(given)
    if kinds == {int} and all(-(2**63) <= number < 2**63 for number in given):
        return np.array(given)
    plain = np.array(given)
    return plain if plain.ndim > 1 or not given else np.array([*given, None], object)[:-1]


def search(kind: str, ids: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The position of each wanted id among `ids`, and whether it is there; ids of another type raise TypeError.

    The position of an id that is not there means nothing.
    """
    if not len(wanted):
        return np.zeros(0, np.int64), np.zeros(0, bool)
    order = host.remembered(ids, "order", lambda ids: np.argsort(ids, kind="stable"))
    try:
        if wanted.dtype.kind in ("iufbS" if ids.dtype.kind == "U" else "US"):
            raise TypeError("text and numbers")  # NumPy would compare them as text
        place = np.searchsorted(ids, wanted, sorter=order)
    except TypeError as error:
        raise TypeError(f"{kind} ids are {ids.dtype}, not {wanted.dtype}") from error
    positions = order[np.minimum(place, len(ids) - 1)]
    return positions, np.asarray(ids[positions] == wanted)


def without_unknown(wanted: np.ndarray, is_known: np.ndarray) -> np.ndarray:
    """The known users among the wanted ones; one warning counts the others."""
    if is_known.all():
        return wanted
    skipped = wanted[~is_known].tolist()
    shown = ", ".join(map(repr, skipped[:3])) + (", …" if len(skipped) > 3 else "")
    reading.warn("users", [f"skipped {len(skipped)} unknown of {len(wanted)}, {shown}"])
    return wanted[is_known]


def names(ids: np.ndarray | None, positions: np.ndarray) -> np.ndarray:
    """The caller's ids at some positions; −1, which marks a missing item, becomes −1 or, among strings, ""."""
    if ids is None:
        return positions
    empty = "" if ids.dtype.kind in "US" else -1
    return np.where(positions >= 0, ids[np.maximum(positions, 0)], np.asarray(empty, ids.dtype))


def over_another(data: Any, kind: str = "positives") -> Interactions:
    """`Interactions.of` for positives, or "dislikes", over a catalogue that is known already.

    Their own columns are only the items that occur in them: a user with all of these is nothing to warn about, nor is
    one without a dislike.
    """
    token = reading.OVER_ANOTHER.set(kind)
    try:
        return Interactions.of(data)
    finally:
        reading.OVER_ANOTHER.reset(token)


def over(data: Any, X: Interactions, unknown: str = "raise") -> Interactions:
    """Held-out positives as Interactions over the rows and columns of X, whatever the order of their ids.

    Args:
        data: anything that `Interactions.of` reads.
        X: the training set.
        unknown: "raise" raises if X lacks the user or the item of a positive; "skip" leaves such positives out, and
            one warning counts them.
    """
    check_unknown(unknown, "raise", "skip")
    held_out = Interactions.of(data)
    users = _elsewhere("user", held_out.user_ids, X.user_ids)
    items = _elsewhere("item", held_out.item_ids, X.item_ids)
    if users is not None or items is not None:
        users = np.arange(held_out.num_users) if users is None else users
        items = np.arange(held_out.num_items) if items is None else items
        keep = both_known(held_out, users, items, X, unknown)
        return moved(held_out, users, items, X.shape, None, None, keep)
    if held_out.shape != X.shape:
        raise ValueError(
            f"the held-out positives are {held_out.shape}, the training catalogue is {X.shape}: "
            "drop what is outside it, or give both with ids"
        )
    return held_out


def _elsewhere(kind: str, mine: np.ndarray | None, theirs: np.ndarray | None) -> np.ndarray | None:
    """The position of each id of `mine` among `theirs`, −1 for unknown ids; None if both are equal or one is None."""
    if mine is None or theirs is None or np.array_equal(mine, theirs):
        return None
    positions, is_known = search(kind, theirs, mine)
    return np.where(is_known, positions, -1)


def both_known(
    held_out: Interactions, users: np.ndarray, items: np.ndarray, X: Interactions, unknown: str
) -> Bool[np.ndarray, " nnz"]:
    """Which held-out positives have a user and an item that X knows.

    Args:
        held_out: the positives.
        users: the row of X for each row of `held_out`, −1 if there is none.
        items: the same for columns.
        X: the training set.
        unknown: "raise" or "skip", as in `over`. If nothing is left, a ValueError says so.
    """
    rows, columns, _ = held_out.on_host()
    keep = (users[rows] >= 0) & (items[columns] >= 0)
    if keep.all():
        return keep
    lacking = {  # ids that occur in a positive
        "user": of(held_out, "user")[np.unique(rows[users[rows] < 0])],
        "item": of(held_out, "item")[np.unique(columns[items[columns] < 0])],
    }
    if unknown == "raise":
        kind, names = next((kind, names) for kind, names in lacking.items() if len(names))
        raise ValueError(f"{unknown_ids(kind, names)}; unknown='skip' goes on without")
    lost = " and ".join(counted(len(names), kind) for kind, names in lacking.items())
    if not keep.any():
        shown = ", ".join(repr(str(name)) for name in of(X, "user")[:3].tolist())
        raise ValueError(
            f"held-out positives: none of {len(keep)} is left, training does not know {lost}; its users are "
            f"{shown}, …: was the model fitted on another catalogue?"
        )
    message = f"left out {(~keep).sum()} of {len(keep)}, training does not know {lost}"
    reading.warn("held-out positives", [message])
    return keep


def counted(count: int, noun: str) -> str:
    """The number with its noun, in the singular or the plural: "1 user", "2 users"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def matches(ids: np.ndarray, wanted: Any) -> np.ndarray:
    """The position of each wanted id, compared as text, as a command line gives it; −1 for unknown ids."""
    position_of = {str(name): position for position, name in enumerate(ids.tolist())}
    return np.array([position_of.get(str(name), -1) for name in wanted], np.int64)


def of(X: Interactions, kind: str) -> np.ndarray:
    """The ids of X's users or items (`kind` is "user" or "item"); positions if X has no ids."""
    given, size = {"user": (X.user_ids, X.num_users), "item": (X.item_ids, X.num_items)}[kind]
    return np.arange(size) if given is None else given


def moved(
    X: Interactions, users, items, shape, user_ids, item_ids, keep: Bool[np.ndarray, " nnz"]
) -> Interactions:
    """The positives of X in `keep`, with row i at users[i] and column j at items[j] of a matrix of the given shape."""
    if not keep.any():
        nothing = np.zeros(0, np.int32)
        indptr = np.zeros(shape[0] + 1, np.int32)
        weights = None if X.confidence is None else host.floats(nothing)
        sizes = shape[1], 0
        return Interactions(
            host.ints(indptr), host.ints(nothing), weights, *sizes, user_ids, item_ids
        )
    confidence = None if X.confidence is None else np.asarray(X.confidence)[keep]
    rows, columns = users[X.on_host()[0][keep]], items[np.asarray(X.indices)[keep]]
    made = interactions.merged(rows, columns, shape, confidence)
    return dataclasses.replace(made, user_ids=user_ids, item_ids=item_ids)
