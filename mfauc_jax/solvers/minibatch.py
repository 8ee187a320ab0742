"""The general route: θ′ over batches of users, any optax optimiser on the touched rows only.

One iteration visits every usable user once, in fresh random batches, with κ positives and κ negatives
each, in one `lax.scan`. The rows' gradients are scaled so that, over an iteration, they add up to
m ∂θ/∂u_i and n ∂θ/∂v_j in expectation, as in Algorithm 1 (E21).

What happens to rows a batch does not touch: nothing. Their optimiser state is not decayed or counted
(as LightFM's, and unlike a dense Adam's, which would go on moving them). λ acts on a row when it is
touched: in full on u_i, which each iteration touches once; on v_j in proportion to how often it was
drawn over how often it is drawn on average, so that the expected pull is exactly λ v_j.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from mfauc_jax._core import draws, host
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import choice, count, number, part, size
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation, sampling
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import by_row
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import averaging, base
from mfauc_jax.solvers.averaging import Averaging


def unit(learning_rate: Any) -> optax.GradientTransformation:
    """Every row moves by exactly α, as in the authors' figures (docs/derivations.md#authors)."""

    def along(gradient, params):
        del params
        norm = jnp.linalg.norm(gradient, axis=-1, keepdims=True)
        return -learning_rate * gradient / jnp.maximum(norm, 1e-30)

    return optax.stateless(along)


OPTIMISERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "sgd": optax.sgd,
    "rmsprop": optax.rmsprop,
    "unit": unit,
}


def not_an_optimiser(function: Callable) -> str | None:
    """What is wrong with a function that should turn α into an optax.GradientTransformation."""
    try:
        made = function(1e-3)
    except Exception as error:
        return f"it fails for a learning rate of .001: {error}"
    return (
        None
        if hasattr(made, "init") and hasattr(made, "update")
        else "or α → optax.GradientTransformation"
    )


class Data(NamedTuple):
    """X, its weights, and how often an iteration draws each item on average."""

    X: Interactions
    weights: PairWeights
    drawn: Float[Array, "n"]


class Tables(NamedTuple):
    """What a step reads and writes."""

    factors: Factors
    memory: tuple[Any, Any]  # the optimiser's, of users and of items
    place: Any  # [n], scratch: nothing in it outlives a step


