"""The critical path of a blockwise iteration on more devices than a machine has, from the time of each block by itself.

Each home block's draws and each of the d × d visits are timed alone, on one device. On D devices, an iteration takes

    max over devices of the draws of their d/D home blocks
  + Σ over rounds of the max over devices of the visits of their d/D blocks
  + the rest of the iteration: the exchange of users and items, averages, the assignment

The rest is what an iteration on one device takes beyond its draws and visits. It is not divided by D, although most of
it would be, and the network costs nothing: this is a model, not a measurement.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mfauc_jax import MFAUC, Blockwise, Gaussian
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.solvers import base, minibatch
from mfauc_jax.solvers.blockwise import design, drawing, rounds, travel, visits
from mfauc_jax.solvers.mesh import SPLIT, WHOLE


def fastest(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of some calls, after one that compiles."""
    jax.block_until_ready(call())
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        found.append(time.perf_counter() - begun)
    return min(found)


class Iteration:
    """An iteration of a model's solver from its start."""

    def __init__(self, model: MFAUC, X: Interactions):
        self.solver = solver = model.chosen_solver
        order = solver.order(X, model.seed)
        X = X if order is None else X.take(order)
        problem = model.problem(X)
        factors = solver.start(Gaussian(), jax.random.key(1), X, model.rank)
        self.key, self.num_items = jax.random.key(model.seed), X.num_items
        self.seen, self.data = solver.seen_by_step(problem), solver.prepare(problem)
        self.state = solver.init(problem, factors)

    def __call__(self) -> Any:
        """One iteration."""
        return base.run(self.solver, self.seen, self.key, self.state, self.data)


def of_blocks(iteration: Iteration, repeats: int) -> tuple[list[float], list[list[float]]]:
    """Seconds of each home block's draws, [d], and of each visit by row and column block, [d, d], on one device."""
    solver, data, state = iteration.solver, iteration.data, iteration.state
    assert isinstance(solver, Blockwise) and solver.mesh().size == 1
    d, u = solver.blocks, data.users.length.shape[1]
    key_items, key_visits = jax.random.split(iteration.key)
    item_at, place_of = jax.jit(solver.places)(key_items, data)
    shared = visits.Shared(
        key_visits, solver, iteration.seen, data.scale, data.items, item_at, place_of
    )
    tables = minibatch.Tables(state.factors, state.extra, ())

    def gather(tables, users, shared):
        return rounds.gathered(1, data.row_bits, tables, users, shared)[0]

    inputs = (SPLIT, SPLIT, WHOLE)
    everywhere = jax.shard_map(
        gather, mesh=solver.mesh(), in_specs=inputs, out_specs=WHOLE, check_vma=False
    )
    ready = jax.jit(everywhere)(tables, data.users, shared)

    @jax.jit
    def draw(key, users, place_of):
        sizes = {"num_pos": visits.share(solver.num_pos, d), "row_bits": data.row_bits}
        sizes["num_neg"] = visits.share(solver.num_neg, d, 2)
        return drawing.draw(key, users, place_of, d=d, **sizes)

    @jax.jit
    def visit(shared, memory, column, *block):
        _, joined = travel.rows_and_scalars(memory)
        return visits.visit(shared, u, joined, column, *block)

    def part(tree, *index):
        return jax.tree.map(lambda leaf: leaf[index], tree)

    homes = [part(data.users, a) for a in range(d)]
    drawn = [fastest(lambda home=home: draw(key_visits, home, place_of), repeats) for home in homes]
    visited = np.zeros((d, d))
    for a, column in np.ndindex(d, d):
        block = (
            part(ready.rows, a),
            ready.scalars,
            part(ready.columns, column),
            part(ready.drawn, a, column),
            part(ready.facts, a),
        )
        visited[a, column] = fastest(
            lambda c=column, block=block: visit(shared, state.extra[0], c, *block), repeats
        )
    return drawn, visited.tolist()


def modelled(iteration: float, drawn: Any, visited: Any, devices: int) -> float:
    """Seconds of an iteration on `devices` devices.

    Args:
        iteration: seconds of the whole iteration on one device.
        drawn: seconds of each home block's draws, [d].
        visited: seconds of each visit, [d, d].
        devices: D, which divides d.
    """
    drawn, visited = np.asarray(drawn), np.asarray(visited)
    d = len(drawn)
    rest = max(0.0, iteration - drawn.sum() - visited.sum())
    in_round = np.array([visited[np.arange(d), row] for row in design.schedule(d)])  # [round, row]
    slowest = in_round.reshape(d, devices, -1).sum(2).max(1).sum()
    return float(drawn.reshape(devices, -1).sum(1).max() + slowest + rest)


def row_updates(iteration: Iteration) -> int:
    """How many times one iteration of a blockwise fit moves a row of U or of V.

    A user is moved once per visit, an item once per batch that draws it. Counted over the draws of one iteration, with
    users in batches as they come.
    """
    solver, data = iteration.solver, iteration.data
    assert isinstance(solver, Blockwise)
    d, (_, u) = solver.blocks, data.users.length.shape
    key_items, key_visits = jax.random.split(iteration.key)
    item_at, place_of = jax.jit(solver.places)(key_items, data)
    real_item = (np.asarray(item_at) < iteration.num_items).reshape(d, -1)  # not padding
    keys = rounds.keys_of(key_visits, jax.numpy.arange(d))
    b = rounds.batches(solver, u, len(place_of))[1]
    moved = 0
    for a in range(d):
        users = jax.tree.map(lambda leaf, a=a: leaf[a], data.users)
        sizes = {"num_pos": visits.share(solver.num_pos, d), "row_bits": data.row_bits}
        sizes["num_neg"] = visits.share(solver.num_neg, d, 2)
        places = np.asarray(drawing.draw(keys[a, 0], users, place_of, d=d, **sizes).places)
        real = np.asarray(users.weight) > 0
        order = np.random.default_rng(a).permutation(u)
        for batch in np.split(order, np.arange(b, u, b)):
            drawn = places[batch[real[batch]]]
            moved += sum(int(real_item[c, np.unique(drawn[:, c])].sum()) for c in range(d))
        moved += d * int(real.sum())
    return moved
