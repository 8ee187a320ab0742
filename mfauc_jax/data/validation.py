"""Validation of input data: errors name the faulty value and the fix."""

import math
from typing import Any

import numpy as np
from jaxtyping import Shaped

FIX_BINARY = (
    "relevance is 0 or 1: threshold ratings first, such as X = (ratings > 3), "
    "or pass confidence=True to use the values as weights on the positives"
)


def ids(kind: str, given: Any) -> Shaped[np.ndarray, " rows"]:
    """`given` as a vector of integer or text ids; an error names the first bad id."""
    ids = np.array(given, object) if isinstance(given, list | tuple) else np.asarray(given)
    if ids.ndim != 1:
        raise ValueError(f"{kind} ids have shape {ids.shape}; they must be one vector")
    if np.issubdtype(ids.dtype, np.floating) or ids.dtype == bool:
        shown = ids[0] if len(ids) else ids.dtype
        raise TypeError(f"{kind} id {shown!r} is {ids.dtype}: cast ids to integers or strings")
    if ids.dtype == object:
        bad = [x for x in ids if not isinstance(x, str | int | np.integer) or isinstance(x, bool)]
        wrong = [x for x in bad if not _is_missing(x)]
        if wrong:
            name = type(wrong[0]).__name__
            raise TypeError(f"{kind} id {wrong[0]!r} is {name}: cast ids to integers or strings")
        if bad:
            raise ValueError(
                f"{len(bad)} of {len(ids)} {kind} ids are missing: leave these pairs out"
            )
        kinds = {isinstance(x, str) for x in ids}
        if len(kinds) > 1:
            raise TypeError(f"{kind} ids mix strings and integers: make them one kind")
        if any("\0" in x for x in ids if kinds == {True}):
            raise ValueError(f"a {kind} id has a zero character in it: remove it")  # NumPy would
        ids = ids.astype(str if kinds == {True} else np.int64)
    if ids.dtype.kind == "U":
        empty = int((np.strings.strip(ids) == "").sum())
        if empty:
            raise ValueError(f"{empty} of {len(ids)} {kind} ids are empty: leave these pairs out")
    return ids


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )


def values(values: np.ndarray, rows: np.ndarray, cols: np.ndarray, binary: bool) -> None:
    """Raise ValueError unless the values of X are 0 or 1 or, if not `binary`, weights ≥ 0."""
    for wrong, why in (
        (~np.isfinite(values), "is not finite: drop or repair it"),
        (values < 0, f"is negative: {FIX_BINARY}"),
        (
            (values != 0) & (values != 1) if binary else np.zeros(0, bool),
            f"is not 0 or 1: {FIX_BINARY}",
        ),
    ):
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ValueError(
                f"value {values[first]} of user {rows[first]}, item {cols[first]} {why}"
            )


def size(m: int, n: int, nnz: int) -> None:
    """Raise ValueError if X is empty, or too large for int32 indices."""
    if m < 1 or n < 1 or nnz == 0:
        raise ValueError(f"X is empty ({m} × {n}, {nnz} positives): nothing to learn from")
    if nnz >= 2**31 or m >= 2**31 or n >= 2**31:
        raise ValueError(
            f"X is {m} × {n} with {nnz} positives; int32 indices allow less than 2**31"
        )


def csr(indptr: Any, indices: Any, num_items: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The row and the item of every positive, and the number of rows, of CSR arrays; errors if they are not sound."""
    indptr, indices = np.asarray(indptr), np.asarray(indices)
    for name, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise TypeError(f"{name} must be a vector of integers, not {array.dtype}")
    if len(indptr) < 2 or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError(f"indptr must run from 0 to nnz = {len(indices)}, with m + 1 entries")
    if (np.diff(indptr) < 0).any():
        raise ValueError(
            f"indptr falls at row {int(np.argmax(np.diff(indptr) < 0))}: it must never fall"
        )
    outside = (indices < 0) | (indices >= num_items)
    if outside.any():
        raise ValueError(f"item {indices[outside][0]} is outside range({num_items})")
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    falls = (np.diff(indices) <= 0) & (np.diff(rows) == 0)
    if falls.any():
        row = rows[:-1][falls][0]
        raise ValueError(f"row {row} is unsorted or repeats an item: use from_pairs, it sorts")
    return rows, indices, len(indptr) - 1
