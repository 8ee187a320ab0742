"""Growth after the fit: further positives, users and items, from the fitted factors."""

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import ids, joining
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.problem import Problem
from mfauc_jax.serving import fold_in_items, new_items
from mfauc_jax.serving.folding import Folding
from mfauc_jax.solvers import Gaussian, base
from mfauc_jax.training import loop, side_information
from mfauc_jax.training.loop import Fitted
from mfauc_jax.training.side_information import Learned

GROWTH = 0.05  # an item is solved once a twentieth of its positives came after it was solved last


class Grown(NamedTuple):
    """What `partial_fit` works on: all positives, and the features of all items and users, or None."""

    X: Interactions
    items: Learned | None
    users: Learned | None


class Growing(Folding):
    """The methods of a model that is fitted by minimising a `Problem`, and can take in what came after the fit."""

    def partial_fit(
        self,
        X_new: Any,
        iterations: int | None = None,
        *,
        item_features: Any = None,
        user_features: Any = None,
        progress: bool | None = None,
    ) -> Any:
        """Continue from the present factors with further positives, users and items.

        New users and items come after the known ones. By default only the users and items of X_new move: their u_i and
        v_j are solved exactly, once each, as `fold_in` and `fold_in_items` do, and everybody else stays. An item
        that many users have waits until a twentieth of its positives is new. This takes a fraction of a fit. It needs
        the square loss with φ = identity, and one process; otherwise 2 `iterations` are run.

        With `iterations`, the solver goes on over old and new positives together, which moves every factor a little.
        Then a new item starts with a Gaussian v_j, as in `fit`, and a new user with the u_i of `fold_in`. On a model
        without factors this method is `fit`. With features, v_j and u_i are solved around A f_j and B g_i, and A and B
        stay as they are; `iterations` move them, too.

        Args:
            X_new: the positives to add, with ids if `fit` was given ids.
            iterations: number of iterations of the solver, each one pass over all positives; None: only what X_new
                touches.
            item_features: of new items, with the columns that `fit` was given; without ids, row r is the r-th new item.
                An item without a positive is A f_j.
            user_features: the same for new users.
            progress: whether to show a progress bar of the iterations; None: on a terminal only.
        """
        if not hasattr(self, "factors_"):
            give = {"item_features": item_features, "user_features": user_features}
            return self.fit(X_new, progress=progress, **give)
        self._refuse_folded("go on from")
        new, (m, n) = ids.over_another(X_new), map(len, self.factors_)
        X = joining.joined(self.train_, new)
        X, by_item = new_items.known_by("item", self.item_features_, item_features, n, X)
        X, by_user = new_items.known_by("user", self.user_features_, user_features, m, X)
        grown, learned = Grown(X, by_item, by_user), (by_item, by_user)
        problem = self._last_problem(X, by_item)
        constants = problem.constants
        alone = jax.process_count() == 1
        if iterations is None and alone and fold_in_items.is_quadratic(problem.objective):
            users, items = joining.rows_of(new, X), joining.columns_of(new, X)
            counts, before = _item_counts(X), self._solved_at(X.num_items)
            items = items[counts[items] - before[items] >= GROWTH * counts[items]]
            fitted, solved_at = self._update(grown, problem, users, items), before
            solved_at[items] = counts[items]
        elif by_item is None and by_user is None:
            fitted, solved_at = self._go_on(grown, problem, iterations or 2, progress), None
        else:
            items, users = (known and known.features for known in learned)
            arranged = side_information.over(X, items, users, X.num_users)
            problem, solved_at = arranged.problem(self._last_problem(arranged.X)), None
            fitted = self._go_on(grown, problem, iterations or 2, progress, arranged.fitted_items)
            factors, *learned = arranged.completed(problem, fitted.factors)
            fitted, constants = (
                fitted._replace(factors=factors),
                arranged.constants(problem.constants),
            )
        history = loop.continued(self.history_, fitted.history)
        self._keep(X, fitted._replace(history=history), learned=learned)
        self._known, self._solved = (X, (self.weights, self.penalty), constants), solved_at
        return self

    def _solved_at(self, num_items: int) -> np.ndarray:
        """How many positives each item had when its v_j was solved last, [n]; 0 for new items."""
        known = _item_counts(self.train_) if self._solved is None else self._solved
        return np.concatenate([known, np.zeros(num_items - len(known), known.dtype)])

    def _begun(self, grown: Grown) -> tuple[Factors, Any, Any]:
        """The present factors, with A f_j and B g_i, or 0, for new items and users; and A f_j and B g_i of all."""
        priors = [None if known is None else known.rows() for known in (grown.users, grown.items)]
        rows = []
        for F, prior, size in zip(self.factors_, priors, grown.X.shape, strict=True):
            new = np.zeros((size - len(F), F.shape[1])) if prior is None else prior[len(F) :]
            rows.append(host.joined(F, new))
        return Factors(*rows), priors[1], priors[0]

    def _update(
        self, grown: Grown, problem: Problem, users: np.ndarray, items: np.ndarray
    ) -> Fitted:
        """New items solved from the users who are known, then the u_i of `users`, then the v_j of `items`."""
        X, begun, n = problem.X, time.perf_counter(), len(self.factors_.V)
        before, prior, means = self._begun(grown)
        factors = fold_in_items.with_solved(problem, before, items[items >= n], prior)
        means = None if means is None else means[users]
        folded = self._solve_users(X, factors.V, X.take(users), problem.constants, means)
        factors = factors._replace(U=fold_in_items.replaced(factors.U, users, folded.U))
        factors = fold_in_items.with_solved(problem, factors, items, prior)
        moved = sum(
            ((np.asarray(a) - np.asarray(b)) ** 2).sum()
            for a, b in zip(factors, before, strict=True)
        )
        size = sum((np.asarray(a) ** 2).sum() for a in factors)
        record = {"iteration": 1, "step_size": float(np.sqrt(moved / (size + 1e-30)))}
        record["seconds"] = time.perf_counter() - begun
        return Fitted(factors, [record], "iterations")

    def _go_on(
        self,
        grown: Grown,
        problem: Problem,
        iterations: int,
        progress: bool | None,
        fitted_items: np.ndarray | None = None,
    ) -> Fitted:
        """Further iterations of the solver over all positives; with features, of the items that have one."""
        X, (U, V), (m, n) = grown.X, self.factors_, map(len, self.factors_)
        key_start, key_fit = jax.random.split(
            jax.random.fold_in(jax.random.key(self.seed), len(self.history_))
        )
        scale = self.start.scale if isinstance(self.start, Gaussian) else Gaussian().scale
        drawn = np.asarray(base.gaussian(key_start, 1, X.num_items, V.shape[1], scale).V)[n:]
        begun, _, means = self._begun(grown)
        V = host.joined(V, drawn if grown.items is None else drawn + np.asarray(begun.V)[n:])
        if fitted_items is not None:
            V = host.put(np.asarray(V)[fitted_items])
        if X.num_users > m:
            new = problem.X.take(np.arange(m, X.num_users))
            means = None if means is None else means[m:]
            U = host.joined(U, self._solve_users(problem.X, V, new, problem.constants, means).U)
        return loop.fit(
            key_fit,
            self.chosen_solver.for_update(),
            problem,
            Factors(U, V),
            iterations=iterations,
            progress=progress,
        )


def _item_counts(X: Interactions) -> np.ndarray:
    return np.bincount(np.asarray(X.indices), minlength=X.num_items)
