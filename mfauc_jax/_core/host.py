"""Work on the host: compiled programs, arrays on their way to a device, keys from a seed, sums over processes, pytrees.

XLA compiles one program per shape. Each keeps up to 300 memory maps and 8 MB for as long as the process lives, and a
process may have 65530 maps. So shapes that follow the data come from a grid (`rounded`, `power`); every function whose
shapes still follow the data is compiled by `jit` of this module, which forgets its programs when they are many; and
what else is done to arrays of such shapes is done in NumPy. Even `jnp.asarray` compiles a program for every shape it
meets (jax 0.10.2), at 15 ms each; `device_put` compiles nothing.
"""

import ctypes
import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

LIMIT = 16  # programs that one function keeps

P = ParamSpec("P")
R = TypeVar("R")


def rounded(count: int, least: int = 1) -> int:
    """The smallest size ≥ `count` on a grid of multiples of `least`, and of at most 8 sizes per octave.

    So padding adds at most an eighth, or less than `least`, and data that grow tenfold meet at most 27 sizes.
    """
    step = max(least, 1 << max(0, (count - 1).bit_length() - 4))
    return max(1, -(-count // step)) * step


def user_rows(count: int) -> int:
    """M: the number of users that a program for `count` users is compiled for."""
    return rounded(count, 1024)  # a row of padding costs k numbers


def item_rows(count: int) -> int:
    """N: the number of items that a program for `count` items is compiled for."""
    return max(1024, rounded(count, 256))  # a row of padding costs k² products per pass: less of it


def power(count: int, base: int = 2) -> int:
    """The smallest power of `base`, itself a power of two, that is ≥ `count` and ≥ 1."""
    bits = base.bit_length() - 1
    return 1 << bits * -(-max(0, count - 1).bit_length() // bits)


try:
    _trim: Any = ctypes.CDLL(None).malloc_trim  # of glibc
except (OSError, AttributeError, TypeError):  # another C library
    _trim = None


class _Full(Exception):  # noqa: N818  # ends a trace, and never leaves this module
    """A function has its programs: they are to be forgotten before another one is made."""


class Jitted(Generic[P, R]):
    """A compiled function that keeps at most `limit` programs: before it makes one more, it forgets them all."""

    def __init__(self, function: Callable[P, R], limit: int | None = None, **options: Any):
        functools.update_wrapper(self, function)
        self.limit = LIMIT if limit is None else limit
        self.made = 0  # programs made so far
        self._kept = 0  # those made since they were last forgotten
        self._lock = threading.Lock()

        @functools.wraps(function)
        def traced(*args: P.args, **kwargs: P.kwargs) -> R:  # runs once per program
            with self._lock:
                if self._kept >= self.limit:
                    raise _Full
                self.made, self._kept = self.made + 1, self._kept + 1
            return function(*args, **kwargs)

        self._compiled: Any = jax.jit(traced, **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's value."""
        return self._with_room(self._compiled, *args, **kwargs)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The program before it is compiled, as from `jax.jit`."""
        return self._with_room(self._compiled.lower, *args, **kwargs)

    def _with_room(self, call: Callable, *args: Any, **kwargs: Any) -> Any:
        while True:
            try:
                return call(*args, **kwargs)
            except _Full:
                self.forget()

    def forget(self) -> None:
        """Free the programs; those that other threads are running live until they end."""
        with self._lock:
            self._kept = 0
        self._compiled.clear_cache()
        gc.collect()  # programs are parts of reference cycles
        if _trim is not None:
            _trim(0)  # what the compiler freed goes back to the system: up to 50 MB per program


def jit(function: Callable[P, R], **options: Any) -> Jitted[P, R]:
    """`jax.jit` that keeps at most `limit` programs, which may be given with the options of `jax.jit`."""
    return Jitted(function, **options)


def floats(values: Any) -> Float[Array, "..."]:
    """`values` on the device, in JAX's default float type."""
    return jax.device_put(np.asarray(values, jax.dtypes.canonicalize_dtype(float)))


def ints(values: Any) -> Int[Array, "..."]:
    """`values` on the device, as int32."""
    return jax.device_put(np.asarray(values, np.int32))


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


_PADDED: dict[tuple[int, int], tuple[weakref.ref, Array]] = {}  # by id and size


def padded_once(values: Array, size: int) -> Array:
    """`padded`, remembered for as long as `values` live: for arrays that many requests read."""
    if len(values) == size:
        return values
    key = id(values), size
    known = _PADDED.get(key)
    if known is None or known[0]() is not values:
        known = weakref.ref(values, lambda _: _PADDED.pop(key, None)), padded(values, size)
        _PADDED[key] = known
    return known[1]


def cut(values: Any, size: int) -> Array:
    """The first `size` rows, on the device."""
    return values if len(values) == size else jax.device_put(np.asarray(values)[:size])


def keys(seed: int, count: int) -> list[Key[Array, ""]]:
    """Independent keys from one seed, by NumPy's SeedSequence.

    They are made on the host, because `jax.random.key` and `split` take a fifth of a second to compile.
    """
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
    """Every process's array, stacked, on the host."""
    if jax.process_count() == 1:
        return np.asarray(local)[None]
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(jnp.asarray(local)))


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
