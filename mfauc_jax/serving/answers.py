"""What a fitted model can answer, in the caller's ids: lists, neighbours, scores, metrics, a certificate."""

import time
from typing import Any, NamedTuple

import numpy as np

from mfauc_jax._core import host, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import dislikes, ids
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics, ranking


class _ItemsAndScores(NamedTuple):
    items: np.ndarray
    scores: np.ndarray


class Lists(_ItemsAndScores):
    """The lists that `recommend` returns: `items, scores = …`, best first, one row per user of `.users`."""

    users: np.ndarray  # the caller's ids of the users, without those that were skipped

    def __new__(cls, items: np.ndarray, scores: np.ndarray, users: Any = ()) -> "Lists":
        """Make the pair (items, scores) with the ids of its users."""
        lists = super().__new__(cls, items, scores)
        lists.users = np.asarray(users)
        return lists


class WarmUp(NamedTuple):
    """What `warm_up` did; as text, one sentence."""

    programs: int  # programs that were compiled
    seconds: float
    lists: tuple[tuple[int, int], ...]  # (users, length) of the requests that need a program
    fold_in: tuple[int, ...]  # numbers of positives of the users who were folded in

    def __str__(self) -> str:
        lists = ", ".join(f"{users} × {n}" for users, n in self.lists) or "none needs a program"
        folded = ", ".join(map(str, self.fold_in)) or "none"
        return (
            f"compiled {ids.counted(self.programs, 'program')} in {self.seconds:.2f} s; lists (users × length): "
            f"{lists}; folded in users with so many positives: {folded}"
        )


