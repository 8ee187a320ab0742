"""Algorithm 1: max(m, n) steps per iteration, each moving one u_i and one v_j, in one `lax.scan`.

This is the reading of docs/derivations.md#algorithm-1. The paper's text and the authors' code differ from it in the
ways that the fields of `Sequential` name. The samples of `CHUNK` steps are drawn together, before those steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from mfauc_jax._core import draws
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import choice, count, flag, number, part, size
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation, sampling
from mfauc_jax.objective.penalties import by_row
from mfauc_jax.objective.weights import PairWeights
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import averaging, base
from mfauc_jax.solvers.averaging import Averaging

CHUNK = 256  # the samples of so many steps are in memory


def _unit(gradient, rows):
    return gradient / jnp.maximum(jnp.linalg.norm(gradient), 1e-12)


RULES = {
    "rows": lambda gradient, rows: gradient * rows,  # m ∂u_i and n ∂v_j: the same size for any data
    "unit": _unit,  # the authors' figures: every step has length α
    "thousand": lambda gradient, rows: gradient * 1000,  # the authors' ranking tables
    "plain": lambda gradient, rows: gradient,  # as printed, which does not learn (E21)
}


class Data(NamedTuple):
    """X, its weights, and X transposed."""

    X: Interactions
    weights: PairWeights
    columns: Interactions


class Sequential(base.Solver):
    """Algorithm 1: averaged SGD with one user and one item per step; any loss, φ, g, g′."""

    iterations: int = count(300, least=1, identity=False, help="T")
    learning_rate: float = number(0.05, above=0, help="α")
    num_users: int = size(30, help="κ_W, users drawn for ∂v_j")
    num_items: int = size(10, help="κ_Y, positives and negatives drawn per user")
    step_rule: str = choice(
        "rows",
        RULES,
        help="what α multiplies: rows, m ∂u_i and n ∂v_j; unit, the gradient's direction; thousand, 1000 times it;"
        " plain, the gradient",
    )
    fixed_order: bool = flag(
        False,
        help="one permutation for the whole fit, as in the authors' code; else new ones per iteration (E18)",
    )
    new_user: bool = flag(
        False,
        help="∂v_j sees the new u_i, as in the authors' code; else both gradients see the old factors (E20)",
    )
    stratified: bool = flag(
        False, help="users with and without item j are drawn separately, for less variance"
    )
    max_norm: float | None = number(
        None,
        above=0,
        optional=True,
        swept=False,
        help="longer rows are scaled back to this norm; None: no limit",
    )
    average: Averaging = part(
        Averaging(start=30, eta=0.0), Averaging, help="how the iterates are averaged"
    )

    def prepare(self, problem: Problem) -> Data:
        """X, its weights and its transpose."""
        return Data(problem.X, problem.weights, problem.X.transpose())

    def item_risk(self, objective, v, factors: Factors, sample):
        """What ∂v_j is the gradient of, without the penalty: `equation.item_risk`."""
        return equation.item_risk(objective, v, factors, sample)

    def step(self, objective, key, state, data: Data) -> tuple[base.State, base.Info]:
        """One iteration in the paper's sense: max(m, n) steps."""
        (m, n), weights = data.X.shape, data.weights
        steps = max(m, n)
        key_order, key_users, key_items = jax.random.split(key, 3)
        users, items = _orders(self, key_order, data, steps)
        size, columns = self.num_items, data.columns if self.stratified else None
        scale = size / max(size - 1, 1)  # that of `sampling.uniform`
        by_user, by_item = by_row(objective.reg, m, n)
        spread = jnp.broadcast_to(objective.spread, (m,))

        def user_part(u, V, i, pos, neg, g_pos, g_neg, weight):
            risk = equation.user_risk(objective, u, V[pos], V[neg], g_pos, g_neg, spread[i], scale)
            return (weight * risk + 0.5 * by_user[i] * (u @ u)) / m

        def item_part(v, factors, j, sample):
            return self.item_risk(objective, v, factors, sample) + 0.5 * by_item[j] * (v @ v) / n

        def move(row, gradient, rows):
            row = row - self.learning_rate * RULES[self.step_rule](gradient, rows)
            if self.max_norm is None:
                return row
            return row * jnp.minimum(1.0, self.max_norm / jnp.maximum(jnp.linalg.norm(row), 1e-12))

        def one(factors, drawn):
            i, j, real, user_draws, item_sample = drawn
            U, V = factors
            u = move(U[i], jax.grad(user_part)(U[i], V, i, *user_draws), m)
            U_new = U.at[jnp.where(real, i, m)].set(u, mode="drop")
            seen = Factors(U_new if self.new_user else U, V)
            v = move(V[j], jax.grad(item_part)(V[j], seen, j, item_sample), n)
            return Factors(U_new, V.at[jnp.where(real, j, n)].set(v, mode="drop")), None

        def chunk(factors, turn):
            first, users, items, real = turn
            drawn = sampling.uniform(key_users, data.X, weights, users, size, size, first)
            of_users = drawn.pos, drawn.neg, drawn.g_pos, drawn.g_neg, drawn.user_weight
            of_items = sampling.for_items(
                key_items, data.X, weights, items, self.num_users, size, columns, first
            )
            return jax.lax.scan(one, factors, (users, items, real, of_users, of_items))

        length = min(steps, CHUNK)
        place = jnp.arange(-(-steps // length) * length).reshape(-1, length)
        turns = place[:, 0], users[place % steps], items[place % steps], place < steps
        factors, _ = jax.lax.scan(chunk, state.factors, turns)
        iteration = state.iteration + 1
        mean = averaging.update(self.average, state.average, factors, iteration)
        return base.State(factors, mean, iteration), base.change(state.factors, factors)


def _orders(
    solver: Sequential, key: Key[Array, ""], data: Data, steps: int
) -> tuple[Int[Array, "steps"], Int[Array, "steps"]]:
    """The user and the item that each step moves: permutations, continued with further ones up to `steps`.

    The shorter side is continued with new permutations, so that the numbers of visits become equal over the
    iterations (E19). A fixed order repeats one permutation, as in the authors' code.
    """
    usable, n = data.weights.usable, data.X.num_items
    if solver.fixed_order:
        key = jax.random.key(0)
    key_users, key_items = jax.random.split(key)

    def order(key, size):
        num_rounds = -(-steps // size)
        keys = jax.random.split(key, num_rounds)
        rounds = [
            draws.shuffled(keys[0 if solver.fixed_order else t], jnp.arange(size))
            for t in range(num_rounds)
        ]
        return jnp.concatenate(rounds)[:steps]

    return usable[order(key_users, usable.shape[0])], order(key_items, n)
