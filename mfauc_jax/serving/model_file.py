"""A fitted model as one safetensors file: factors, training positives, ids, settings, history.

The tensors are `user_factors`, `item_factors`, `train_indptr`, `train_indices`, `train_confidence` (if there is any),
`item_counts_solved` (after a `partial_fit`), `dislikes_indptr` and `dislikes_indices` (since 2.2, if there are any)
and, if users have ids, `user_ids` (integers), or `user_ids.bytes` and
`user_ids.offsets` (UTF-8 strings, one after the other); the same for items. The metadata are text: `format`,
`format_version`, `library_version`, `params`, `training` and, since 2.1, `constants` (all three JSON; the last are the
numbers of the training set that fold-in needs), since 2.2 `metadata` (JSON, what the caller of `save` gave), and
`sha256` of all the rest. A fit with features has those too, since 2.3 (`packing`); a file without is still 2.2.

A new minor version of the format adds what older readers may ignore; older readers refuse a new major version.
"""

import hashlib
import json
import os
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mfauc_jax._core import atomic, forks, functions, host, settings
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import Spec
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.problem import Constants
from mfauc_jax.serving import packing, stored_rows, tensor_file
from mfauc_jax.serving.tensor_file import UNSOUND, ModelFileError
from mfauc_jax.training.side_information import Learned

FORMAT, VERSION, WITH_FEATURES = "mfauc_jax model", (2, 2), (2, 3)
SIDES = ("item", "user")


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
    metadata: Mapping[str, str] = {}  # what the caller of `save` gave
    format_version: str = ""  # of the file; `write` fills it in
    checksum: str = ""  # sha256 of everything else; `write` fills it in
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
    if contents.metadata:
        metadata["metadata"] = json.dumps(check_metadata(contents.metadata))
    metadata["sha256"] = _digest(tensors, metadata)
    with atomic.beside(path) as temporary, temporary.open("wb") as file:
        tensor_file.write(file, tensors, metadata)


def read(path: str | os.PathLike) -> Contents:
    """The contents of a model file, which are checked; a `ModelFileError` says what is wrong.

    The header is judged before a tensor is read, so that another large file costs neither time nor memory.
    """
    forks.check()
    with pathlib.Path(path).open("rb") as file:
        header, metadata = tensor_file.header(path, file)
        by = _check_format(path, metadata)
        tensors = tensor_file.tensors(path, file, header)
    expected = metadata.pop("sha256", "")
    if expected != _digest(tensors, metadata):
        raise ModelFileError(
            f"{path} is corrupted: its contents do not match its checksum; get it again"
        )
    try:
        params, training = (dict(json.loads(metadata[name])) for name in ("params", "training"))
        given = check_metadata(json.loads(metadata.get("metadata", "{}")))
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
    about = given, metadata["format_version"], expected, (items, users)
    return Contents(factors, train, params, training, by, constants, solved, *about)


def check_metadata(given: Any) -> dict[str, str]:
    """A copy of the caller's metadata; a TypeError if it is not a dictionary of text."""
    if not isinstance(given, Mapping):
        raise TypeError(f"metadata = {given!r} must be a dictionary of text")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"metadata: {name!r}: {value!r} must be text: write str({value!r})")
    return dict(given)


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