class Recommender:
    """The methods of anything with `factors_` and `train_`: what U, V and the training positives can answer."""

    factors_: Factors
    train_: Interactions
    _union: tuple[Interactions, Interactions] | None = None  # `train_`, and what `_seen` made of it

    @property
    def user_factors_(self) -> np.ndarray:
        """The factors U of the users, [m, k]."""
        return np.asarray(self._fitted().U)

    @property
    def item_factors_(self) -> np.ndarray:
        """The factors V of the items, [n, k]; a score is the inner product of a row of U and a row of V."""
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
        unknown: str = "raise",
    ) -> Lists:
        """The n best items of each user and their scores, best first.

        Args:
            users: one id or several: the caller's ids if `fit` was given ids, else rows of X.
            n: length of the lists, ≥ 1; a list is never longer than the catalogue. Where fewer items are left for a
                user, ids end in −1 (or "") and scores in −inf.
            exclude_seen: leave out the training positives and the dislikes of each user.
            filter_items: items to leave out: ids for all users, or Interactions with a set per user.
            allow_items: the only items that may be listed, in the same two forms.
            unknown: what to do with users who were not in training. "raise" raises. "skip" leaves them out: one
                warning counts them, and `.users` of the result has the users who were kept, in the order of `users`.
                "popular" gives them the items that most users of training have, with the share of users as the
                score. Interactions as `filter_items` or `allow_items` have no row for an unknown user: they deny,
                and allow, nothing.
        """
        ids.check_unknown(unknown, "raise", "skip", "popular")
        (m, _), names = self._train.shape, self._train.user_ids
        wanted = ids.requested(users, names)
        if unknown == "raise":
            rows, is_known = ids.places("user", names, wanted, m), np.ones(len(wanted), bool)
        else:
            rows, is_known = ids.known("user", names, wanted, m)
        deny, allow = self._item_set(filter_items), self._item_set(allow_items)
        seen = self._seen if exclude_seen else None
        items, scores = ranking.top_items(
            self._fitted(), rows[is_known], n, exclude=seen, deny=deny, allow=allow
        )
        if unknown == "popular" and not is_known.all():
            popular = self._popular(n, deny, allow)
            items, scores = (
                _placed(own, is_known, row)
                for own, row in zip((items, scores), popular, strict=True)
            )
        elif not is_known.all():
            wanted = ids.without_unknown(wanted, is_known)
        named = ids.names(self._train.item_ids, items)
        if np.ndim(users) == 0:  # one list; it is empty if the user was skipped
            named, scores = (named[0], scores[0]) if len(named) else (named.ravel(), scores.ravel())
        return Lists(named, scores, wanted)

    def warm_up(self, n: int = 100, users: int = 64) -> WarmUp:
        """Compile and compute now what later requests need, and say what was done: call it before the first request.

        Requests for a few users are answered in NumPy and need no program (`ranking.by_host`). For larger ones the
        lengths of lists and the numbers of users come from a grid, with one program per point. What requests read
        (orders of ids, unit rows, popularities, the constants of fold-in) is computed once. Fold-in of the square loss
        needs no program; for other losses there is one per power of two of a user's positives.

        Args:
            n: the longest list that will be requested.
            users: the most users of a request.
        """
        begun, before, X = time.perf_counter(), programs.made(), self._train
        n, users = ranking.check_length("n", n), ranking.check_length("users", users)
        names, items = ids.of(X, "user"), ids.of(X, "item")
        lists = ranking.compiled_requests(users, n, X.num_items)
        for size, length in [(1, 1), *lists]:
            self.recommend(np.resize(names, size), length)
        self._popular(1, None, None)
        self.similar_items(items[:1], 1)
        self.similar_users(names[:1], 1)
        folded = self._warm_up_fold_in()
        seconds = time.perf_counter() - begun
        return WarmUp(programs.made() - before, seconds, tuple(lists), folded)

    def _warm_up_fold_in(self) -> tuple[int, ...]:
        return ()  # for models that fold in nobody

    def _popular(self, n: int, deny: Any, allow: Any) -> tuple[np.ndarray, np.ndarray]:
        """The items that most users of training have, and the share of users who have each; both [1, n]."""
        (m, num_items), V = self._train.shape, self._fitted().V

        def shares(indices: Any) -> Factors:
            share = np.bincount(np.asarray(indices), minlength=num_items) / m
            return Factors(*(host.put(np.asarray(F, V.dtype)) for F in ([[1.0]], share[:, None])))

        one = host.remembered(self._train.indices, "popularity", shares)
        deny = None if isinstance(deny, Interactions) else deny
        allow = np.zeros(0, np.int64) if isinstance(allow, Interactions) else allow
        return ranking.top_items(one, [0], n, deny=deny, allow=allow)

    def similar_items(self, item: Any, n: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """The n items nearest in angle to each given item, without the item itself, and their cosines.

        Args:
            item: one id or several, as `fit` was given them.
            n: length of the lists, ≥ 1; a list is never longer than the catalogue.
        """
        return _nearest("item", self._fitted().V, self._train.item_ids, item, n)

    def similar_users(self, user: Any, n: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """The n users nearest in angle to each given user, without the user, and their cosines.

        Args:
            user: one id or several, as `fit` was given them.
            n: length of the lists, ≥ 1; a list is never longer than the number of users.
        """
        return _nearest("user", self._fitted().U, self._train.user_ids, user, n)

    def predict(self, users: Any, items: Any) -> np.ndarray:
        """The score of each (user, item) pair. Only scores of the same user can be compared.

        Args:
            users: one id or several; broadcast with `items`.
            items: one id or several.
        """
        X = self._train
        users, items = ids.requested(users, X.user_ids), ids.requested(items, X.item_ids)
        users, items = np.broadcast_arrays(users, items)
        rows = ids.places("user", self._train.user_ids, users, self._train.num_users)
        columns = ids.places("item", self._train.item_ids, items, self._train.num_items)
        return np.einsum("bk,bk->b", self.user_factors_[rows], self.item_factors_[columns])

    def evaluate(self, held_out: Any, *, unknown: str = "skip", **options: Any) -> dict[str, Any]:
        """The metrics of `metrics.evaluate` on held-out positives; training positives and dislikes are left out.

        Args:
            held_out: the held-out positives, in any form that `fit` takes.
            unknown: "skip" leaves out positives of users or items that were not in training, and one warning counts
                them; "raise" raises.
            options: options of `metrics.evaluate`.
        """
        held_out = ids.over(held_out, self._train, unknown)
        return metrics.evaluate(self._fitted(), self._train, held_out, **options)

    def certify(
        self, held_out: Any, delta: float = 0.05, *, unknown: str = "skip", **options: Any
    ) -> Any:
        """A certificate: with probability 1 − δ, the true AUC is at least its bound. See `certificate.certify`.

        Args:
            held_out: the held-out positives, in any form that `fit` takes.
            delta: δ in (0, 1).
            unknown: as in `evaluate`. The certificate says nothing about what is left out: its claim is about users
                and items of training.
            options: options of `certificate.certify`.
        """
        from mfauc_jax.certify import certificate

        held_out = ids.over(held_out, self._train, unknown)
        return certificate.certify(self._fitted(), self._train, held_out, delta=delta, **options)

    @property
    def _train(self) -> Interactions:
        self._fitted()
        return self.train_

    @property
    def _seen(self) -> Interactions:
        """The training positives and the dislikes, which lists leave out; made once."""
        train = self._train
        if train.dislikes is None:
            return train
        if self._union is None or self._union[0] is not train:
            self._union = train, dislikes.seen(train)
        return self._union[1]

    def _item_set(self, items: Any) -> Any:
        if items is None or isinstance(items, Interactions):
            return items
        names = self._train.item_ids
        return ids.places("item", names, ids.requested(items, names), self._train.num_items)


def _placed(own: np.ndarray, is_known: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The rows of `own` where `is_known` is true, and the one row `other` elsewhere."""
    rows = np.repeat(other, len(is_known), axis=0)
    rows[is_known] = own
    return rows


def _nearest(kind: str, F: Any, names: np.ndarray | None, given: Any, n: int) -> tuple:
    """The n rows of F nearest in angle to each given row, without itself, and their cosines; in the caller's ids."""
    rows = ids.places(kind, names, ids.requested(given, names), len(F))
    found, cosine = nearest_rows(F, rows, n)
    named = ids.names(names, found)
    return (named[0], cosine[0]) if np.ndim(given) == 0 else (named, cosine)


def nearest_rows(F: Any, rows: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n rows of F nearest in angle to each of some rows, without itself, and their cosines; both [rows, n]."""
    unit = host.remembered(F, "unit rows", _unit_rows)
    itself = (
        Interactions(host.ints(np.arange(len(rows) + 1)), host.ints(rows), None, len(F), 1)
        if len(rows)
        else None
    )
    mine = Factors(host.put(np.asarray(unit)[rows]), unit)
    return ranking.top_items(mine, np.arange(len(rows)), n, exclude=itself)


def _unit_rows(F: Any) -> Any:
    F = np.asarray(F)
    return host.put(F / np.maximum(np.linalg.norm(F, axis=1, keepdims=True), 1e-12))
