"""Work on the host: arrays on their way to a device, keys from a seed, sums over processes, pytrees.

`jnp.asarray` compiles a program for every shape it meets (jax 0.10.2), at 15 ms each: a fit of small data
would spend more time there than on learning. `device_put` compiles nothing.
"""

import functools
import importlib.metadata
import os
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core import forks

ONE_THREAD = 2**18  # multiplications per product up to which OpenBLAS uses one thread


def floats(values: Any) -> Float[Array, "..."]:
    """`values` on the device, in JAX's default float type."""
    forks.check()
    return jax.device_put(np.asarray(values, jax.dtypes.canonicalize_dtype(float)))


def ints(values: Any) -> Int[Array, "..."]:
    """`values` on the device, as int32."""
    forks.check()
    return jax.device_put(np.asarray(values, np.int32))


def put(values: Any) -> Array:
    """`values` on the device, in their own type or the nearest that JAX has enabled."""
    forks.check()
    values = np.asarray(values)
    return jax.device_put(values.astype(jax.dtypes.canonicalize_dtype(values.dtype)))


def padded(values: Any, size: int) -> Array:
    """`values` on the device with zeros after them, `size` rows in all."""
    values = np.asarray(values)
    out = np.zeros((size, *values.shape[1:]), values.dtype)
    out[: len(values)] = values
    return jax.device_put(out)


def joined(first: Array, second: Any) -> Array:
    """The rows of both arrays, on the device, in the type of the first."""
    both = np.concatenate([np.asarray(first), np.asarray(second, first.dtype)])
    return jax.device_put(both)


_REMEMBERED: dict[tuple[int, str], tuple[weakref.ref, Any]] = {}  # by id and what was made


def remembered(values: Any, what: str, make: Callable[[Any], Any]) -> Any:
    """`make(values)`, made once for as long as `values`, an array that nobody changes, lives.

    For what many requests read. Threads that ask at the same time may make it twice, and get equal results.

    Args:
        values: a JAX array, or a NumPy array that stays as it is.
        what: the name of what is made.
        make: makes it; the result must not hold `values` itself.
    """
    key = id(values), what
    known = _REMEMBERED.get(key)
    if known is None or known[0]() is not values:
        forget = functools.partial(_forget, _REMEMBERED, key)  # globals are gone at the very end
        known = weakref.ref(values, forget), make(values)
        _REMEMBERED[key] = known
    return known[1]


def _forget(remembered: dict, key: tuple[int, str], _: weakref.ref) -> None:
    remembered.pop(key, None)


def padded_once(values: Array, size: int) -> Array:
    """`padded`, remembered: for arrays that many requests read."""
    if len(values) == size:
        return values
    return remembered(values, f"{size} rows", lambda values: padded(values, size))


def cut(values: Any, size: int) -> Array:
    """The first `size` rows, on the device."""
    return jax.device_put(values if len(values) == size else np.asarray(values)[:size])


