"""Splits: which positives train, which are held out, and which rows and columns are kept.

Pure functions on `Interactions`, on the host. `train` and `test` have the shape and the ids of X,
and `train` its dislikes;
`k_core` and `subsample_users` drop rows and columns, and the ids of the result say which are left.
`by_time` divides the rows of a frame and keeps its columns (`data/time_split.py`).
"""

import dataclasses
import math
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Shaped

from mfauc_jax.data import dislikes
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.time_split import FrameSplit, by_time

__all__ = [
    "FrameSplit",
    "Split",
    "by_time",
    "compact",
    "generator",
    "hold_out",
    "hold_out_items",
    "in_core",
    "k_core",
    "k_fold",
    "leave_last_out",
    "select",
    "subsample_users",
]


class Split(NamedTuple):
    """Two disjoint sets of positives over the same users and items."""

    train: Interactions
    test: Interactions


def generator(key: Key[Array, ""] | int | np.integer) -> np.random.Generator:
    """PCG64 seeded with the words of `key`, or of the key of an integer seed: the same draws on any machine."""
    if isinstance(key, int | np.integer):
        if key < 0:
            raise ValueError(f"seed = {key} must be ≥ 0")
        key = jax.random.key(int(key))
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def hold_out(key: Key[Array, ""] | int | np.integer, X: Any, per_user: int = 5) -> Split:
    """Hold out min(ℓ, N_i - 1) random positives of every user: the paper's protocol, ℓ = 5.

    At least one positive of every user trains, so a user with a single positive is not tested.

    Args:
        key: for the random choice; an integer seed s means `jax.random.key(s)`.
        X: the positives, or anything that `Interactions.of` reads, such as a frame.
        per_user: ℓ ≥ 1.
    """
    _check_at_least("per_user", per_user, 1)
    X = Interactions.of(X)
    lengths = _lengths(X)
    num_held_out = np.minimum(per_user, np.maximum(lengths - 1, 0))
    return _split(X, _random_place(generator(key), lengths) < np.repeat(num_held_out, lengths))


def hold_out_items(key: Key[Array, ""] | int | np.integer, X: Any, share: float = 0.1) -> Split:
    """Hold out a share of the items whole, with all their positives: the protocol for items that are new.

    Of the items with a positive a random ⌈share⌉ is held out. Users may be left without a training positive.

    Args:
        key: for the random choice; an integer seed s means `jax.random.key(s)`.
        X: the positives, or anything that `Interactions.of` reads, such as a frame.
        share: of the items, in (0, 1).
    """
    if not 0 < share < 1:
        raise ValueError(f"share = {share} must be between 0 and 1")
    X = Interactions.of(X)
    columns = np.asarray(X.indices)
    occurring = np.unique(columns)
    cold = np.zeros(X.num_items, bool)
    cold[generator(key).permutation(occurring)[: math.ceil(share * len(occurring))]] = True
    if cold[occurring].all():
        raise ValueError(f"share = {share} of {len(occurring)} items leaves none for training")
    return _split(X, cold[columns])


def k_fold(key: Key[Array, ""] | int | np.integer, X: Any, folds: int = 5) -> Iterator[Split]:
    """`folds` splits in which every positive is held out once; the folds of each user differ in size by at most 1.

    The positives of a user are dealt to the folds in turn, beginning with a random fold. The positive of a user with
    a single one always trains. `key` and `X` are as in `hold_out`.
    """
    _check_at_least("folds", folds, 2)
    X = Interactions.of(X)
    rng, lengths = generator(key), _lengths(X)
    place = _random_place(rng, lengths)
    fold = (place + np.repeat(rng.integers(folds, size=len(lengths)), lengths)) % folds
    fold[np.repeat(lengths == 1, lengths)] = -1
    return (_split(X, fold == f) for f in range(folds))


def leave_last_out(X: Interactions, times: Shaped[np.ndarray, " nnz"], per_user: int = 1) -> Split:
    """Hold out the latest min(ℓ, N_i - 1) positives of every user.

    Args:
        X: the positives.
        times: the time of each of `X.indices`, [nnz]; equal times are ordered by item.
        per_user: ℓ ≥ 1; 1 is the usual leave-one-out.
    """
    _check_at_least("per_user", per_user, 1)
    times, lengths = np.asarray(times), _lengths(X)
    if times.shape != (X.nnz,):
        raise ValueError(f"{times.size} times for {X.nnz} positives: give one each, in CSR order")
    if times.dtype.kind == "f" and not np.isfinite(times).all():
        raise ValueError(f"time {times[~np.isfinite(times)][0]} is not finite")
    rows = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((times, rows))  # stable, so item order breaks ties
    num_held_out = np.minimum(per_user, np.maximum(lengths - 1, 0))
    from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(X.nnz) - 1
    late = np.zeros(X.nnz, bool)
    late[order] = from_end < np.repeat(num_held_out, lengths)
    return _split(X, late)


