"""The digest of a data set: by it a folder of checkpoints, or another process, knows whether the data are the same."""

import jax
import numpy as np

from mfauc_jax._core import digests, host
from mfauc_jax.data.interactions import Interactions


def digest(X: Interactions) -> str:
    """A digest of the shape and of the positives with their places, confidences and ids, over all processes.

    The users of the processes follow one another, so the same users in the same order give the same digest, however
    they are cut over processes.
    """
    counts = host.everyone(np.int32(X.num_users)).ravel()
    me = jax.process_index() if len(counts) > 1 else 0
    first = int(counts[:me].sum())
    rows, items, _ = X.on_host()
    columns = [rows + first, items]
    if X.confidence is not None:
        columns.append(np.asarray(X.confidence, np.float64))
    parts = [digests.entries(*columns)]
    if X.dislikes is not None:
        rows, items, _ = X.dislikes.on_host()
        parts.append(
            digests.entries(rows + first, items, np.full_like(rows, 4), np.full_like(rows, 4))
        )
    if me == 0:
        parts.append(digests.entries(*([size] for size in (int(counts.sum()), X.num_items, 3))))
    if X.user_ids is not None:
        places = np.arange(first, first + X.num_users)
        parts.append(digests.entries(places, digests.texts(X.user_ids), np.ones_like(places)))
    if X.item_ids is not None and me == 0:
        places = np.arange(X.num_items)
        parts.append(digests.entries(places, digests.texts(X.item_ids), np.full_like(places, 2)))
    return digests.total(parts)
