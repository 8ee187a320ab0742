"""The general solver: θ′ over batches of users, with any optax optimiser on the touched rows only.

One iteration visits every usable user once, in new random batches, with `num_pos` positives and `num_neg` negatives
per user, in one `lax.scan`. The gradients of the rows are scaled so that, over an iteration, they add up to
m ∂θ/∂u_i and n ∂θ/∂v_j in expectation, as in Algorithm 1 (E21).

Rows that a batch does not touch stay as they are, and so does their optimiser state (as in LightFM; a dense Adam
would go on moving them). λ acts on a row when the row is touched: in full on u_i, which each iteration touches once;
on v_j in proportion to the number of its draws over the expected number, so that the expected gradient of the penalty
is exactly λ v_j.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from mfauc_jax._core import draws, host, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import choice, count, number, part, size
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation, sampling
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import by_row
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import averaging, base, row_updates, sampled_features
from mfauc_jax.solvers.averaging import Averaging
from mfauc_jax.solvers.sampled_features import OnRows, Slopes


def unit(learning_rate: Any) -> optax.GradientTransformation:
    """Every row moves by exactly α, as in the authors' figures (docs/derivations.md#authors)."""

    def scaled(gradient, params):
        del params
        norm = jnp.linalg.norm(gradient, axis=-1, keepdims=True)
        return -learning_rate * gradient / jnp.maximum(norm, 1e-30)

    return optax.stateless(scaled)


OPTIMISERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "sgd": optax.sgd,
    "rmsprop": optax.rmsprop,
    "unit": unit,
}


def not_an_optimiser(function: Callable) -> str | None:
    """What is wrong with a function that should turn α into an optax.GradientTransformation; None if nothing is."""
    try:
        optimiser = function(1e-3)
    except Exception as error:
        return f"it fails for a learning rate of .001: {error}"
    return (
        None
        if hasattr(optimiser, "init") and hasattr(optimiser, "update")
        else "or α → optax.GradientTransformation"
    )


class Data(NamedTuple):
    """X, its weights, the expected number of draws of each item per iteration, and the features, if any."""

    X: Interactions
    weights: PairWeights
    drawn: Float[Array, "n"]  # see `expected_draws`
    sides: OnRows | None = None


class Tables(NamedTuple):
    """The arrays that a step reads and writes."""

    factors: Factors  # with features, E and D (`sampled_features`)
    memory: tuple[Any, Any]  # the optimiser's states for U and for V
    place: Any  # [n], scratch space of `sum_repeats`; what one step leaves there is never read
    learning: Any = ()  # with features, a `Learning`


