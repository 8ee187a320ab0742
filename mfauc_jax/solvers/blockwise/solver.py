"""The paper's parallel algorithm (Section 2.2) over a mesh of devices, in one process or many.

Users and items are cut into d blocks each. An iteration visits every one of the d × d blocks once, in d
rounds of d that share no row and no column (`design.schedule`); a visit is the minibatch route on the
positives and negatives inside the block. Users stay where they are; blocks of items travel round the
ring of devices. Which items share a block is drawn anew in every iteration.

Paper: rows are reassigned too; here: users are dealt to blocks once a fit, so that a process can hold
its own users only. A user's pairs depend on the *column* block alone, so nothing is lost but the
order of updates.

What makes it the objective of Eq. 3 (docs/derivations.md#blocks): item p is in one block of an iteration, and negative q
meets it there with probability about 1/d, so that L(γ_pq) counts for about d (`design.together`). Within
a block κ items are drawn uniformly and weighted by how many there are. Over an iteration the gradients
add up to m ∂θ/∂u_i and n ∂θ/∂v_j in expectation for φ = identity, any g, λ and spread. tanh sees an inner
sum over a part of the negatives and is biased, as for every sample (docs/derivations.md#tanh-bias).

d blocks run on any number of devices that divides d and end with the same factors.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import size
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Reg
from mfauc_jax.problem import Problem
from mfauc_jax.solvers import averaging, base, minibatch
from mfauc_jax.solvers.blockwise import design, placement, visits
from mfauc_jax.solvers.blockwise.placement import SPLIT, WHOLE, Data


class Blockwise(minibatch.Sampled):
    """The paper's parallel algorithm: minibatches within d × d blocks, on devices and across processes.

    What a user draws is shared out among its d visits; users come in the order of `design.deal`.
    """

    in_processes = True
    blocks: int = size(4, most=2**16, help="d, rows and columns are cut into d × d blocks")
    devices: int | None = size(
        None, optional=True, identity=False, help="how many to use; None: as many as divide d"
    )

    def mesh(self) -> Mesh:
        """The devices, whose number divides d."""
        return placement.mesh(self.blocks, self.devices)

    def order(self, X: Interactions, seed: int) -> np.ndarray | None:
        """Users dealt to blocks; processes are given theirs in order (`distributed.users`)."""
        if jax.process_count() > 1:
            return None
        design.check(self.blocks, *X.shape)
        return design.deal(design.deal_key(seed), np.asarray(X.row_lengths), self.blocks)

    def start(self, start: base.Start, key, X: Interactions, rank: int) -> Factors:
        """Gaussian rows block by block, so that a process draws its own users' only; others in one process."""
        if isinstance(start, base.Gaussian):
            return placement.start(key, *X.shape, rank, start.scale, self.blocks)
        if jax.process_count() > 1:
            raise ValueError(
                f"start = {start.name!r} needs every user: several processes need 'gaussian'"
            )
        return start.draw(key, X, rank)

    def seen_by_step(self, objective: Objective) -> Objective:
        """λ and σ without those by row, which lie with their rows on the devices."""
        reg = _by_side(objective.reg)
        scalars = Reg(*(0.0 if np.ndim(part) else part for part in reg))
        spread = 0.0 if np.ndim(objective.spread) else objective.spread
        return objective._replace(reg=scalars, spread=spread)

    def for_update(self) -> base.Solver:
        """The same steps in one block."""
        own = minibatch.Minibatch.specs()
        return minibatch.Minibatch(
            **{n: v for n, v in self.get_params(deep=False).items() if n in own}
        )

    def prepare(self, problem: Problem) -> Data:
        """The matrix as blocks of rows, where the devices want them."""
        objective = problem.objective._replace(reg=_by_side(problem.objective.reg))
        return placement.prepare(self.blocks, self.mesh(), objective, problem.X, problem.weights)

    def init(self, problem: Problem, factors: Factors) -> base.State:
        """The start, dealt to the devices."""
        del problem
        d, optimiser, mesh = self.blocks, self.make_optimiser(), self.mesh()
        place = partial(placement.on_mesh, mesh)
        users = placement.Rows(factors.U.shape[0], d)
        U = place(users.blocked(np.asarray(factors.U)).reshape(-1, factors.U.shape[1]), users.all)
        V = np.pad(np.asarray(factors.V), ((0, -factors.V.shape[0] % d), (0, 0)))
        home = Factors(U, place(V))
        memory = tuple(_like(optimiser.init, F, mesh) for F in home)
        copy = jax.jit(lambda tree: jax.tree.map(lambda a: a + 0, tree))
        return base.State(home, copy(home), place(np.zeros((), int), spec=WHOLE), memory)

    def step(self, objective, key, state, data: Data) -> tuple[base.State, base.Info]:
        """One iteration: every block once."""
        key_items, key_visits = jax.random.split(key)
        block = design.assign(key_items, data.items.stratum, self.blocks)
        item_at = jnp.argsort(block, stable=True)  # block by block, in the catalogue's order
        place_of = jnp.zeros_like(item_at).at[item_at].set(jnp.arange(item_at.shape[0]))

        tables = minibatch.Tables(state.factors, state.extra, ())
        sides = jax.tree.map(_spec, tables)
        iteration = jax.shard_map(
            partial(visits.on_device, self.mesh().size, data.row_bits),
            mesh=self.mesh(),
            in_specs=(sides, jax.tree.map(lambda _: SPLIT, data.users), WHOLE),
            out_specs=sides,
            check_vma=False,
        )
        shared = visits.Shared(
            key_visits, self, objective, data.scale, data.items, item_at, place_of
        )
        after, memory, _ = iteration(tables, data.users, shared)
        count = state.iteration + 1
        mean = averaging.update(self.average, state.average, after, count)
        return base.State(after, mean, count, memory), base.change(state.factors, after)

    def read(self, state: base.State, like: Factors) -> Factors:
        """The averages, gathered from the devices."""
        users = placement.Rows(like.U.shape[0], self.blocks)
        shards = sorted(state.average.U.addressable_shards, key=lambda s: s.index[0].start or 0)
        U = np.concatenate([np.asarray(s.data) for s in shards])
        everywhere = NamedSharding(self.mesh(), WHOLE)
        V = jax.jit(lambda a: a, out_shardings=everywhere)(state.average.V)
        whole = np.asarray(V.addressable_data(0))[: like.V.shape[0]]
        return Factors(jnp.asarray(U[users.real()]), jnp.asarray(whole))


def _by_side(reg: Any) -> Reg:
    return reg if isinstance(reg, Reg) else Reg(reg, reg)


def _spec(leaf: Any) -> PartitionSpec:
    """Rows are dealt out, an optimiser's scalars are everybody's."""
    return SPLIT if leaf.ndim else WHOLE


def _like(init: Any, table: Array, mesh: Mesh) -> Any:
    """An optimiser's state with its rows where the table's rows are."""
    specs = jax.tree.map(_spec, jax.eval_shape(init, table))
    return jax.jit(init, out_shardings=jax.tree.map(partial(NamedSharding, mesh), specs))(table)
