"""A fit with features: which items and users take part in it, and the factors of those known by features only.

An item without a positive takes no part: nobody has had the chance to take it, so it is no negative either. After the
fit it is A f_j, and it is ranked with the rest. A user without a positive is B g_i.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import dislikes, features, interactions, joining
from mfauc_jax.data.features import Features
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.problem import Constants, Problem
from mfauc_jax.solvers.base import Solver


class Learned(NamedTuple):
    """The features of a fitted model's items, or users, and what was learned about them."""

    features: Features  # one row per item of `train_`; zeros where nothing is known
    factors: Float[
        np.ndarray, "p k"
    ]  # the rows a_c of A: one per feature, named by `features.names`

    def rows(self) -> Float[np.ndarray, "n k"]:
        """A f_j of every item."""
        return self.features.matrix @ self.factors


class Arranged(NamedTuple):
    """The data of a fit with features."""

    X: Interactions  # the items with a positive: what is fitted
    whole: Interactions  # with the items and users that only the features know
    fitted_items: np.ndarray  # the columns of `whole` that X has
    items: Features | None  # one row per item of `whole`
    users: Features | None

    def problem(self, problem: Problem) -> Problem:
        """The problem of X with the features of its items and users."""
        items = None if self.items is None else self.items.matrix[self.fitted_items]
        users = None if self.users is None else self.users.matrix[: self.X.num_users]
        return problem.with_features(items, users)

    def validation(self, held_out: Any) -> Any:
        """Held-out positives as X names its items: by position, if the caller does."""
        if held_out is None or self.whole.item_ids is not None:
            return held_out
        found = Interactions.of(held_out)
        return dataclasses.replace(found, item_ids=np.arange(found.num_items))

    def completed(
        self, problem: Problem, factors: Factors
    ) -> tuple[Factors, Learned | None, Learned | None]:
        """The factors of all items and users of `whole`, and A and B with their features."""
        assert problem.sides is not None
        (U, V), learned = map(np.asarray, factors), []
        for side, known, F in zip(problem.sides, (self.items, self.users), (V, U), strict=True):
            found = None
            if side is not None and known is not None:
                found = Learned(known, side.coefficients(F).astype(F.dtype))
            learned.append(found)
        items, users = learned
        m, n = self.whole.shape
        V_all, U_all = np.zeros((n, V.shape[1]), V.dtype), np.zeros((m, U.shape[1]), U.dtype)
        if items is not None:
            V_all[:] = items.rows()
        if users is not None:
            U_all[:] = users.rows()
        fitted_users = np.flatnonzero(np.asarray(problem.weights.user) > 0)
        V_all[self.fitted_items], U_all[fitted_users] = V, U[fitted_users]
        return Factors(host.put(U_all), host.put(V_all)), items, users

    def constants(self, found: Constants | None) -> Constants | None:
        """The constants of the fit, with the numbers of positives of all items."""
        if found is None:
            return None
        counts = np.bincount(np.asarray(self.whole.indices), minlength=self.whole.num_items)
        totals = found.totals._replace(item_counts=counts, num_users=float(self.whole.num_users))
        return found._replace(totals=totals)


def arranged(solver: Solver, X: Interactions, item_features: Any, user_features: Any) -> Arranged:
    """The data of a fit to X with features; a ValueError if the solver takes none.

    Args:
        solver: the solver of the fit.
        X: the positives.
        item_features: what `Features.of` reads, or None.
        user_features: the same for users.
    """
    if not solver.takes_features:
        raise ValueError(
            f"the solver {solver.name} takes no features: use solver='minibatch' or 'dense', or 'alternating' for the "
            "square loss"
        )
    items, item_ids = aligned(item_features, X.item_ids, X.num_items, "item")
    users, user_ids = aligned(user_features, X.user_ids, X.num_users, "user")
    num_items = X.num_items if items is None else items.matrix.shape[0]
    num_users = X.num_users if users is None else users.matrix.shape[0]
    whole = joining.widened(X, (num_users, num_items), user_ids, item_ids)
    return over(whole, items, users, X.num_users)


def over(
    whole: Interactions, items: Features | None, users: Features | None, num_users: int
) -> Arranged:
    """The data of a fit to the positives and dislikes of `whole`.

    Args:
        whole: the positives, with the items and users that only the features know.
        items: the features of its items, one row each, or None.
        users: those of its users.
        num_users: the users that take part: the first so many.
    """
    if jax.process_count() > 1:
        raise ValueError(
            f"a fit with features runs in one process, not in {jax.process_count()}: leave them out, or start one"
        )
    n, (rows, columns, _) = whole.num_items, whole.on_host()
    fitted, place = np.arange(n), np.full(n, -1)
    if items is not None:
        fitted = np.flatnonzero(np.bincount(columns, minlength=n))
    place[fitted] = np.arange(len(fitted))
    user_ids = None if whole.user_ids is None else whole.user_ids[:num_users]
    names = fitted if whole.item_ids is None else whole.item_ids[fitted]
    weights = None if whole.confidence is None else np.asarray(whole.confidence)
    shape = (num_users, len(fitted))
    own = interactions.merged(rows, place[columns], shape, weights, user_ids, names)
    own = dislikes.moved(own, whole, np.arange(whole.num_users), place)
    return Arranged(own, whole, fitted, items, users)


def aligned(
    given: Any, names: np.ndarray | None, size: int, kind: str
) -> tuple[Features | None, np.ndarray | None]:
    """The features of X's items, then those of items that X lacks, and the ids of them all."""
    if given is None:
        return None, names
    known, others = features.joined(Features.of(given, kind), names, size, kind)
    everything = extended(known, others)
    if names is None:
        return everything, None
    return everything, np.concatenate(
        [names, np.zeros(0, names.dtype) if others.ids is None else others.ids]
    )


def extended(known: Features, others: Features) -> Features:
    """The rows of two sets of the same features, one after the other, without ids."""
    import scipy.sparse

    rows = scipy.sparse.csr_array(scipy.sparse.vstack([known.matrix, others.matrix]))
    return dataclasses.replace(known, matrix=rows, ids=None)
