"""A fitted model as one safetensors file: factors, training positives, ids, settings, history.

The tensors are `user_factors`, `item_factors`, `train_indptr`, `train_indices`, `train_confidence` (if there is any),
`item_counts_solved` (after a `partial_fit`), `dislikes_indptr` and `dislikes_indices` (since 2.2, if there are any)
and, if users have ids, `user_ids` (integers), or `user_ids.bytes` and
`user_ids.offsets` (UTF-8 strings, one after the other); the same for items. The metadata are text: `format`,
`format_version`, `library_version`, `params`, `training` and, since 2.1, `constants` (all three JSON; the last are the
numbers of the training set that fold-in needs), and `sha256` of all the rest. A fit with features has those too, since
2.3 (`packing`); a file without is still 2.2.

A new minor version of the format adds what older readers may ignore; older readers refuse a new major version.
"""

import hashlib
import json
import math
import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from mfauc_jax._core import atomic, forks, functions, host, settings
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import Spec
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.problem import Constants
from mfauc_jax.serving import packing, stored_rows
from mfauc_jax.training.side_information import Learned

FORMAT, VERSION, WITH_FEATURES = "mfauc_jax model", (2, 2), (2, 3)
SAFETENSORS_TYPES = {
    "float32": "F32",
    "float64": "F64",
    "int32": "I32",
    "int64": "I64",
    "uint64": "U64",
    "uint8": "U8",
}
NUMPY_TYPES = {name: np.dtype(kind).newbyteorder("<") for kind, name in SAFETENSORS_TYPES.items()}
SIDES = ("item", "user")
LONGEST_HEADER = 10**8  # bytes, as in safetensors itself
UNSOUND = (KeyError, ValueError, TypeError, AttributeError, RecursionError)  # by damaged contents


class ModelFileError(ValueError):
    """A file that is not a whole model which this version can read; the message says why."""


class Contents(NamedTuple):
    """The contents of a model file."""

    factors: Factors
    train: Interactions  # with the caller's ids
    params: dict[str, Any]  # the fields of the model, as from `Declared.describe`
    training: dict[str, Any]  # iterations, stopped, last, history
    library_version: str = ""  # of the library that wrote the file; `write` fills it in
    constants: Constants | None = None  # None: not known, as in files of format 2.0
    solved: np.ndarray | None = (
        None  # positives of each item when `partial_fit` last solved it, [n]
    )
    learned: tuple[Learned | None, Learned | None] = (None, None)  # features of items and of users


def write(path: str | os.PathLike, contents: Contents) -> None:
    """Write `contents` beside `path` and rename: a reader sees the old file or the whole new one."""
    tensors = {
        "user_factors": np.asarray(contents.factors.U),
        "item_factors": np.asarray(contents.factors.V),
        **stored_rows.tensors_of(contents.train),
    }
    if contents.solved is not None:
        tensors["item_counts_solved"] = contents.solved.astype(np.int64)
    sides = [packing.packed_features(*side) for side in zip(SIDES, contents.learned, strict=True)]
    for more, _ in sides:
        tensors |= more
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    version = VERSION if contents.learned == (None, None) else WITH_FEATURES
    metadata = {
        "format": FORMAT,
        "format_version": ".".join(map(str, version)),
        "library_version": host.library_version(),
        "params": json.dumps(contents.params),
        "training": json.dumps(contents.training),
    }
    metadata |= {name: text for _, more in sides for name, text in more.items()}
    if contents.constants is not None:
        metadata["constants"] = json.dumps(contents.constants.numbers())
    metadata["sha256"] = _digest(tensors, metadata)
    with atomic.beside(path) as temporary, temporary.open("wb") as file:
        _write_safetensors(file, tensors, metadata)


