"""From hyper-parameters to a solver: the one place where names meet the four routes."""

import itertools
from typing import Any

import optax
from jax.core import Tracer

from mfauc_jax import averaging, names, scaling
from mfauc_jax import objective as objectives
from mfauc_jax.interactions import Interactions
from mfauc_jax.item_weights import Weights
from mfauc_jax.objective import Objective
from mfauc_jax.solvers import alternating, base, full_batch, minibatch, sequential

# iterations and learning rate unless given
DEFAULTS: dict[str, tuple[int, float]] = {
    "alternating": (8, 0.0),
    "minibatch": (40, 0.1),
    "sequential": (300, 0.05),
    "full_batch": (150, 0.0),
}
OPTIMISERS = {
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "sgd": optax.sgd,
    "rmsprop": optax.rmsprop,
}


Hyper = Any  # whatever has the fields of `MFAUC`, their one declaration


def choose(hyper: Hyper) -> str:
    """The solver's name: "auto" is the alternating route where it applies, else the minibatch one."""
    if hyper.solver == "auto":
        return "alternating" if hyper.loss == "square" else "minibatch"
    names.lookup("solver", DEFAULTS, hyper.solver)
    return hyper.solver


def objective(hyper: Hyper, X: Interactions, weights: Weights, beta: Any = None) -> Objective:
    """The objective; "auto" penalties follow the rule of `scaling`."""
    reg, spread = hyper.reg, hyper.spread
    for name, given in (("reg", reg), ("spread", spread)):
        if isinstance(given, str) and given != "auto":
            raise ValueError(f"{name} = {given!r} is neither a number nor 'auto'")
    if isinstance(reg, str) or isinstance(spread, str):
        rule = scaling.rule(X, weights)
        reg = rule.reg if isinstance(reg, str) else reg
        spread = rule.spread if isinstance(spread, str) else spread
    beta = betas(hyper)[-1] if beta is None else beta
    return objectives.make(
        hyper.loss, hyper.weighting, beta=beta, rho=hyper.rho, reg=reg, spread=spread
    )


def betas(hyper: Hyper) -> tuple[float, ...]:
    """β, or the increasing series of a continuation (the paper's Section 2)."""
    series = tuple(hyper.beta) if isinstance(hyper.beta, tuple | list) else (hyper.beta,)
    if any(b >= c for b, c in itertools.pairwise(series)):
        raise ValueError(f"beta = {series} must rise: a continuation goes from smooth to steep")
    return series


def solver(hyper: Hyper, objective: Objective) -> base.Solver:
    """The solver, with every number a traced leaf."""
    name = choose(hyper)
    rate = DEFAULTS[name][1] if hyper.learning_rate is None else hyper.learning_rate
    if not isinstance(rate, Tracer) and name in ("minibatch", "sequential") and not rate > 0:
        raise ValueError(f"learning_rate = {rate} must be > 0")
    average = averaging.Averaging(hyper.average_start, hyper.average_eta, hyper.average_since)
    if name == "alternating":
        return alternating.make(objective, hyper.user_steps, hyper.item_steps)
    if name == "full_batch":
        return full_batch.make(objective)
    if name == "minibatch":
        chosen = names.lookup("optimiser", OPTIMISERS, hyper.optimiser)
        sizes = minibatch.Settings(hyper.batch, hyper.num_pos, hyper.num_neg, chosen)
        return minibatch.make(objective, rate, average, sizes)
    settings = sequential.Settings(
        hyper.num_users, hyper.num_items, hyper.step_rule, hyper.fixed_order, hyper.new_user,
        hyper.stratified, hyper.max_norm,
    )  # fmt: skip
    return sequential.make(objective, rate, average, settings)
