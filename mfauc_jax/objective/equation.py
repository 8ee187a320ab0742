"""Eq. 3, θ and θ′ alike: which of them depends only on the Sample.

    θ(U, V) = (1/m) Σ_i w_i Σ_p g_ip φ(Σ_q g′_iq L(u_i·v_p − u_i·v_q)) + (λ/2)(‖U‖²/m + ‖V‖²/n)

Gradients are always `jax.grad` of these functions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import Partial
from jaxtyping import Array, Float

from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import losses, sampling, weightings
from mfauc_jax.objective.sampling import Pairs, Sample


class Reg(NamedTuple):
    """λ by user and by item: the penalty is ½(Σ λ_i |u_i|²/m + Σ λ_j |v_j|²/n)."""

    user: Any  # a number, or [m]
    item: Any  # a number, or [n]


class Objective(NamedTuple):
    """What is minimised. The functions are static, every number is a traced leaf."""

    loss: Callable = Partial(losses.square_hinge)
    weighting: Callable = Partial(weightings.identity)
    reg: Any = 0.0  # λ: a number, or a Reg
    spread: Any = 0.0  # σ − 1 of SPEC 4.5, a number or [m]; 0 is the paper


def make(
    loss: str | Callable = "square_hinge",
    weighting: str | Callable = "identity",
    *,
    beta: float = 1.0,
    rho: float = 1.0,
    reg: float | Reg = 0.0,
    spread: Any = 0.0,
) -> Objective:
    """An Objective from names and numbers, checked.

    Args:
        loss: square_hinge, square, sigmoid, logistic, or your own scalar function of the margin.
        weighting: identity, tanh, or your own scalar function of the rank loss.
        beta: slope of sigmoid and logistic.
        rho: steepness of tanh.
        reg: λ ≥ 0, or a `Reg`.
        spread: σ − 1 ≥ 0, the extra weight on the variance of the negatives' scores.
    """
    loss, weighting = losses.get(loss, beta), weightings.get(weighting, rho)
    for name, number in (("reg", reg), ("spread", spread)):
        for part in jax.tree.leaves(number):
            if not isinstance(part, Tracer) and not (np.asarray(part) >= 0).all():
                raise ValueError(f"{name} = {np.min(part)} must be ≥ 0")
    if weighting.func is weightings.tanh:
        probe = loss(jnp.linspace(-50.0, 50.0, 101))
        if not isinstance(probe, Tracer) and float(probe.min()) < 0:
            raise ValueError(
                f"tanh needs a loss that is never negative, but {loss.func.__name__} reaches "
                f"{float(probe.min()):.3g}: shift it up, as losses.sigmoid does (E4)"
            )
    return Objective(loss, weighting, reg, spread)


def user_risk(
    objective: Objective,
    u: Float[Array, "k"],
    V_pos: Float[Array, "P k"],
    V_neg: Float[Array, "Q k"],
    g_pos: Float[Array, "P"],
    g_neg: Float[Array, "Q"],
    spread: Any = 0.0,
    spread_scale: Any = 1.0,
    pairs: Pairs | None = None,
) -> Float[Array, ""]:
    """Σ_p g(y_p) φ(Σ_q g′(y_q) L(γ_pq)) for one user, plus ½ (σ − 1) Var_g′(s) (SPEC 4.5).

    With `pairs` each L(γ_pq), and each (s_q − s_q′)² in Var = ½ Σ_qq′ g′_q g′_q′ (s_q − s_q′)², has a
    weight of its own.
    """
    s_neg = V_neg @ u
    margin = (V_pos @ u)[:, None] - s_neg[None, :]  # γ [P, Q]
    if pairs is None:
        rank_loss = objective.loss(margin) @ g_neg  # [P]
        variance = g_neg @ (s_neg - g_neg @ s_neg) ** 2
    else:
        rank_loss = (pairs.pos_neg * objective.loss(margin)) @ g_neg
        apart = pairs.neg_neg * (s_neg[:, None] - s_neg[None, :]) ** 2
        variance = 0.5 * g_neg @ apart @ g_neg
    return g_pos @ objective.weighting(rank_loss) + 0.5 * spread * spread_scale * variance


def by_row(reg: Any, num_users: int, num_items: int) -> Reg:
    """λ as a Reg of arrays, [m] and [n]."""
    reg = reg if isinstance(reg, Reg) else Reg(reg, reg)
    return Reg(jnp.broadcast_to(reg.user, (num_users,)), jnp.broadcast_to(reg.item, (num_items,)))


def penalty(objective: Objective, factors: Factors) -> Float[Array, ""]:
    """(λ/2)(‖U‖²/m + ‖V‖²/n), always in full (E22)."""
    reg = by_row(objective.reg, *(F.shape[0] for F in factors))
    users, items = ((F**2).sum(1) for F in factors)
    return 0.5 * ((reg.user * users).mean() + (reg.item * items).mean())


def risk(objective: Objective, factors: Factors, sample: Sample) -> Float[Array, ""]:
    """The data term: the mean over the sample's users of w_i · user_risk."""
    rows = factors.U[sample.users], factors.V[sample.pos], factors.V[sample.neg]
    return risk_of_rows(objective, *rows, sample)


