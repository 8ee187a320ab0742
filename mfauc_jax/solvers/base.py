"""The interface of every solver: a start, a state, and the methods prepare, init and step."""

import functools
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Key

from mfauc_jax._core import host, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import number
from mfauc_jax._core.settings import Settings
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.losses import Exponential, Loss, Square
from mfauc_jax.objective.penalties import Penalty, Sphere
from mfauc_jax.objective.weightings import Log, Weighting
from mfauc_jax.problem import Problem

SOLVERS: dict[str, Any] = {}
STARTS: dict[str, Any] = {}
DECIDES = ("loss", "weighting", "penalty")  # the fields of a model that solver="auto" follows from


class Info(NamedTuple):
    """What is reported about one iteration."""

    step_size: Float[Array, ""]  # ‖change of the factors‖ / ‖factors‖


class State(NamedTuple):
    """The state between two iterations: all that the next one needs."""

    factors: Factors
    average: Factors  # the factors that the caller gets
    iteration: jax.Array  # s, completed iterations
    extra: Any = ()  # what else the solver keeps, such as the state of an optimiser


class Start(Settings, registry=STARTS):
    """The family of starts: the factors before the first iteration."""

    prefixed = True

    def draw(self, key: Key[Array, ""], X: Interactions, rank: int) -> Factors:
        """The factors before the first iteration."""
        raise TypeError(f"{type(self).__name__} lacks draw(self, key, X, rank): write it")


class Gaussian(Start):
    """Independent N(0, scale²) entries; .1 is the paper's start for the synthetic figures."""

    scale: float = number(0.1, above=0, swept=False, help="standard deviation")

    def draw(self, key, X, rank) -> Factors:
        """Independent N(0, scale²) entries; several processes draw the rows of all users, and keep their own."""
        counts = host.everyone(np.int32(X.num_users)).ravel()
        whole = gaussian(key, int(counts.sum()), X.num_items, rank, self.scale)
        if len(counts) == 1:
            return whole
        first = int(counts[: jax.process_index()].sum())
        return whole._replace(U=jax.device_put(np.asarray(whole.U)[first : first + X.num_users]))


class Svd(Start):
    """A randomised singular value decomposition of X: the authors' start for the ranking tables."""

    def draw(self, key, X, rank) -> Factors:
        """The factors of a randomised singular value decomposition of X."""
        return randomised_svd(key, X, rank)


class Solver(Settings, registry=SOLVERS):
    """The family of solvers: prepare once, init once, then step per iteration; each holds its own settings.

    A step is compiled once per shape: the numbers of the solver and of the objective are traced.
    """

    iterations: ClassVar[int] = 1  # T; each solver declares its own default
    in_processes: ClassVar[bool] = False  # whether several processes may share a fit
    takes_features: ClassVar[bool] = False  # whether it minimises the objective with features
    on_sphere: ClassVar[bool] = False  # whether it keeps the rows of `UnitRows` at length one
    takes_dislikes: ClassVar[bool] = False  # whether it reads `PairWeights.disliked`

    def check(self, objective: Objective) -> None:
        """Raise ValueError for an objective that this solver does not minimise."""
        if isinstance(objective.reg, Sphere) and not self.on_sphere:
            raise ValueError(
                f"the solver {self.name} does not keep rows at length one, which penalty=UnitRows() needs: "
                "use solver='dense' or 'full_batch'"
            )

    def stages(self, objective: Objective) -> tuple[Objective, ...]:
        """The objectives to minimise one after the other, each for an equal share of the iterations."""
        return (objective,)

    def seen_by_step(self, problem: Problem) -> Objective:
        """The problem's objective as `step` takes it, without what `prepare` has put into the data."""
        return problem.objective

    def order(self, X: Interactions, seed: int) -> np.ndarray | None:
        """The order in which this solver wants the users, [m]; None for the order of X."""
        del X, seed
        return None

    def start(self, start: Start, key: Key[Array, ""], X: Interactions, rank: int) -> Factors:
        """The factors before the first iteration, drawn by `start`."""
        return start.draw(key, X, rank)

    def for_update(self) -> "Solver":
        """The solver that `partial_fit` uses to go on from fitted factors."""
        return self

    def prepare(self, problem: Problem) -> Any:
        """The data as `step` reads them; made once per fit, on the host."""
        raise TypeError(f"{type(self).__name__} lacks prepare(self, problem): write it")

    def init(self, problem: Problem, factors: Factors) -> State:
        """The state before the first iteration."""
        del problem
        return begin(factors)

    def step(
        self, objective: Objective, key: Key[Array, ""], state: State, data: Any
    ) -> tuple[State, Info]:
        """One iteration: the next state, and what to report about it."""
        raise TypeError(
            f"{type(self).__name__} lacks step(self, objective, key, state, data): write it"
        )

    def portable(self, problem: Problem, state: State) -> State:
        """The state as checkpoints keep it: the same whatever the number of devices and processes."""
        del problem
        return state

    def placed(self, problem: Problem, state: State) -> State:
        """The inverse of `portable`: the state on the devices of this fit."""
        del problem
        return state

    def read(self, state: State, like: Factors) -> Factors:
        """The averaged factors of this process's users and of all items, in the shapes of `like`, the start."""
        del like
        return state.average