def subsample_users(
    key: Key[Array, ""] | int | np.integer, X: Interactions, max_nnz: int = 100_000, step: int = 5
) -> Interactions:
    """X of random users, added `step` at a time as long as they have at most `max_nnz` positives.

    This is the authors' subsample for model selection. Items that no user of the sample has are dropped.
    """
    _check_at_least("step", step, 1)
    lengths = _lengths(X)
    order = generator(key).permutation(X.num_users)
    nnz = np.cumsum(lengths[order])
    ends = np.minimum(np.arange(step, X.num_users + step, step), X.num_users)
    fitting = ends[nnz[ends - 1] <= max_nnz]
    if not len(fitting) or nnz[fitting[-1] - 1] == 0:
        raise ValueError(
            f"max_nnz = {max_nnz} is exceeded by the first {ends[0]} users "
            f"({nnz[ends[0] - 1]} positives): raise it or lower step"
        )
    chosen = np.zeros(X.num_users, bool)
    chosen[order[: fitting[-1]]] = True
    return compact(X, np.repeat(chosen, lengths))


def k_core(X: Interactions, user_min: int, item_min: int) -> Interactions:
    """X without users below `user_min` positives and items below `item_min`, dropped until nothing changes.

    The result is unique: the largest part of X in which every user and item has enough.
    """
    return compact(X, in_core(X, user_min, item_min))


def in_core(X: Interactions, user_min: int, item_min: int) -> Bool[np.ndarray, " nnz"]:
    """Which positives are in the k-core of X, see `k_core`."""
    _check_at_least("user_min", user_min, 0)
    _check_at_least("item_min", item_min, 0)
    lengths, items = _lengths(X), np.asarray(X.indices)
    users = np.repeat(np.arange(X.num_users, dtype=np.int32), lengths)
    kept = np.arange(X.nnz)
    while True:
        before = len(kept)
        for ids, size, least in ((users, X.num_users, user_min), (items, X.num_items, item_min)):
            counts = np.bincount(ids[kept], minlength=size)
            kept = kept[counts[ids[kept]] >= least]
        if len(kept) == before:
            break
    inside = np.zeros(X.nnz, bool)
    inside[kept] = True
    return inside


def compact(X: Interactions, keep: Bool[np.ndarray, " nnz"]) -> Interactions:
    """X with only the positives in `keep`, and without rows and columns that become empty.

    The `user_ids` and `item_ids` of the result are those of X, or positions in X if X has none.
    """
    if not keep.any():
        raise ValueError(f"none of the {X.nnz} positives is left: lower the minimum or threshold")
    kept = select(X, keep)
    indices, lengths = np.asarray(kept.indices), _lengths(kept)
    has_item = np.bincount(indices, minlength=X.num_items) > 0
    has_positive = lengths > 0
    column = np.cumsum(has_item) - 1  # old position → new
    user_ids = np.arange(X.num_users) if X.user_ids is None else X.user_ids
    item_ids = np.arange(X.num_items) if X.item_ids is None else X.item_ids
    compacted = Interactions(
        _indptr(lengths[has_positive]),
        jnp.asarray(column[indices], jnp.int32),
        kept.confidence,
        int(has_item.sum()),
        kept.row_bits,
        user_ids[has_positive],
        item_ids[has_item],
    )
    rows = np.where(has_positive, np.cumsum(has_positive) - 1, -1)
    return dislikes.moved(compacted, X, rows, np.where(has_item, column, -1))


def select(X: Interactions, keep: Bool[np.ndarray, " nnz"]) -> Interactions:
    """X with only the positives in `keep`, in the same shape and with the same ids; rows may become empty."""
    before = np.concatenate([[0], np.cumsum(keep)])
    lengths = np.diff(before[np.asarray(X.indptr)])
    return Interactions(
        _indptr(lengths),
        jnp.asarray(np.asarray(X.indices)[keep]),
        None if X.confidence is None else jnp.asarray(np.asarray(X.confidence)[keep]),
        X.num_items,
        int(lengths.max()).bit_length(),
        X.user_ids,
        X.item_ids,
        X.dislikes,
    )


def _split(X: Interactions, held_out: np.ndarray) -> Split:
    test = select(dataclasses.replace(X, dislikes=None), held_out)
    return Split(select(X, ~held_out), test)  # dislikes train


def _indptr(lengths: np.ndarray) -> jax.Array:
    return jnp.asarray(np.concatenate([[0], np.cumsum(lengths)]), jnp.int32)


def _lengths(X: Interactions) -> np.ndarray:
    return np.diff(np.asarray(X.indptr)).astype(np.int64)


def _random_place(rng: np.random.Generator, lengths: np.ndarray) -> Int[np.ndarray, " nnz"]:
    """The place of each positive in a random order of its row, 0 … N_i - 1."""
    nnz = int(lengths.sum())
    rows = np.repeat(np.arange(len(lengths), dtype=np.uint64), lengths)
    shuffled = (rows << np.uint64(32)) | rng.integers(2**32, size=nnz, dtype=np.uint64)
    place = np.empty(nnz, np.int64)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    place[np.argsort(shuffled, kind="stable")] = np.arange(nnz) - starts
    return place


def _check_at_least(name: str, value: Any, least: int) -> None:
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} is a {type(value).__name__}: it must be a whole number ≥ {least}"
        ) from None
    if not least <= whole < 2**31:
        raise ValueError(f"{name} = {value} must be ≥ {least} and below 2³¹")
