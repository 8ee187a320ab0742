"""What a fitted model answers: lists, neighbours, scores, metrics, a certificate; in the caller's own ids."""

from typing import Any

import numpy as np

from mfauc_jax._core.factors import Factors
from mfauc_jax.data import ids
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics, ranking


class Recommender:
    """Anything with `factors_` and `train_`: the questions that U, V and the training positives answer."""

    factors_: Factors
    train_: Interactions

    @property
    def user_factors_(self) -> np.ndarray:
        """U, [m, k]."""
        return np.asarray(self._fitted().U)

    @property
    def item_factors_(self) -> np.ndarray:
        """V, [n, k]; every score is exactly a product of two rows."""
        return np.asarray(self._fitted().V)

    def _fitted(self) -> Factors:
        if not hasattr(self, "factors_"):
            raise RuntimeError(f"this {type(self).__name__} has no factors yet: call fit(X) first")
        return self.factors_

    def recommend(
        self,
        users: Any,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        filter_items: Any = None,
        allow_items: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The n best items of each user and their scores, best first.

        Args:
            users: one id or several: the caller's own if `fit` was given ids, else rows of X.
            n: length of the lists. Where fewer items are left, ids end in −1 (or "") and scores in −inf.
            exclude_seen: leave out the positives of training.
            filter_items: items nobody is shown, or Interactions with each user's own.
            allow_items: the only items that may be shown, in the same two forms.
        """
        one = np.ndim(users) == 0
        rows = ids.places("user", self._train.user_ids, np.atleast_1d(users), self._train.num_users)
        items, scores = ranking.top_items(
            self._fitted(),
            rows,
            n,
            exclude=self._train if exclude_seen else None,
            deny=self._item_set(filter_items),
            allow=self._item_set(allow_items),
        )
        named = ids.names(self._train.item_ids, items)
        return (named[0], scores[0]) if one else (named, scores)

    def similar_items(self, item: Any, n: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """The n items nearest in angle to each given one, itself left out, and the cosines."""
        V = self.item_factors_
        one = np.ndim(item) == 0
        rows = ids.places("item", self._train.item_ids, np.atleast_1d(item), len(V))
        unit = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12)
        itself = Interactions.from_pairs(np.arange(len(rows)), rows, shape=(len(rows), len(V)))
        found, cosine = ranking.top_items(
            Factors(unit[rows], unit), np.arange(len(rows)), n, exclude=itself
        )
        named = ids.names(self._train.item_ids, found)
        return (named[0], cosine[0]) if one else (named, cosine)

    def predict(self, users: Any, items: Any) -> np.ndarray:
        """The score of each (user, item) pair; only a user's own scores compare."""
        users, items = np.broadcast_arrays(np.atleast_1d(users), np.atleast_1d(items))
        rows = ids.places("user", self._train.user_ids, users, self._train.num_users)
        columns = ids.places("item", self._train.item_ids, items, self._train.num_items)
        return np.einsum("bk,bk->b", self.user_factors_[rows], self.item_factors_[columns])

    def evaluate(self, held_out: Any, **options: Any) -> dict[str, Any]:
        """`metrics.evaluate` on held-out positives, those of training taken out of the lists."""
        held_out = ids.over(held_out, self._train)
        return metrics.evaluate(self._fitted(), self._train, held_out, **options)

    def certify(self, held_out: Any, delta: float = 0.05, **options: Any) -> Any:
        """With probability 1 − δ, the true AUC is at least …: see `certificate.certify`."""
        from mfauc_jax.certify import certificate

        held_out = ids.over(held_out, self._train)
        return certificate.certify(self._fitted(), self._train, held_out, delta=delta, **options)

    @property
    def _train(self) -> Interactions:
        self._fitted()
        return self.train_

    def _item_set(self, items: Any) -> Any:
        if items is None or isinstance(items, Interactions):
            return items
        return ids.places("item", self._train.item_ids, np.atleast_1d(items), self._train.num_items)