def product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A B in NumPy, in parts that are so small that BLAS stays on the calling thread.

    The threads of BLAS wait for each other: where another process has one of the cores, a product that takes a tenth of
    a millisecond alone took 16 to 40 ms on two threads.
    """
    (rows, inner), columns = A.shape, B.shape[1]
    if inner > columns:  # in parts of the sum
        step = max(1, ONE_THREAD // max(1, rows * columns))
        parts = (A[:, i : i + step] @ B[i : i + step] for i in range(0, inner, step))
        return sum(parts, np.zeros((rows, columns), np.result_type(A, B)))
    result = np.empty((rows, columns), np.result_type(A, B))
    step = max(1, ONE_THREAD // max(1, A.size))
    for first in range(0, columns, step):
        result[:, first : first + step] = A @ B[:, first : first + step]
    return result


def keys(seed: int, count: int) -> list[Key[Array, ""]]:
    """Independent keys from one seed, by NumPy's SeedSequence.

    They are made on the host, because `jax.random.key` and `split` take a fifth of a second to compile.
    """
    forks.check()
    if seed < 0:
        raise ValueError(f"seed = {seed} must be ≥ 0")
    like = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    children = np.random.SeedSequence(seed).spawn(count)
    data = (child.generate_state(like.size).astype(like.dtype) for child in children)
    return [jax.random.wrap_key_data(jax.device_put(d.reshape(like.shape))) for d in data]


def total(local: Any) -> np.ndarray:
    """The sum of an array over all processes, on the host."""
    if jax.process_count() == 1:
        return np.asarray(local)
    return everyone(local).sum(0)


def everyone(local: Any) -> np.ndarray:
    """Every process's array, stacked, on the host; 64-bit numbers keep their bits, whatever JAX has enabled."""
    local = np.asarray(local)
    if jax.process_count() == 1:
        return local[None]
    from jax.experimental import multihost_utils

    if local.dtype.itemsize <= 4:
        return np.asarray(multihost_utils.process_allgather(jnp.asarray(local)))
    words = np.ascontiguousarray(local).reshape(-1).view(np.uint32)
    gathered = np.asarray(multihost_utils.process_allgather(words))
    return np.ascontiguousarray(gathered).view(local.dtype).reshape(-1, *local.shape)


def everybody(local: np.ndarray) -> np.ndarray:
    """The rows of all processes, one process after the other, on the host of each; numbers, or texts of any width."""
    if jax.process_count() == 1:
        return local
    sizes = everyone(np.array([len(local), local.dtype.itemsize])).astype(int)
    if local.dtype.kind == "U":  # as wide as the widest
        local = local.astype(f"<U{sizes[:, 1].max() // 4}")
    longest = sizes[:, 0].max()
    padded = np.zeros((longest, *local.shape[1:]), local.dtype)
    padded[: len(local)] = local
    words = np.ascontiguousarray(padded).reshape(-1).view(np.uint8)
    if not len(words):
        return local
    parts = np.ascontiguousarray(everyone(words)).view(local.dtype)
    parts = parts.reshape(len(sizes), *padded.shape)
    return np.concatenate([part[:size] for part, size in zip(parts, sizes[:, 0], strict=True)])


def own(whole: np.ndarray, count: int) -> np.ndarray:
    """The inverse of `everybody`: this process's rows, of which there are `count`."""
    if jax.process_count() == 1:
        return whole[:count]
    first = int(everyone(np.int64(count)).ravel()[: jax.process_index()].sum())
    return whole[first : first + count]


def check_memory(needed: float, what: str) -> None:
    """Raise ValueError for work that needs more bytes than this machine has; `what` is for the message.

    It asks the system only for its size: work that needs a little less may still fail.
    """
    try:
        present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        return
    if needed > present:
        raise ValueError(
            f"{what} needs about {needed / 1e9:.0f} GB, and this machine has {present / 1e9:.0f} GB: choose a lower "
            "rank, or leave out users or items"
        )


def library_version() -> str:
    """The version of this library, as it is installed."""
    try:
        return importlib.metadata.version("mfauc_jax")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # run from a source tree that is not installed


def register_pytree(cls: type, leaves: tuple[str, ...], statics: tuple[str, ...]) -> None:
    """Register a class as a pytree: `leaves` are the traced attributes, `statics` those that shape the program.

    Unflattening checks nothing, because JAX rebuilds objects with tracers, shapes or None in place of their leaves.
    """

    def flatten(instance: Any):
        keyed = [(jax.tree_util.GetAttrKey(name), getattr(instance, name)) for name in leaves]
        return keyed, tuple(getattr(instance, name) for name in statics)

    def unflatten(static: tuple, values: Any) -> Any:
        made = object.__new__(cls)
        for name, value in zip((*statics, *leaves), (*static, *values), strict=True):
            object.__setattr__(made, name, value)
        return made

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