def _write_safetensors(
    file: BinaryIO, tensors: dict[str, np.ndarray], metadata: dict[str, str]
) -> None:
    """The safetensors format: the header's length in 8 bytes, the header as JSON, the tensors' bytes.

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


def read(path: str | os.PathLike) -> Contents:
    """The contents of a model file, which are checked; a `ModelFileError` says what is wrong.

    The header is judged before a tensor is read, so that another large file costs neither time nor memory.
    """
    forks.check()
    with pathlib.Path(path).open("rb") as file:
        header, metadata = _header(path, file)
        by = _check_format(path, metadata)
        tensors = _tensors(path, file, header)
    expected = metadata.pop("sha256", None)
    if expected != _digest(tensors, metadata):
        raise ModelFileError(
            f"{path} is corrupted: its contents do not match its checksum; get it again"
        )
    try:
        params, training = (dict(json.loads(metadata[name])) for name in ("params", "training"))
        factors = Factors(*(host.put(tensors[f"{side}_factors"]) for side in ("user", "item")))
        train = stored_rows.interactions(tensors, factors)
        numbers = json.loads(metadata.get("constants", "null"))
        constants = None if numbers is None else Constants.of(numbers, train)
        solved = tensors.get("item_counts_solved")
        if solved is not None and solved.shape != (train.num_items,):
            raise ValueError(f"{solved.shape} counts of solved items for {train.num_items} items")
        sizes, rank = (train.num_items, train.num_users), factors.V.shape[1]
        items, users = (
            packing.unpacked_features(kind, tensors, metadata, size, rank)
            for kind, size in zip(SIDES, sizes, strict=True)
        )
    except UNSOUND as error:
        raise ModelFileError(f"{path} is not a whole model: {error!r}") from error
    return Contents(factors, train, params, training, by, constants, solved, (items, users))


def _check_format(path: str | os.PathLike, metadata: dict[str, str]) -> str:
    """The version of the library that wrote the file; a `ModelFileError` if this one does not read it."""
    if metadata.get("format") != FORMAT:
        raise ModelFileError(f"{path} is a safetensors file, but not a model of mfauc_jax")
    version, by = metadata.get("format_version", ""), metadata.get("library_version", "unknown")
    if _major(path, version) > VERSION[0]:
        raise ModelFileError(
            f"{path} has format {version}, this library reads {VERSION[0]}.x: "
            f"upgrade mfauc_jax (version {by} wrote the file)"
        )
    if _major(path, version) < VERSION[0]:
        raise ModelFileError(
            f"{path} has format {version}, which mfauc_jax {by} wrote and this version does not read: "
            "fit the model again, or load it there"
        )
    return by


def restored_fields(
    path: str | os.PathLike, found: Contents, specs: Mapping[str, Spec], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a model from its file and from what the caller gives in their place.

    A part of which the file holds only the name becomes a placeholder that raises when it is used.
    """
    later = sorted(found.params.keys() - specs.keys())
    if later:
        warnings.warn(
            f"{path}: {', '.join(later)} of mfauc_jax {found.library_version} is unknown here and left out",
            stacklevel=3,
        )
    fields = dict(given)
    for name in (n for n in specs if n in found.params and n not in given):
        spec, described = specs[name], found.params[name]
        function_name = _only_named(described)
        if function_name is not None and spec.base is not None:
            remedy = (
                f"{path}: {name} was {function_name}, which a file cannot hold; to fit or fold in, give it "
                f"again: MFAUC.load(path, {name}=…)"
            )
            warnings.warn(remedy, stacklevel=3)
            fields[name] = functions.absent(spec.base, function_name, remedy)
            continue
        try:
            fields[name] = spec.check("MFAUC", name, settings.from_description(spec, described))
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"{path}: {name} = {described} is unknown here ({error}); load it with {name}=…"
            ) from error
    return fields


def _only_named(described: Any) -> str | None:
    """The name of the first user's function in a description, of which the file holds only the name; or None."""
    if not isinstance(described, dict):
        return None
    if settings.GIVE_AGAIN in described:
        return str(described[settings.GIVE_AGAIN])
    return next((n for n in map(_only_named, described.values()) if n is not None), None)


def _header(
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


def _tensors(
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


def _major(path, version: str) -> int:
    try:
        return int(version.partition(".")[0])
    except ValueError as error:
        raise ModelFileError(f"{path} has the unknown format version {version!r}") from error


def _digest(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> str:
    """The sha256 of the metadata and of the name, type, shape and bytes of every tensor."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype.str} {tensor.shape}".encode())
        digest.update(tensor.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
