"""From hyper-parameters to a solver: the one place where names meet the routes."""

import itertools
from typing import Any

import jax
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, Key

from mfauc_jax._core import registry
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import equation, penalties
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.weights import Weights
from mfauc_jax.solvers import (
    alternating,
    averaging,
    base,
    full_batch,
    minibatch,
    sequential,
    starts,
)
from mfauc_jax.solvers.blockwise import design, placement
from mfauc_jax.solvers.blockwise import solver as blockwise

# iterations and learning rate unless given
DEFAULTS: dict[str, tuple[int, float]] = {
    "alternating": (9, 0.0),
    "minibatch": (40, 0.3),
    "blockwise": (40, 0.3),
    "sequential": (300, 0.05),
    "full_batch": (150, 0.0),
}
OPTIMISERS = {
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "sgd": optax.sgd,
    "rmsprop": optax.rmsprop,
    "unit": minibatch.unit,
}


Hyper = Any  # whatever has the fields of `MFAUC`, their one declaration


def choose(hyper: Hyper) -> str:
    """The solver's name: "auto" is the alternating route where it applies, else the minibatch one."""
    if hyper.solver == "auto":
        return "alternating" if hyper.loss == "square" else "minibatch"
    registry.lookup("solver", DEFAULTS, hyper.solver)
    return hyper.solver


def objective(
    hyper: Hyper,
    X: Interactions,
    weights: Weights,
    beta: Any = None,
    new: tuple[Interactions, Weights] | None = None,
) -> Objective:
    """The objective; "auto" penalties follow the rule of `scaling` (of the users in `new`, if given)."""
    reg, spread = hyper.reg, hyper.spread
    for name, given in (("reg", reg), ("spread", spread)):
        if isinstance(given, str) and given != "auto":
            raise ValueError(f"{name} = {given!r} is neither a number nor 'auto'")
    if isinstance(reg, str) or isinstance(spread, str):
        if not hyper.strength > 0:
            raise ValueError(f"strength = {hyper.strength} must be > 0: .4 is the default")
        sigma = {} if isinstance(spread, str) else {"spread": 1.0 + spread, "spread_power": 0.0}
        rule = penalties.rule(X, weights, hyper.strength, new=new, **sigma)
        reg = rule.reg if isinstance(reg, str) else reg
        spread = rule.spread if isinstance(spread, str) else spread
    beta = betas(hyper)[-1] if beta is None else beta
    return equation.make(
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
    stepping = name in ("minibatch", "blockwise", "sequential")
    if stepping and not isinstance(rate, Tracer) and not rate > 0:
        raise ValueError(f"learning_rate = {rate} must be > 0")
    average = averaging.Averaging(hyper.average_start, hyper.average_eta, hyper.average_since)
    if name == "alternating":
        return alternating.make(objective, hyper.user_steps, hyper.item_steps)
    if name == "full_batch":
        return full_batch.make(objective)
    if name in ("minibatch", "blockwise"):
        for size in ("batch", "num_pos", "num_neg"):
            if getattr(hyper, size) is not None and getattr(hyper, size) < 1:
                raise ValueError(f"{size} = {getattr(hyper, size)} must be ≥ 1")
        chosen = registry.lookup("optimiser", OPTIMISERS, hyper.optimiser)
        sizes = minibatch.Settings(hyper.batch, hyper.num_pos, hyper.num_neg, chosen)
        if name == "minibatch":
            return minibatch.make(objective, rate, average, sizes)
        mesh = placement.mesh(hyper.blocks, hyper.devices)
        return blockwise.make(
            objective, rate, average, blockwise.Settings(hyper.blocks, mesh, sizes)
        )
    settings = sequential.Settings(
        hyper.num_users,
        hyper.num_items,
        hyper.step_rule,
        hyper.fixed_order,
        hyper.new_user,
        hyper.stratified,
        hyper.max_norm,
    )
    return sequential.make(objective, rate, average, settings)


def start(hyper: Hyper, key: Key[Array, ""], X: Interactions) -> Factors:
    """Where the fit begins; a process of several draws its own users' rows only."""
    if hyper.start == "svd" and jax.process_count() == 1:
        return starts.randomised_svd(key, X, hyper.rank)
    if hyper.start != "gaussian":
        raise ValueError(f"start = {hyper.start!r} must be 'gaussian' or (in one process) 'svd'")
    if choose(hyper) != "blockwise":
        return starts.gaussian(key, *X.shape, hyper.rank, hyper.start_scale)
    return placement.start(key, *X.shape, hyper.rank, hyper.start_scale, hyper.blocks)


def order(hyper: Hyper, X: Interactions) -> np.ndarray | None:
    """Users as the blockwise route wants them, or None: as they are.

    Processes are given their users in order (`distributed.users`).
    """
    if choose(hyper) != "blockwise":
        if jax.process_count() > 1:
            raise ValueError(
                f"solver {choose(hyper)!r} runs in one process: use solver='blockwise' in several"
            )
        return None
    if jax.process_count() > 1:
        return None
    design.check(hyper.blocks, *X.shape)
    key = design.deal_key(hyper.seed)
    return design.deal(key, np.asarray(X.row_lengths), hyper.blocks)
