"""The top of each user's list, computed in blocks of users: m × n scores are never in memory.

Among equal scores the lower item index comes first, here and in `metrics`: a list depends on the scores alone.
"""

import operator
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mfauc_jax._core import forks, host, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions

BLOCK_SCORES = 2**22  # scores per block: 16 MB in float32
HOST_SCORES = 2**18  # up to so many scores NumPy answers sooner than a compiled program


def factors_of(model: Any) -> Factors:
    """The factors of a fitted model (its `factors_`), or of anything with .U and .V; they must be finite."""
    forks.check()
    factors = getattr(model, "factors_", model)
    if not (hasattr(factors, "U") and hasattr(factors, "V")):
        raise TypeError(f"{type(model).__name__} has neither factors_ nor U and V: fit it first")
    U, V = factors.U, factors.V
    if U.ndim != 2 or V.ndim != 2 or U.shape[1] != V.shape[1]:
        raise ValueError(f"U {U.shape} and V {V.shape} must be [m, k] and [n, k] of one rank k")
    for name, F in (("U", U), ("V", V)):
        if not (host.remembered(F, "finite", _finite) if isinstance(F, jax.Array) else _finite(F)):
            row = int(np.argmax(~np.isfinite(np.asarray(F)).all(1)))
            raise ValueError(f"row {row} of {name} is not finite: lower the learning rate")
    return Factors(*(F if isinstance(F, jax.Array) else jax.device_put(F) for F in (U, V)))


def _finite(F: Any) -> bool:
    return bool(np.isfinite(np.asarray(F)).all())


def top_items(
    factors: Any,
    users: Any,
    n: int,
    *,
    exclude: Interactions | None = None,
    deny: Any = None,
    allow: Any = None,
    batch: int | None = None,
) -> tuple[Int[np.ndarray, "b n"], Float[np.ndarray, "b n"]]:
    """The n best items of each user and their scores, best first.

    The lists are exact. They have min(n, number of items) places. If fewer items are left for a user, the rest are
    item −1 with score −inf.

    Args:
        factors: Factors, or a model with `factors_`.
        users: rows of U, in any order; they may repeat.
        n: length of a list, ≥ 1; no list is longer than the catalogue.
        exclude: items to leave out per user, such as the training set.
        deny: items to leave out: indices for all users, or Interactions with a set per user.
        allow: the only items that may be listed, in the same two forms.
        batch: users per block of a compiled program; None: as many as make 16 MB of scores, or `lists_on_host`
            for a few users.
    """
    factors = factors_of(factors)
    (m, _), num_items = factors.U.shape, factors.V.shape[0]
    users = _check_indices("user", users, m)
    n = check_length("n", n)
    left_out = [X for X in (exclude, deny) if isinstance(X, Interactions)]
    allowed = allow if isinstance(allow, Interactions) else None
    for X in [*left_out, *([] if allowed is None else [allowed])]:
        check_shape("exclude, deny or allow", X, m, num_items)
    shown = np.ones(num_items, bool)
    if allow is not None and allowed is None:
        shown[:] = False
        shown[_check_indices("allowed item", allow, num_items)] = True
    if deny is not None and not isinstance(deny, Interactions):
        shown[_check_indices("denied item", deny, num_items)] = False

    U, n = np.asarray(factors.U), min(n, num_items)
    if batch is None and by_host(len(users), num_items):
        is_shown = candidates(users, num_items, shown, left_out, allowed)
        return lists_on_host(U[users], np.asarray(factors.V), is_shown, n)
    V = catalogue(factors.V)
    items = np.full((len(users), n), -1, np.int32)
    best = np.full((len(users), n), -np.inf, np.result_type(U.dtype, V.dtype))
    batch = batch_size(len(users), num_items, batch, base=4)
    for block in blocks(len(users), batch):
        rows = pad(users[block], batch)
        is_shown = candidates(rows, V.shape[0], shown, left_out, allowed)
        found = _top(U[rows], V, is_shown, n=list_length(n, V.shape[0]))
        size = len(users[block])
        best[block], items[block] = (np.asarray(a)[:size, :n] for a in found)
    items[best == -np.inf] = -1
    return items, best


