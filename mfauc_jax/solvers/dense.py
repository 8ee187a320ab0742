"""Batches of users against all items, or a large sample of items that the batch shares: scores by matrix products.

The scores of b users and Q items are one product U Vᵀ. A closed form turns them into G = ∂(Σ_i w_i risk_i)/∂s, [b, Q],
and two more products give ∂U = G V and ∂V = Gᵀ U: 6 b Q k flops per batch, and no row of V is gathered per pair. The
softmax loss takes one log-sum-exp per user, over all of the user's pairs (docs/derivations.md#softmax). Any other loss
takes `num_pos` drawn positives per user, each against all Q items. With all items there is no bias, whatever φ.

With `num_items` < n, the sums over negatives are estimates, unbiased by the weight n/Q. φ of an estimate is biased for
every φ but the identity: by −½ Var/C² for the log, of order 1/Q (docs/derivations.md#tanh-bias has it for tanh).

Batches are stratified: the users are sorted by N_i and cut into b strata, and each batch has one user of each stratum.
So a batch of any iteration has nearly the same number of positives, which fit into one static layout.

On several devices, of one process or of many, each takes a part of the strata, and so a part of every batch. Data and
factors are on every device: ∂V is summed over devices, and the rows of U are exchanged.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Int

from mfauc_jax._core import draws, host
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import choice, count, number, part, size
from mfauc_jax.objective import equation, sampling, slopes
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Sphere, by_row, scored_rows
from mfauc_jax.objective.slopes import Batch, Positives
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import averaging, base, minibatch, replicated, row_updates, sampled_features
from mfauc_jax.solvers.averaging import Averaging
from mfauc_jax.solvers.mesh import AXIS, SPLIT, WHOLE
from mfauc_jax.solvers.sampled_features import Slopes
from mfauc_jax.solvers.strata import Columns, Data, batch_of, entries, layout, on_mesh

ALL_ITEMS = 2**17  # up to so many items, a batch is scored against all of them


class Optimisers(NamedTuple):
    """Of U, always Adagrad: a row's gradient is exact given V, and momentum over iterations would lag; and of V."""

    U: optax.GradientTransformation
    V: optax.GradientTransformation


