"""Many fits of one shape as one program: hyper-parameters are the batch, random draws are shared.

A solver's `step` is a Partial with its numbers as leaves. The leaves that differ between fits get
an axis, and so do the factors; key, iteration and data do not. `vmap` then leaves an iteration's
draws and index searches outside the batch, done once for all fits, which see the same samples:
their differences come from the hyper-parameters alone.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from mfauc_jax import routes
from mfauc_jax._core import host
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.splits import Split
from mfauc_jax.evaluation import metrics
from mfauc_jax.model import MFAUC
from mfauc_jax.objective import exact
from mfauc_jax.objective import weights as item_weights
from mfauc_jax.solvers import base

# numbers of a solver's step; a grid over anything else changes shapes, data or the program
TRACED = ("reg", "learning_rate", "beta", "rho", "spread", "average_start", "average_eta")
MEMORY = 2**31  # bytes of states and temporaries of the fits that run at once
GATHERED = 2**15  # rows of factors a step gathers at a time, at most about
AXES = base.State(0, 0, None, 0)  # pyright: ignore  # the iteration is everybody's


class Swept(NamedTuple):
    """What each fit found."""

    factors: Factors  # averages on the host, [G, m, k] and [G, n, k]
    finite: Bool[np.ndarray, " G"]  # False: it diverged, and its factors mean nothing


def fit(
    key: Key[Array, ""],
    stages: Sequence[Sequence[Any]],
    state: base.State,
    data: Any,
    iterations: int,
    *,
    at_once: int | None = None,
) -> Swept:
    """What `fit.fit` gives for each series of steps, all from the same state and random stream.

    Args:
        key: iteration s uses `fold_in(key, s)`, as in a single fit.
        stages: for each fit its steps, one or a continuation spread evenly over the iterations;
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
            at = tuple(min(s * len(series) // iterations, len(series) - 1) for series in part)
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
        return jax.tree.unflatten(structure, numbers)(key, state, data)

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
    model: MFAUC,
    points: Sequence[dict[str, Any]],
    X: Interactions,
    split: Split,
    criterion: str,
    *,
    at_once: int | None = None,
) -> list[dict[str, Any]]:
    """Fit points on one split's training positives: a record of values and metrics each.

    Args:
        points: values by hyper-parameter; those outside `TRACED` must be the same in all.
        X: what was split. Its longest row and column bound the index searches of any split's, so
            that splits of one size share a compilation.
    """
    hypers = [dataclasses.replace(model, **point) for point in points]
    first = hypers[0]
    train = dataclasses.replace(split.train, row_bits=X.row_bits)
    weights = item_weights.make(train, first.tau, first.tau_neg, first.user_power)
    objectives = [routes.objective(h, train, weights) for h in hypers]
    stages = [
        [routes.solver(h, routes.objective(h, train, weights, b)) for b in routes.betas(h)]
        for h in hypers
    ]
    iterations = first.iterations or routes.DEFAULTS[routes.choose(first)][0]
    key_start, key_fit = host.keys(first.seed, 2)
    state = stages[0][0].init(routes.start(first, key_start, train))
    data = _same_bits(stages[0][0].prepare(train, weights), X)
    found: dict[int, Any] = {}
    shapes = [
        _shape(series[0].step) for series in stages
    ]  # λ "auto" is another program than λ = .1
    for shape in dict.fromkeys(shapes):
        chosen = [p for p, other in enumerate(shapes) if other == shape]
        steps = [[solver.step for solver in stages[p]] for p in chosen]
        swept = fit(key_fit, steps, state, data, iterations, at_once=at_once)
        for place, p in enumerate(chosen):
            at = jax.tree.map(lambda F: F[place], swept.factors)  # noqa: B023
            found[p] = Factors(*at) if swept.finite[place] else None
    plan = exact.plan(objectives[0], train, weights) if criterion == "objective" else None
    records = []
    for p, point in enumerate(points):
        record: dict[str, Any] = {**point, "diverged": found[p] is None, criterion: math.nan}
        if found[p] is not None and plan is not None:
            record[criterion] = float(exact.value(objectives[p], found[p], plan))
        if found[p] is not None and split.test.nnz:
            values = metrics.evaluate(found[p], split.train, split.test, lengths(criterion))
            record |= {name: float(value) for name, value in values.items()}
        records.append(record)
    return records


def lengths(criterion: str) -> tuple[int, ...]:
    """The list lengths to evaluate: 1, 3, 5 and the criterion's."""
    found = re.fullmatch(r"[a-z0-9]+@([1-9][0-9]*)", criterion)
    return tuple(sorted({1, 3, 5} | ({int(found.group(1))} if found else set())))


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
