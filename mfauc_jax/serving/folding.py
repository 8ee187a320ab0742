"""Users and items folded in after the fit, from the fitted factors; and why an item has its score."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import dislikes as disliking
from mfauc_jax.data import ids, joining
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import sides
from mfauc_jax.problem import Constants, Problem
from mfauc_jax.serving import explanation, fold_in, fold_in_items, item_newton, new_items
from mfauc_jax.serving.answers import Recommender
from mfauc_jax.serving.explanation import Explanation
from mfauc_jax.training.loop import Fitted
from mfauc_jax.training.side_information import Learned


class Folding(Recommender):
    """The methods of a model that minimises a `Problem`, and can take in users and items after the fit."""

    # what the model has besides: its fields, and what `_keep` keeps
    loss: Any
    weighting: Any
    weights: Any
    penalty: Any
    start: Any
    seed: int
    chosen_solver: Any
    history_: list[dict]
    folded_from_: Interactions | None
    item_features_: Learned | None = None
    user_features_: Learned | None = None
    _known: tuple | None = None  # X, the rules and their constants, as from `_constants`
    _solved: np.ndarray | None = (
        None  # as from `_solved_at`; None: all items were solved with `train_`
    )
    problem: Any
    fit: Any
    _keep: Any
    _is_absent: Any
    _refuse_folded: Any

    def fold_in(
        self,
        X_new: Any = None,
        *,
        user_features: Any = None,
        dislikes: Any = None,
        unknown: str = "skip",
    ) -> Any:
        """A model of users who were not in training: it computes their u from their positives and keeps the items.

        `recommend`, `predict`, `evaluate` and the other methods of the returned model answer for the new users and
        leave out their positives and dislikes as seen. `fold_in_gap_` bounds how far the objective of each u is above
        its minimum (see `fold_in.fold_in`). This model is not changed.

        If `fit` was given user features, u = B g + e with e solved (docs/derivations.md#features), and g = 0 for users
        without any; a user without a known item is B g.

        Args:
            X_new: what `fit` takes, over the same items: with ids if `fit` was given ids, else with as many columns.
                None: users known by their features only.
            user_features: of the new users, with the columns that `fit` was given, joined by ids or by position.
            dislikes: items that the new users rejected, in the same form; see `fit`.
            unknown: "skip" leaves out positives whose item was not in training, and one warning counts them; "raise"
                raises. A user without a known item, and without features, gets u = 0, and scores of 0.
        """
        V, X = self._fitted().V, self.folded_from_ or self.train_
        new = None if X_new is None else joining.over_items(X_new, X, unknown)
        about = self.user_features_, user_features, new, X.item_ids, X.num_items
        new, learned = new_items.of_new_users(*about)
        if dislikes is not None:
            new = disliking.attached(new, dislikes)
        prior = None if learned is None else learned.rows()
        U, gap = fold_in.begun(prior, new.num_users, V), np.zeros(new.num_users)
        if new.nnz:  # else no user has a known item
            U, gap = self._solve_users(X, V, new, self._constants(X), prior)
        fitted = Fitted(Factors(jax.device_put(U), V), [], "folded in")
        kept = self.item_features_, learned
        folded = dataclasses.replace(self)._keep(new, fitted, X, gap, kept)  # pyright: ignore
        folded._known = self._known
        return folded

    def _solve_users(
        self, X: Interactions, V, new: Interactions, constants: Constants | None, prior: Any = None
    ):
        """u of each user of `new`, given V, with the constants of the training set X, if its penalty has such."""
        problem, share = self._problem_of_users(X, new, constants)
        return fold_in.fold_in(
            problem.objective, V, new, problem.weights, usable_share=share, prior=prior
        )

    def _problem_of_users(
        self, X: Interactions, new: Interactions, constants: Constants | None
    ) -> tuple[Problem, float]:
        """The problem of other users than those of X, with X's constants, and X's share of usable users."""
        if constants is not None:
            rules = self.loss, self.weighting, self.weights, self.penalty
            share, problem = constants.usable_share, Problem.of(new, *rules, constants=constants)
        else:
            whole = self.problem(X)
            share, problem = whole.usable_share, whole.of_users(new)
        last = self.chosen_solver.stages(problem.objective)[-1]
        if self.user_features_ is not None:
            last = last._replace(reg=sides.of_own_parts(last.reg))
        return problem.minimising(last), share

    def explain(self, user: Any, item: Any) -> Explanation:
        """Why an item has its score: what each of the user's own positives adds to it, the largest first.

            items, contributions, score, rest = model.explain(user, item)

        The contributions and `rest` sum to `predict(user, item)`. u is the solution of a linear system in the user's
        positives for the square loss, and of the last Newton step for another convex loss (`explanation`). `rest` is
        what is missing: next to nothing after `fold_in`, where u is the minimum, and a little for a user of `fit`,
        whose items moved after the user was solved. What a user's features add is in `rest`, too.

        Args:
            user: one id, as `fit` or `fold_in` was given it.
            item: one id.
        """
        X, (U, V) = self._train, self._fitted()
        (i,) = ids.places("user", X.user_ids, ids.requested(user, X.user_ids), X.num_users)
        (j,) = ids.places("item", X.item_ids, ids.requested(item, X.item_ids), X.num_items)
        V = np.asarray(V)
        positives, parts = next(self.explanations(np.array([i])))
        score, contributions = float(np.asarray(U)[i] @ V[j]), V[j] @ parts
        order = np.argsort(-contributions, kind="stable")
        named = ids.names(X.item_ids, positives[order])
        return Explanation(named, contributions[order], score, score - float(contributions.sum()))

    def explanations(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The positives of users, as columns of X, and the parts of their u, [k, P]: for `explain`, and for many users.

        v_j times a part is the contribution of its positive to the score of item j. A user who has every item, or
        none, has parts of 0.

        Args:
            rows: the rows of the users in the training set.
        """
        X, train, (U, V) = self._train, self.folded_from_ or self._train, self._fitted()
        own, U, V = X.take(rows), np.asarray(U)[rows], np.asarray(V)
        bounds, items = np.asarray(own.indptr), np.asarray(own.indices)
        lengths = np.diff(bounds)
        if not ((lengths > 0) & (lengths < X.num_items)).any():
            parts = (np.zeros((V.shape[1], length)) for length in lengths)
        else:
            problem, share = self._problem_of_users(train, own, self._constants(train))
            explanation.check(problem.objective)
            parts = explanation.splits(problem.objective, V, own, problem.weights, U, share)
        for i, part in enumerate(parts):
            yield items[bounds[i] : bounds[i + 1]], part

    def _constants(self, X: Interactions) -> Constants | None:
        """What fold-in needs of the training set X, computed once for these weights and this penalty."""
        rules = self.weights, self.penalty
        if self._known is None or self._known[0] is not X or self._known[1] != rules:
            self._known = X, rules, self.problem(X).constants
        return self._known[2]

    def _warm_up_fold_in(self) -> tuple[int, ...]:
        """Fold in one user of training for each program that fold-in has; the numbers of their positives."""
        if self._is_absent() or not self._train.nnz:
            return ()
        lengths = np.diff(np.asarray(self._train.indptr))
        widths = np.where(lengths > 0, fold_in.padded_lengths(lengths), 0)
        chosen = [int(np.argmax(widths == width)) for width in np.unique(widths[widths > 0])]
        for i in chosen:
            self.fold_in(self._train.take(np.array([i])))
        return tuple(int(lengths[i]) for i in chosen)

    def fold_in_items(
        self, X_new: Any = None, *, item_features: Any = None, unknown: str = "skip"
    ) -> Any:
        """A model with further items: it computes their v_j from their positives and the fitted U, which stays.

        v_j minimises the fitted objective while U and all other items are fixed (`fold_in_items.solve`): for an item
        that many users have, nearly what a refit gives; for an item that one user has, next to that user's other items.
        `recommend` of the returned model ranks the new items among the others. This model is not changed.

        With `item_features` a new item without positives is A f_j, one with few near it (docs/derivations.md#features).

        For the square loss v_j is one k × k system. For another convex loss Newton steps find it, and `fold_in_gap_`
        bounds how far the objective of each such item, in the order of the columns, is above its minimum
        (`item_newton`). φ must be the identity and rows must have any length; else use `partial_fit`.

        Args:
            X_new: positives of known users and new items, in any form that `fit` takes: with ids if `fit` was given
                ids, else a matrix with further columns. Known items with further positives are solved anew. None: items
                known by their features only.
            item_features: of new items, with the columns that `fit` was given; without ids, row r is the r-th new item.
            unknown: "skip" leaves out positives of users who were not in training, and one warning counts them;
                "raise" raises.
        """
        self._refuse_folded("add items to")
        train, (U, V) = self._train, self._fitted()
        new = None if X_new is None else joining.of_known_users(X_new, train, unknown)
        if new is None and item_features is None:
            raise ValueError("give positives of new items, their item_features, or both")
        X = train if new is None else joining.joined(train, new)
        X, learned = new_items.known_by("item", self.item_features_, item_features, len(V), X)
        problem, gap = self._last_problem(X, learned), None
        k, prior = V.shape[1], None if learned is None else learned.rows()
        rows = np.zeros((X.num_items - len(V), k)) if prior is None else prior[len(V) :]
        factors = Factors(U, host.joined(V, rows))
        items = np.zeros(0, int) if new is None else joining.columns_of(new, X)
        if not len(items) or fold_in_items.is_quadratic(problem.objective):
            factors = fold_in_items.with_solved(problem, factors, items, prior)
        else:
            item_newton.check(problem.objective)
            found, gap = item_newton.solve(problem, factors, items, prior)
            factors = factors._replace(V=fold_in_items.replaced(factors.V, items, found))
        grown = dataclasses.replace(self)  # pyright: ignore
        fitted, kept = Fitted(factors, self.history_, "folded in"), (learned, self.user_features_)
        grown._keep(X, fitted, None, gap, kept)
        grown._known = X, (self.weights, self.penalty), problem.constants
        return grown

    def _last_problem(self, X: Interactions, learned: Learned | None = None) -> Problem:
        """The problem of X, which holds the training set, with the objective that a fit ends with.

        What the penalty's rule took long to find in the training set stays as it was until the next fit.
        """
        constants, penalty = self._constants(self._train), self.penalty
        penalty = penalty if constants is None else penalty.settled(constants.penalty)
        problem = Problem.of(X, self.loss, self.weighting, self.weights, penalty)
        if learned is not None:
            problem = problem.with_features(learned.features.matrix)
        last = self.chosen_solver.stages(problem.objective)[-1]
        return problem.minimising(last)
