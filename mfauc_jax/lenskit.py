"""A component for LensKit pipelines (`pip install 'mfauc_jax[lenskit]'`).

from lenskit.pipeline import topn_pipeline
from mfauc_jax.lenskit import MFAUCScorer

pipeline = topn_pipeline(MFAUCScorer(rank=32), n=10)
pipeline.train(dataset)
recommend(pipeline, user_id)
"""
# pyright: reportMissingImports=false, reportIncompatibleVariableOverride=false, reportIncompatibleMethodOverride=false

import numpy as np
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery, Vocabulary
from lenskit.pipeline import Component
from lenskit.training import Trainable, TrainingOptions
from pydantic import BaseModel, JsonValue

from mfauc_jax.data.interactions import Interactions
from mfauc_jax.model import MFAUC


class MFAUCConfig(BaseModel, extra="allow"):
    """The fields of `MFAUC`; others, such as solver__iterations, are named as in `MFAUC.set_params`."""

    __pydantic_extra__: dict[str, JsonValue]
    rank: int = 64
    seed: int = 0
    fold_in: bool = True  # whether unknown users are scored by the items of the query


class MFAUCScorer(Component[ItemList], Trainable):
    """Scores candidate items by an `MFAUC`: every interaction of the data set is a positive, whatever its rating.

    A user of training has the u of the fit. Another user whose query has items is folded in. Without either, and for
    items that were not in training, scores are NaN, so that a fallback can score them.
    """

    config: MFAUCConfig
    model_: MFAUC
    users_: Vocabulary
    items_: Vocabulary

    def train(self, data: Dataset, options: TrainingOptions = TrainingOptions()) -> None:
        """Fit the model; a random generator in the options decides the seed."""
        if hasattr(self, "model_") and not options.retrain:
            return
        cells = data.interaction_matrix(format="structure")
        X = Interactions.from_csr(
            np.asarray(cells.rowptrs), np.asarray(cells.colinds), data.item_count
        )
        seed = self.config.seed
        if options.rng is not None:
            seed = int(options.random_generator().integers(2**31 - 1))
        settings = {"rank": self.config.rank, "seed": seed, **self.config.__pydantic_extra__}
        self.model_ = MFAUC().set_params(**settings).fit(X, progress=False)
        self.users_, self.items_ = data.users, data.items

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """The items with their scores; only scores of one user can be compared."""
        u = self._user(RecQuery.create(query))
        scores = np.full(len(items), np.nan, np.float32)
        if u is not None and len(items):
            columns = items.numbers(vocabulary=self.items_, missing="negative")
            known = columns >= 0
            scores[known] = self.model_.item_factors_[columns[known]] @ u
        return ItemList(items, scores=scores)

    def _user(self, query: RecQuery) -> np.ndarray | None:
        """The u of the user, or None."""
        row = None
        if query.user_id is not None:
            row = self.users_.number(query.user_id, missing=None)
        if row is not None:
            return self.model_.user_factors_[row]
        given = query.query_items
        if not self.config.fold_in or given is None or not len(given):
            return None
        columns = np.unique(given.numbers(vocabulary=self.items_, missing="negative"))
        columns = columns[columns >= 0]
        if not len(columns):
            return None
        new = Interactions.from_csr(np.array([0, len(columns)]), columns, len(self.items_))
        return self.model_.fold_in(new).user_factors_[0]