class Sampled(base.Solver, listed=False):
    """Descent on the rows that a sample of users touches: what minibatch and blockwise share."""

    abstract = True
    iterations: int = count(40, least=1, identity=False, help="T, visits of every user")
    learning_rate: float = number(0.3, above=0, help="α")
    optimiser: Any = choice(
        "adagrad",
        OPTIMISERS,
        probe=not_an_optimiser,
        help="by name, or α → optax.GradientTransformation",
    )
    batch: int | None = size(None, optional=True, help="users per batch; by default 128 or more")
    num_pos: int = size(10, help="positives drawn per user")
    num_neg: int = size(20, help="negatives drawn per user")
    average: Averaging = part(Averaging(), Averaging, help="which iterates are kept")

    def make_optimiser(self) -> optax.GradientTransformation:
        """The optimiser at this learning rate."""
        chosen = OPTIMISERS[self.optimiser] if isinstance(self.optimiser, str) else self.optimiser
        return chosen(self.learning_rate)

    def users_per_batch(self, num_users: int, num_items: int) -> int:
        """As many users as draw each item about once, if 64 batches are left; at least 128.

        More would move an item less often in an iteration; fewer cost more, since a step whose draws are at
        least as many as the items passes over their table instead of picking rows.
        """
        if self.batch is not None:
            return self.batch
        drawn = self.num_pos + self.num_neg
        return max(128, min(num_users // 64, -(-num_items // drawn)))


class Minibatch(Sampled):
    """θ′ over batches of users, any optax optimiser on the touched rows; any loss, φ, g, g′."""

    def prepare(self, problem: Problem) -> Data:
        """X, its weights, and how often each item is drawn."""
        drawn = expected_draws(problem.X, problem.weights, self.num_pos, self.num_neg)
        return Data(problem.X, problem.weights, drawn)

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The start, with the optimiser's state of both tables."""
        del problem
        optimiser = self.make_optimiser()
        return base.begin(factors, tuple(optimiser.init(F) for F in factors))

    def step(self, objective, key, state, data: Data) -> tuple[base.State, base.Info]:
        """One iteration: every usable user once."""
        (m, n), weights = data.X.shape, data.weights
        count = weights.usable.shape[0]
        optimiser = self.make_optimiser()
        by_user, by_item = by_row(objective.reg, m, n)
        often = 1 / jnp.maximum(data.drawn, 1e-12)

        def one(tables, drawn):
            key, users, fresh = drawn
            sample = sampling.uniform(key, data.X, weights, users, self.num_pos, self.num_neg)
            items = jnp.concatenate([sample.pos, sample.neg], 1)
            pulls = by_user[users], (by_item * often)[items]  # λ_j over its expected draws
            return descend(optimiser, objective, tables, sample, fresh, pulls, n / count), None

        tables = Tables(state.factors, state.extra, jnp.zeros(n, int))
        tables, _ = jax.lax.scan(
            one, tables, batches(key, weights.usable, self.users_per_batch(count, n))
        )
        iteration = state.iteration + 1
        mean = averaging.update(self.average, state.average, tables.factors, iteration)
        after = base.State(tables.factors, mean, iteration, tables.memory)
        return after, base.change(state.factors, tables.factors)


def expected_draws(
    X: Interactions, weights: PairWeights, num_pos: int, num_neg: int
) -> Float[Array, "n"]:
    """Σ_i (P g_ij + Q g′_ij): how often one iteration draws item j on average."""
    rows, items = np.asarray(X.rows), np.asarray(X.indices)
    g, b = np.asarray(weights.g, np.float64), np.asarray(weights.b, np.float64)
    share = (np.asarray(weights.user) > 0) / np.asarray(weights.neg_mass, np.float64)
    as_pos = np.bincount(items, g, minlength=X.num_items)
    as_neg = b * (share.sum() - np.bincount(items, share[rows], minlength=X.num_items))
    return host.floats(num_pos * as_pos + num_neg * as_neg)


def batches(
    key: Key[Array, ""], users: Int[Array, "count"], most: int
) -> tuple[Key[Array, "s"], Int[Array, "s b"], Bool[Array, "s b"]]:
    """Every user once, shuffled, in batches of `most`, each with a key.

    The last batch is filled up with repeats, which the third array calls False.
    """
    count = users.shape[0]
    size = min(most, count)
    steps = -(-count // size)
    key_order, key_draw = jax.random.split(key)
    order = draws.shuffled(key_order, users)
    at = jnp.arange(steps * size)
    shape = (steps, size)
    return (
        jax.random.split(key_draw, steps),
        order[at % count].reshape(shape),
        (at < count).reshape(shape),
    )


def descend(
    optimiser: optax.GradientTransformation,
    objective: Objective,
    tables: Tables,
    sample: sampling.Sample,
    fresh: Bool[Array, "b"],
    pulls: tuple[Float[Array, "b"], Float[Array, "b P_plus_Q"]],
    item_scale: Any,
) -> Tables:
    """One step of the optimiser on the rows of a sample.

    Args:
        optimiser: row by row.
        objective: its reg is not read.
        tables: what is read and written.
        sample: of distinct users, but for weightless repeats.
        fresh: False for the repeats.
        pulls: λ of each drawn user and item.
        item_scale: turns the sum over users' risks into n θ.
    """
    (factors, (user_state, item_state), place), users = tables, sample.users
    sample = sample._replace(user_weight=sample.user_weight * fresh)
    u, v = factors.U[users], (factors.V[sample.pos], factors.V[sample.neg])

    def batch_risk(u, v):  # Σ_i w_i risk_i of the gathered rows
        return equation.risk_of_rows(objective, u, v[0], v[1], sample) * users.shape[0]

    du, dv = jax.grad(batch_risk, (0, 1))(u, v)
    du = du + (pulls[0] * fresh)[:, None] * u
    U, user_state = _touch(optimiser, factors.U, user_state, users, u, du, fresh)
    items, rows, slope = (jnp.concatenate(both, 1) for both in ((sample.pos, sample.neg), v, dv))
    slope = slope * item_scale + (pulls[1] * fresh[:, None])[:, :, None] * rows
    items, rows, slope = (a.reshape(-1, *a.shape[2:]) for a in (items, rows, slope))
    if len(items) >= len(place):  # as many draws as items: a pass over the table is cheaper
        sums = jnp.zeros_like(factors.V).at[items].add(slope)
        V, item_state = _sweep(optimiser, factors.V, item_state, items, sums)
    else:
        sums, place = _sum_repeats(items, slope, place)
        V, item_state = _touch(optimiser, factors.V, item_state, items, rows, sums)
    return Tables(Factors(U, V), (user_state, item_state), place)


def _sum_repeats(items: Int[Array, "d"], slopes: Float[Array, "d k"], place: Int[Array, "n"]):
    """For each draw the sum of the slopes of all draws of its item.

    One draw of each item, the last to write its number into `place`, adds up for all of them, so that
    sums lie close together whatever the number of items.
    """
    place = place.at[items].set(jnp.arange(items.shape[0]))
    owner = place[items]
    return jnp.zeros_like(slopes).at[owner].add(slopes)[owner], place


def _touch(optimiser, table, memory, at, rows, gradient, fresh=None):
    """Apply the optimiser to the rows `at` of `table`, which are `rows`, and of its state's leaves."""
    like = table.shape

    def take(leaf):
        return leaf[at] if jnp.shape(leaf) == like else leaf

    def put(leaf, new):
        if jnp.shape(leaf) != like:
            return new
        if fresh is not None:  # weightless repeats keep what the real visit wrote
            return leaf.at[jnp.where(fresh, at, like[0])].set(new, mode="drop")
        return leaf.at[at].set(new)  # repeats write equal rows

    updates, after = optimiser.update(gradient, jax.tree.map(take, memory), rows)
    return put(table, rows + updates), jax.tree.map(put, memory, after)


def _sweep(optimiser, table, memory, at, gradient):
    """As `_touch`, with the gradient of the whole table, whose other rows stay as they are."""
    touched = jnp.zeros(table.shape[0], bool).at[at].set(True)[:, None]

    def put(leaf, new):
        return jnp.where(touched, new, leaf) if jnp.shape(leaf) == table.shape else new

    updates, after = optimiser.update(gradient, memory, table)
    return put(table, table + updates), jax.tree.map(put, memory, after)
