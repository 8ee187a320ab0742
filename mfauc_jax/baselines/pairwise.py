"""Descent on sampled pairs, which BPR, WARP, k-OS and item-factor AUC share.

Each of them visits a user, *picks* a positive p and a negative q, and steps down the gradient of

    weight · L(u·v_p − u·v_q) + ½ λ (|u|² + |v_p|² + |v_q|²)

They differ in L and in how they pick. A minibatch sums the gradients of its examples, so a row that occurs several
times moves several times, and Adagrad counts every occurrence, as in updates one by one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from mfauc_jax._core import draws, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import count, flag, number, size
from mfauc_jax._core.settings import Settings
from mfauc_jax.data import ragged
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.solvers import base


class Picked(NamedTuple):
    """One pair for each of b users."""

    pos: Int[Array, "b"]
    neg: Int[Array, "b"]
    weight: Float[Array, "b"]  # 0: no pair for this user


class Examples(NamedTuple):
    """What a pick may read: b users, one positive of each, and the present factors."""

    users: Int[Array, "b"]
    pos: Int[Array, "b"]
    u: Float[Array, "b k"]
    V: Float[Array, "n k"]


Pick = Callable[[Key[Array, ""], Interactions, Examples], Picked]  # must be hashable, being static


class Descent(Settings, listed=False):
    """The settings of a descent on sampled pairs."""

    rank: int = size(32, help="k")
    learning_rate: float = number(0.05, above=0, help="α")
    reg: float = number(0.0, least=0, help="λ, per occurrence")
    epochs: int = count(
        20, least=1, help="number of epochs, each of nnz draws or of one visit per user"
    )
    batch: int | None = size(
        None,
        optional=True,
        help="draws per step in the user–item model; None: about nnz/100, see `batch_size`",
    )
    per_user: int = size(8, help="pairs per visit in the item-factor model")
    bias: bool = flag(False, help="learn an item bias: a last column of V, multiplied by 1 in U")
    adaptive: bool = flag(
        True, help="Adagrad per row, which needs fewer epochs; False: plain descent"
    )
    max_norm: float | None = number(
        None,
        above=0,
        optional=True,
        help="C of the constraints |u_i|, |v_j| ≤ C; None: no constraint",
    )
    bootstrap: bool = flag(
        False, help="an epoch draws nnz positives with replacement; False: it takes each once"
    )


class Table(NamedTuple):
    """Rows and their sums of squared gradients, which stay 1 in plain descent."""

    rows: Float[Array, "r k"]
    squares: Float[Array, "r k"]


def hinge(x):
    """max(0, 1 − x): Weston et al.'s margin loss."""
    return jnp.maximum(0.0, 1.0 - x)


def pair_loss(u, v_pos, v_neg, weight, loss: Callable, reg) -> Float[Array, ""]:
    """Σ_b weight · L(u·v_p − u·v_q) + ½ λ (|u|² + |v_p|² + |v_q|²) over pairs with weight > 0.

    Paper: the regulariser has V_ip²; here: |v_p|² (theory/README.md, E48).
    """
    margin = jnp.einsum("bk,bk->b", u, v_pos - v_neg)
    squares = (u * u).sum(1) + (v_pos * v_pos).sum(1) + (v_neg * v_neg).sum(1)
    return (weight * loss(margin) + 0.5 * reg * (weight > 0) * squares).sum()


def descend(
    table: Table, places: Int[Array, "b"], gradient: Float[Array, "b k"], rate: Any, adaptive: bool
) -> Table:
    """Move the rows at `places`, which may repeat, by −rate · gradient (/ √Σ gradient²)."""
    rows, squares = table
    if not adaptive:
        return Table(rows.at[places].add(-rate * gradient), squares)
    squares = squares.at[places].add(gradient * gradient)
    return Table(rows.at[places].add(-rate * gradient * jax.lax.rsqrt(squares[places])), squares)


def start(key: Key[Array, ""], X: Interactions, rank: int, bias: bool) -> Factors:
    """Small Gaussian factors; with `bias`, a further last column is 1 in U and the item's bias in V."""
    U, V = base.gaussian(key, *X.shape, rank, 0.3 / rank)  # the scale of LightFM's start
    if bias:
        U, V = jnp.pad(U, ((0, 0), (0, 1)), constant_values=1.0), jnp.pad(V, ((0, 0), (0, 1)))
    return Factors(U, V)


def fit_users(
    key: Key[Array, ""], X: Interactions, loss: Callable, pick: Pick, descent: Descent
) -> Factors:
    """The user–item model, s_ij = u_i·v_j. An epoch takes every positive once or, with `bootstrap`, draws nnz."""
    key_start, key_epochs = jax.random.split(key)
    begin = start(key_start, X, descent.rank, descent.bias)
    return _users(key_epochs, X, X.rows, begin, descent, loss, pick)


