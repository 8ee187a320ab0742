"""Growth after the fit: users folded in, items folded in, and further positives, from the fitted factors."""

import dataclasses
from typing import Any

import jax
import numpy as np

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data import ids
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.problem import Constants, Problem
from mfauc_jax.serving.answers import Recommender
from mfauc_jax.solvers import Gaussian, base
from mfauc_jax.training import loop
from mfauc_jax.training.loop import Fitted


class Growing(Recommender):
    """The methods of a model that is fitted by minimising a `Problem`, and can take in what came after the fit."""

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
    _known: tuple | None
    problem: Any
    fit: Any
    _keep: Any
    _is_absent: Any
    _refuse_folded: Any

    def fold_in(self, X_new: Any, *, unknown: str = "skip") -> Any:
        """A model of users who were not in training: it computes their u from their positives and keeps the items.

        `recommend`, `predict`, `evaluate` and the other methods of the returned model answer for the new users and
        leave out their positives as seen. `fold_in_gap_` bounds how far the objective of each u is above its minimum
        (see `fold_in.fold_in`). This model is not changed.

        Args:
            X_new: what `fit` takes, over the same items: with ids if `fit` was given ids, else with as many columns.
            unknown: "skip" leaves out positives whose item was not in training, and one warning counts them; "raise"
                raises. A user without a known item gets u = 0, and scores of 0.
        """
        V, X = self._fitted().V, self.folded_from_ or self.train_
        new = ids.over_items(X_new, X, unknown)
        U, gap = np.zeros((new.num_users, V.shape[1]), V.dtype), np.zeros(new.num_users)
        if new.nnz:  # else no user has a known item
            U, gap = self._solve_users(X, V, new)
        fitted = Fitted(Factors(jax.device_put(U), V), [], "folded in")
        folded = dataclasses.replace(self)._keep(new, fitted, X, gap)  # pyright: ignore
        folded._known = self._known
        return folded

    def _solve_users(self, X: Interactions, V, new: Interactions):
        """u of each user of `new`, given V, with the constants of the training set X."""
        from mfauc_jax.serving import fold_in

        constants = self._constants(X)
        if constants is not None:
            rules = self.loss, self.weighting, self.weights, self.penalty
            share, problem = constants.usable_share, Problem.of(new, *rules, constants=constants)
        else:
            whole = self.problem(X)
            share, problem = whole.usable_share, whole.of_users(new)
        objective = self.chosen_solver.stages(problem.objective)[-1]
        return fold_in.fold_in(objective, V, new, problem.weights, usable_share=share)

    def _constants(self, X: Interactions) -> Constants | None:
        """What fold-in needs of the training set X, computed once for these weights and this penalty."""
        rules = self.weights, self.penalty
        if self._known is None or self._known[0] is not X or self._known[1] != rules:
            self._known = X, rules, self.problem(X).constants()
        return self._known[2]

    def _warm_up_fold_in(self) -> tuple[int, ...]:
        """Fold in one user of training for each program that fold-in has; the numbers of their positives."""
        from mfauc_jax.serving import fold_in

        if self._is_absent() or not self._train.nnz:
            return ()
        lengths = np.diff(np.asarray(self._train.indptr))
        widths = np.where(lengths > 0, fold_in.padded_lengths(lengths), 0)
        chosen = [int(np.argmax(widths == width)) for width in np.unique(widths[widths > 0])]
        for i in chosen:
            self.fold_in(self._train.take(np.array([i])))
        return tuple(int(lengths[i]) for i in chosen)

    def partial_fit(self, X_new: Any, iterations: int = 2, *, progress: bool | None = None) -> Any:
        """Continue from the present factors with further positives, users and items.

        New users and items come after the known ones. A new item starts with a Gaussian v_j, as in `fit`, and a new
        user with the u_i of `fold_in`. Then the solver runs a few iterations over old and new positives together,
        which move every factor a little. On a model without factors this is `fit`.

        Args:
            X_new: the positives to add, with ids if `fit` was given ids.
            iterations: number of iterations of the solver, each one pass over all positives.
            progress: whether to show a progress bar; None: on a terminal only.
        """
        if not hasattr(self, "factors_"):
            return self.fit(X_new, progress=progress)
        self._refuse_folded("go on from")
        X, (U, V) = ids.joined(self.train_, X_new), self.factors_
        m, n = len(U), len(V)
        key_start, key_fit = jax.random.split(
            jax.random.fold_in(jax.random.key(self.seed), len(self.history_))
        )
        scale = self.start.scale if isinstance(self.start, Gaussian) else Gaussian().scale
        drawn = base.gaussian(key_start, 1, X.num_items, V.shape[1], scale)
        V = host.joined(V, np.asarray(drawn.V)[n:])
        if X.num_users > m:
            new = X.take(np.arange(m, X.num_users))
            U = host.joined(U, self._solve_users(X, V, new)[0])
        problem, solver = self.problem(X), self.chosen_solver
        last = solver.stages(problem.objective)[-1]
        problem = dataclasses.replace(problem, objective=last)
        fitted = loop.fit(
            key_fit,
            solver.for_update(),
            problem,
            Factors(U, V),
            iterations=iterations,
            progress=progress,
        )
        return self._keep(X, fitted._replace(history=loop.continued(self.history_, fitted.history)))
