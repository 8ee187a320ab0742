"""MFAUC: fit, recommend, and the one declaration of every hyper-parameter."""

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import numpy as np

from mfauc_jax import routes
from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.host import total
from mfauc_jax.data import ids
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import metrics, ranking
from mfauc_jax.objective import exact
from mfauc_jax.objective import weights as item_weights
from mfauc_jax.serving import model_file
from mfauc_jax.serving.fold_in import fold_in
from mfauc_jax.solvers import starts
from mfauc_jax.training.checkpoints import Checkpoints
from mfauc_jax.training.loop import DivergedError, Fitted, Stopping, Watch, fit


def _field(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(repr=False)
class MFAUC:
    """Matrix factorisation that maximises the AUC (Eq. 3).

        model = MFAUC().fit(X)
        items, scores = model.recommend(users, n=10)

    The defaults are the square loss over all pairs, solved exactly, with active users counting more
    and penalties from the data's shape (SPEC 4.5). `MFAUC.paper(loss=…)` is the paper's model.
    """

    rank: int = _field(64, "k, the number of factors")
    loss: Any = _field("square", "square, square_hinge, logistic, sigmoid, or a function")
    weighting: Any = _field("identity", "identity, tanh, or a function")
    beta: Any = _field(1.0, "slope of sigmoid and logistic; a rising tuple is a continuation")
    rho: float = _field(1.0, "steepness of tanh")
    reg: Any = _field("auto", "λ, or auto: from the data's shape")
    spread: Any = _field("auto", "σ − 1, weight on the negatives' variance; 0 is the paper")
    strength: float = _field(0.4, "of reg auto: more favours the AUC of sparse data, less the top")
    tau: float = _field(-0.1, "exponent of an item's frequency in g; 0 is uniform and the paper")
    tau_neg: float | None = _field(0.0, "the same in g′; None: tau")
    user_power: float = _field(0.75, "users count as N_i to this power; 0 is the paper")
    solver: str = _field("auto", "auto, alternating, minibatch, blockwise, sequential, full_batch")
    iterations: int | None = _field(None, "T; by default what the solver needs")
    learning_rate: float | None = _field(None, "α of minibatch and sequential")
    user_steps: int = _field(4, "alternating: conjugate-gradient steps on U an iteration")
    item_steps: int = _field(2, "alternating: conjugate-gradient steps on V an iteration")
    optimiser: str = _field("adagrad", "minibatch: adagrad, adam, sgd, rmsprop, unit")
    batch: int | None = _field(None, "minibatch: users in a batch; by default 128 or more")
    num_pos: int = _field(10, "minibatch: positives drawn of a user")
    num_neg: int = _field(20, "minibatch: negatives drawn of a user")
    blocks: int = _field(4, "blockwise: d, rows and columns are cut into d × d blocks")
    devices: int | None = _field(None, "blockwise: how many to use; None: as many as divide d")
    num_users: int = _field(30, "sequential: κ_W, users drawn for an item")
    num_items: int = _field(10, "sequential: κ_Y, items drawn of a user")
    step_rule: str = _field("rows", "sequential: rows, unit, thousand, plain")
    fixed_order: bool = _field(False, "sequential: one permutation for the whole fit")
    new_user: bool = _field(False, "sequential: ∂v_j sees the new u_i")
    stratified: bool = _field(False, "sequential: low-variance choice of users")
    max_norm: float | None = _field(None, "sequential: rows are projected to this norm")
    average_start: int = _field(0, "T₀, the iteration after which factors are averaged")
    average_eta: float = _field(3.0, "η, later iterates weigh more; 0 in the paper")
    average_since: int | None = _field(None, "iterations are counted from here; T₀ unless given")
    start: str = _field("gaussian", "gaussian or svd")
    start_scale: float = _field(0.1, "standard deviation of the Gaussian start")
    seed: int = _field(0, "the same seed gives the same bits on one machine")
    record_every: int = _field(0, "iterations between exact objectives in history_; 0: none")
    tolerance: float = _field(0.0, "ε: stop when recent records move by less; 0: never")
    validate_every: int = _field(1, "iterations between validation metrics")
    patience: int | None = _field(None, "stop after so many records without a better metric")
    metric: str = _field("auc", "validation metric whose best factors are kept")
    checkpoint_dir: str | None = _field(None, "where training states are kept and resumed from")
    checkpoint_every: int = _field(10, "iterations between training states")
    progress: bool | None = _field(None, "a progress bar; None: on a terminal only")

    @classmethod
    def paper(cls, loss: str = "square_hinge", **changes: Any) -> "MFAUC":
        """The paper's model: all users alike, one λ, no spread penalty, Algorithm 1, k = 8."""
        setting = {
            "loss": loss,
            "rank": 8,
            "reg": 0.1,
            "spread": 0.0,
            "user_power": 0.0,
            "tau": 0.0,
            "tau_neg": None,
            "solver": "sequential",
            "average_start": 30,
            "average_eta": 0.0,
        }
        return cls(**(setting | changes))

    @classmethod
    def authors(cls, loss: str = "square_hinge", **changes: Any) -> "MFAUC":
        """The paper's model as the authors' figures ran it: unit steps of α = .05, η = 5."""
        setting = {
            "step_rule": "unit",
            "fixed_order": True,
            "new_user": True,
            "average_eta": 5.0,
            "average_since": 0,
            "learning_rate": 0.05,
        }
        return cls.paper(loss, **(setting | changes))

    def __repr__(self) -> str:
        """What differs from the defaults, to paste back."""
        given = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if getattr(self, f.name) is not f.default and getattr(self, f.name) != f.default
        }
        shown = (f"{k}={getattr(v, '__name__', None) or repr(v)}" for k, v in given.items())
        return f"MFAUC({', '.join(shown)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every hyper-parameter by name, as scikit-learn has it."""
        del deep
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def set_params(self, **params: Any) -> "MFAUC":
        """Change hyper-parameters by name."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                from mfauc_jax._core import registry

                registry.lookup("parameter", known, name)
            setattr(self, name, value)
        return self

    def fit(
        self,
        X: Any,
        validation: Any = None,
        callbacks: Iterable[Callable[[int, Factors, dict], Any]] = (),
    ) -> "MFAUC":
        """Learn U and V from the positives X.

        Args:
            X: whatever `Interactions.of` reads: a scipy matrix (users × items), a pair of arrays, a
                pandas, polars or arrow frame with columns user and item.
            validation: held-out positives over the same users and items; their metrics are recorded
                and the factors with the best `metric` are kept.
            callbacks: called with (iteration, factors, record); a true answer stops the fit.
        """
        X = Interactions.of(X)
        order = routes.order(self, X)
        if order is not None:
            return self._fit_in(order, X, validation, callbacks)
        return self._fit(X, validation, callbacks)

    def _fit_in(self, order: np.ndarray, X: Interactions, validation, callbacks) -> "MFAUC":
        """Fit with the users in another order, and put them back."""
        back = np.argsort(order)

        def restored(found: Factors) -> Factors:
            return found._replace(U=found.U[back])

        def told(callback):
            return lambda s, found, record: callback(s, restored(found), record)

        held = None if validation is None else ids.aligned(validation, X).take(order)
        try:
            self._fit(X.take(order), held, [told(callback) for callback in callbacks])
        finally:
            if hasattr(self, "factors_"):
                self.factors_, self.train_ = restored(self.factors_), X
        return self

    def _fit(self, X: Interactions, validation, callbacks) -> "MFAUC":
        weights = item_weights.make(X, self.tau, self.tau_neg, self.user_power)
        objective = routes.objective(self, X, weights)
        betas, default = routes.betas(self), routes.DEFAULTS[routes.choose(self)][0]
        iterations = default if self.iterations is None else self.iterations
        if iterations < 1:
            raise ValueError(f"iterations = {iterations} must be ≥ 1")
        stages = [
            routes.solver(
                self, routes.objective(self, X, weights, b) if len(betas) > 1 else objective
            )
            for b in betas
        ]
        key_start, key_fit = host.keys(self.seed, 2)
        start = routes.start(self, key_start, X)
        checkpoints = None
        if self.checkpoint_dir is not None:
            checkpoints = Checkpoints(self.checkpoint_dir, self._fingerprint(X))
        try:
            fitted = fit(
                key_fit,
                lambda s: stages[min(s * len(stages) // iterations, len(stages) - 1)],
                start,
                stages[0].prepare(X, weights),
                iterations,
                watch=self._watch(objective, X, weights, validation),
                stopping=Stopping(self.tolerance, patience=self.patience),
                checkpoints=checkpoints,
                checkpoint_every=self.checkpoint_every,
                callbacks=callbacks,
                progress=self.progress,
                remedy=f"learning_rate is {self.learning_rate}: try a tenth of it, or more reg",
            )
        except DivergedError as error:
            self._keep(X, error.fitted)
            raise
        finally:
            if checkpoints is not None:
                checkpoints.close()
        return self._keep(X, fitted)

    def _watch(self, objective, X, weights, validation) -> Watch:
        every = self.record_every or (1 if self.tolerance > 0 else 0)
        if jax.process_count() > 1 and (every or validation is not None):
            raise ValueError(
                "record_every, tolerance and validation need every user, and this process holds "
                "its own only: leave them out, and evaluate what fit returns"
            )
        theta = evaluate = None
        if every:
            plan = exact.plan(objective, X, weights)
            theta = partial(_theta, objective, plan)
        if validation is not None:
            evaluate = partial(_metrics, X, ids.aligned(validation, X))
        return Watch(theta, max(every, 1), evaluate, self.validate_every, self.metric)

    def _fingerprint(self, X: Interactions) -> dict[str, Any]:
        quiet = ("progress", "checkpoint_dir", "checkpoint_every", "iterations", "devices")
        params = {k: v for k, v in self.get_params().items() if k not in quiet}
        params = {k: getattr(v, "__name__", v) for k, v in params.items()}
        sizes = {"users": int(total(X.num_users)), "positives": int(total(X.nnz))}
        return params | sizes | {"items": X.num_items}

    def _keep(
        self, X: Interactions, fitted: Fitted, folded_from: Interactions | None = None, gap=None
    ) -> "MFAUC":
        self.factors_, self.history_, self.stopped_ = fitted
        self.train_, self.folded_from_, self.fold_in_gap_ = X, folded_from, gap
        return self

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
            raise RuntimeError("this MFAUC has no factors yet: call fit(X) first")
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
            n: length of a list. Where fewer items are left, ids end in −1 (or "") and scores in −inf.
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

    def fold_in(self, X_new: Any) -> "MFAUC":
        """A model of users who were not in training: their u from their positives, the items as here.

        `recommend`, `predict`, `evaluate` and the rest then answer for the new users, their own
        positives excluded as seen; `fold_in_gap_` bounds what each u misses of its minimum (see
        `fold_in.fold_in`). This model is left as it is.

        Args:
            X_new: what `fit` takes, over the same items: external ids if `fit` was given ids, else
                a matrix with as many columns.
        """
        V, X = self._fitted().V, self.folded_from_ or self.train_
        new = ids.over_items(X_new, X)
        U, gap = self._solve_users(X, V, new)
        return dataclasses.replace(self)._keep(new, Fitted(Factors(U, V), [], "folded in"), X, gap)

    def _solve_users(self, X: Interactions, V, new: Interactions):
        """u of each user of `new`, given V, with the constants of the training set X."""
        hyper = (self.tau, self.tau_neg, self.user_power)
        weights = item_weights.make(X, *hyper)
        own = item_weights.make(new, *hyper, train=X)
        objective = routes.objective(self, X, weights, new=(new, own))
        share = weights.usable.shape[0] / X.num_users
        U, gap = fold_in(objective, V, new, own, usable_share=share)
        return jax.numpy.asarray(U), gap

    def partial_fit(self, X_new: Any, iterations: int = 2) -> "MFAUC":
        """Go on from the present factors with further positives, users and items.

        Users and items not seen before come after the known ones. A new item starts as in `fit` with
        a Gaussian v_j, a new user with the u_i that `fold_in` finds; then follow a few iterations of
        the solver over old and new positives together, which move every factor a little. On a model
        without factors this is `fit`.

        Args:
            X_new: the positives to add, with ids if `fit` was given ids.
            iterations: of the solver, each one pass over all positives.
        """
        if not hasattr(self, "factors_"):
            return self.fit(X_new)
        self._refuse_folded("go on from")
        X, (U, V) = ids.joined(self.train_, X_new), self.factors_
        m, n = len(U), len(V)
        key_start, key_fit = jax.random.split(
            jax.random.fold_in(jax.random.key(self.seed), len(self.history_))
        )
        fresh = starts.gaussian(key_start, 1, X.num_items, V.shape[1], self.start_scale)
        V = jax.numpy.concatenate([V, fresh.V[n:].astype(V.dtype)])
        if X.num_users > m:
            U = jax.numpy.concatenate(
                [U, self._solve_users(X, V, X.take(np.arange(m, X.num_users)))[0]]
            )
        weights = item_weights.make(X, self.tau, self.tau_neg, self.user_power)
        hyper = self
        if routes.choose(self) == "blockwise":  # the same steps, in one block
            hyper = dataclasses.replace(self, solver="minibatch")
        solver = routes.solver(hyper, routes.objective(self, X, weights))
        fitted = fit(
            key_fit,
            lambda _: solver,
            Factors(U, V),
            solver.prepare(X, weights),
            iterations,
            progress=self.progress,
        )
        last = self.history_[-1] if self.history_ else {"iteration": 0, "seconds": 0.0}
        later = [
            {k: v + last.get(k, 0) if k in ("iteration", "seconds") else v for k, v in r.items()}
            for r in fitted.history
        ]
        return self._keep(X, fitted._replace(history=self.history_ + later))

    def _refuse_folded(self, what: str) -> None:
        if self.folded_from_ is not None:
            raise ValueError(f"these users were folded in: {what} the model they came from")

    def evaluate(self, held_out: Any, **options: Any) -> dict[str, Any]:
        """`metrics.evaluate` on held-out positives, those of training taken out of the lists."""
        held = ids.aligned(held_out, self._train)
        return metrics.evaluate(self._fitted(), self._train, held, **options)

    def certify(self, held_out: Any, delta: float = 0.05, **options: Any) -> Any:
        """With probability 1 − δ, the true AUC is at least …: see `certificate.certify`."""
        from mfauc_jax.certify import certificate

        held = ids.aligned(held_out, self._train)
        return certificate.certify(self._fitted(), self._train, held, delta=delta, **options)

    def save(self, path: str | os.PathLike) -> None:
        """Write everything `load` needs to one safetensors file, whole or not at all.

        A function given as loss or weighting is kept by its name only: see `load`.
        """
        factors, history = self._fitted(), self.history_
        self._refuse_folded("save")
        summary = {
            "iterations": len(history),
            "stopped": self.stopped_,
            "last": history[-1] if history else {},
            "history": history,
        }
        contents = model_file.Contents(factors, self.train_, self.get_params(), summary)
        model_file.write(path, contents)

    @classmethod
    def load(cls, path: str | os.PathLike, **given: Any) -> "MFAUC":
        """The fitted model of a file; a `model_file.ModelFileError` says what is wrong with others.

        Args:
            path: what `save` wrote, on this machine or another.
            given: hyper-parameters in place of the file's, such as the function that was its loss.
                Without it the model recommends all the same, but cannot fit or fold in.
        """
        found = model_file.read(path)
        known = {f.name for f in dataclasses.fields(cls)}
        later = sorted(found.params.keys() - known)
        if later:
            warnings.warn(
                f"{path}: {', '.join(later)} of mfauc_jax {found.library_version} "
                "is unknown here and left out",
                stacklevel=2,
            )
        for name in found.give_again:
            if name not in given:
                warnings.warn(
                    f"{path}: {name} was {found.params[name]}, which a file cannot hold; to fit or "
                    f"fold in, give it again: MFAUC.load(path, {name}=…)",
                    stacklevel=2,
                )
        model = cls(**{k: v for k, v in found.params.items() if k in known})
        model.set_params(**given)
        history, stopped = found.training.get("history", []), found.training.get("stopped", "")
        return model._keep(found.train, Fitted(found.factors, history, stopped))

    @property
    def _train(self) -> Interactions:
        self._fitted()
        return self.train_

    def _item_set(self, items: Any) -> Any:
        if items is None or isinstance(items, Interactions):
            return items
        return ids.places("item", self._train.item_ids, np.atleast_1d(items), self._train.num_items)


def _theta(objective, plan: exact.Plan, found: Factors):
    return exact.value(objective, found, plan)


def _metrics(X: Interactions, held: Interactions, found: Factors) -> dict[str, Any]:
    return metrics.evaluate(found, X, held, at=(1, 5, 10))
