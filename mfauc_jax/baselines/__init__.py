"""The methods that the paper compares with and builds on, by name: fit(key, X, rank=…, …) → Factors."""

from collections.abc import Callable
from functools import partial

from mfauc_jax._core import registry
from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines import bpr, climf, item_auc, popularity, soft_impute, warp, wrmf

BASELINES: dict[str, Callable[..., Factors]] = {
    "popularity": popularity.fit,
    "wrmf": wrmf.fit,
    "soft_impute": soft_impute.fit,
    "pure_svd": soft_impute.svd,
    "bpr": bpr.fit,
    "item_auc": item_auc.fit,
    "warp": warp.fit,
    "kos": warp.fit_kos,
    "warp_items": warp.fit_items,
    "kos_items": partial(warp.fit_items, places=warp.MEDIAN),
    "climf": climf.fit,
}


def get(name: str) -> Callable[..., Factors]:
    """The `fit` of a baseline, by name; a ValueError lists the names."""
    return registry.lookup("baseline", BASELINES, name)
