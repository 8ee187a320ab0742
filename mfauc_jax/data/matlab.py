"""Numeric matrices of MATLAB files (version 5 to 7), with every length checked against the bytes that are there.

SciPy's reader is compiled code that trusts the file, and a damaged file can crash the interpreter. A file is a header
of 128 bytes and elements: a type and a length in 8 bytes, then the content, padded to a multiple of 8 bytes. A matrix
is an element of elements: flags, sizes, name, values. A compressed element holds one other element.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Num

HEADER = 128  # bytes
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, PACKED = 14, 15  # types of elements
NUMERIC = range(6, 16)  # classes of matrices: double, single and the integers
COMPLEX = 0x800  # flag of a matrix


class Element(NamedTuple):
    """A type and the bytes that belong to it."""

    kind: int
    content: bytes


NOTHING = Element(0, b"")


def matrix(data: bytes, name: str, most: int) -> Num[np.ndarray, "..."]:
    """The numeric matrix `name` of a MATLAB file.

    A ValueError says what is wrong with the file; a KeyError, that it has no matrix of this name.

    Args:
        data: the content of the file.
        name: of the variable.
        most: bytes that its compressed variables may unpack to.
    """
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None or data[124:126] not in (b"\0\1", b"\1\0"):
        raise ValueError("it has no header of MATLAB 5 to 7: save it by `save -v7`")
    for variable in _variables(data[HEADER:], order, most):
        parts = _elements(variable, order)
        flags, sizes, called = (next(parts, NOTHING) for _ in range(3))
        if called.content == name.encode():
            return _values(name, flags, sizes, next(parts, NOTHING), order)
    raise KeyError(name)


def _variables(data: bytes, order: str, most: int) -> Iterator[bytes]:
    """The contents of the matrices of a file, unpacked to `most` bytes altogether."""
    for element in _elements(data, order):
        if element.kind == MATRIX:
            yield element.content
        if element.kind == PACKED:
            unpacked = _unpacked(element.content, most)
            most -= len(unpacked)
            inner = next(_elements(unpacked, order), NOTHING)
            if inner.kind == MATRIX:
                yield inner.content


def _elements(data: bytes, order: str) -> Iterator[Element]:
    """The elements that lie one after the other in `data`."""
    start = 0
    while len(data) - start >= 8:
        kind, length = struct.unpack_from(f"{order}II", data, start)
        if kind >> 16:  # a short element: type, length and content in 8 bytes
            kind, length, begin, after = kind & 0xFFFF, kind >> 16, start + 4, start + 8
        else:
            begin = start + 8
            after = begin + length + (0 if kind == PACKED else -length % 8)
        if begin + length > len(data) or (begin == start + 4 and length > 4):
            raise ValueError(f"an element of {length} bytes goes beyond the end")
        yield Element(kind, data[begin : begin + length])
        start = after


def _unpacked(content: bytes, most: int) -> bytes:
    try:
        found = zlib.decompressobj().decompress(content, max(most, 0) + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(found) > most:
        raise ValueError(f"it unpacks to more than {most} bytes")
    return found


def _values(
    name: str, flags: Element, sizes: Element, values: Element, order: str
) -> Num[np.ndarray, "..."]:
    if len(flags.content) < 4 or len(sizes.content) % 4 or not sizes.content:
        raise ValueError(f"{name} has no sizes")
    (flag,) = struct.unpack_from(f"{order}I", flags.content)
    if flag & 0xFF not in NUMERIC or flag & COMPLEX or values.kind not in TYPES:
        raise ValueError(f"{name} is not a full matrix of real numbers")
    shape = np.frombuffer(sizes.content, f"{order}i4").tolist()
    numbers = np.dtype(order + TYPES[values.kind])
    if len(values.content) % numbers.itemsize:
        raise ValueError(f"{name} ends in a part of a number")
    found = np.frombuffer(values.content, numbers)
    if min(shape) < 0 or math.prod(shape) != len(found):
        raise ValueError(f"{name} has {len(found)} values for the sizes {shape}")
    return found.reshape(shape, order="F")
