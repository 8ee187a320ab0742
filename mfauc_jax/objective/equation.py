"""Eq. 3. The same functions give θ and the sampled θ′: which of the two depends only on the Sample.

    θ(U, V) = (1/m) Σ_i w_i Σ_p g_ip φ(Σ_q g′_iq L(u_i·v_p − u_i·v_q)) + (λ/2)(‖U‖²/m + ‖V‖²/n)

Gradients are always `jax.grad` of these functions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import losses, sampling, weightings
from mfauc_jax.objective.losses import Loss
from mfauc_jax.objective.penalties import Sphere, by_row
from mfauc_jax.objective.sampling import Pairs, Sample
from mfauc_jax.objective.weightings import Weighting


class Objective(NamedTuple):
    """The L, φ, λ and σ of Eq. 3. The formulas are static; every number is a traced leaf."""

    loss: Loss = losses.square_hinge
    weighting: Weighting = weightings.identity
    reg: Any = 0.0  # λ: a number, or a Reg
    spread: Any = 0.0  # σ − 1 (docs/derivations.md#spread), a number or [m]; the paper has 0


def make(
    loss: Any = "square_hinge", weighting: Any = "identity", *, reg: Any = 0.0, spread: Any = 0.0
) -> Objective:
    """An Objective from names, objects and numbers, which are checked.

    Args:
        loss: a `Loss`, the name of one, or your own scalar function of the margin.
        weighting: a `Weighting`, the name of one, or your own scalar function of the rank loss.
        reg: λ ≥ 0, or a `Reg`.
        spread: σ − 1 ≥ 0, the extra weight on the variance of the negatives' scores.
    """
    loss, weighting = Loss.member(loss), Weighting.member(weighting)
    for name, number in (("reg", reg), ("spread", spread)):
        for part in jax.tree.leaves(number):
            if not isinstance(part, Tracer) and not (np.asarray(part) >= 0).all():
                raise ValueError(f"{name} = {np.min(part)} must be ≥ 0")
    check_pair(loss, weighting)
    return Objective(loss, weighting, reg, spread)


def check_pair(loss: Loss, weighting: Weighting) -> None:
    """Raise ValueError for tanh over a loss that goes below 0, where tanh's slope grows with the loss (E4).

    The same for the log, and for the pure log over a loss that may be 0. The paper's losses are ≥ 0 and are not
    evaluated: a model may be made before JAX knows its devices.
    """
    if isinstance(weighting, weightings.Log) and not isinstance(loss, losses.Exponential):
        lowest = loss(jnp.linspace(-50.0, 50.0, 101)).min()
        if not isinstance(lowest, Tracer) and not _fits_log(weighting, float(lowest)):
            raise ValueError(
                f"log needs a loss that is above 0, but {loss.name} reaches {float(lowest):.3g}: "
                "use Log(c=1.0), which is log(1 + x), or the loss exponential"
            )
    if not isinstance(weighting, weightings.Tanh) or type(loss) in losses.PAPER_LOSSES.values():
        return
    probe = loss(jnp.linspace(-50.0, 50.0, 101))
    if not isinstance(probe, Tracer) and float(probe.min()) < 0:
        raise ValueError(
            f"tanh needs a loss that is never negative, but {loss.name} reaches "
            f"{float(probe.min()):.3g}: shift it up, as losses.Sigmoid does (theory/README.md, E4)"
        )


def is_softmax(objective: Objective) -> bool:
    """Whether L is the exponential and φ the log: the softmax loss, which is evaluated through a log-sum-exp."""
    return isinstance(objective.loss, losses.Exponential) and isinstance(
        objective.weighting, weightings.Log
    )


def softmax_losses(
    objective: Objective,
    s_pos: Float[Array, "P"],
    s_neg: Float[Array, "Q"],
    g_neg: Float[Array, "Q"] | Float[Array, "P Q"],
) -> Float[Array, "P"]:
    """φ(Σ_q g′ exp(−β(s_p − s_q))) = φ(exp(log Σ_q g′ exp(βs_q) − βs_p)) of the softmax loss, without overflow.

    One log-sum-exp serves all positives, unless g′ differs by pair (docs/derivations.md#softmax).
    """
    loss, weighting = objective.loss, objective.weighting
    assert isinstance(loss, losses.Exponential) and isinstance(weighting, weightings.Log)
    return weighting.of_log(log_mean_exp(loss.beta * s_neg, g_neg) - loss.beta * s_pos)


def log_mean_exp(x: Float[Array, "Q"], g: Float[Array, "*P Q"]) -> Float[Array, "*P"]:
    """log Σ_q g_q exp(x_q) for g ≥ 0; where every g is 0, a very negative constant with gradient 0."""
    x = jnp.broadcast_to(x, g.shape)
    top = jax.lax.stop_gradient(jnp.where(g > 0, x, -jnp.inf).max(-1))
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    sums = (g * jnp.exp(jnp.where(g > 0, x - top[..., None], 0.0))).sum(-1)
    return jnp.log(jnp.maximum(sums, jnp.finfo(x.dtype).tiny)) + top


def check_bounded(objective: Objective) -> None:
    """Raise ValueError for the softmax loss with the pure log unless the rows have unit length.

    Once a user's positives are above all negatives, log Σ_q g′ exp(βs_q) − βs_p falls linearly in the scores, and they
    are products of U and V: no λ below β or so holds them.
    """
    pure = isinstance(objective.weighting, weightings.Log) and objective.weighting.c is None
    if pure and is_softmax(objective) and not isinstance(objective.reg, Sphere):
        raise ValueError(
            "softmax with the pure log is not bounded below: use penalty=UnitRows() or weighting=Log(c=1000.0)"
        )


def _fits_log(weighting: weightings.Log, lowest: float) -> bool:
    return lowest > 0 if weighting.c is None else lowest >= 0


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
    """Σ_p g(y_p) φ(Σ_q g′(y_q) L(γ_pq)) for one user, plus ½ (σ − 1) Var_g′(s) (docs/derivations.md#spread).

    With `pairs`, each L(γ_pq), and each (s_q − s_q′)² in Var = ½ Σ_qq′ g′_q g′_q′ (s_q − s_q′)², has a
    weight of its own.

    Args:
        objective: L and φ.
        u: the user's factors u_i.
        V_pos: the factors v_p of the P positives.
        V_neg: the factors v_q of the Q negatives.
        g_pos: g of the positives.
        g_neg: g′ of the negatives.
        spread: σ − 1 of this user.
        spread_scale: corrects the variance of sampled negatives, see `Sample.spread_scale`.
        pairs: weights of single pairs; None if every pair counts alike.
    """
    s_neg = V_neg @ u
    margin = (V_pos @ u)[:, None] - s_neg[None, :]  # γ [P, Q]
    if pairs is None:
        rank_loss = objective.loss(margin) @ g_neg  # [P]
        variance = g_neg @ (s_neg - g_neg @ s_neg) ** 2
    else:
        rank_loss = (pairs.pos_neg * objective.loss(margin)) @ g_neg
        squared_gap = pairs.neg_neg * (s_neg[:, None] - s_neg[None, :]) ** 2
        variance = 0.5 * g_neg @ squared_gap @ g_neg
    if is_softmax(objective):  # then the compiler drops `rank_loss`, which might overflow
        g_pair = g_neg if pairs is None else pairs.pos_neg * g_neg[None, :]
        weighted = softmax_losses(objective, V_pos @ u, s_neg, g_pair)
    else:
        weighted = objective.weighting(rank_loss)
    return g_pos @ weighted + 0.5 * spread * spread_scale * variance


def penalty(objective: Objective, factors: Factors) -> Float[Array, ""]:
    """(λ/2)(‖U‖²/m + ‖V‖²/n), always over all rows, also for a sample (E22)."""
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
    """`risk` from rows that are gathered already, so that its gradient has those rows only."""
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

    For each user, item j is either the one positive that has a weight or one of the negatives; the weights of
    slot 0 say which. So v_j is in 2κ_Y pairs per user. The κ_Y² other pairs are constants inside φ, which the
    compiler drops when φ′ is 1.
    """
    u = factors.U[sample.users]  # [b, k]
    s_pos, s_neg = (
        jnp.einsum("bpk,bk->bp", factors.V[items[:, 1:]], u) for items in (sample.pos, sample.neg)
    )
    spread = jnp.broadcast_to(objective.spread, (factors.U.shape[0],))[sample.users]

    def one(s, s_pos, s_neg, g_pos, g_neg, spread):
        own, others = g_neg[0], g_neg[1:]
        if is_softmax(objective):
            as_positive = g_pos[0] * softmax_losses(objective, s[None], s_neg, others)[0]
            weighted = softmax_losses(objective, s_pos, jnp.append(s, s_neg), g_neg)
            as_negative = (g_pos[1:] * weighted).sum()
        else:
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
    """2 θ′(all negatives) − mean of θ′ on the two halves: tanh's bias falls to O(1/κ²).

    See docs/derivations.md#tanh-bias.
    """
    first, second = (value(objective, factors, half) for half in sampling.halves(sample))
    return 2 * value(objective, factors, sample) - 0.5 * (first + second)
