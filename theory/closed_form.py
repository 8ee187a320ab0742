"""The paper's derivatives ∂θ/∂u_i and ∂θ/∂v_j, as corrected and as printed.

For checking autodiff against the paper (`python -m theory.verify_gradients`) and for reading beside
it; training uses `jax.grad`. Everything here lists all pairs: small data only.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import losses, weightings
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.losses import Loss
from mfauc_jax.objective.sampling import Sample
from mfauc_jax.objective.weightings import Weighting


def square_hinge(loss: losses.SquareHinge, x):
    """max(0, 1 − x)."""
    del loss
    return jnp.maximum(0.0, 1 - x)


def square(loss: losses.Square, x):
    """1 − x."""
    del loss
    return 1 - x


def logistic(loss: losses.Logistic, x):
    """β e^(−βx) / (1 + e^(−βx))."""
    return loss.beta * jnp.exp(-loss.beta * x) / (1 + jnp.exp(-loss.beta * x))


def sigmoid(loss: losses.Sigmoid, x):
    """β e^(−βx) / (1 + e^(−βx))²."""
    return loss.beta * jnp.exp(-loss.beta * x) / (1 + jnp.exp(-loss.beta * x)) ** 2


def exponential(loss: losses.Exponential, x):
    """β e^(−βx); not in the paper."""
    return loss.beta * jnp.exp(-loss.beta * x)


def printed_sigmoid(loss: losses.Sigmoid, x):
    """β σ(βx)², as printed (E3)."""
    return loss.beta / (1 + jnp.exp(-loss.beta * x)) ** 2


def identity(weighting: weightings.Identity, x):
    """1."""
    del weighting
    return jnp.ones_like(x)


def tanh(weighting: weightings.Tanh, x):
    """ρ (1 − tanh²(ρx))."""
    return weighting.rho * (1 - jnp.tanh(weighting.rho * x) ** 2)


def log(weighting: weightings.Log, x):
    """c/(1 + cx), or 1/x for the pure log; not in the paper."""
    return 1 / x if weighting.c is None else weighting.c / (1 + weighting.c * x)


Slopes = dict[type[Loss], Callable[[Any, Any], Any]]
SLOPES: Slopes = {  # h(γ) = −L′(γ)
    losses.SquareHinge: square_hinge,
    losses.Square: square,
    losses.Logistic: logistic,
    losses.Sigmoid: sigmoid,
    losses.Exponential: exponential,
}
PRINTED_SLOPES: Slopes = SLOPES | {losses.Sigmoid: printed_sigmoid}
STEEPNESS: dict[type[Weighting], Callable[[Any, Any], Any]] = {  # φ′(C)
    weightings.Identity: identity,
    weightings.Tanh: tanh,
    weightings.Log: log,
}


class Form(NamedTuple):
    """A way of writing ∂θ: what the paper and its correction differ in."""

    slopes: Slopes = SLOPES
    sign: float = 1.0  # of the data term
    reg_rows: str = "m"  # λ u_i is divided by this many rows


CORRECTED = Form()
HAS_BETA = (losses.Logistic, losses.Sigmoid)


def printed(objective: Objective) -> Form | None:
    """The paper's form for this loss and φ, or None where it gives none."""
    if isinstance(objective.loss, losses.Exponential) or isinstance(
        objective.weighting, weightings.Log
    ):
        return None
    if not isinstance(objective.loss, HAS_BETA):
        return CORRECTED  # Eqs 4–5 and the tanh pair are right as printed
    if isinstance(objective.weighting, weightings.Tanh):
        return None
    return Form(PRINTED_SLOPES, sign=-1.0, reg_rows="n")


def misprints(objective: Objective) -> dict[str, Form]:
    """The corrected form with one misprint put back, by erratum."""
    if not isinstance(objective.loss, HAS_BETA) or printed(objective) is None:
        return {}
    found = {"E1": Form(sign=-1.0), "E2": Form(reg_rows="n")}
    return found | (
        {"E3": Form(PRINTED_SLOPES)} if isinstance(objective.loss, losses.Sigmoid) else {}
    )


def formula_of(part: Any, formulas: dict) -> Callable[[Any, Any], Any]:
    """The formula for a loss or a weighting that has one here; a ValueError for any other."""
    if type(part) not in formulas:
        known = ", ".join(kind.name for kind in formulas)
        raise ValueError(f"there is no closed form for {part.name}: choose from {known}")
    return formulas[type(part)]


