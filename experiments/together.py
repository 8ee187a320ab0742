"""Fits of one shape on several splits as one program: a small fit hardly fills a core.

`batched` maps over hyper-parameters on one data set, with shared draws; here every fit has its own data,
start and random stream, and finds what it would find alone.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.model import MFAUC
from mfauc_jax.objective import exact


class Fit(NamedTuple):
    """What one of the fits found."""

    factors: Factors
    half: float  # exact θ of the averages after half of the iterations
    last: float  # and after all
    zero: float  # θ of a model that scores everything 0


def fit(models: Sequence[MFAUC], trains: Sequence[Interactions]) -> list[Fit]:
    """What `models[f].fit(trains[f])` gives for each f, without its early stops.

    Models may differ in numbers (seed, λ, α, β, ρ) only, matrices in anything but their sizes.
    """
    problems = [model.problem(X) for model, X in zip(models, trains, strict=True)]
    keys = [host.keys(model.seed, 2) for model in models]
    programs, begins, states, data = [], [], [], []
    for model, problem, key in zip(models, problems, keys, strict=True):
        solver = model.chosen_solver
        programs.append((solver, solver.seen_by_step(problem)))
        begin = solver.start(model.start, key[0], problem.X, model.rank)
        begins.append(begin)
        states.append(solver.init(problem, begin))
        data.append(solver.prepare(problem))
    streams = jnp.stack([key[1] for key in keys])
    (numbers, of_step), (data, of_data), (state, of_state) = map(_stack, (programs, data, states))
    state = jax.tree.unflatten(of_state, state)
    plans = [exact.plan(p.objective, p.X, p.weights) for p in problems]

    def read(state) -> list[Factors]:
        solvers, separate = (model.chosen_solver for model in models), _unstack(state, len(models))
        return [s.read(*of) for s, *of in zip(solvers, separate, begins, strict=True)]

    def theta(found) -> list[float]:
        return [
            float(exact.value(problem.objective, factors, plan))
            for problem, factors, plan in zip(problems, found, plans, strict=True)
        ]

    iterations = models[0].chosen_solver.iterations
    half = []
    for s in range(iterations):
        state = _step(of_step, of_data, numbers, streams, state, data)
        if s + 1 == max(iterations // 2, 1):
            half = theta(read(state))
    found = read(state)
    last, zero = theta(found), theta(jax.tree.map(jnp.zeros_like, found))
    return [Fit(*each) for each in zip(found, half, last, zero, strict=True)]


@partial(jax.jit, static_argnums=(0, 1))
def _step(of_step, of_data, numbers, keys, states, data):
    def one(numbers, key, state, data):
        solver, objective = jax.tree.unflatten(of_step, numbers)
        data = jax.tree.unflatten(of_data, data)
        return solver.step(objective, jax.random.fold_in(key, state.iteration), state, data)[0]

    return jax.vmap(one)(numbers, keys, states, data)


def _stack(trees: Sequence[Any]) -> tuple[list[jax.Array], Any]:
    """Leaves with an axis over fits, and the structure of one.

    Matrices search as deep as the deepest of them needs: splits may differ by a step.
    """

    def is_matrix(node):
        return isinstance(node, Interactions)

    def deepen(node):
        return dataclasses.replace(node, row_bits=depth) if is_matrix(node) else node

    nodes = (node for tree in trees for node in jax.tree.leaves(tree, is_leaf=is_matrix))
    depth = max((node.row_bits for node in nodes if is_matrix(node)), default=0)
    trees = [jax.tree.map(deepen, tree, is_leaf=is_matrix) for tree in trees]
    structure = jax.tree.structure(trees[0])
    columns = zip(*map(jax.tree.leaves, trees), strict=True)
    return [jnp.stack([jnp.asarray(leaf) for leaf in column]) for column in columns], structure


def _unstack(tree: Any, count: int) -> list[Any]:
    return [jax.tree.map(lambda a: a[f], tree) for f in range(count)]  # noqa: B023