def risk_of_rows(
    objective: Objective,
    u: Float[Array, "b k"],
    V_pos: Float[Array, "b P k"],
    V_neg: Float[Array, "b Q k"],
    sample: Sample,
) -> Float[Array, ""]:
    """`risk` of a sample's rows already gathered, so that gradients stay with the touched rows."""
    spread = jnp.asarray(objective.spread)
    spread = spread[sample.users] if spread.ndim else jnp.broadcast_to(spread, u.shape[:1])
    over_users = jax.vmap(user_risk, in_axes=(None, 0, 0, 0, 0, 0, 0, None, 0))
    weighted = (sample.g_pos, sample.g_neg, spread, sample.spread_scale, sample.pairs)
    return (sample.user_weight * over_users(objective, u, V_pos, V_neg, *weighted)).mean()


def value(objective: Objective, factors: Factors, sample: Sample) -> Float[Array, ""]:
    """θ for `sampling.everything`, θ′ for a sample."""
    return risk(objective, factors, sample) + penalty(objective, factors)


def item_risk(
    objective: Objective, v: Float[Array, "k"], factors: Factors, sample: Sample
) -> Float[Array, ""]:
    """The part of `risk` that depends on v_j, for a `sampling.for_item` sample and v in its slot 0.

    Item j is either its user's one weighted positive or a negative (slot 0 of both has weights that
    say which), so v_j meets 2κ_Y pairs of a user. The κ_Y² others are constants inside φ, which the
    compiler drops when φ′ is 1.
    """
    u = factors.U[sample.users]  # [b, k]
    s_pos, s_neg = (
        jnp.einsum("bpk,bk->bp", factors.V[items[:, 1:]], u) for items in (sample.pos, sample.neg)
    )
    spread = jnp.broadcast_to(objective.spread, (factors.U.shape[0],))[sample.users]

    def one(s, s_pos, s_neg, g_pos, g_neg, spread):
        own, others = g_neg[0], g_neg[1:]
        as_positive = g_pos[0] * objective.weighting((objective.loss(s - s_neg) * others).sum())
        rank_loss = (objective.loss(s_pos[:, None] - s_neg[None, :]) * others[None, :]).sum(1)
        rank_loss = rank_loss + own * objective.loss(s_pos - s)
        as_negative = (g_pos[1:] * objective.weighting(rank_loss)).sum()
        mean = (others * s_neg).sum() + own * s
        variance = (others * (s_neg - mean) ** 2).sum() + own * (s - mean) ** 2
        return as_positive + as_negative + 0.5 * spread * sample.spread_scale * variance

    risks = jax.vmap(one)(u @ v, s_pos, s_neg, sample.g_pos, sample.g_neg, spread)
    return (sample.user_weight * risks).mean()


def richardson(objective: Objective, factors: Factors, sample: Sample) -> Float[Array, ""]:
    """2 θ′(all negatives) − mean of θ′ on the two halves: tanh's bias falls to O(1/κ²) (SPEC 3.4)."""
    first, second = (value(objective, factors, half) for half in sampling.halves(sample))
    return 2 * value(objective, factors, sample) - 0.5 * (first + second)
