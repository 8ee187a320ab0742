"""Constants of losses and deviation terms, which turn a sample average into a bound on its mean."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mfauc_jax._core import programs
from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import spectral
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.data.ragged import buckets
from mfauc_jax.objective import exact, losses
from mfauc_jax.objective.losses import Loss


class Constants(NamedTuple):
    """The constants of a loss L on [−Γ, Γ] that a bound needs."""

    lipschitz: float  # B, the largest slope |L′|
    width: float  # w = max L − min L
    at_zero: float  # L(0), the risk of the all-zero model


def _square(loss: Loss, gamma: float) -> Constants:
    del loss
    width = 2 * gamma if gamma <= 1 else (1 + gamma) ** 2 / 2
    return Constants(1 + gamma, width, 0.5)


def _sigmoid(loss: losses.Sigmoid, gamma: float) -> Constants:
    return Constants(loss.beta / 4, float(np.tanh(loss.beta * gamma / 2)), 0.5)


def _logistic(loss: losses.Logistic, gamma: float) -> Constants:
    steepest = loss.beta / (1 + np.exp(-loss.beta * gamma))
    return Constants(float(steepest), loss.beta * gamma, float(np.log(2)))


CONSTANTS: dict[type[Loss], Callable[[Any, float], Constants]] = {
    losses.SquareHinge: _square,  # the two agree for γ ≤ 1, where the largest slope and the range are attained
    losses.Square: _square,
    losses.Sigmoid: _sigmoid,
    losses.Logistic: _logistic,
}


def loss_with_constants(loss: Loss | str) -> Loss:
    """A loss, given by name or as itself; a ValueError if its constants are not known."""
    member = Loss.member(loss)
    if type(member) not in CONSTANTS:
        known = ", ".join(kind.name for kind in CONSTANTS)
        raise ValueError(
            f"certificate: loss = {loss!r} has no known Lipschitz constant and width; choose from {known}, "
            "or enter those of your loss in bounds.CONSTANTS"
        )
    return member


def constants(loss: Loss | str, gamma: float) -> Constants:
    """B, w and L(0) of the loss on |γ| ≤ Γ (docs/derivations.md#generalisation; E42–E44)."""
    loss = loss_with_constants(loss)
    return CONSTANTS[type(loss)](loss, gamma)


def mcdiarmid(num_pos: np.ndarray, num_items: int, delta: float) -> float:
    """ε₁ = √((ln(1/δ)/2) (1/m²) Σ_i (n−1)² / (N_i (n−N_i)²)): the deviation of Lemma 3.2 for a loss of range one."""
    num_pos = np.asarray(num_pos, np.float64)
    squares = ((num_items - 1) / (num_items - num_pos)) ** 2 / num_pos
    return float(np.sqrt(np.log(1 / delta) / 2 * squares.sum()) / len(num_pos))


def hoeffding(weights: np.ndarray, delta: float) -> float:
    """√((ln(1/δ)/2) Σ_a w_a²): with probability ≥ 1 − δ, Σ w_a X_a with X_a ∈ [0, 1] is no further below its mean."""
    return float(np.sqrt(np.log(1 / delta) / 2 * np.square(weights).sum()))


def bernstein(values: np.ndarray, weights: np.ndarray, delta: float, width: float = 1.0) -> float:
    """Maurer and Pontil's (2009, Thm 11) empirical Bernstein width for E Σ_a w_a X_a − Σ_a w_a X_a.

    For independent, not necessarily identical X_a ∈ [0, R] put Z_a = X_a w_a / (R max w) ∈ [0, 1]:

        N R max(w) [ √(2 V_N(Z) ln(2/δ) / N) + 7 ln(2/δ) / (3 (N − 1)) ]

    V_N is the sample variance. Their proof needs only (1/N) Σ Var(Z_a) ≤ E V_N, which holds for any means: different
    D_i and weights may widen the bound, but it stays valid.
    """
    size, top = len(values), width * np.max(weights)
    if size < 2:
        return float("inf")
    Z = np.asarray(values, np.float64) * weights / top
    log = np.log(2 / delta)
    root = np.sqrt(2 * Z.var(ddof=1) * log / size)
    return float(size * top * (root + 7 * log / (3 * (size - 1))))


def kl(p: float, q: float) -> float:
    """kl(p ‖ q) = p ln(p/q) + (1 − p) ln((1 − p)/(1 − q)), of two coins."""
    terms = ((p, q), (1 - p, 1 - q))
    return float(sum(a * (np.log(a) - np.log(b)) for a, b in terms if a > 0 and b > 0)) + (
        float("inf") if any(a > 0 >= b for a, b in terms) else 0.0
    )


def kl_inverse(p: float, c: float) -> float:
    """The largest q ∈ [p, 1] with kl(p ‖ q) ≤ c, rounded up: kl(p ‖ ·) increases there, so by bisection."""
    low, high = p, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if kl(p, middle) <= c else (low, middle)
    return high


def peel(value: float, unit: float) -> tuple[int, float]:
    """The smallest l ≥ 0 with value ≤ unit 2^(l/4), and that ceiling.

    If the bound for ceiling l is taken at level δ / ((l + 1)(l + 2)), all of them hold together at level δ. So the
    norm of a fitted model, which depends on the data, may be used.
    """
    level = max(0, int(np.ceil(4 * np.log2(max(value, 1e-300) / unit))) - 1)
    while unit * 2 ** (level / 4) < value:
        level += 1
    return level, unit * 2 ** (level / 4)


def user_risks(
    loss: Callable, factors: Factors, X: Interactions, reference: str = "negatives"
) -> Float[Array, " m"]:
    """T_i = the mean of L(γ_ipq) over the positives p and the reference items q of each user with 0 < N_i < n.

    `reference` is "negatives" for the irrelevant items, which gives the data term of Eq. 3 with uniform g and g′, or
    "others" for all items but p, as in `rademacher_draws`.
    """
    users = spectral.defined_rows(X).users
    U, V = (jnp.asarray(F) for F in factors)
    risks = jnp.zeros(X.num_users, V.dtype)
    for b in buckets(X, users):
        rows = U[b.users], b.items, b.real.astype(V.dtype)
        risks = risks.at[b.users].set(_risks(loss, V, rows, reference))
    return risks[users]


@partial(programs.jit, static_argnames="reference")
def _risks(loss, V, rows, reference):
    n = V.shape[0]

    def one(row):
        u, items, real = row
        s, q = V @ u, jnp.ones(n, V.dtype)
        if reference == "negatives":
            q = q.at[items].set(0.0)
            risks = exact.pair_rank_losses(loss, s[items], s, q / q.sum())
        else:  # all items, without the pair of p with itself
            risks = exact.pair_rank_losses(loss, s[items], s, q / (n - 1)) - loss(0.0) / (n - 1)
        return real @ risks / real.sum()

    return jax.lax.map(one, rows)
