"""Batches of users against all items, or a large sample of items that the batch shares: scores by matrix products.

The scores of b users and Q items are one product U Vᵀ. A closed form turns them into G = ∂(Σ_i w_i risk_i)/∂s, [b, Q],
and two more products give ∂U = G V and ∂V = Gᵀ U: 6 b Q k flops per batch, and no row of V is gathered per pair. The
softmax loss takes one log-sum-exp per user, over all of the user's pairs (docs/derivations.md#softmax). Any other loss
takes `num_pos` drawn positives per user, each against all Q items. With all items there is no bias, whatever φ.

With `num_items` < n, the sums over negatives are estimates, unbiased by the weight n/Q. φ of an estimate is biased for
every φ but the identity: by −½ Var/C² for the log, of order 1/Q (docs/derivations.md#tanh-bias has it for tanh).

Batches are stratified: the users are sorted by N_i and cut into b strata, and each batch has one user of each stratum.
So a batch of any iteration has nearly the same number of positives, which fit into one static layout.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int

from mfauc_jax._core import draws, host
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import choice, count, number, part, size
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation, sampling, slopes
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Sphere, by_row, unit_rows
from mfauc_jax.objective.slopes import Batch, Positives
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import averaging, base, minibatch
from mfauc_jax.solvers.averaging import Averaging

ALL_ITEMS = 2**17  # up to so many items, a batch is scored against all of them


class Data(NamedTuple):
    """X, its weights, and the layout of a batch."""

    X: Interactions
    weights: PairWeights
    strata: Int[Array, "b s"]  # the usable users by falling N_i; m where there is none
    row: Int[Array, "L"]  # the place in the batch that each positive belongs to
    offset: Int[Array, "L"]  # its place among the user's positives, if there are so many
    # the same for the dislikes of a batch; None: there are none
    disliked: tuple[Int[Array, "D"], Int[Array, "D"]] | None = None


class Optimisers(NamedTuple):
    """Of U, always Adagrad: a row's gradient is exact given V, and momentum over iterations would lag; and of V."""

    U: optax.GradientTransformation
    V: optax.GradientTransformation