class Sampled(base.Solver, listed=False):
    """The settings that Minibatch and Blockwise share: descent on the rows that a sample of users touches."""

    abstract = True
    iterations: int = count(40, least=1, identity=False, help="T, visits of each user")
    learning_rate: float = number(0.3, above=0, help="α")
    optimiser: Any = choice(
        "adagrad",
        OPTIMISERS,
        probe=not_an_optimiser,
        help="by name, or α → optax.GradientTransformation",
    )
    batch: int | None = size(
        None,
        optional=True,
        help="users per batch; None: 128, or more if there are many users and items, or blocks",
    )
    num_pos: int = size(10, help="positives drawn per user")
    num_neg: int = size(20, help="negatives drawn per user")
    average: Averaging = part(Averaging(), Averaging, help="how the iterates are averaged")

    def make_optimiser(self) -> optax.GradientTransformation:
        """The optimiser at this learning rate."""
        chosen = OPTIMISERS[self.optimiser] if isinstance(self.optimiser, str) else self.optimiser
        return chosen(self.learning_rate)

    def users_per_batch(self, num_users: int, num_items: int) -> int:
        """`batch`; if None, so many users that each item is drawn about once, at most m/64 and at least 128.

        Larger batches would move an item fewer times per iteration. Smaller ones cost more: a step that draws at
        least as many items as there are passes over the whole table of items, which is cheaper than picking rows.
        """
        if self.batch is not None:
            return self.batch
        drawn = self.num_pos + self.num_neg
        return max(128, min(num_users // 64, -(-num_items // drawn)))


@programs.jit
def _memory(solver: Sampled, factors: Factors) -> tuple:
    """The states of the optimiser for U and V before the first step."""
    optimiser = solver.make_optimiser()
    return tuple(optimiser.init(F) for F in factors)


class Minibatch(Sampled):
    """θ′ over batches of users, any optax optimiser on the touched rows; any loss, φ, g, g′."""

    takes_dislikes = True
    takes_features = True

    def prepare(self, problem: Problem) -> Data:
        """X, its weights, the expected number of draws of each item, and the features."""
        drawn = expected_draws(problem.X, problem.weights, self.num_pos, self.num_neg)
        return Data(problem.X, problem.weights, drawn, sampled_features.placed(problem.sides))

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The start, with the optimiser's states for U and V and, with features, A and B."""
        memory, optimiser = _memory(self, factors), self.make_optimiser()
        extra = sampled_features.begun(problem.sides, factors, optimiser, memory)
        return base.begin(factors, extra)

    def step(self, objective, key, state, data: Data) -> tuple[base.State, base.Info]:
        """One iteration: every usable user once."""
        (m, n), weights, sides = data.X.shape, data.weights, data.sides
        count = weights.usable.shape[0]
        optimiser = self.make_optimiser()
        by_user, by_item = by_row(objective.reg, m, n)
        by_user = by_user * (
            count / m
        )  # the penalty is a mean over m users, the risk over the usable
        per_draw = 1 / jnp.maximum(data.drawn, 1e-12)

        def one(tables, batch):
            key, users, real = batch
            sample = sampling.uniform(key, data.X, weights, users, self.num_pos, self.num_neg)
            items = jnp.concatenate([sample.pos, sample.neg], 1)
            ridge = by_user[users], (by_item * per_draw)[items]  # λ_j over its expected draws
            shared = None if sides is None else (sides, 1 / steps, count / m / steps)
            args = optimiser, objective, tables, sample, real, ridge, n / count, shared
            return descend(*args), None

        turns = batches(key, weights.usable, self.users_per_batch(count, n))
        steps = turns[0].shape[0]
        own, memory, learning = sampled_features.opened(sides, state.factors, state.extra)
        tables = Tables(own, memory, jnp.zeros(n, int), learning)
        (own, memory, _, learning), _ = jax.lax.scan(one, tables, turns)
        factors, extra = sampled_features.closed(sides, own, memory, learning)
        iteration = state.iteration + 1
        mean = averaging.update(self.average, state.average, factors, iteration)
        after = base.State(factors, mean, iteration, extra)
        return after, base.change(state.factors, factors)


def expected_draws(
    X: Interactions, weights: PairWeights, num_pos: int, num_neg: int
) -> Float[Array, "n"]:
    """Σ_i (P g_ij + Q g′_ij): the expected number of draws of each item j per iteration."""
    rows, items = np.asarray(X.rows), np.asarray(X.indices)
    g, b = np.asarray(weights.g, np.float64), np.asarray(weights.b, np.float64)
    share = (np.asarray(weights.user) > 0) / np.asarray(weights.neg_mass, np.float64)
    as_pos = np.bincount(items, g, minlength=X.num_items)
    as_neg = b * (share.sum() - np.bincount(items, share[rows], minlength=X.num_items))
    if weights.disliked is not None:
        rows, items, _ = weights.disliked.X.on_host()
        extra = (float(weights.disliked.factor) - 1) * b[items]
        as_neg = as_neg + np.bincount(items, share[rows] * extra, minlength=X.num_items)
    return host.floats(num_pos * as_pos + num_neg * as_neg)


def batches(
    key: Key[Array, ""], users: Int[Array, "count"], most: int
) -> tuple[Key[Array, "s"], Int[Array, "s b"], Bool[Array, "s b"]]:
    """Every user once, shuffled, in batches of `most` users: a key per batch, the users, and which are real.

    The last batch is filled up with repeated users, for which the third array is False.
    """
    count = users.shape[0]
    size = min(most, count)
    steps = -(-count // size)
    key_order, key_draw = jax.random.split(key)
    order = draws.shuffled(key_order, users)
    place = jnp.arange(steps * size)
    shape = (steps, size)
    return (
        jax.random.split(key_draw, steps),
        order[place % count].reshape(shape),
        (place < count).reshape(shape),
    )


def descend(
    optimiser: optax.GradientTransformation,
    objective: Objective,
    tables: Tables,
    sample: sampling.Sample,
    real: Bool[Array, "b"],
    ridge: tuple[Float[Array, "b"], Float[Array, "b P_plus_Q"]],
    item_scale: Any,
    sides: tuple[OnRows, Any, Any] | None = None,
) -> Tables:
    """One step of the optimiser on the rows of a sample.

    Args:
        optimiser: it must act on each row by itself.
        objective: L, φ and σ; its `reg` is not read.
        tables: the factors and the optimiser's states.
        sample: triples of distinct users, besides the repeated users that fill up a batch.
        real: False for the repeated users, who count for nothing.
        ridge: λ of each drawn user and of each drawn item.
        item_scale: what the sum of the users' risks is multiplied by to give n θ.
        sides: the features, and the share of λ_c of the items and of the users that belongs to this step.
    """
    (factors, (user_state, item_state), place, learning), users = tables, sample.users
    u, v = factors.U[users], (factors.V[sample.pos], factors.V[sample.neg])
    items = jnp.concatenate([sample.pos, sample.neg], 1)
    if sides is None:
        du, dv = slopes(objective, u, v, sample, real, item_scale)
    else:
        features, item_reg, user_reg = sides
        rows = features.scored(u, jnp.concatenate(v, 1), learning, users, items)
        apart = rows[1][:, : sample.pos.shape[1]], rows[1][:, sample.pos.shape[1] :]
        du, dv = slopes(objective, rows[0], apart, sample, real, item_scale)
        found = Slopes(items, dv, item_reg), Slopes(users, du, user_reg)
        learning = features.moved(optimiser, learning, *found)
    du = du + (ridge[0] * real)[:, None] * u
    rows = jnp.concatenate(v, 1)
    dv = dv + (ridge[1] * real[:, None])[:, :, None] * rows
    drawn = row_updates.ItemSlopes(*(a.reshape(-1, *a.shape[2:]) for a in (items, rows, dv)))
    U, user_state = row_updates.touch(optimiser, factors.U, user_state, users, u, du, real)
    V, item_state, place = row_updates.move_items(optimiser, factors.V, item_state, drawn, place)
    return Tables(Factors(U, V), (user_state, item_state), place, learning)


def slopes(
    objective: Objective,
    u: Float[Array, "b k"],
    v: tuple[Float[Array, "b P k"], Float[Array, "b Q k"]],
    sample: sampling.Sample,
    real: Bool[Array, "b"],
    item_scale: Any,
) -> tuple[Float[Array, "b k"], Float[Array, "b P_plus_Q k"]]:
    """The gradients of the data term in the users' rows `u` and in the drawn items' rows `v`; see `descend`."""
    sample = sample._replace(user_weight=sample.user_weight * real)

    def batch_risk(u, v):  # Σ_i w_i risk_i, as a function of the gathered rows
        return equation.risk_of_rows(objective, u, v[0], v[1], sample) * u.shape[0]

    du, dv = jax.grad(batch_risk, (0, 1))(u, v)
    return du, jnp.concatenate(dv, 1) * item_scale
