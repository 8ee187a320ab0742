"""Many fits of one shape as one program: the hyper-parameters are batched, the random draws are shared.

A solver and its objective are pytrees with their numbers as leaves. The leaves that differ between fits get an axis
over fits, and so do the factors; key, iteration and data do not. `vmap` then keeps the draws and index searches of an
iteration outside the batch: they are made once for all fits. All fits see the same samples, so their results differ
by the hyper-parameters alone.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from mfauc_jax._core import host, programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.splits import Split
from mfauc_jax.evaluation import formulas, metrics
from mfauc_jax.objective import exact
from mfauc_jax.objective.equation import Objective
from mfauc_jax.solvers import base

MEMORY = 2**31  # bytes for the states and temporaries of the fits that run at once
GATHERED = 2**15  # about the most rows of factors that a step gathers at a time
AXES = base.State(0, 0, None, 0)  # pyright: ignore  # all fits share the iteration


class Program(NamedTuple):
    """A solver and the objective that its step sees: what one iteration of one fit runs."""

    solver: base.Solver
    objective: Objective  # as from `solver.seen_by_step`


class Swept(NamedTuple):
    """The results of G fits."""

    factors: Factors  # the averages, on the host, [G, m, k] and [G, n, k]
    finite: Bool[np.ndarray, " G"]  # False: the fit diverged, and its factors mean nothing


def fit(
    key: Key[Array, ""],
    stages: Sequence[Sequence[Program]],
    state: base.State,
    data: Any,
    iterations: int,
    *,
    at_once: int | None = None,
) -> Swept:
    """The factors of many fits at once, each as from `loop.fit`; they share the start and the random stream.

    Args:
        key: iteration s uses `fold_in(key, s)`, as in a single fit.
        stages: the programs of each fit, one or several that share its iterations evenly (a continuation); all must
            have one structure.
        state: the start of every fit.
        data: as from the solver's `prepare`.
        iterations: T, the same for all fits: none stops early.
        at_once: fits per program, ≥ 1; None: as many as fit into `MEMORY`.
    """
    count = len(stages)
    size = min(count, room(state, data) if at_once is None else at_once)
    if size < 1:
        raise ValueError(f"at_once = {at_once} must be ≥ 1")
    size = -(-count // -(-count // size))  # equal parts, so that they share a compilation
    structure = jax.tree.structure(stages[0][0])
    leaves = [[jax.tree.leaves(step) for step in series] for series in stages]
    columns = zip(*(step for series in leaves for step in series), strict=True)
    varies = tuple(not all(np.array_equal(a, column[0]) for a in column) for column in columns)
    averages, finite = [], []
    for first in range(0, count, size):
        part = leaves[first : first + size]
        num_kept = len(part)
        part = part + [part[-1]] * (size - num_kept)
        states = jax.tree.map(lambda a: jnp.broadcast_to(a, (size, *jnp.shape(a))), state)
        states, alive = states._replace(iteration=state.iteration), jnp.ones(size, bool)
        last_places, numbers = None, ()
        for s in range(iterations):
            places = tuple(base.stage(s, iterations, len(series)) for series in part)
            if places != last_places:
                current = zip(
                    *(series[t] for series, t in zip(part, places, strict=True)), strict=True
                )
                numbers = tuple(
                    jnp.stack([jnp.asarray(a) for a in column]) if varied else column[0]
                    for column, varied in zip(current, varies, strict=True)
                )
                last_places = places
            states, alive = step(structure, varies, numbers, key, states, alive, data)
        averages.append(jax.tree.map(lambda a: np.asarray(a)[:num_kept], states.average))  # noqa: B023
        finite.append(np.asarray(alive)[:num_kept])
    factors = jax.tree.map(lambda *parts: np.concatenate(parts), *averages)
    all_finite = np.array([all(np.isfinite(F[g]).all() for F in factors) for g in range(count)])
    return Swept(factors, np.concatenate(finite) & all_finite)


@partial(programs.jit, static_argnums=(0, 1))
def step(structure, varies, numbers, key, states, alive, data):
    """One iteration of every fit; the numbers that vary and the states, except their iteration, are mapped over."""
    key = jax.random.fold_in(key, states.iteration)
    axes = tuple(0 if varied else None for varied in varies)

    def one(numbers, state):
        solver, objective = jax.tree.unflatten(structure, numbers)
        return solver.step(objective, key, state, data)

    over_fits = jax.vmap(one, in_axes=(axes, AXES), out_axes=(AXES, 0))
    states, info = over_fits(numbers, states)
    return states, alive & jnp.isfinite(info.step_size)


def room(state: base.State, data: Any) -> int:
    """How many fits `MEMORY` has room for, counting three copies of a state and the rows that a step gathers."""
    own = 3 * sum(jnp.asarray(leaf).nbytes for leaf in jax.tree.leaves(state))
    longest = max((np.size(leaf) for leaf in jax.tree.leaves(data)), default=0)
    gathered = 4 * min(GATHERED, longest) * state.factors.U.shape[1] * 8
    return max(1, MEMORY // (own + gathered))


def score(
    model: Any,
    points: Sequence[dict[str, Any]],
    X: Interactions,
    split: Split,
    criterion: str | Callable,
    *,
    at_once: int | None = None,
) -> list[dict[str, Any]]:
    """Fit points on the training positives of one split: one record of values and metrics per point.

    Args:
        model: an MFAUC, whose other settings all points share.
        points: values by name; those that cannot be swept must be the same in all points.
        X: the positives before the split. Its longest row and column bound the index searches of every split, so
            that splits of one size share a compilation.
        split: the positives to fit, and those held out.
        criterion: a metric by its name or as a function, or "objective".
        at_once: fits per program; None: as many as memory allows.
    """
    models = [model.with_params(**point) for point in points]
    if jax.process_count() > 1:
        return [_scored(*pair, split, criterion) for pair in zip(models, points, strict=True)]
    train = dataclasses.replace(split.train, row_bits=X.row_bits)
    first = models[0].problem(train)
    problems = [first, *(m.problem(train, first.weights) for m in models[1:])]
    solvers = [m.chosen_solver for m in models]
    stages = [
        [
            Program(solver, solver.seen_by_step(problem.minimising(objective)))
            for objective in solver.stages(problem.objective)
        ]
        for solver, problem in zip(solvers, problems, strict=True)
    ]
    key_start, key_fit = host.keys(models[0].seed, 2)
    begin = solvers[0].start(models[0].start, key_start, train, models[0].rank)
    state = solvers[0].init(first, begin)
    data = _same_bits(solvers[0].prepare(first), X)
    fitted: dict[int, Factors | None] = {}  # None: diverged
    shapes = [
        _shape(series[0]) for series in stages
    ]  # one λ per row is another program than one λ for all
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
            own = Factors(*(F[place] for F in swept.factors))
            read = solvers[0].read(state._replace(average=own), begin)
            fitted[p] = read if swept.finite[place] else None
    finals = [solver.stages(p.objective)[-1] for solver, p in zip(solvers, problems, strict=True)]
    named, plan = formulas.name_of(criterion), None
    if criterion == "objective":
        plan = exact.plan(finals[0], train, first.weights)
    records = []
    for p, point in enumerate(points):
        factors = fitted[p]
        record: dict[str, Any] = {**point, "diverged": factors is None, named: math.nan}
        if factors is not None and split.test.nnz:
            wanted = "auc" if plan is not None else criterion
            record |= metrics.scores(factors, split.train, split.test, wanted)
        if factors is not None and plan is not None:
            record[named] = float(exact.value(finals[p], factors, plan))
        records.append(record)
    return records


def _scored(
    model: Any, point: dict[str, Any], split: Split, criterion: str | Callable
) -> dict[str, Any]:
    """The record of one point that several processes fit together."""
    named = formulas.name_of(criterion)
    record: dict[str, Any] = {**point, "diverged": False, named: math.nan}
    try:
        model.fit(split.train, progress=False)
    except ArithmeticError:  # in every process
        return record | {"diverged": True}
    if host.total(split.test.nnz):
        wanted = "auc" if criterion == "objective" else criterion
        record |= metrics.scores(model.factors_, split.train, split.test, wanted)
    if criterion == "objective":
        problem = model.problem(split.train)
        final = model.chosen_solver.stages(problem.objective)[-1]
        plan = exact.plan(final, split.train, problem.weights)
        record[named] = exact.value_of_all(final, model.factors_, plan)
    return record


def _shape(step: Any) -> Any:
    return jax.tree.structure(step), tuple(np.shape(leaf) for leaf in jax.tree.leaves(step))


def _same_bits(data: Any, X: Interactions) -> Any:
    """The data with the `row_bits` of X or Xᵀ in every matrix, instead of the split's own."""
    longest = np.bincount(np.asarray(X.indices), minlength=1).max()

    def deepen(node):
        if not isinstance(node, Interactions):
            return node
        bits = X.row_bits if node.shape == X.shape else int(longest).bit_length()
        return dataclasses.replace(node, row_bits=max(bits, node.row_bits))

    return jax.tree.map(deepen, data, is_leaf=lambda node: isinstance(node, Interactions))