class Dense(base.Solver):
    """Matrix products of batches of users with all items, and any optax optimiser; any loss, φ, g, g′, unit rows."""

    on_sphere = True
    takes_dislikes = True
    iterations: int = count(30, least=1, identity=False, help="T, visits of each user")
    learning_rate: float = number(
        0.02, above=0, help="α of V; U, whose rows move once per visit, has α√steps"
    )
    optimiser: Any = choice(
        "adam",
        minibatch.OPTIMISERS,
        probe=minibatch.not_an_optimiser,
        help="of V, by name, or α → optax.GradientTransformation",
    )
    batch: int | None = size(
        None, optional=True, help="users per batch; None: m/48, from 32 to 512"
    )
    num_items: int | None = size(
        None, optional=True, help="items that a batch shares; None: all, or 2¹⁶ of more than 2¹⁷"
    )
    num_pos: int = size(10, help="positives drawn per user; softmax takes all of them")
    average: Averaging = part(Averaging(), Averaging, help="how the iterates are averaged")

    def optimisers(self, steps: int) -> Optimisers:
        """Of U and of V; a row of U moves once in `steps` steps, and so √steps times as far."""
        known = minibatch.OPTIMISERS
        made = known[self.optimiser] if isinstance(self.optimiser, str) else self.optimiser
        rate = self.learning_rate * steps**0.5
        return Optimisers(optax.adagrad(rate, 0.0, 1e-30), made(self.learning_rate))

    def users_per_batch(self, num_users: int) -> int:
        """`batch`, or enough users for fast products and few enough for 48 steps per iteration."""
        return min(num_users, self.batch or min(max(num_users // 48, 32), 512))

    def items_per_batch(self, num_items: int) -> int:
        """`num_items`, at most n; if None, n or, where that is above `ALL_ITEMS`, half of `ALL_ITEMS`."""
        most = num_items if num_items <= ALL_ITEMS else ALL_ITEMS // 2
        return min(num_items, self.num_items or most)

    def prepare(self, problem: Problem) -> Data:
        """The users in strata, and the layout of a batch's positives."""
        X, usable = problem.X, np.asarray(problem.weights.usable)
        b = self.users_per_batch(len(usable))
        steps = -(-len(usable) // b)
        lengths = X.on_host()[2]
        order = usable[np.argsort(-lengths[usable], kind="stable")]
        order = np.pad(order, (0, b * steps - len(order)), constant_values=X.num_users)
        strata = order.reshape(b, steps)
        disliked = problem.weights.disliked
        others = None if disliked is None else _layout(strata, disliked.X.on_host()[2])
        row, offset = _layout(strata, lengths)
        return Data(X, problem.weights, host.ints(strata), row, offset, others)

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The start, with the optimisers' states for U and V."""
        usable = problem.weights.usable.shape[0]
        steps = -(-usable // self.users_per_batch(usable))
        memory = tuple(o.init(F) for o, F in zip(self.optimisers(steps), factors, strict=True))
        mapped = _mapped(problem.objective)
        return base.begin(factors, memory)._replace(average=Factors(*map(mapped, factors)))

    def step(self, objective, key, state, data: Data) -> tuple[base.State, base.Info]:
        """One iteration: every usable user once."""
        n, steps = data.X.num_items, data.strata.shape[1]
        key_users, key_items, key_draw = jax.random.split(key, 3)
        optimisers = self.optimisers(steps)
        width = self.items_per_batch(n)
        order = inverse = None
        if width < n:
            order = draws.shuffled(key_items, jnp.arange(n))
            inverse = jnp.zeros(n, int).at[order].set(jnp.arange(n))

        def one(carry, turn):
            t, users, key = turn
            user_memory = _at_start(state.extra[0], carry.memory[0], state.factors.U.shape)
            tables = carry._replace(memory=(user_memory, carry.memory[1]))
            batch = _batch(data, users)
            positives = self._positives(objective, key, data, batch)
            columns = Columns(order, inverse, t * width % n, width)
            return descend(optimisers, objective, tables, data, batch, positives, columns), None

        users = jnp.take_along_axis(
            data.strata, jnp.argsort(draws.words(key_users, data.strata.shape), 1), 1
        ).T
        turns = jnp.arange(steps), users, jax.random.split(key_draw, steps)
        start = minibatch.Tables(state.factors, state.extra, jnp.zeros(n, int))
        (factors, memory, _), _ = jax.lax.scan(one, start, turns)
        iteration = state.iteration + 1
        mapped = _mapped(objective)
        rows = Factors(*map(mapped, factors))
        mean = averaging.update(self.average, state.average, rows, iteration)
        mean = Factors(*map(mapped, mean))
        after = base.State(factors, mean, iteration, memory)
        return after, base.change(state.factors, factors)

    def _positives(self, objective, key, data: Data, batch: Batch) -> Positives:
        if equation.is_softmax(objective):
            return Positives(batch.row, batch.items, batch.g)
        users, b = batch.users, batch.users.shape[0]
        items, g = sampling.draw_positives(key, data.X, data.weights, users, self.num_pos)
        row = jnp.repeat(jnp.arange(b), self.num_pos)
        return Positives(row, items.reshape(-1), g.reshape(-1))


class Columns(NamedTuple):
    """The items that a batch is scored against: a window of a random order of all, or simply all."""

    order: Any  # [n], or None for all items
    inverse: Any  # [n], the place of each item in `order`
    start: Any
    width: int

    def items(self, num_items: int) -> Int[Array, "Q"]:
        """The items of the columns."""
        return self.order[(self.start + jnp.arange(self.width)) % num_items]

    def of(self, items: Int[Array, "L"], num_items: int) -> Int[Array, "L"]:
        """The column of each item; `width` for those that have none."""
        if self.order is None:
            return items
        column = (self.inverse[jnp.minimum(items, num_items - 1)] - self.start) % num_items
        return jnp.where(items < num_items, jnp.minimum(column, self.width), self.width)


def _layout(strata: np.ndarray, lengths: np.ndarray) -> tuple[Array, Array]:
    """The row of a batch, and the place in that row, of each entry that a batch has room for."""
    width = np.append(lengths, 0)[strata].max(1)
    row = np.repeat(np.arange(len(strata)), width)
    offset = np.arange(len(row)) - (np.cumsum(width) - width)[row]
    return host.ints(row), host.ints(offset)


def _mapped(objective: Objective):
    """The map from the rows that are stored to those that are scored: u/|u| on the sphere."""
    return unit_rows if isinstance(objective.reg, Sphere) else lambda rows: rows


def _batch(data: Data, users: Int[Array, "b"]) -> Batch:
    """The users of one batch with all their positives."""
    X, weights, row = data.X, data.weights, data.row
    real = users < X.num_users
    users = jnp.minimum(users, X.num_users - 1)
    items, slot, has = _entries(X, users, real, row, data.offset)
    return Batch(users, weights.user[users] * real, real, row, items, weights.g[slot] * has)


def _entries(X: Interactions, users, real, row, offset):
    """The items of a layout, n where there is none; their places in `X.indices`; and whether they exist."""
    start, length = X.indptr[users], jnp.where(real, X.indptr[users + 1] - X.indptr[users], 0)
    has = offset < length[row]
    slot = jnp.where(has, start[row] + offset, 0)
    return jnp.where(has, X.indices[slot], X.num_items), slot, has


def descend(
    optimisers: Optimisers,
    objective: Objective,
    tables: minibatch.Tables,
    data: Data,
    batch: Batch,
    positives: Positives,
    columns: Columns,
) -> minibatch.Tables:
    """One step of the optimisers on the users of a batch, and on all items or on its columns and positives."""
    (U, V), (user_memory, item_memory), place = tables
    m, n = data.X.shape
    touched = None
    if columns.order is not None:
        shared = columns.items(n)  # a positive that does not exist points to the first column
        own = jnp.where(positives.items < n, positives.items, shared[0])
        touched = jnp.concatenate([shared, own])
    rows = Factors(U[batch.users], V if touched is None else V[touched])
    du, dv = gradients(objective, rows, data, batch, positives, columns, touched)
    if not isinstance(objective.reg, Sphere):
        by_user, by_item = by_row(objective.reg, m, n)
        share = data.weights.usable.shape[0] / m
        du = du + (share * by_user[batch.users] * batch.real)[:, None] * rows.U
        if touched is None:
            dv = dv + by_item[:, None] * V
        else:  # an item is a column in Q/n of the steps
            Q = columns.width
            dv = dv.at[:Q].add((n / Q * by_item[touched[:Q]])[:, None] * rows.V[:Q])
    visited = batch.users, rows.U, du, batch.real
    U, user_memory = minibatch.touch(optimisers.U, U, user_memory, *visited)
    if touched is None:
        updates, item_memory = optimisers.V.update(dv, item_memory, V)
        V = jnp.asarray(optax.apply_updates(V, updates))
    else:
        sums, place = minibatch.sum_repeats(touched, dv, place)
        V, item_memory = minibatch.touch(optimisers.V, V, item_memory, touched, rows.V, sums)
    return minibatch.Tables(Factors(U, V), (user_memory, item_memory), place)


def gradients(
    objective: Objective,
    rows: Factors,
    data: Data,
    batch: Batch,
    positives: Positives,
    columns: Columns,
    touched: Int[Array, "Q_plus_P"] | None,
) -> Factors:
    """Without λ: w_i ∂risk_i for the users' rows, and an estimate of n ∂θ for the rows of V.

    The rows of V are all items or, if they are `touched`, the columns and then the positives.
    """
    n, (b, Q) = data.X.num_items, (batch.users.shape[0], columns.width)
    (u, back_u), (v, back_v) = (jax.vjp(_mapped(objective), F) for F in rows)
    weights, row = data.weights, positives.row
    S = u @ v[:Q].T  # [b, Q]
    if touched is None:
        s_pos = S.at[row, positives.items].get(mode="fill", fill_value=0.0)
    else:
        s_pos = (u[row] * v[Q:]).sum(1)
    column_weight = weights.b if touched is None else weights.b[touched[:Q]]
    seen = batch.row, columns.of(batch.items, n)
    mass = weights.neg_mass[batch.users] * (Q / n)
    scores = slopes.Scores(S, column_weight, mass, seen, s_pos)
    if weights.disliked is not None and data.disliked is not None:
        D, (rows_of, offset) = weights.disliked.X, data.disliked
        rejected = _entries(D, batch.users, batch.real, rows_of, offset)[0]
        scores = scores._replace(disliked=(rows_of, columns.of(rejected, n)))
    G, scale, at_pos = slopes.of_scores(objective, scores, positives, batch, weights)
    if touched is None:  # G is 0 at the positives, so theirs fit into it
        share = at_pos / jnp.where(scale == 0, 1.0, scale)[row]
        G = G.at[row, positives.items].add(share, mode="drop")
        du, dv = scale[:, None] * (G @ v), G.T @ (scale[:, None] * u)
    else:
        du = scale[:, None] * (G @ v[:Q])
        du = du + jax.ops.segment_sum(at_pos[:, None] * v[Q:], row, b, indices_are_sorted=True)
        dv = jnp.concatenate([G.T @ (scale[:, None] * u), at_pos[:, None] * u[row]])
    per_step = weights.usable.shape[0] / data.strata.shape[1]  # users, on average
    return Factors(*back_u(du), *back_v(dv * (n / per_step)))


def _at_start(first: Any, memory: Any, shape: tuple[int, ...]) -> Any:
    """An optimiser's state with the scalars of `first`: a row of U counts iterations, not steps."""
    return jax.tree.map(lambda then, now: now if jnp.shape(now) == shape else then, first, memory)