def portable_rows(factors: Factors) -> Factors:
    """Factors as checkpoints keep them: the users of all processes, one process after the other, on every device."""
    if jax.process_count() == 1:
        return factors
    everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("devices",)), PartitionSpec())
    whole = host.everybody(np.asarray(factors.U)), np.asarray(factors.V)
    return Factors(
        *(jax.make_array_from_callback(F.shape, everywhere, F.__getitem__) for F in whole)
    )


def placed_rows(factors: Factors, count: int) -> Factors:
    """The inverse of `portable_rows`: the rows of this process's users, of whom there are `count`."""
    if jax.process_count() == 1:
        return factors
    U, V = (np.asarray(F.addressable_data(0)) for F in factors)
    return Factors(jax.device_put(host.own(U, count)), jax.device_put(V))


def default_solver(loss: Loss, weighting: Weighting, penalty: Penalty) -> Solver:
    """Of solver="auto": alternating for the square loss, dense for softmax and unit rows, else minibatch."""
    if penalty.sphere or (isinstance(loss, Exponential) and isinstance(weighting, Log)):
        return _made("dense")
    return _made("alternating" if isinstance(loss, Square) else "minibatch")


@functools.cache
def _made(name: str) -> Solver:
    return SOLVERS[name]()


def stage(iteration: int, iterations: int, count: int) -> int:
    """The number, from 0, of the stage that iteration s = 0, 1, … belongs to; there are `count` stages."""
    return min(iteration * count // iterations, count - 1)


def begin(factors: Factors, extra: Any = ()) -> State:
    """The state before the first iteration: the factors are their own average."""
    return State(factors, factors, host.ints(0), extra)


def change(before: Factors, after: Factors) -> Info:
    """‖after − before‖ / ‖after‖ of one iteration."""
    moved = sum(((a - b) ** 2).sum() for a, b in zip(after, before, strict=True))
    size = sum((a**2).sum() for a in after)
    return Info(jax.numpy.sqrt(moved / (size + 1e-30)))


def _iteration(
    solver: Solver, objective: Objective, key: Key[Array, ""], state: State, data: Any
) -> tuple[State, Info]:
    """One iteration; `key` is the fit's, and the number of the iteration is folded into it."""
    return solver.step(objective, jax.random.fold_in(key, state.iteration), state, data)


run = programs.jit(_iteration)


def gaussian(
    key: Key[Array, ""], num_users: int, num_items: int, rank: int, scale: float = 0.1
) -> Factors:
    """Independent N(0, scale²) entries; .1 is the paper's start for the synthetic figures.

    They are drawn on the host, because jax.random.normal takes half a second to compile.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    drawn = (scale * rng.standard_normal((count, rank)) for count in (num_users, num_items))
    return Factors(*(host.floats(F) for F in drawn))


def randomised_svd(
    key: Key[Array, ""], X: Interactions, rank: int, oversample: int = 10, power: int = 2
) -> Factors:
    """U = P diag(s), V = Q from X ≈ P diag(s) Qᵀ (Halko, Martinsson, Tropp 2011).

    This is the authors' start for the ranking tables. It needs only products with the sparse X, on the host.
    Columns beyond rank(X) would be zero, which is a saddle of Eq. 3, so they get a little noise. Several processes
    find the decomposition of all their rows, and each gets the U of its own.
    """
    m, n = X.shape
    matrix = X.to_scipy().astype(np.float64)
    width = min(rank + oversample, int(host.total(m)), n)
    key_sketch, key_noise = jax.random.split(key)
    basis = matrix @ np.asarray(jax.random.normal(key_sketch, (n, width)), np.float64)
    for _ in range(power):
        basis = _orthogonal(basis)
        basis = matrix @ np.linalg.qr(host.total(matrix.T @ basis))[0]
    basis = _orthogonal(basis)  # [m, width], spans the top of X's range
    left, s, right = np.linalg.svd(host.total(matrix.T @ basis).T, full_matrices=False)
    signs = np.sign(right[np.arange(len(s)), np.abs(right).argmax(1)])  # the same on any machine
    U, V = (basis @ left * (s * signs))[:, :rank], (right.T * signs)[:, :rank]
    if U.shape[1] < rank:
        U, V = (np.pad(F, ((0, 0), (0, rank - F.shape[1]))) for F in (U, V))
        noise = Gaussian(1e-3).draw(key_noise, X, rank)
        return Factors(host.floats(U) + noise.U, host.floats(V) + noise.V)
    return Factors(host.floats(U), host.floats(V))


def _orthogonal(rows: np.ndarray) -> np.ndarray:
    """Q of the QR decomposition of the rows of all processes: this process's rows of it, from the small R of each."""
    Q, R = np.linalg.qr(rows)
    if jax.process_count() == 1:
        return Q
    sizes = host.everyone(np.int32(len(R))).ravel()
    top = np.linalg.qr(host.everybody(R))[0]
    return Q @ np.split(top, np.cumsum(sizes)[:-1])[jax.process_index()]
