"""Damage to bytes: flips, cuts, insertions, runs of zeros, repeated and exchanged pieces."""

import numpy as np


def mutated(rng: np.random.Generator, data: bytes) -> tuple[bytes, str]:
    """Damaged bytes, and what was done to them; they always differ from `data`."""
    while True:
        kind = str(rng.choice(list(KINDS)))
        damaged = KINDS[kind](rng, bytearray(data))
        if damaged != data:
            return bytes(damaged), kind
        data = data or b"\0"


def _place(rng: np.random.Generator, data: bytearray) -> int:
    """Somewhere in the data; in every third case near one of the ends, where headers are."""
    size = max(len(data), 1)
    if rng.random() < 0.33:
        near = int(rng.integers(min(size, 64)))
        return near if rng.random() < 0.5 else size - 1 - near
    return int(rng.integers(size))


def _flip_bit(rng, data: bytearray) -> bytearray:
    at = _place(rng, data)
    data[at : at + 1] = bytes([data[at] ^ (1 << int(rng.integers(8)))]) if data else b"\1"
    return data


def _flip_byte(rng, data: bytearray) -> bytearray:
    at = _place(rng, data)
    data[at : at + 1] = rng.bytes(1)
    return data


def _flip_many(rng, data: bytearray) -> bytearray:
    for _ in range(int(rng.integers(2, 20))):
        data = _flip_byte(rng, data)
    return data


def _truncate(rng, data: bytearray) -> bytearray:
    return data[: _place(rng, data)]


def _behead(rng, data: bytearray) -> bytearray:
    return data[_place(rng, data) + 1 :]


def _insert(rng, data: bytearray) -> bytearray:
    at = _place(rng, data)
    data[at:at] = rng.bytes(int(rng.integers(1, 40)))
    return data


def _insert_word(rng, data: bytearray) -> bytearray:
    words = (
        b"\n",
        b"\r",
        b"\0",
        b'"',
        b",",
        b"nan",
        b"-",
        b"1e999",
        b"\xff\xfe",
        b"\\",
        b"{",
        b"9" * 30,
    )
    at = _place(rng, data)
    data[at:at] = words[int(rng.integers(len(words)))]
    return data


def _zeros(rng, data: bytearray) -> bytearray:
    at = _place(rng, data)
    piece = data[at : at + int(rng.integers(1, 200))]
    data[at : at + len(piece)] = bytes(len(piece))
    return data


def _delete(rng, data: bytearray) -> bytearray:
    at = _place(rng, data)
    del data[at : at + int(rng.integers(1, 60))]
    return data


def _repeat(rng, data: bytearray) -> bytearray:
    at, size = _place(rng, data), int(rng.integers(1, 200))
    data[at:at] = data[at : at + size]
    return data


def _exchange(rng, data: bytearray) -> bytearray:
    a, b = sorted((_place(rng, data), _place(rng, data)))
    size = min(int(rng.integers(1, 50)), b - a, len(data) - b)
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]
    return data


def _append(rng, data: bytearray) -> bytearray:
    return data + rng.bytes(int(rng.integers(1, 300)))


KINDS = {
    "flip a bit": _flip_bit,
    "flip a byte": _flip_byte,
    "flip several bytes": _flip_many,
    "truncate": _truncate,
    "cut off the beginning": _behead,
    "insert bytes": _insert,
    "insert a word": _insert_word,
    "zeros": _zeros,
    "delete": _delete,
    "repeat": _repeat,
    "exchange": _exchange,
    "append": _append,
}
