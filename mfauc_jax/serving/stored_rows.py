"""A training set as the tensors of a model file: rows of positives and dislikes, confidences, and ids."""

import itertools
import warnings

import numpy as np

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import validation
from mfauc_jax.data.interactions import Interactions


def tensors_of(train: Interactions) -> dict[str, np.ndarray]:
    """The tensors of a training set, by the names that `model_file` lists."""
    tensors = _rows("train", train) | _rows("dislikes", train.dislikes)
    if train.confidence is not None:
        tensors["train_confidence"] = np.asarray(train.confidence)
    return tensors | packed("user_ids", train.user_ids) | packed("item_ids", train.item_ids)


def interactions(tensors: dict[str, np.ndarray], factors: Factors) -> Interactions:
    """The inverse of `tensors_of`; a ValueError if the tensors do not fit the factors or each other."""
    U, V = factors
    if U.ndim != 2 or V.ndim != 2 or U.shape[1] != V.shape[1]:
        raise ValueError(f"user_factors {U.shape} and item_factors {V.shape} do not have one rank")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Interactions.of has already warned about X
        train, rejected = (_csr(name, tensors, len(U), len(V)) for name in ("train", "dislikes"))
    ids = unpacked("user_ids", tensors, len(U)), unpacked("item_ids", tensors, len(V))
    if train is None:
        raise KeyError("train_indptr")
    confidence = tensors.get("train_confidence")
    if confidence is not None:
        if confidence.shape != (train.nnz,):
            raise ValueError(f"{confidence.shape} confidences for {train.nnz} positives")
        confidence = host.put(confidence)
    return Interactions(
        train.indptr, train.indices, confidence, train.num_items, train.row_bits, *ids, rejected
    )


def _rows(name: str, X: Interactions | None) -> dict[str, np.ndarray]:
    arrays = {} if X is None else {"indptr": X.indptr, "indices": X.indices}
    return {f"{name}_{part}": np.asarray(array) for part, array in arrays.items()}


def _csr(name: str, tensors: dict[str, np.ndarray], m: int, n: int) -> Interactions | None:
    if f"{name}_indptr" not in tensors:
        return None
    X = Interactions.from_csr(tensors[f"{name}_indptr"], tensors[f"{name}_indices"], n)
    if X.num_users != m:
        raise ValueError(f"{X.num_users} rows of {name} for {m} users")
    return X


def packed(name: str, ids: np.ndarray | None) -> dict[str, np.ndarray]:
    """Ids as tensors: integers as they are, text as UTF-8 bytes and offsets."""
    if ids is None:
        return {}
    if ids.dtype.kind in "iu":
        return {name: validation.int64(name, ids)}
    if ids.dtype.kind != "U":
        raise TypeError(f"{name} are {ids.dtype}: a model file holds integers or strings")
    words = [str(word).encode("utf-8", "surrogatepass") for word in ids]
    offsets = np.cumsum([0, *map(len, words)], dtype=np.int64)
    return {f"{name}.bytes": np.frombuffer(b"".join(words), np.uint8), f"{name}.offsets": offsets}


def unpacked(name: str, tensors: dict[str, np.ndarray], size: int) -> np.ndarray | None:
    """The inverse of `packed`; a ValueError unless there are `size` ids."""
    ids = tensors.get(name)
    ids = None if ids is None else validation.int64(name, ids)
    if f"{name}.offsets" in tensors:
        blob, offsets = tensors[f"{name}.bytes"].tobytes(), tensors[f"{name}.offsets"].tolist()
        pairs = itertools.pairwise(offsets)
        ids = np.array([blob[a:b].decode("utf-8", "surrogatepass") for a, b in pairs], dtype=str)
    if ids is not None and ids.shape != (size,):
        raise ValueError(f"{len(ids)} {name} for {size} rows of factors")
    return ids
