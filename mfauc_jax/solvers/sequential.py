"""Algorithm 1: max(m, n) steps an iteration, each moving one u_i and one v_j, in one `lax.scan`.

As SPEC section 2 reads it; the paper's text and the authors' code differ from it in ways that
`Settings` names. All of an iteration's samples are drawn in one batch before its scan.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Int, Key

from mfauc_jax._core import draws
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.registry import lookup
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation, sampling
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import averaging, base


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Settings:
    """What shapes the program; numbers that may be swept are arguments of `make`.

    Attributes:
        num_users: κ_W, users drawn for ∂v_j.
        num_items: κ_Y, positives and negatives drawn of each user.
        rule: what a step multiplies by α, see `RULES`.
        fixed_order: one permutation for the whole fit (the authors) or a fresh one (E18).
        new_user: ∂v_j sees the new u_i (the authors), or both see the old ones (E20).
        stratified: draw users with and without item j apart (SPEC 3.2) instead of uniformly.
        max_norm: rows are projected back to this norm; None does not.
    """

    num_users: int = 30
    num_items: int = 10
    rule: str = "rows"
    fixed_order: bool = False
    new_user: bool = False
    stratified: bool = False
    max_norm: float | None = None


def _unit(gradient, rows):
    return gradient / jnp.maximum(jnp.linalg.norm(gradient), 1e-12)


RULES = {
    "rows": lambda gradient, rows: gradient * rows,  # m ∂u_i and n ∂v_j: the same size for any data
    "unit": _unit,  # the authors' figures: every step has length α
    "thousand": lambda gradient, rows: gradient * 1000,  # the authors' ranking tables
    "plain": lambda gradient, rows: gradient,  # as printed: does not learn (E21)
}

AUTHORS_FIGURES = Settings(rule="unit", fixed_order=True, new_user=True)
AUTHORS_TABLES = Settings(rule="thousand", fixed_order=True, new_user=True, max_norm=10.0)


class Data(NamedTuple):
    """X both ways, with its weights."""

    X: Interactions
    weights: Weights
    columns: Interactions


def make(
    objective: Objective,
    learning_rate: Any = 0.05,
    average: averaging.Averaging = averaging.Averaging(30),
    settings: Settings = Settings(),
) -> base.Solver:
    """Averaged SGD with learning rate α; any loss, φ, g, g′."""
    lookup("step rule", RULES, settings.rule)
    return base.Solver(
        prepare, base.start, Partial(step, settings, objective, learning_rate, average)
    )


def prepare(X: Interactions, weights: Weights) -> Data:
    """X and its transpose."""
    return Data(X, weights, X.transpose())


def step(
    settings: Settings,
    objective: Objective,
    learning_rate: Any,
    average: averaging.Averaging,
    key: Key[Array, ""],
    state: base.State,
    data: Data,
) -> tuple[base.State, base.Info]:
    """One iteration in the paper's sense: max(m, n) steps."""
    (m, n), weights = data.X.shape, data.weights
    steps = max(m, n)
    key_order, key_users, key_items = jax.random.split(key, 3)
    users, items = _orders(settings, key_order, data, steps)
    size = settings.num_items
    for_users = sampling.uniform(key_users, data.X, weights, users, size, size)

    columns = data.columns if settings.stratified else None
    for_items = sampling.for_items(
        key_items, data.X, weights, items, settings.num_users, size, columns
    )
    by_user, by_item = equation.by_row(objective.reg, m, n)
    spread = jnp.broadcast_to(objective.spread, (m,))

    def user_part(u, V, i, pos, neg, g_pos, g_neg, weight):
        risk = equation.user_risk(
            objective, u, V[pos], V[neg], g_pos, g_neg, spread[i], for_users.spread_scale
        )
        return (weight * risk + 0.5 * by_user[i] * (u @ u)) / m

    def item_part(v, factors, j, sample):
        return equation.item_risk(objective, v, factors, sample) + 0.5 * by_item[j] * (v @ v) / n

    def move(row, gradient, rows):
        row = row - learning_rate * RULES[settings.rule](gradient, rows)
        if settings.max_norm is None:
            return row
        return row * jnp.minimum(1.0, settings.max_norm / jnp.maximum(jnp.linalg.norm(row), 1e-12))

    def one(factors, drawn):
        i, j, of_user, of_item = drawn
        U, V = factors
        u = move(U[i], jax.grad(user_part)(U[i], V, i, *of_user), m)
        U_new = U.at[i].set(u)
        seen = Factors(U_new if settings.new_user else U, V)
        v = move(V[j], jax.grad(item_part)(V[j], seen, j, of_item), n)
        return Factors(U_new, V.at[j].set(v)), None

    of_users = (
        for_users.pos,
        for_users.neg,
        for_users.g_pos,
        for_users.g_neg,
        for_users.user_weight,
    )
    factors, _ = jax.lax.scan(one, state.factors, (users, items, of_users, for_items))
    iteration = state.iteration + 1
    mean = averaging.update(average, state.average, factors, iteration)
    return base.State(factors, mean, iteration), base.change(state.factors, factors)


def _orders(
    settings: Settings, key: Key[Array, ""], data: Data, steps: int
) -> tuple[Int[Array, "steps"], Int[Array, "steps"]]:
    """Which user and which item each step moves: permutations, wrapped round.

    With fresh orders the shorter side concatenates fresh permutations, so that counts equalise over
    iterations (E19); a fixed order repeats itself, as in the authors' code.
    """
    usable, n = data.weights.usable, data.X.num_items
    if settings.fixed_order:
        key = jax.random.key(0)
    key_users, key_items = jax.random.split(key)

    def order(key, size):
        turns = -(-steps // size)
        keys = jax.random.split(key, turns)
        rounds = [
            draws.shuffled(keys[0 if settings.fixed_order else t], jnp.arange(size))
            for t in range(turns)
        ]
        return jnp.concatenate(rounds)[:steps]

    return usable[order(key_users, usable.shape[0])], order(key_items, n)
