"""Validation of input data: errors name the faulty value and the fix."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Shaped

FIX_BINARY = (
    "relevance is 0 or 1: threshold ratings first, such as X = (ratings > 3), "
    "or pass confidence=True to use the values as weights on the positives"
)

LONGEST_ID = 1000  # characters in an id
WIDE = 2**26  # characters, 256 MB, that all ids may take whatever their widths


def ids(kind: str, given: Any) -> Shaped[np.ndarray, " rows"]:
    """`given` as a vector of int64 or text ids, each whole; an error names the first id that cannot be kept so."""
    ids = np.array(given, object) if isinstance(given, list | tuple) else np.asarray(given)
    if ids.ndim != 1:
        raise ValueError(f"{kind} ids have shape {ids.shape}; they must be one vector")
    if ids.dtype.kind == "T":  # NumPy's strings of variable width
        ids = ids.astype(object)
    if ids.dtype.kind not in "iuUO":
        shown = ids[0] if len(ids) else ids.dtype
        raise TypeError(f"{kind} id {shown!r} is {ids.dtype}: cast ids to integers or strings")
    if ids.dtype != object:
        return _text(kind, ids) if ids.dtype.kind == "U" else int64(kind, ids)
    bad = [x for x in ids if not isinstance(x, str | int | np.integer) or isinstance(x, bool)]
    wrong = [x for x in bad if not _is_missing(x)]
    if wrong:
        name = type(wrong[0]).__name__
        raise TypeError(f"{kind} id {wrong[0]!r} is {name}: cast ids to integers or strings")
    if bad:
        raise ValueError(f"{len(bad)} of {len(ids)} {kind} ids are missing: leave these pairs out")
    kinds = {isinstance(x, str) for x in ids}
    if len(kinds) > 1:
        raise TypeError(f"{kind} ids mix strings and integers: make them one kind")
    if kinds != {True}:
        return int64(kind, ids)
    zero = next((x for x in ids if "\0" in x), None)
    if zero is not None:
        raise ValueError(_with_zero(kind, zero))
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    widths(f"{kind} id", lengths, lambda at: short(ids[at]))
    return _text(kind, ids.astype(str))


def int64(kind: str, ids: np.ndarray) -> np.ndarray:
    """Integers as int64, which holds −1 for "no item"; a ValueError names the first that is too large."""
    if ids.dtype in (object, np.uint64):
        large = next((x for x in ids.tolist() if not -(2**63) <= int(x) < 2**63), None)
        if large is not None:
            raise ValueError(
                f"{kind} id {large} does not fit in 64 bits with a sign: make these ids strings, as by ids.astype(str)"
            )
    return ids.astype(np.int64)


def widths(name: str, lengths: np.ndarray, example: Callable[[int], str]) -> None:
    """Raise ValueError for an id that is too long, or that makes all ids too wide: NumPy keeps them equally wide.

    Args:
        name: of the ids, for messages.
        lengths: number of characters of each id.
        example: gives the id at a place as it is shown.
    """
    if not len(lengths):
        return
    at = int(lengths.argmax())
    longest, total = int(lengths[at]), int(lengths.sum())
    if longest > LONGEST_ID:
        why = f"more than {LONGEST_ID}: is a quote not closed?"
    elif longest * len(lengths) > max(WIDE, 16 * total):
        why = f"but the mean is {total / len(lengths):.1f}: all {len(lengths)} ids would be kept as wide; shorten it"
    else:
        return
    raise ValueError(f"{name} {example(at)} has {longest} characters, {why}")


def short(name: str) -> str:
    """An id for messages, in quotes, and cut if it is long."""
    return repr(name if len(name) <= 60 else name[:59] + "…")


def _text(kind: str, ids: np.ndarray) -> np.ndarray:
    """Text ids; a ValueError if some are empty, too long, or hold what no file can keep."""
    empty = int((np.strings.strip(ids) == "").sum())
    if empty:
        raise ValueError(f"{empty} of {len(ids)} {kind} ids are empty: leave these pairs out")
    widths(f"{kind} id", np.strings.str_len(ids), lambda at: short(str(ids[at])))
    ids = np.ascontiguousarray(ids, ids.dtype.newbyteorder("="))
    for start in range(0, len(ids), 2**16):  # in blocks: the codes of all ids would be copied
        part = ids[start : start + 2**16]
        codes = part.view(np.uint32).reshape(len(part), -1)
        zero = ((codes[:, :-1] == 0) & (codes[:, 1:] != 0)).any(1)
        if zero.any():
            raise ValueError(_with_zero(kind, str(part[zero][0])))
        half = ((codes >= 0xD800) & (codes < 0xE000)).any(1)
        if half.any():
            raise ValueError(
                f"{kind} id {str(part[half][0])!r} has half a surrogate pair, which no UTF-8 file can hold: repair it"
            )
    return ids


def _with_zero(kind: str, name: str) -> str:
    return f"{kind} id {short(name)} has a zero character in it, which NumPy would drop: remove it"


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