def gradients(
    objective: Objective, factors: Factors, sample: Sample, form: Form = CORRECTED
) -> Factors:
    """∂θ/∂u_i and ∂θ/∂v_j as double sums over p ∈ ω_i, q ∈ ω̄_i.

    docs/derivations.md#gradients has it for any loss, and the spread penalty.

    With h = −L′ and f_ip = φ′(Σ_q g′_q L(γ_ipq)):

        ∂u_i = (w_i/m) Σ_p g_p f_p Σ_q g′_q h(γ_pq)(v_q − v_p) + (λ/m) u_i
        ∂v_j = (1/m) Σ_i w_i u_i (I_{j∈ω̄_i} g′_j Σ_p g_p f_p h(γ_pj) − I_{j∈ω_i} g_j f_j Σ_q g′_q h(γ_jq))
               + (λ/n) v_j
    """
    (U, V), (m, n) = factors, (factors.U.shape[0], factors.V.shape[0])
    slope = formula_of(objective.loss, form.slopes)
    steepness = formula_of(objective.weighting, STEEPNESS)
    spread = jnp.broadcast_to(objective.spread, (m,))[sample.users]
    w = sample.user_weight / sample.users.shape[0] * form.sign

    def user(u, pos, neg, g_pos, g_neg, spread):
        s_neg = V[neg] @ u
        margin = (V[pos] @ u)[:, None] - s_neg[None, :]  # γ [P, Q]
        f = steepness(objective.weighting, objective.loss(margin) @ g_neg)
        pair = (g_pos * f)[:, None] * slope(objective.loss, margin) * g_neg[None, :]
        c_neg = pair.sum(0) + spread * g_neg * (s_neg - g_neg @ s_neg)
        return -pair.sum(1), c_neg  # m ∂θ/∂s at the positives and at the negatives

    c_pos, c_neg = jax.vmap(user)(
        U[sample.users], sample.pos, sample.neg, sample.g_pos, sample.g_neg, spread
    )
    c_pos, c_neg = w[:, None] * c_pos, w[:, None] * c_neg
    dU_rows = jnp.einsum("bp,bpk->bk", c_pos, V[sample.pos])
    dU_rows += jnp.einsum("bq,bqk->bk", c_neg, V[sample.neg])
    u = U[sample.users][:, None, :]
    dV = jnp.zeros_like(V).at[sample.pos].add(c_pos[:, :, None] * u)
    dV = dV.at[sample.neg].add(c_neg[:, :, None] * u)
    reg_u = objective.reg / (m if form.reg_rows == "m" else n)
    return Factors(
        jnp.zeros_like(U).at[sample.users].add(dU_rows) + reg_u * U, dV + objective.reg / n * V
    )


def square_short_form(
    factors: Factors, sample: Sample, reg: float | Float[Array, ""], masses: bool = True
) -> Factors:
    """Eqs 6–7: the square loss through v̇ = Σ g v_p, v̈ = Σ g′ v_q, ẇ = Σ g v_p v_pᵀu, ẅ likewise.

    Paper: silent on the masses G = Σ g and G′ = Σ g′ and right only when both are one;
    here: with them (theory/README.md, E5). `masses=False` is the form as printed.
    """
    (U, V), (m, n) = factors, (factors.U.shape[0], factors.V.shape[0])

    def user(u, pos, neg, g, g_neg):
        v1, v2 = g @ V[pos], g_neg @ V[neg]  # v̇, v̈
        w1, w2 = (g * (V[pos] @ u)) @ V[pos], (g_neg * (V[neg] @ u)) @ V[neg]  # ẇ, ẅ
        G, H = (g.sum(), g_neg.sum()) if masses else (1.0, 1.0)
        du = G * v2 - H * v1 + G * w2 + H * w1 - v1 * (v2 @ u) - v2 * (v1 @ u)
        at_neg = g_neg * (G * (1 + V[neg] @ u) - u @ v1)
        at_pos = -g * (H * (1 - V[pos] @ u) + u @ v2)
        return du, at_pos, at_neg

    w = sample.user_weight / sample.users.shape[0]
    du, at_pos, at_neg = jax.vmap(user)(
        U[sample.users], sample.pos, sample.neg, sample.g_pos, sample.g_neg
    )
    dU = (reg / m * U).at[sample.users].add(w[:, None] * du)
    wu = (w[:, None] * U[sample.users])[:, None, :]
    dV = (reg / n * V).at[sample.pos].add(at_pos[:, :, None] * wu)
    return Factors(dU, dV.at[sample.neg].add(at_neg[:, :, None] * wu))
