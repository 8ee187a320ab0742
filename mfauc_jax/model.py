"""MFAUC: a model of eight fields, which say what is minimised, how, and from which start."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from mfauc_jax._core import host, settings
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import part, size
from mfauc_jax._core.settings import Declared
from mfauc_jax.data import dislikes as disliking
from mfauc_jax.data import joining
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation
from mfauc_jax.objective.dislikes import refuse
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.losses import Loss, square
from mfauc_jax.objective.penalties import Auto, Fixed, Penalty, Sphere
from mfauc_jax.objective.weightings import Weighting, identity
from mfauc_jax.objective.weights import PairWeights, Weights
from mfauc_jax.problem import Problem
from mfauc_jax.serving import model_file
from mfauc_jax.serving.growth import Growing
from mfauc_jax.solvers import Averaging, Gaussian, Sequential, Solver, Start
from mfauc_jax.solvers.base import DECIDES, default_solver
from mfauc_jax.training import agreement, loop, side_information
from mfauc_jax.training.checkpoints import Checkpoints, identity_of
from mfauc_jax.training.loop import DivergedError, Fitted
from mfauc_jax.training.side_information import Arranged, Learned
from mfauc_jax.training.watch import Watch, Watcher


@settings.refuse_unknown_arguments
@dataclasses.dataclass(repr=False, eq=False)
class MFAUC(Growing, Declared):
    """Matrix factorisation that maximises the AUC (Eq. 3).

        model = MFAUC().fit(X)
        items, scores = model.recommend(users, n=10)

    The defaults are the square loss over all pairs, solved exactly, with more weight on active users and with
    penalties from the shape of the data (docs/derivations.md#auto-penalty). `MFAUC.paper(loss=…)` is the paper's
    model. Every part is an object with its own settings, or the name of one.
    """

    rank: int = size(64, most=2**16, help="k, the number of factors")
    loss: Any = part(square, Loss, help="L: a Loss, its name, or a function of the margin")
    weighting: Any = part(identity, Weighting, help="φ: a Weighting, its name, or a function")
    weights: Any = part(Weights(), Weights, help="the weights of positives, negatives and users")
    penalty: Any = part(Auto(), Penalty, help="λ and σ: from the shape of the data, or fixed")
    solver: Any = part(
        "auto",
        Solver,
        others=("auto",),
        help="auto: alternating for the square loss, dense for softmax and unit rows, else minibatch",
    )
    start: Any = part(Gaussian(), Start, help="the factors before the first iteration")
    seed: int = size(0, least=0, help="the same seed gives the same bits on one machine")

    metadata_ = {}  # what `save` was given, after `load`  # noqa: RUF012

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; the value of a field is checked first."""
        if name in type(self).__dataclass_fields__:
            value = self.specs()[name].check("MFAUC", name, value)
        super().__setattr__(name, value)

    def __post_init__(self) -> None:
        self._check_together()

    def _check_together(self) -> None:
        if self._is_absent():
            return  # a placeholder raises when it is used
        objective = Objective(self.loss, self.weighting, Sphere() if self.penalty.sphere else 0.0)
        if self.weighting is not identity:
            equation.check_pair(self.loss, self.weighting)
            equation.check_bounded(objective)
        self.chosen_solver.check(objective)

    def _is_absent(self) -> bool:
        """Whether a part is a placeholder: a file held only its name."""
        parts = self.loss, self.weighting, self.solver
        return any(getattr(part, "is_absent", False) for part in parts)

    @classmethod
    def paper(cls, loss: Any = "square_hinge", **changes: Any) -> "MFAUC":
        """The paper's model: all users alike, one λ, no spread penalty, Algorithm 1, k = 8."""
        model = cls(
            rank=8, loss=loss, weights=Weights.paper(), penalty=Fixed(), solver=Sequential()
        )
        return model.set_params(**changes)

    @classmethod
    def authors(cls, loss: Any = "square_hinge", **changes: Any) -> "MFAUC":
        """The paper's model as in the authors' code for their figures: unit steps of α = .05, η = 5."""
        average = Averaging(start=30, eta=5.0, since=0)
        solver = Sequential(step_rule="unit", fixed_order=True, new_user=True, average=average)
        return cls.paper(loss, solver=solver).set_params(**changes)

    @property
    def chosen_solver(self) -> Solver:
        """The solver that `fit` uses: `solver` or, if that is "auto", the one that suits the objective."""
        if self.solver != "auto":
            return self.solver
        return default_solver(self.loss, self.weighting, self.penalty)

    def set_params(self, **params: Any) -> "MFAUC":
        """Change fields by name, those of parts as part__field; after an error nothing has changed."""
        specs = self.specs()
        plain = {n: specs[n].check("MFAUC", n, v) for n, v in params.items() if n in specs}
        solver = plain.get("solver", self.solver)
        decide = (plain.get(n, getattr(self, n)) for n in DECIDES)
        chosen = default_solver(*decide) if solver == "auto" else solver
        changed = settings.changes(self, params | plain, {"solver": chosen})
        dataclasses.replace(self, **changed)  # raises if the parts do not fit together
        for name, value in changed.items():
            setattr(self, name, value)
        return self

    def with_params(self, **params: Any) -> "MFAUC":
        """An unfitted copy with other values; they are named as in `set_params`."""
        return dataclasses.replace(self).set_params(**params)

    def problem(self, X: Any, pairs: PairWeights | None = None) -> Problem:
        """The problem that `fit(X)` minimises; `pairs` is `weights.of(X)`, if it is known already."""
        self._check_together()  # fields may have been set one by one since the model was made
        problem = Problem.of(X, self.loss, self.weighting, self.weights, self.penalty, pairs)
        if not self.chosen_solver.takes_dislikes:
            refuse(problem.weights.disliked, f"solver {self.chosen_solver.name!r}")
        return problem

    def fit(
        self,
        X: Any,
        validation: Any = None,
        *,
        dislikes: Any = None,
        item_features: Any = None,
        user_features: Any = None,
        watch: Watch | None = None,
        checkpoints: Checkpoints | str | os.PathLike | None = None,
        callbacks: Iterable[Callable[[int, Factors, dict], Any]] = (),
        progress: bool | None = None,
    ) -> "MFAUC":
        """Learn U and V from the positives X.

        Args:
            X: anything that `Interactions.of` reads: a scipy matrix (users × items), a pair of arrays, or a pandas,
                polars or arrow frame with columns user and item.
            validation: held-out positives over the same users and items. Their metrics are recorded, and the factors
                with the best `watch.metric` are kept. Ids that X lacks are left out; one warning counts them. In
                several processes, X and validation are of this process's users, and the metrics are of all users.
            dislikes: items that users rejected, in any form that X may have, joined by ids. They are negatives that
                count `weights.dislikes` times as much as unseen ones, and are never recommended. An item that is in X
                too counts as liked; dislikes of users or items that X lacks are left out; one warning counts both.
            item_features: what is known about the items: a pandas, polars or arrow frame with a column of ids, a scipy
                matrix (items × features), or `Features`, which says how columns are encoded. Then v_j = A f_j + d_j
                (docs/derivations.md#features): items without a positive, X's or not, are A f_j and take part in
                `recommend` and `similar_items`. For the solvers alternating, minibatch and dense.
            user_features: the same for the users.
            watch: what is recorded, which metric decides, and when to stop early.
            checkpoints: where training states are kept and resumed from: a folder, or a `Checkpoints`.
            callbacks: called with (iteration, factors, record); if one returns a true value, the fit stops.
            progress: whether to show a progress bar; None: on a terminal only.
        """
        solver, own = self.chosen_solver, partial(self.describe, identity=True)
        if dislikes is not None:
            X = disliking.attached(Interactions.of(X), dislikes)
        X, validation, checkpoints = agreement.ready(own, solver, X, validation, watch, checkpoints)
        arranged = None
        if item_features is not None or user_features is not None:
            arranged = side_information.arranged(solver, X, item_features, user_features)
            X, validation = arranged.X, arranged.validation(validation)
        (m, n), k = X.shape, self.rank
        needed = (m + n) * (12 * k + 48) + 16 * k**2  # factors, averages, gradients; weights; k × k
        host.check_memory(needed, f"a fit of {m} users, {n} items and rank {k}")
        watcher = None
        if watch is not None or validation is not None:
            assemble = partial(self._problem_of_fit, X, arranged)
            watcher = Watcher.of(watch or Watch(), X, assemble, solver, validation)
        order = solver.order(X, self.seed)
        problem = self._problem_of_fit(X if order is None else X.take(order), arranged)
        key_start, key_fit = host.keys(self.seed, 2)
        states = None
        if checkpoints is not None:
            states = checkpoints.open(identity_of(own(), solver, problem, watcher, order))
        try:
            fitted = loop.fit(
                key_fit,
                solver,
                problem,
                solver.start(self.start, key_start, problem.X, self.rank),
                watcher=watcher,
                states=states,
                callbacks=callbacks,
                progress=progress,
                order=order,
            )
        except DivergedError as error:
            self._keep_arranged(X, error.fitted, problem, arranged)
            raise
        finally:
            if states is not None:
                states.close()
        return self._keep_arranged(X, fitted, problem, arranged)

    def _problem_of_fit(self, X: Interactions, arranged: Arranged | None) -> Problem:
        problem = self.problem(X)
        return problem if arranged is None else arranged.problem(problem)

    def _keep_arranged(
        self, X: Interactions, fitted: Fitted, problem: Problem, arranged: Arranged | None
    ) -> "MFAUC":
        """Keep what a fit to X found, with the items and users that only features know."""
        constants = problem.constants
        if arranged is None:
            self._keep(X, fitted)
        else:
            factors, *learned = arranged.completed(problem, fitted.factors)
            X, constants = arranged.whole, arranged.constants(constants)
            self._keep(X, fitted._replace(factors=factors), learned=learned)
        self._known = X, (self.weights, self.penalty), constants
        return self

    def _keep(
        self,
        X: Interactions,
        fitted: Fitted,
        folded_from: Interactions | None = None,
        gap=None,
        learned: Iterable[Learned | None] = (None, None),
    ) -> "MFAUC":
        self.factors_, self.history_, self.stopped_ = fitted
        self.train_, self.folded_from_, self.fold_in_gap_ = X, folded_from, gap
        self.item_features_, self.user_features_ = learned
        self._known = self._solved = None
        return self

    def _refuse_folded(self, what: str) -> None:
        if self.folded_from_ is not None:
            raise ValueError(f"these users were folded in: {what} the model they came from")

    def save(self, path: str | os.PathLike, metadata: Mapping[str, str] | None = None) -> None:
        """Write everything `load` needs to one safetensors file, whole or not at all.

        Of a function that was given as loss, weighting or optimiser the file holds only the name: see `load`. In
        several processes, all of them must call it: the first writes the users of all, one process after the other.

        Args:
            path: the file.
            metadata: text of your own that the file shall hold, such as {"trained": "2024-05-01"}; `load` gives it as
                `metadata_`, and `mfauc info` prints it.
        """
        factors, history = self._fitted(), self.history_
        self._refuse_folded("save")
        train = joining.of_all(self.train_)
        factors = factors._replace(U=host.everybody(np.asarray(factors.U)))
        untimed = [{k: v for k, v in record.items() if k != "seconds"} for record in history]
        summary = {  # without times, so that equal fits write equal bytes
            "iterations": len(untimed),
            "stopped": self.stopped_,
            "last": untimed[-1] if untimed else {},
            "history": untimed,
        }
        known = (
            self._known if self._known and self._known[1] == (self.weights, self.penalty) else None
        )
        contents = model_file.Contents(factors, train, self.describe(), summary)
        learned = self.item_features_, self.user_features_
        kept = {"constants": known and known[2], "solved": self._solved, "learned": learned}
        kept["metadata"] = model_file.check_metadata(metadata or {})
        agreement.first(lambda: model_file.write(path, contents._replace(**kept)))

    @classmethod
    def load(cls, path: str | os.PathLike, **given: Any) -> "MFAUC":
        """The fitted model in a file; a `model_file.ModelFileError` says what is wrong with a bad file.

        Args:
            path: a file that `save` wrote, on this machine or another.
            given: fields that replace those in the file, such as the function that was its loss. Without that
                function the model can recommend, but cannot fit or fold in.
        """
        cls.refuse_unknown(given)
        contents = model_file.read(path)
        restored = model_file.restored_fields(path, contents, cls.specs(), given)
        training = contents.training
        fitted = Fitted(contents.factors, training.get("history", []), training.get("stopped", ""))
        model = cls(**restored)._keep(contents.train, fitted, learned=contents.learned)
        if contents.constants is not None and not {"weights", "penalty"} & given.keys():
            model._known = contents.train, (model.weights, model.penalty), contents.constants
        model._solved, model.metadata_ = contents.solved, dict(contents.metadata)
        return model
