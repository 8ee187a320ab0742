"""Many fits of one shape as one program: hyper-parameters are the batch, random draws are shared.

A solver and its objective are pytrees with their numbers as leaves. The leaves that differ between fits get
an axis, and so do the factors; key, iteration and data do not. `vmap` then leaves an iteration's
draws and index searches outside the batch, done once for all fits, which see the same samples:
their differences come from the hyper-parameters alone.
"""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.splits import Split
from mfauc_jax.evaluation import formulas, metrics
from mfauc_jax.objective import exact
from mfauc_jax.solvers import base

MEMORY = 2**31  # bytes of states and temporaries of the fits that run at once
GATHERED = 2**15  # rows of factors a step gathers at a time, at most about
AXES = base.State(0, 0, None, 0)  # pyright: ignore  # the iteration is everybody's


class Program(NamedTuple):
    """What one iteration of one fit runs."""

    solver: base.Solver
    objective: Any  # what the solver's step sees of it


class Swept(NamedTuple):
    """What each fit found."""

    factors: Factors  # averages on the host, [G, m, k] and [G, n, k]
    finite: Bool[np.ndarray, " G"]  # False: it diverged, and its factors mean nothing


def fit(
    key: Key[Array, ""],
    stages: Sequence[Sequence[Program]],
    state: base.State,
    data: Any,
    iterations: int,
    *,
    at_once: int | None = None,
) -> Swept:
    """What `loop.fit` gives for each series of programs, all from the same state and random stream.

    Args:
        key: iteration s uses `fold_in(key, s)`, as in a single fit.
        stages: for each fit its programs, one or a continuation spread evenly over the iterations;
            all of one structure.
        state: where every fit starts.
        data: what the solver's `prepare` made.
        iterations: T, the same for all: nobody stops early.
        at_once: fits in a program; by default as many as `MEMORY` holds.
    """
    count = len(stages)
    size = min(count, room(state, data) if at_once is None else at_once)
    if size < 1:
        raise ValueError(f"at_once = {at_once} must be ≥ 1")
    size = -(-count // -(-count // size))  # even parts, so that they share a compilation
    structure = jax.tree.structure(stages[0][0])
    leaves = [[jax.tree.leaves(step) for step in series] for series in stages]
    columns = zip(*(step for series in leaves for step in series), strict=True)
    varies = tuple(not all(np.array_equal(a, column[0]) for a in column) for column in columns)
    found, finite = [], []
    for first in range(0, count, size):
        part = leaves[first : first + size]
        kept = len(part)
        part = part + [part[-1]] * (size - kept)
        states = jax.tree.map(lambda a: jnp.broadcast_to(a, (size, *jnp.shape(a))), state)
        states, alive = states._replace(iteration=state.iteration), jnp.ones(size, bool)
        before, numbers = None, ()
        for s in range(iterations):
            at = tuple(base.stage(s, iterations, len(series)) for series in part)
            if at != before:
                now = zip(*(series[t] for series, t in zip(part, at, strict=True)), strict=True)
                numbers = tuple(
                    jnp.stack([jnp.asarray(a) for a in column]) if varied else column[0]
                    for column, varied in zip(now, varies, strict=True)
                )
                before = at
            states, alive = step(structure, varies, numbers, key, states, alive, data)
        found.append(jax.tree.map(lambda a: np.asarray(a)[:kept], states.average))  # noqa: B023
        finite.append(np.asarray(alive)[:kept])
    factors = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
    whole = np.array([all(np.isfinite(F[g]).all() for F in factors) for g in range(count)])
    return Swept(factors, np.concatenate(finite) & whole)


@partial(jax.jit, static_argnums=(0, 1))
def step(structure, varies, numbers, key, states, alive, data):
    """One iteration of every fit. Mapped: the numbers that vary, and the states but for s."""
    key = jax.random.fold_in(key, states.iteration)
    axes = tuple(0 if varied else None for varied in varies)

    def one(numbers, state):
        solver, objective = jax.tree.unflatten(structure, numbers)
        return solver.step(objective, key, state, data)

    over_fits = jax.vmap(one, in_axes=(axes, AXES), out_axes=(AXES, 0))
    states, info = over_fits(numbers, states)
    return states, alive & jnp.isfinite(info.step_size)


def room(state: base.State, data: Any) -> int:
    """How many fits fit into `MEMORY`: three copies of a state, and the rows a step gathers."""
    own = 3 * sum(jnp.asarray(leaf).nbytes for leaf in jax.tree.leaves(state))
    longest = max((np.size(leaf) for leaf in jax.tree.leaves(data)), default=0)
    gathered = 4 * min(GATHERED, longest) * state.factors.U.shape[1] * 8
    return max(1, MEMORY // (own + gathered))


def score(
    model: Any,
    points: Sequence[dict[str, Any]],
    X: Interactions,
    split: Split,
    criterion: Any,
    *,
    at_once: int | None = None,
) -> list[dict[str, Any]]:
    """Fit points on one split's training positives: one record of values and metrics per point.

    Args:
        model: an MFAUC, the base setting.
        points: values by name; those that cannot be swept must be the same in all.
        X: what was split. Its longest row and column bound the index searches of any split's, so
            that splits of one size share a compilation.
        split: what is fitted, and what is held out.
        criterion: a metric by its name or as a function, or "objective".
        at_once: fits in a program; by default as many as memory allows.
    """
    models = [model.with_params(**point) for point in points]
    train = dataclasses.replace(split.train, row_bits=X.row_bits)
    first = models[0].problem(train)
    problems = [first, *(m.problem(train, first.weights) for m in models[1:])]
    solvers = [m.chosen_solver for m in models]
    stages = [
        [Program(solver, solver.seen_by_step(o)) for o in solver.stages(problem.objective)]
        for solver, problem in zip(solvers, problems, strict=True)
    ]
    key_start, key_fit = host.keys(models[0].seed, 2)
    begin = solvers[0].start(models[0].start, key_start, train, models[0].rank)
    state = solvers[0].init(first, begin)
    data = _same_bits(solvers[0].prepare(first), X)
    found: dict[int, Any] = {}
    shapes = [_shape(series[0]) for series in stages]  # λ by row is another program than one λ
    for shape in dict.fromkeys(shapes):
        chosen = [p for p, other in enumerate(shapes) if other == shape]
        swept = fit(
            key_fit,
            [stages[p] for p in chosen],
            state,
            data,
            solvers[0].iterations,
            at_once=at_once,
        )
        for place, p in enumerate(chosen):
            at = jax.tree.map(lambda F: F[place], swept.factors)  # noqa: B023
            found[p] = Factors(*at) if swept.finite[place] else None
    finals = [solver.stages(p.objective)[-1] for solver, p in zip(solvers, problems, strict=True)]
    named, plan = formulas.name_of(criterion), None
    if criterion == "objective":
        plan = exact.plan(finals[0], train, first.weights)
    records = []
    for p, point in enumerate(points):
        record: dict[str, Any] = {**point, "diverged": found[p] is None, named: math.nan}
        if found[p] is not None and split.test.nnz:
            wanted = "auc" if plan is not None else criterion
            record |= metrics.scores(found[p], split.train, split.test, wanted)
        if found[p] is not None and plan is not None:
            record[named] = float(exact.value(finals[p], found[p], plan))
        records.append(record)
    return records


def _shape(step: Any) -> Any:
    return jax.tree.structure(step), tuple(np.shape(leaf) for leaf in jax.tree.leaves(step))


def _same_bits(data: Any, X: Interactions) -> Any:
    """Every matrix in `data` with the search depth of X or Xᵀ, not its split's own."""
    longest = np.bincount(np.asarray(X.indices), minlength=1).max()

    def deepen(node):
        if not isinstance(node, Interactions):
            return node
        bits = X.row_bits if node.shape == X.shape else int(longest).bit_length()
        return dataclasses.replace(node, row_bits=max(bits, node.row_bits))

    return jax.tree.map(deepen, data, is_leaf=lambda node: isinstance(node, Interactions))
