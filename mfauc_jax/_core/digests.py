"""Digests: 128-bit sums of hashed entries. They do not depend on how an array is cut over devices and processes.

An entry is hashed together with its place in the whole array, and the hashes are added modulo 2⁶⁴, with two different
seeds. So each process adds up its own entries, and the sum over the processes is the digest of the whole. The hash is
splitmix64's finaliser: it finds accidents, not forgeries.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from mfauc_jax._core import host

SEEDS = np.array([0x9E3779B97F4A7C15, 0xD1B54A32D192ED03], np.uint64)
CHUNK = 2**20  # entries that are hashed at a time


def mixed(x: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser, modulo 2⁶⁴."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def entries(*columns: Any) -> np.ndarray:
    """The digest of a set of entries, each given by one number per column: two sums modulo 2⁶⁴.

    Args:
        columns: arrays of one length: integers, or floats, of which the bits are hashed.
    """
    total = np.zeros(2, np.uint64)
    count = len(columns[0])
    with np.errstate(over="ignore"):
        for start in range(0, count, CHUNK):
            part = [_bits(c[start : start + CHUNK]) for c in columns]
            for which, seed in enumerate(SEEDS):
                hashed = np.full(len(part[0]), seed)
                for column in part:
                    hashed = mixed(hashed + column * seed + seed)
                total[which] += hashed.sum(dtype=np.uint64)
    return total


def array(values: Any, first: int = 0) -> np.ndarray:
    """The digest of an array, or of its part that begins at entry `first` of the flattened whole."""
    flat = np.asarray(values).reshape(-1)
    return entries(np.arange(first, first + len(flat)), flat)


def texts(values: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each id: integers as they are, strings by their characters, [m]."""
    values = np.asarray(values)
    if values.dtype.kind in "iu":
        return values.astype(np.uint64)
    letters = np.ascontiguousarray(values.astype(str))
    width = letters.dtype.itemsize // 4
    if not width:
        return np.zeros(len(letters), np.uint64)
    letters = letters.view(np.uint32).reshape(len(letters), width)
    hashed = np.zeros(len(letters), np.uint64)
    with np.errstate(over="ignore"):
        for place in range(width):  # zeros are padding, which depends on the longest id
            letter = letters[:, place].astype(np.uint64)
            hashed += np.where(letter > 0, mixed(letter + SEEDS[0] * np.uint64(place + 1)), 0)
    return hashed


def total(parts: Iterable[np.ndarray]) -> str:
    """The sum of digests over all parts and over all processes, in hexadecimal."""
    with np.errstate(over="ignore"):
        mine = np.sum(np.stack(list(parts)), 0, dtype=np.uint64)
        words = host.everyone(mine.view(np.uint32)).astype(
            np.uint32
        )  # JAX may lack 64-bit integers
        whole = np.ascontiguousarray(words).view(np.uint64).sum(0, dtype=np.uint64)
    return "".join(f"{int(half):016x}" for half in whole)


def text(value: str) -> str:
    """The sha256 of a text."""
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def function(called: Callable, *examples: Any) -> str:
    """The digest of a function: of its jaxpr and constants where JAX can trace it on `examples`, else of its code."""
    try:
        traced = jax.make_jaxpr(called)(*examples)
    except Exception:
        return text(_code(called))
    constants = [f"{np.asarray(c).dtype}{np.asarray(c).tolist()}" for c in traced.consts]
    return text("\n".join([str(traced.jaxpr), *constants]))


def _code(called: Any, depth: int = 3) -> str:
    """The bytecode, constants, defaults and captured values of a Python function, and of those that it calls by name.

    Of anything else it is the name of its type.
    """
    if isinstance(called, functools.partial):
        return f"{_code(called.func, depth)} {called.args} {sorted(called.keywords.items())}"
    called = getattr(called, "__func__", called)
    if not hasattr(called, "__code__"):
        return getattr(called, "__qualname__", type(called).__qualname__)
    known = called.__globals__
    captured = [cell.cell_contents for cell in called.__closure__ or ()]
    captured += [known[n] for n in called.__code__.co_names if inspect.isfunction(known.get(n))]
    inner = [_code(v, depth - 1) if depth and callable(v) else _value(v) for v in captured]
    return "\n".join([_instructions(called.__code__), _value(called.__defaults__), *inner])


def _value(value: Any) -> str:
    """A text that is the same in every process; of an object that is no plain value, the name of its type."""
    if isinstance(value, np.ndarray | jax.Array):
        return f"{value.dtype}{value.shape}{array(value)}"
    if isinstance(value, tuple | list):
        return f"({' '.join(map(_value, value))})"
    plain = isinstance(value, int | float | complex | str | bytes | None)
    return repr(value) if plain else type(value).__qualname__


def _instructions(code: Any) -> str:
    constants = [_instructions(c) if inspect.iscode(c) else repr(c) for c in code.co_consts]
    return " ".join([code.co_code.hex(), *constants, *code.co_names])


def _bits(values: Any) -> np.ndarray:
    values = np.ascontiguousarray(values)
    if values.dtype.kind == "f":
        values = values.view(f"u{values.dtype.itemsize}")
    return values.astype(np.uint64)
