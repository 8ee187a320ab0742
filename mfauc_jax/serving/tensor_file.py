"""Named tensors with metadata in one file: the safetensors format, written in one order and read with checks."""

import json
import math
import os
from typing import Any, BinaryIO

import numpy as np

SAFETENSORS_TYPES = {
    "float32": "F32",
    "float64": "F64",
    "int32": "I32",
    "int64": "I64",
    "uint64": "U64",
    "uint8": "U8",
}
NUMPY_TYPES = {name: np.dtype(kind).newbyteorder("<") for kind, name in SAFETENSORS_TYPES.items()}
LONGEST_HEADER = 10**8  # bytes, as in safetensors itself
UNSOUND = (KeyError, ValueError, TypeError, AttributeError, RecursionError)  # by damaged contents


class ModelFileError(ValueError):
    """A file that is not a whole model which this version can read; the message says why."""


def write(file: BinaryIO, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Write the safetensors format: the header's length in 8 bytes, the header as JSON, the tensors' bytes.

    Names in sorted order, so that equal contents are equal bytes; safetensors' own writer orders the metadata anew in
    every process.
    """
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name, tensor in sorted(tensors.items()):
        start, end = end, end + tensor.nbytes
        kind = SAFETENSORS_TYPES[tensor.dtype.name]
        header[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for _, tensor in sorted(tensors.items()):
        file.write(tensor.reshape(-1).view(np.uint8).data)


def header(
    path: str | os.PathLike, file: BinaryIO
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The tensors' types, shapes and places, and the metadata, of the header at the beginning of a file."""
    size = os.fstat(file.fileno()).st_size
    beginning = file.read(8)
    if not beginning:
        raise ModelFileError(f"{path} is empty")
    length = int.from_bytes(beginning, "little")
    try:
        if not 2 <= length <= min(size - 8, LONGEST_HEADER):
            raise ValueError(f"a header of {length} bytes in a file of {size}")
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        if not all(isinstance(text, str) for text in metadata.values()):
            raise TypeError("its metadata are not text")
        if not all(isinstance(entry, dict) for entry in header.values()):
            raise TypeError("its header does not describe tensors")
    except UNSOUND as error:
        raise ModelFileError(
            f"{path} is no model file, or its beginning is damaged: it cannot be read as safetensors "
            f"({error})"
        ) from error
    return header, metadata


def tensors(
    path: str | os.PathLike, file: BinaryIO, header: dict[str, dict[str, Any]]
) -> dict[str, np.ndarray]:
    """The tensors of a file, which lie one after the other behind its header, and fill the file."""
    start, size = file.tell(), os.fstat(file.fileno()).st_size
    end = start
    try:
        entries = sorted(header.items(), key=lambda entry: entry[1]["data_offsets"])
        kinds = {name: NUMPY_TYPES[entry["dtype"]] for name, entry in entries}
        for name, entry in entries:
            first, last = entry["data_offsets"]
            if any(type(length) is not int or length < 0 for length in entry["shape"]):
                raise ValueError(f"{name} has the shape {entry['shape']}")
            if (
                first != end - start
                or last - first != math.prod(entry["shape"]) * kinds[name].itemsize
            ):
                raise ValueError(f"{name} is at {first} to {last}")
            end = start + last
    except UNSOUND as error:
        raise ModelFileError(
            f"{path} is no model file, or its beginning is damaged: it cannot be read as safetensors "
            f"({error!r})"
        ) from error
    if end != size:
        raise ModelFileError(f"{path} is truncated, or something was added to it")
    tensors = {name: np.empty(entry["shape"], kinds[name]) for name, entry in entries}
    for tensor in tensors.values():
        file.readinto(tensor.reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]
    return tensors
