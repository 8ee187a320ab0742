"""The paper's parallel algorithm (Section 2.2) over a mesh of devices, in one process or many.

Users and items are cut into d blocks each, anew in every iteration. An iteration visits every one of the d × d blocks
once, in d rounds of d blocks that share no row and no column (`design.schedule`). A visit is a few steps of the
minibatch solver on the positives and negatives inside the block.

The positives of a user stay on its home device, which draws all samples of the iteration (`drawing`). The draws and
the user's factors then go to the device of the user's row block of this iteration, in one exchange of equal parts
between all devices; blocks of items travel round the ring of devices from round to round (`travel`). At the end of an
iteration all rows go home. With `reassign="columns"` users stay at home, and only items change blocks: a user's pairs
depend on the column block alone, so the gradients have the same mean.

Why this minimises Eq. 3 (docs/derivations.md#blocks): in an iteration, item p is in one block, and negative q is in the
same block with probability about 1/d, so L(γ_pq) gets a weight of about d (`design.together`). Within a block, κ items
are drawn uniformly and weighted by the number of items there. Over an iteration the gradients add up to m ∂θ/∂u_i and
n ∂θ/∂v_j in expectation, for φ = identity and any g, λ and spread. With φ = tanh the inner sum is over a part of the
negatives, which gives a bias, as for every sample (docs/derivations.md#tanh-bias).

The number of devices must divide d; it does not change the factors.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from mfauc_jax._core import host, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import choice, size
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import averaging, base, minibatch
from mfauc_jax.solvers.blockwise import design, placement, rounds
from mfauc_jax.solvers.blockwise.placement import Data
from mfauc_jax.solvers.blockwise.visits import Shared
from mfauc_jax.solvers.mesh import SPLIT, WHOLE


class Blockwise(minibatch.Sampled):
    """The paper's parallel algorithm: minibatches within d × d blocks, on devices and across processes.

    The draws of a user are divided among its d visits. The users must come in the order of `design.deal`.
    """

    in_processes = True
    blocks: int = size(4, most=2**16, help="d, rows and columns are cut into d × d blocks")
    devices: int | None = size(
        None,
        optional=True,
        identity=False,
        help="how many devices to use; None: as many as divide d",
    )

    reassign: str = choice(
        "both",
        design.REASSIGN,
        help="what is dealt to blocks anew in each iteration: both, users and items; columns, items only",
    )

    def mesh(self) -> Mesh:
        """The ring of devices; their number divides d."""
        return placement.mesh(self.blocks, self.devices)

    def users_per_batch(self, num_users: int, num_items: int) -> int:
        """As in one block, but at least 128 d users: each makes a d-th of its draws in a visit.

        Batches of few draws cost more per draw. On MovieLens 1M, θ after 20 iterations is the same to 1e-4 for 128
        and for 128 d users.
        """
        if self.batch is not None:
            return self.batch
        return max(128 * self.blocks, super().users_per_batch(num_users, num_items))

    def order(self, X: Interactions, seed: int) -> np.ndarray | None:
        """The users dealt to blocks, [m]; None in several processes, where `distributed.users` gives the order."""
        if jax.process_count() > 1:
            return None
        design.check(self.blocks, *X.shape)
        return design.deal(design.deal_key(seed), np.asarray(X.row_lengths), self.blocks)

    def start(self, start: base.Start, key, X: Interactions, rank: int) -> Factors:
        """Gaussian rows block by block, so that a process draws its own users only; other starts as they are."""
        if isinstance(start, base.Gaussian):
            return placement.start(key, *X.shape, rank, start.scale, self.blocks)
        return start.draw(key, X, rank)

    def seen_by_step(self, problem: Problem) -> Objective:
        """The objective with 0 for each λ and σ − 1 that is given per row: those are in the data, with their rows."""
        objective = problem.objective
        reg = _by_side(problem)
        scalars = Reg(*(0.0 if np.ndim(part) else part for part in reg))
        spread = 0.0 if np.ndim(objective.spread) else objective.spread
        return objective._replace(reg=scalars, spread=spread)

    def for_update(self) -> base.Solver:
        """A Minibatch with the same settings: the same steps, in one block."""
        fields = minibatch.Minibatch.specs()
        return minibatch.Minibatch(
            **{n: v for n, v in self.get_params(deep=False).items() if n in fields}
        )

    def prepare(self, problem: Problem) -> Data:
        """The data as blocks of rows, placed on the devices."""
        objective = problem.objective._replace(reg=_by_side(problem))
        return placement.prepare(self.blocks, self.mesh(), objective, problem.X, problem.weights)

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The start, placed on the devices."""
        del problem
        d, optimiser, mesh = self.blocks, self.make_optimiser(), self.mesh()
        place = partial(placement.on_mesh, mesh)
        users = placement.Rows(factors.U.shape[0], d)
        U = place(users.blocked(np.asarray(factors.U)).reshape(-1, factors.U.shape[1]), users.all)
        padding = design.padded(len(factors.V), d) - len(factors.V)
        V = np.pad(np.asarray(factors.V), ((0, padding), (0, 0)))
        placed = Factors(U, place(V))
        memory = tuple(_like(optimiser.init, F, mesh) for F in placed)
        return base.State(placed, _copied(placed), place(np.zeros((), int), spec=WHOLE), memory)

    def step(self, objective, key, state, data: Data) -> tuple[base.State, base.Info]:
        """One iteration: a visit of every one of the d × d blocks."""
        key_items, key_visits = jax.random.split(key)
        item_at, place_of = self.places(key_items, data)
        tables = minibatch.Tables(state.factors, state.extra, ())
        sides = jax.tree.map(_spec, tables)
        iteration = jax.shard_map(
            partial(rounds.on_device, self.mesh().size, data.row_bits),
            mesh=self.mesh(),
            in_specs=(sides, jax.tree.map(lambda _: SPLIT, data.users), WHOLE),
            out_specs=sides,
            check_vma=False,
        )
        shared = Shared(key_visits, self, objective, data.scale, data.items, item_at, place_of)
        after, memory, *_ = iteration(tables, data.users, shared)
        count = state.iteration + 1
        mean = averaging.update(self.average, state.average, after, count)
        return base.State(after, mean, count, memory), base.change(state.factors, after)

    def places(self, key, data: Data) -> tuple[Array, Array]:
        """The item of each place, block by block, and the place of each item, of one iteration."""
        block = design.dealt(key, data.items.ranked, self.blocks)
        item_at = jnp.sort(block, axis=1).reshape(-1)  # in the catalogue's order within a block
        place = jnp.arange(item_at.shape[0], dtype=item_at.dtype)
        return item_at, jnp.zeros_like(item_at).at[item_at].set(place)

    def assigned(self, key, data: Data) -> tuple[Array, Array]:
        """The row block of each user, [home block, place], and the column block of each item.

        For figures and tests: a `step` with this key visits these blocks.
        """
        d, (key_items, key_visits) = self.blocks, jax.random.split(key)
        column = self.places(key_items, data)[1] // (data.items.b.shape[0] // d)
        if self.reassign == "columns":
            row = jnp.broadcast_to(jnp.arange(d)[:, None], data.users.ranked.shape)
            return row, column
        leaving = rounds.leaving(self, rounds.keys_of(key_visits, jnp.arange(d)), data.users.ranked)
        blocks = jnp.broadcast_to(jnp.arange(d)[:, None], leaving.shape[1:])
        put = jax.vmap(
            lambda at: jnp.zeros(at.size, int).at[at.reshape(-1)].set(blocks.reshape(-1))
        )
        return put(leaving), column

    def read(self, state: base.State, like: Factors) -> Factors:
        """The averages, gathered from the devices."""
        users = placement.Rows(like.U.shape[0], self.blocks)
        shards = sorted(state.average.U.addressable_shards, key=lambda s: s.index[0].start or 0)
        U = np.concatenate([np.asarray(s.data) for s in shards])
        everywhere = NamedSharding(self.mesh(), WHOLE)
        V = _gathering(everywhere)(state.average.V)
        V_host = np.asarray(V.addressable_data(0))[: like.V.shape[0]]
        return Factors(*map(jax.device_put, (U[users.real()], V_host)))


@programs.jit
def _copied(factors: Factors) -> Factors:
    return jax.tree.map(lambda a: a + 0, factors)


@functools.lru_cache(maxsize=8)
def _gathering(everywhere: NamedSharding) -> Callable[[Array], Array]:
    return programs.jit(lambda a: a, out_shardings=everywhere)


def _by_side(problem: Problem) -> Reg:
    """λ of m₊ θ for the users, whose penalty is a mean over all of them, and λ for the items."""
    reg = problem.objective.reg
    reg = reg if isinstance(reg, Reg) else Reg(reg, reg)
    usable, users = (host.total(c) for c in (len(problem.weights.usable), problem.X.num_users))
    return reg._replace(user=reg.user * (float(usable) / float(users)))


def _spec(leaf: Any) -> PartitionSpec:
    """Arrays are split by rows; an optimiser's scalars are on every device."""
    return SPLIT if leaf.ndim else WHOLE


def _like(init: Any, table: Array, mesh: Mesh) -> Any:
    """An optimiser's state whose rows are on the same devices as the rows of the table."""
    specs = jax.tree.map(_spec, jax.eval_shape(init, table))
    return jax.jit(init, out_shardings=jax.tree.map(partial(NamedSharding, mesh), specs))(table)