@partial(programs.jit, static_argnames=("loss", "pick"))
def _users(key, X, owners, begin, descent, loss, pick):
    batch = min(descent.batch or batch_size(X.nnz), X.nnz)
    steps = -(-X.nnz // batch)
    key_order, key = jax.random.split(key)
    # [steps, batch]: every positive once; the last batch is filled up with the first positives
    order = jnp.resize(draws.shuffled(key_order, jnp.arange(X.nnz)), (steps, batch))

    def step(s, tables, turn, key):
        key_pick, key_slot = jax.random.split(jax.random.fold_in(key, s))
        if descent.bootstrap:
            slot = below(key_slot, (batch,), X.nnz)
        else:
            slot = turned(order, turn, s)
        users, (U, V) = owners[slot], (table.rows for table in tables)
        u = U[users]
        pos, neg, weight = pick(key_pick, X, Examples(users, X.indices[slot], u, V))
        du, *dv = jax.grad(pair_loss, (0, 1, 2))(u, V[pos], V[neg], weight, loss, descent.reg)
        du = du.at[:, -1].set(0.0) if descent.bias else du
        by_user = descend(tables[0], users, du, descent.learning_rate, descent.adaptive)
        items, dv = jnp.concatenate([pos, neg]), jnp.concatenate(dv)
        by_item = descend(tables[1], items, dv, descent.learning_rate, descent.adaptive)
        return project(by_user, descent), project(by_item, descent)

    def epoch(e, tables):
        key_turn, key_steps = jax.random.split(jax.random.fold_in(key, e))
        turn = below(key_turn, (batch,), steps)
        return jax.lax.fori_loop(0, steps, partial(step, turn=turn, key=key_steps), tables)

    tables = tuple(Table(F, jnp.ones_like(F)) for F in begin)
    tables = jax.lax.fori_loop(0, descent.epochs, epoch, tables)
    return Factors(*(table.rows for table in tables))


def turned(
    order: Int[Array, "steps batch"], turn: Int[Array, "batch"], s: Any
) -> Int[Array, "batch"]:
    """Row s of the order, each column rotated by its own `turn`: new batches in each epoch, without a sort."""
    return order[(s + turn) % order.shape[0], jnp.arange(order.shape[1])]


def fit_items(
    key: Key[Array, ""], X: Interactions, loss: Callable, pick: Pick, descent: Descent
) -> Factors:
    """The item-factor model, u_i = (1/N_i) Σ_{p ∈ ω_i} v_p. An epoch makes about m visits.

    Each visit takes `per_user` uniform positives, so every user counts alike. Users with a similar N_i are visited
    together. The U of the result holds these means, so new users need no training.
    """
    key_start, key_epochs = jax.random.split(key)
    begin = start(key_start, X, descent.rank, False).V
    return _items(key_epochs, ragged.walk(X), begin, descent, loss, pick)


@partial(programs.jit, static_argnames=("loss", "pick"))
def _items(key, by_user, begin, descent, loss, pick):
    X, num_chunks = by_user.X, by_user.chunks.shape[0]

    def mean(rows, V):
        def add(total, slots, real):
            return total + jnp.einsum("bw,bwk->bk", real.astype(V.dtype), V[X.indices[slots]])

        total = ragged.fold(by_user, rows, add, jnp.zeros((rows.shape[0], V.shape[1]), V.dtype))
        return total / jnp.maximum(lengths(rows), 1)[:, None]

    def lengths(rows):
        end, begin = (X.indptr.at[row].get(mode="clip") for row in (rows + 1, rows))
        return end - begin  # 0 for padding

    def step(s, table):
        key_chunk, key_slot, key_pick = jax.random.split(jax.random.fold_in(key, s), 3)
        rows, V = by_user.chunks[below(key_chunk, (), num_chunks)], table.rows
        num_pos = lengths(rows)
        u = jnp.repeat(mean(rows, V), descent.per_user, 0)
        users = jnp.repeat(jnp.minimum(rows, X.num_users - 1), descent.per_user)
        slot = X.indptr[users] + below(key_slot, users.shape, X.row_lengths[users])
        pos, neg, weight = pick(key_pick, X, Examples(users, X.indices[slot], u, V))
        weight = weight * jnp.repeat(num_pos > 0, descent.per_user) / descent.per_user
        du, *dv = jax.grad(pair_loss, (0, 1, 2))(u, V[pos], V[neg], weight, loss, descent.reg)
        du = du.reshape(rows.shape[0], descent.per_user, -1).sum(1)
        du = du / jnp.maximum(num_pos, 1)[:, None]  # ∂u/∂v_p = 1/N_i

        def share_out(table, slots, real):
            each = jnp.where(real[:, :, None], du[:, None, :], 0.0)
            places = X.indices[slots].ravel()
            each = each.reshape(-1, each.shape[-1])
            return descend(table, places, each, descent.learning_rate, descent.adaptive)

        items, dv = jnp.concatenate([pos, neg]), jnp.concatenate(dv)
        table = ragged.fold(by_user, rows, share_out, table)
        table = descend(table, items, dv, descent.learning_rate, descent.adaptive)
        return project(table, descent)

    table = Table(begin, jnp.ones_like(begin))
    V = jax.lax.fori_loop(0, descent.epochs * num_chunks, step, table).rows
    return Factors(ragged.map_rows(by_user, partial(mean, V=V)), V)


def batch_size(nnz: int) -> int:
    """The default batch: a power of two near nnz/100, between 32 and 4096.

    It is small enough that a row seldom occurs twice in a step, with a stale value, and large enough that the work of
    a step outweighs its overhead.
    """
    return int(2 ** np.clip(np.round(np.log2(nnz / 100)), 5, 12))


def below(key: Key[Array, ""], shape: tuple[int, ...], bound) -> Int[Array, "..."]:
    """Uniform integers in range(bound)."""
    return draws.below(draws.words(key, shape), bound)


def project(table: Table, descent: Descent) -> Table:
    """The table with rows longer than `max_norm` shortened to it; the bias column does not count."""
    if descent.max_norm is None:
        return table
    head = table.rows[:, : descent.rank]
    norms = jnp.sqrt((head * head).sum(1))
    shortened = head * jnp.minimum(1.0, descent.max_norm / norms)[:, None]
    return table._replace(rows=table.rows.at[:, : descent.rank].set(shortened))
