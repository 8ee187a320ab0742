"""Continuation: a rising series of β, from a smooth loss to a steep one (the paper's Section 2)."""

from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import part, series
from mfauc_jax.objective.equation import Objective
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import base
from mfauc_jax.solvers.minibatch import Minibatch


class Continuation(base.Solver):
    """Runs another solver through a rising series of β; each β gets an equal share of its iterations."""

    inner: base.Solver = part(Minibatch(), base.Solver, help="the solver that takes the steps")
    betas: tuple[float, ...] = series((1.0, 2.0, 4.0), above=0, help="β, rising")

    @property
    def iterations(self) -> int:  # pyright: ignore
        """The iterations of the inner solver, over the whole series."""
        return self.inner.iterations

    @property
    def on_sphere(self) -> bool:  # pyright: ignore
        """Whether the inner solver keeps unit rows."""
        return self.inner.on_sphere

    def check(self, objective: Objective) -> None:
        """Raise ValueError unless the loss has a β and the inner solver accepts the objective."""
        if isinstance(self.inner, Continuation):
            raise ValueError(
                f"a Continuation ignores the betas of {self.inner} inside it: give it another solver"
            )
        if "beta" not in objective.loss.specs():
            raise ValueError(
                f"the loss {objective.loss.name} has no β to raise: use sigmoid or logistic"
            )
        self.inner.check(objective)

    @property
    def takes_dislikes(self) -> bool:  # pyright: ignore
        """Whether the inner solver does."""
        return self.inner.takes_dislikes

    @property
    def takes_features(self) -> bool:  # pyright: ignore
        """Whether the inner solver does."""
        return self.inner.takes_features

    def stages(self, objective: Objective) -> tuple[Objective, ...]:
        """Eq. 3 with each β in turn."""
        loss = objective.loss
        return tuple(objective._replace(loss=loss.replace(beta=beta)) for beta in self.betas)

    def seen_by_step(self, problem: Problem) -> Objective:
        """The objective as the inner solver's step takes it."""
        return self.inner.seen_by_step(problem)

    def order(self, X, seed):
        """The order in which the inner solver wants the users."""
        return self.inner.order(X, seed)

    def start(self, start, key, X, rank) -> Factors:
        """The start of the inner solver."""
        return self.inner.start(start, key, X, rank)

    def for_update(self) -> base.Solver:
        """The inner solver, at the last β."""
        return self.inner.for_update()

    def prepare(self, problem: Problem):
        """The data as the inner solver's step reads them."""
        return self.inner.prepare(problem)

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The state of the inner solver before the first iteration."""
        return self.inner.init(problem, factors)

    def step(self, objective, key, state, data):
        """One iteration of the inner solver."""
        return self.inner.step(objective, key, state, data)

    def portable(self, problem: Problem, state: base.State) -> base.State:
        """The state as checkpoints keep that of the inner solver."""
        return self.inner.portable(problem, state)

    def placed(self, problem: Problem, state: base.State) -> base.State:
        """The state on the devices of the inner solver."""
        return self.inner.placed(problem, state)

    def read(self, state, like) -> Factors:
        """The averaged factors of the inner solver."""
        return self.inner.read(state, like)