def by_host(num_users: int, num_items: int) -> bool:
    """Whether a request is answered by `lists_on_host`, which compiles nothing, and not by a compiled program."""
    return num_users * num_items <= HOST_SCORES


def compiled_requests(num_users: int, n: int, num_items: int) -> list[tuple[int, int]]:
    """(users, length of lists) of one request per program that requests up to these sizes need; empty: they need none.

    Args:
        num_users: the most users of a request.
        n: the longest list.
        num_items: the size of the catalogue.
    """
    N = programs.item_rows(num_items)
    most = programs.power(min(1024, max(1, BLOCK_SCORES // num_items)))  # users per block
    sizes = {batch_size(u, num_items, base=4): u for u in range(1, min(num_users, most) + 1)}
    lengths = {list_length(x, N): x for x in range(1, min(n, num_items) + 1)}
    large = [u for u in sizes.values() if not by_host(u, num_items)]
    return [(u, x) for u in large for x in lengths.values()]


def lists_on_host(
    U: Float[np.ndarray, "b k"],
    V: Float[np.ndarray, "n k"],
    is_shown: Bool[np.ndarray, "b n"],
    length: int,
) -> tuple[Int[np.ndarray, "b top"], Float[np.ndarray, "b top"]]:
    """The best items of a few users and their scores, in NumPy: the lists of `top_items`, without a dispatch.

    The score at place `length` from the top is found by a selection. The list has every item above it and, of the
    items that equal it, those with the lowest indices.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # as in XLA
        S = host.product(U, V.T)
    S[~is_shown] = -np.inf
    S[np.isnan(S)] = np.inf  # inf − inf, from factors that are far too large
    last = np.partition(S, S.shape[1] - length, axis=1)[:, S.shape[1] - length, None]
    listed = ~(last > S)
    too_many = np.flatnonzero(listed.sum(1) > length)  # users with ties at the last place
    if len(too_many):
        ties = S[too_many] == last[too_many]
        room = length - (S[too_many] > last[too_many]).sum(1, keepdims=True)
        listed[too_many] &= ~ties | (ties.cumsum(1) <= room)
    places = np.flatnonzero(listed).reshape(
        len(U), length
    )  # those of a user in the order of indices
    items, best = places % S.shape[1], S.ravel()[places]
    order = np.argsort(-best, axis=1, kind="stable")
    items, best = (np.take_along_axis(a, order, 1) for a in (items, best))
    return np.where(best == -np.inf, -1, items).astype(np.int32), best


def catalogue(V: Float[Array, "n k"]) -> Float[Array, "N k"]:
    """V with rows of zeros up to a size from a grid, so that catalogues of similar size share their host."""
    return host.padded_once(V, programs.item_rows(V.shape[0]))


def list_length(n: int, num_items: int) -> int:
    """The length of the lists that are computed for lists of length n: 16, 128, 1024, … or the whole catalogue."""
    return min(16 * programs.power(-(-n // 16), 8), num_items)


def check_length(name: str, given: Any) -> int:
    """The number of items in a list as an int, ≥ 1; `name` is for the message."""
    try:
        length = operator.index(given)
    except TypeError:
        raise TypeError(
            f"{name} is a {type(given).__name__}: it must be a whole number ≥ 1, the number of items in a list"
        ) from None
    if length < 1:
        raise ValueError(f"{name} = {length} must be ≥ 1: it is the number of items in a list")
    return length


def batch_size(num_users: int, num_items: int, batch: int | None = None, base: int = 2) -> int:
    """Users per block: a power of `base`, or as many as make about `BLOCK_SCORES` scores if those are fewer."""
    if batch is not None and not 0 < batch * num_items < 2**31:
        raise ValueError(f"batch = {batch} users × {num_items} items must be in [1, 2³¹) scores")
    largest = programs.power(min(1024, max(1, BLOCK_SCORES // num_items)))
    return min(programs.power(num_users, base), batch or largest)


def blocks(size: int, batch: int) -> Iterator[slice]:
    """range(size) in slices of `batch`; the last may be shorter."""
    return (slice(start, min(start + batch, size)) for start in range(0, size, batch))


def pad(array: np.ndarray, size: int) -> np.ndarray:
    """`array` padded to `size` rows by repeating its first, so that all blocks share one program."""
    return np.concatenate([array, np.repeat(array[:1], size - len(array), axis=0)])


def candidates(
    users: Int[np.ndarray, " b"],
    size: int,
    shown: Bool[np.ndarray, " n"],
    left_out: list[Interactions],
    allowed: Interactions | None = None,
) -> Bool[np.ndarray, "b N"]:
    """Which items may be in each user's list, made on the host: one shape, whatever the filters.

    Args:
        users: rows of the sets; they may repeat.
        size: N ≥ n; no item after the first n may be listed.
        shown: the items that any list may have.
        left_out: sets of items that are left out, per user.
        allowed: the only items that may be listed, per user.
    """
    result = np.zeros((len(users), size), bool)
    if allowed is None:
        result[:, : len(shown)] = shown
    else:
        places = _places(allowed, users)
        result[places] = shown[places[1]]
    for X in left_out:
        result[_places(X, users)] = False
    return result


def _places(X: Interactions, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The items of some users of X, as (place in `users`, item)."""
    indptr = np.asarray(X.indptr)
    first, count = indptr[users], indptr[users + 1] - indptr[users]
    row = np.repeat(np.arange(len(users)), count)
    slot = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
    return row, np.asarray(X.indices)[slot]


def scores(
    U: Float[Array, "b k"], V: Float[Array, "N k"], is_candidate: Bool[Array, "b N"]
) -> Float[Array, "b N"]:
    """U Vᵀ of a block of users, with −inf for items that are no candidates."""
    S = jnp.matmul(U, V.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.where(is_candidate, S, -jnp.inf)


def best(S: Float[Array, "b n"], n: int) -> tuple[Float[Array, "b top"], Int[Array, "b top"]]:
    """The n best scores of each row and their items: `jax.lax.top_k`, made fast for float64 on CPU too.

    On CPU, XLA has a selection for float32 (2 ns per score), but sorts whole rows of float64 (200–400 ns per score).
    There the row is cut into runs. The n best items lie in the n runs with the best maxima (among equal maxima the
    lower run, hence the lower index, comes first), and only those runs are sorted.
    """
    b, size = S.shape
    run = int(np.sqrt(size / n))
    if S.dtype == jnp.float32 or run < 4:
        values, items = jax.lax.top_k(S, n)
        return values, items
    runs = -(-size // run)
    padded = jnp.pad(S, ((0, 0), (0, runs * run - size)), constant_values=-jnp.inf)
    padded = padded.reshape(b, runs, run)
    chosen = jnp.sort(jax.lax.top_k(padded.max(2), n)[1], axis=1)  # [b, n], in the order of items
    candidates = jnp.take_along_axis(padded, chosen[:, :, None], axis=1).reshape(b, n * run)
    values, place = jax.lax.top_k(candidates, n)
    items = jnp.take_along_axis(chosen, place // run, axis=1) * run + place % run
    return values, jnp.minimum(items, size - 1)  # the padding has score −inf


@partial(programs.jit, static_argnames="n")
def _top(U, V, is_shown, *, n):
    return best(scores(U, V, is_shown), n)


def check_shape(name: str, X: Interactions, num_users: int, num_items: int) -> None:
    """Raise ValueError unless X has U's users and V's items; `name` is for the message."""
    if X.shape != (num_users, num_items):
        raise ValueError(f"{name} is {X.shape[0]} × {X.shape[1]}, U Vᵀ {num_users} × {num_items}")


def _check_indices(kind: str, values: Any, size: int) -> np.ndarray:
    values = np.asarray(values)
    if values.ndim != 1 or (len(values) and not np.issubdtype(values.dtype, np.integer)):
        raise TypeError(
            f"{kind}s must be one vector of positions, not {values.dtype} {values.shape}"
        )
    outside = (values < 0) | (values >= size)
    if outside.any():
        raise ValueError(f"{kind} {values[outside][0]} is outside range({size})")
    return values.astype(np.int64)
