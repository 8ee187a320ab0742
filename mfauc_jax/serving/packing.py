"""The features of a fit as tensors of a model file.

The features of items are `item_features.indptr`, `.indices` and `.data` (a row per item), `.factors` (A) and `.names`
(text, as ids), and the rules of their encoding are JSON in the metadata; the same for users.
"""

import json
from typing import Any

import numpy as np

from mfauc_jax.data.encoding import Column
from mfauc_jax.data.features import Features
from mfauc_jax.serving import stored_rows
from mfauc_jax.training.side_information import Learned


def packed_features(
    kind: str, learned: Learned | None
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors and the metadata of what was learned about items or users (`kind`)."""
    if learned is None:
        return {}, {}
    (matrix, names, _, rules), name = vars(learned.features).values(), f"{kind}_features"
    tensors = {
        f"{name}.indptr": matrix.indptr.astype(np.int64),
        f"{name}.indices": matrix.indices.astype(np.int64),
        f"{name}.data": matrix.data.astype(np.float64),
        f"{name}.factors": np.asarray(learned.factors),
    }
    tensors |= stored_rows.packed(f"{name}.names", np.array(names, dtype=str))
    return tensors, {name: json.dumps(rules)}


def unpacked_features(
    kind: str, tensors: dict[str, np.ndarray], metadata: dict[str, str], rows: int, rank: int
) -> Learned | None:
    """The inverse of `packed_features`; a ValueError unless the sizes agree."""
    import scipy.sparse

    name = f"{kind}_features"
    if name not in metadata:
        return None
    data, indices, indptr, factors = (
        tensors[f"{name}.{part}"] for part in ("data", "indices", "indptr", "factors")
    )
    if factors.ndim != 2 or factors.shape[1] != rank:
        raise ValueError(f"factors of {name} are {factors.shape}, not of rank {rank}")
    names: Any = stored_rows.unpacked(f"{name}.names", tensors, len(factors))
    matrix = scipy.sparse.csr_array((data, indices, indptr), shape=(rows, len(factors)))
    matrix.check_format()
    rules = tuple(
        Column(str(title), float(mean), float(deviation), tuple(map(str, values)))
        for title, mean, deviation, values in json.loads(metadata[name])
    )
    return Learned(Features(matrix, tuple(names.tolist()), None, rules), factors)
