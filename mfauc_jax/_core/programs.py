"""Compiled programs: shapes from a grid, so that they are few, and a bound on how many are kept.

XLA compiles one program per shape. Each keeps up to 300 memory maps and 8 MB for as long as the process lives, and a
process may have 65530 maps. So shapes that follow the data come from a grid (`rounded`, `power`); every function whose
shapes still follow the data is compiled by `jit` of this module, which forgets its programs when they are many; and
what else is done to arrays of such shapes is done in NumPy (`host`).
"""

import ctypes
import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import jax

from mfauc_jax._core import forks

LIMIT = 16  # programs that one function keeps
ALL = 128  # programs that all functions keep together

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


_MADE: "weakref.WeakSet[Jitted]" = weakref.WeakSet()  # every function that `jit` has made


class _Full(Exception):  # noqa: N818  # ends a trace, and never leaves this module
    """A function, or the library, has all the programs it may have: they must be forgotten before one more."""


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
                if self._kept >= self.limit or sum(one._kept for one in list(_MADE)) >= ALL:
                    raise _Full
                self.made, self._kept = self.made + 1, self._kept + 1
            return function(*args, **kwargs)

        self._compiled: Any = jax.jit(traced, **options)
        _MADE.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's value."""
        return self._with_room(self._compiled, *args, **kwargs)

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The program before it is compiled, as from `jax.jit`."""
        return self._with_room(self._compiled.lower, *args, **kwargs)

    def _with_room(self, call: Callable, *args: Any, **kwargs: Any) -> Any:
        forks.check()
        while True:
            try:
                return call(*args, **kwargs)
            except _Full:
                forget(self if self._kept >= self.limit else None)


def jit(function: Callable[P, R], **options: Any) -> Jitted[P, R]:
    """`jax.jit` that keeps at most `limit` programs, which may be given with the options of `jax.jit`."""
    return Jitted(function, **options)


def made() -> int:
    """The number of programs that the functions of `jit` have made so far in this process."""
    return sum(one.made for one in list(_MADE))


def forget(function: Jitted | None = None) -> None:
    """Free the programs of a function, or all of the library; those that other threads are running live until they end.

    Args:
        function: None for all of them.
    """
    for one in [function] if function is not None else list(_MADE):
        with one._lock:
            one._kept = 0
        one._compiled.clear_cache()
    gc.collect()  # programs are parts of reference cycles
    if _trim is not None:
        _trim(0)  # what the compiler freed goes back to the system: up to 50 MB per program