class Dense(replicated.Replicated, base.Solver):
    """Matrix products of batches of users with all items, and any optax optimiser; any loss, φ, g, g′, unit rows.

    A fit with features uses one device.
    """

    on_sphere = True
    takes_dislikes = True
    takes_features = True
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
    devices: int | None = size(
        None, optional=True, identity=False, help="how many devices to use; None: all, but one CPU"
    )

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
        problem = replicated.problem_of_all(problem)
        X, usable = problem.X, np.asarray(problem.weights.usable)
        b = self.users_per_batch(len(usable))
        steps = -(-len(usable) // b)
        lengths = X.on_host()[2]
        order = usable[np.argsort(-lengths[usable], kind="stable")]
        order = np.pad(order, (0, b * steps - len(order)), constant_values=X.num_users)
        strata = order.reshape(b, steps)
        mesh, disliked = self.mesh(problem), problem.weights.disliked
        others = None if disliked is None else disliked.X.on_host()[2]
        if mesh.size > 1:
            return on_mesh(mesh, problem, strata, lengths, others)
        row, offset = map(host.ints, layout(strata, lengths))
        sides = sampled_features.placed(problem.sides)
        laid_out = Data(X, problem.weights, host.ints(strata), row, offset, sides=sides)
        if others is None:
            return laid_out
        row, offset = map(host.ints, layout(strata, others))
        return laid_out._replace(disliked=(row, offset))

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The start, with the optimisers' states for U and V and, with features, A and B, which move as V does."""
        factors = replicated.factors_of_all(factors)
        usable = int(host.total(problem.weights.usable.shape[0]))
        optimisers = self.optimisers(-(-usable // self.users_per_batch(usable)))
        memory = tuple(o.init(F) for o, F in zip(optimisers, factors, strict=True))
        extra = sampled_features.begun(problem.sides, factors, optimisers.V, memory)
        rows = scored_rows(problem.objective.reg, factors)
        return replicated.everywhere(self.mesh(problem), base.begin(rows, extra))

    def step(self, objective, key, state, data: Data) -> tuple[base.State, base.Info]:
        """One iteration: every usable user once."""
        n, steps = data.X.num_items, data.strata.shape[1]
        key_users, key_items, key_draw = jax.random.split(key, 3)
        order = inverse = None
        if self.items_per_batch(n) < n:
            order = draws.shuffled(key_items, jnp.arange(n))
            inverse = jnp.zeros(n, int).at[order].set(jnp.arange(n))
        words = draws.words(key_users, data.strata.shape)
        words = words if data.places is None else words[data.places]
        users = jnp.take_along_axis(data.strata, jnp.argsort(words, 1), 1).T
        turns = jnp.arange(steps), users, jax.random.split(key_draw, steps)
        own, memory, learning = sampled_features.opened(data.sides, state.factors, state.extra)
        args = self, objective, own, memory, learning, data, turns, (order, inverse)
        if data.devices is None:
            own, memory, learning = _visited(*args)
        else:
            split = Data(WHOLE, WHOLE, SPLIT, SPLIT, SPLIT, SPLIT, data.devices, SPLIT)  # pyright: ignore
            by_batch = (WHOLE, PartitionSpec(None, AXIS), WHOLE)
            visited = jax.shard_map(
                _visited,
                mesh=data.devices.mesh,
                in_specs=(WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, split, by_batch, WHOLE),
                out_specs=WHOLE,
                check_vma=False,
            )
            own, memory, learning = visited(*args)
        factors, extra = sampled_features.closed(data.sides, own, memory, learning)
        iteration = state.iteration + 1
        factors = scored_rows(objective.reg, factors)  # else longer rows would take shorter steps
        mean = averaging.update(self.average, state.average, factors, iteration)
        mean = scored_rows(objective.reg, mean)
        after = base.State(factors, mean, iteration, extra)
        return after, base.change(state.factors, factors)

    def _positives(self, objective, key, data: Data, batch: Batch) -> Positives:
        if equation.is_softmax(objective):
            return Positives(batch.row, batch.items, batch.g)
        b = batch.users.shape[0]
        drawn = data.X, data.weights, batch.users
        if data.devices is None or data.places is None:
            items, g = sampling.draw_positives(key, *drawn, self.num_pos)
        else:  # the draws that one device would make
            bits = draws.words(key, (b * data.devices.mesh.size, self.num_pos))[data.places]
            items, g = sampling.positives_at(bits, *drawn)
            items = jnp.where(data.places[:, None] < 0, data.X.num_items, items)  # which it lacks
        row = jnp.repeat(jnp.arange(b), self.num_pos)
        return Positives(row, items.reshape(-1), g.reshape(-1))


def _visited(
    solver: Dense,
    objective: Objective,
    own: Factors,
    extra: Any,
    learning: Any,
    data: Data,
    turns,
    window,
) -> tuple[Factors, Any, Any]:
    """The rows that the optimisers move, and their states, after a visit of every user; on a mesh, of one device."""
    n, steps = data.X.num_items, data.strata.shape[1]
    optimisers, width = solver.optimisers(steps), solver.items_per_batch(n)

    def one(carry, turn):
        t, users, key = turn
        user_memory = _at_start(extra[0], carry.memory[0], own.U.shape)
        tables = carry._replace(memory=(user_memory, carry.memory[1]))
        batch = batch_of(data, users)
        positives = solver._positives(objective, key, data, batch)
        columns = Columns(window[0], window[1], t * width % n, width)
        return descend(optimisers, objective, tables, data, batch, positives, columns), None

    start = minibatch.Tables(own, extra, jnp.zeros(n, int), learning)
    (after, memory, _, learning), _ = jax.lax.scan(one, start, turns)
    return after, memory, learning


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
    (U, V), (user_memory, item_memory), place, learning = tables
    (m, n), sides, touched = data.X.shape, data.sides, None
    share = data.weights.usable.shape[0] / m
    if columns.order is not None:
        shared = columns.items(n)  # a positive that does not exist points to the first column
        own = jnp.where(positives.items < n, positives.items, shared[0])
        touched = jnp.concatenate([shared, own])
    rows = Factors(U[batch.users], V if touched is None else V[touched])
    if sides is None:
        du, dv = gradients(objective, rows, data, batch, positives, columns, touched)
    else:
        scored = Factors(*sides.scored(*rows, learning, batch.users, touched))
        du, dv = gradients(objective, scored, data, batch, positives, columns, touched)
        steps = data.strata.shape[1]  # a user is in one of so many
        found = Slopes(touched, dv, 1.0), Slopes(batch.users, steps * du, share)
        learning = sides.moved(optimisers.V, learning, *found)
    if not isinstance(objective.reg, Sphere):
        by_user, by_item = by_row(objective.reg, m, n)
        du = du + (share * by_user[batch.users] * batch.real)[:, None] * rows.U
        if touched is None:
            dv = dv + by_item[:, None] * V
        else:  # an item is a column in Q/n of the steps
            Q = columns.width
            dv = dv.at[:Q].add((n / Q * by_item[touched[:Q]])[:, None] * rows.V[:Q])
    visited = data.gathered((batch.users, rows.U, du, batch.real))
    U, user_memory = row_updates.touch(optimisers.U, U, user_memory, *visited)
    if touched is None:
        updates, item_memory = optimisers.V.update(dv, item_memory, V)
        V = jnp.asarray(optax.apply_updates(V, updates))
    else:
        Q = columns.width
        own = data.gathered(
            (touched[Q:], dv[Q:], rows.V[Q:])
        )  # the columns are the same everywhere
        shared = touched[:Q], dv[:Q], rows.V[:Q]
        touched, dv, v = (jnp.concatenate(both) for both in zip(shared, own, strict=True))
        sums, place = row_updates.sum_repeats(touched, dv, place)
        V, item_memory = row_updates.touch(optimisers.V, V, item_memory, touched, v, sums)
    return minibatch.Tables(Factors(U, V), (user_memory, item_memory), place, learning)


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
    (u, v), back = jax.vjp(lambda F: scored_rows(objective.reg, F, touched), rows)
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
        rejected = entries(D, batch.users, batch.real, rows_of, offset)[0]
        scores = scores._replace(disliked=(rows_of, columns.of(rejected, n)))
    G, scale, at_pos = slopes.of_scores(objective, scores, positives, batch, weights)
    if touched is None:  # G is 0 at the positives, so theirs fit into it
        share = at_pos / jnp.where(scale == 0, 1.0, scale)[row]
        G = G.at[row, positives.items].add(share, mode="drop")
        du, dv = scale[:, None] * (G @ v), data.over(G.T @ (scale[:, None] * u))
    else:
        du = scale[:, None] * (G @ v[:Q])
        du = du + jax.ops.segment_sum(at_pos[:, None] * v[Q:], row, b, indices_are_sorted=True)
        dv = jnp.concatenate([data.over(G.T @ (scale[:, None] * u)), at_pos[:, None] * u[row]])
    per_step = weights.usable.shape[0] / data.strata.shape[1]  # users, on average
    return back(Factors(du, dv * (n / per_step)))[0]


def _at_start(first: Any, memory: Any, shape: tuple[int, ...]) -> Any:
    """An optimiser's state with the scalars of `first`: a row of U counts iterations, not steps."""
    return jax.tree.map(lambda then, now: now if jnp.shape(now) == shape else then, first, memory)
