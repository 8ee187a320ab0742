"""Definition 3.1, Theorems 3.1 and 3.2: does minimising R_L minimise R, the AUC risk?

Finitely many items y with probabilities w and η(y) = P[r = +1 | y]:

    R_L(s) = Σ_{y,y'} w_y w_y' η_y (1 − η_y') L(s_y − s_y')        R(s): L = 1(x < 0) + ½ 1(x = 0)

(the paper's display counts each pair in both orders, hence twice this; it writes ∝).
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.optimize

from mfauc_jax.objective import equation, losses, weightings
from mfauc_jax.objective.equation import Objective


def pair_weights(eta: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A_yy' = w_y η_y w_y' (1 − η_y'): the mass of "y relevant, y' not", y ≠ y'."""
    A = np.outer(weights * eta, weights * (1 - eta))
    np.fill_diagonal(A, 0.0)
    return A


def surrogate_risk(loss: Callable, s: np.ndarray, eta: np.ndarray, weights: np.ndarray) -> float:
    """R_L(s) without its constant diagonal."""
    margins = jnp.asarray(s)[:, None] - jnp.asarray(s)[None, :]
    return float((pair_weights(eta, weights) * loss(margins)).sum())


def auc_loss(x: np.ndarray) -> np.ndarray:
    """ℓ' = 1(x < 0) + ½ 1(x = 0)."""
    return np.where(x < 0, 1.0, np.where(x == 0, 0.5, 0.0))


def auc_risk(s: np.ndarray, eta: np.ndarray, weights: np.ndarray) -> float:
    """R(s), unnormalised like R_L."""
    return float((pair_weights(eta, weights) * auc_loss(s[:, None] - s[None, :])).sum())


def bayes_risk(eta: np.ndarray, weights: np.ndarray) -> float:
    """R(s*) = Σ_{y<y'} min(A_yy', A_y'y): any s ordered like η attains it."""
    A = pair_weights(eta, weights)
    return float(np.triu(np.minimum(A, A.T)).sum())


# --- Theorem 3.1 and which losses it covers ---------------------------------------------------


class Conditions(NamedTuple):
    """The hypotheses of Theorem 3.1, evaluated on a grid by automatic differentiation."""

    convex: bool
    non_increasing: bool
    slope_at_zero: float

    @property
    def sufficient(self) -> bool:
        """Convex, non-increasing, L′(0) < 0."""
        return self.convex and self.non_increasing and self.slope_at_zero < 0


def conditions(loss: Callable, half_width: float = 8.0) -> Conditions:
    """Evaluate them for a differentiable L on [−half_width, half_width]."""
    x = jnp.linspace(-half_width, half_width, 3201)
    slope = jax.vmap(jax.grad(loss))(x)
    convex = bool((jnp.diff(slope) >= -1e-12).all())
    return Conditions(convex, bool((slope <= 1e-12).all()), float(jax.grad(loss)(0.0)))


COVERED_BY = {  # E27: Theorem 3.1 covers two of the four
    "square_hinge": "Thm 3.1",
    "logistic": "Thm 3.1",
    "square": "the Möbius minimiser (E28)",
    "sigmoid": "the regret bound R − R* ≤ 2 (R_L − R_L*) (E29)",
}


def printed_logistic(x: float, beta: float) -> float:
    """ln(1/(1+e^(−βx))), as Theorem 3.2 prints the logistic loss. The sign is wrong (E25)."""
    return float(np.log(1 / (1 + np.exp(-beta * x))))


def printed_logistic_slope(x: float, beta: float) -> float:
    """−(−β e^(−βx))/(1+e^(−βx)), printed as "< 0". It is positive (E26)."""
    return float(beta * np.exp(-beta * x) / (1 + np.exp(-beta * x)))


def printed_logistic_curvature(x: float, beta: float) -> float:
    """The printed second derivative, which is right."""
    ratio = np.exp(-beta * x) / (1 + np.exp(-beta * x))
    return float(beta**2 * ratio * (1 - ratio))


# --- Minimisers -------------------------------------------------------------------------------


@jax.jit
def _risk_and_slope(loss: Callable, free: jax.Array, A: jax.Array):
    def risk(free):
        s = jnp.concatenate([jnp.zeros(1), free])
        return (A * loss(s[:, None] - s[None, :])).sum()

    return jax.value_and_grad(risk)(free)


def minimiser(loss: Callable, eta: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A minimiser of R_L by BFGS with exact gradients, s_1 = 0 fixed; `loss` is a pytree, such as a Loss."""
    return _minimise(loss, pair_weights(eta, weights), -eta)  # from the wrong order


def _minimise(loss: Callable, A: Any, start: np.ndarray) -> np.ndarray:
    shares = jnp.asarray(A / A.sum())
    answer = scipy.optimize.minimize(
        lambda x: tuple(np.asarray(a) for a in _risk_and_slope(loss, x, shares)),
        start[1:] - start[0],
        jac=True,
        method="BFGS",
        options={"gtol": 1e-10, "maxiter": 2000},
    )
    return np.concatenate([[0.0], answer.x])


def users_minimiser(
    loss: Callable, eta: np.ndarray, weights: np.ndarray, users: np.ndarray
) -> np.ndarray:
    """s [m, n] that minimises Σ_i P(w_i) R_L(s(w_i, ·)) over all scores of all users at once.

    Args:
        loss: L.
        eta: P[r = +1 | w_i, y_j], [m, n].
        weights: P(y_j | w_i), [m, n].
        users: P(w_i), [m].
    """
    rows = zip(users, eta, weights, strict=True)
    A = scipy.linalg.block_diag(*(share * pair_weights(e, w) for share, e, w in rows))
    return _minimise(loss, A, -eta.ravel()).reshape(eta.shape)


def shared_minimiser(
    loss: Callable, eta: np.ndarray, weights: np.ndarray, users: np.ndarray
) -> np.ndarray:
    """s [n], the same for all users, that minimises the same risk: a rank-one model without users."""
    rows = zip(users, eta, weights, strict=True)
    A = np.stack([share * pair_weights(e, w) for share, e, w in rows]).sum(0)
    return _minimise(loss, A, -eta.mean(0))


def square_minimiser(eta: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The exact minimiser of R_square: a weighted graph Laplacian system, s_1 = 0."""
    A = pair_weights(eta, weights)
    both = A + A.T
    laplacian = np.diag(both.sum(1)) - both
    s = np.zeros(len(eta))
    s[1:] = np.linalg.solve(laplacian[1:, 1:], (A.sum(1) - A.sum(0))[1:])
    return s


def mobius(s: np.ndarray, eta: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """s = [(1 + A − B) η + B − η̄] / [(1 − 2η̄) η + η̄]: the form of the square's minimiser (E28).

    A = E[s (1−η)], B = E[s η], η̄ = E η. Increasing in η: the slope's numerator is
    η̄ (1 − η̄)(2 − Δ) with Δ = E[s | +] − E[s | −] ∈ [0, 1] at the optimum.
    """
    A, B, mean = weights @ (s * (1 - eta)), weights @ (s * eta), weights @ eta
    return ((1 + A - B) * eta + B - mean) / ((1 - 2 * mean) * eta + mean)


def gap(s: np.ndarray, eta: np.ndarray, weights: np.ndarray) -> float:
    """Δ = E[s | +] − E[s | −]."""
    mean = weights @ eta
    return float(weights @ (s * eta) / mean - weights @ (s * (1 - eta)) / (1 - mean))


def hinge_minimum(eta: np.ndarray, weights: np.ndarray, at_least: float | None = None):
    """min_s R_hinge(s), L = max(0, 1 − x), by linear programming; optionally s_2 − s_1 ≥ at_least.

    Returns (value, s). The hinge is convex and non-increasing but not differentiable, and it
    ties items with different η: Theorem 3.1 cannot drop "differentiable".
    """
    n, A = len(eta), pair_weights(eta, weights)
    pairs = [(i, j) for i, j in itertools.permutations(range(n), 2)]
    cost = np.concatenate([np.zeros(n), [A[p] for p in pairs]])
    rows = np.zeros((len(pairs), n + len(pairs)))  # 1 − (s_i − s_j) ≤ slack_ij
    for r, (i, j) in enumerate(pairs):
        rows[r, i], rows[r, j], rows[r, n + r] = -1, 1, -1
    bound = -np.ones(len(pairs))
    if at_least is not None:
        extra = np.zeros((1, rows.shape[1]))
        extra[0, 0], extra[0, 1] = 1, -1
        rows, bound = np.vstack([rows, extra]), np.append(bound, -at_least)
    limits = [(0, 0)] + [(None, None)] * (n - 1) + [(0, None)] * len(pairs)
    answer = scipy.optimize.linprog(cost, rows, bound, bounds=limits)
    return float(answer.fun), answer.x[:n]


def misordered(s: np.ndarray, eta: np.ndarray, tol: float = 1e-6) -> int:
    """Pairs with η_i > η_j but not s_i > s_j + tol."""
    return int(((eta[:, None] > eta[None, :]) & (s[:, None] - s[None, :] <= tol)).sum())


# --- The sigmoid, and tanh --------------------------------------------------------------------


def sigmoid_regrets(
    s: np.ndarray, eta: np.ndarray, weights: np.ndarray, beta: float = 1.0
) -> tuple[float, float]:
    """(R − R*, R_L − R_L*) for the sigmoid loss; the first is at most twice the second (E29).

    A pair's excess in R_L is |η − η'| (1 − σ(correctly signed gap)), and 1 − σ ≥ ½ whenever the
    pair is misordered or tied. inf R_L = R*-like, approached by s = cη, c → ∞, never attained.
    """
    A = pair_weights(eta, weights)
    excess = surrogate_risk(losses.Sigmoid(beta=beta), s, eta, weights)
    tied = 0.5 * A[np.equal.outer(eta, eta)].sum()
    best = np.minimum(A, A.T)[~np.equal.outer(eta, eta)].sum() / 2 + tied
    return auc_risk(s, eta, weights) - bayes_risk(eta, weights), excess - float(best)


def sigmoid_sequence(
    eta: np.ndarray, weights: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(R_L − R_L*, R − R*) along s⟨t⟩ = t² (η + noise/t), t = 1, 2, 4, …: Definition 3.1 for a minimum not attained."""
    along = [sigmoid_regrets(t**2 * (eta + noise / t), eta, weights) for t in 2.0 ** np.arange(12)]
    auc, surrogate = np.array(along).T
    return surrogate, auc


def sigmoid_limit(eta: np.ndarray, printed: bool) -> float:
    """The limit of the paper's R'_L = −Σ_{i<j} […]; the printed one forgets ties of η (E29)."""
    A = pair_weights(eta, np.ones(len(eta)))
    ordered = A[np.greater.outer(eta, eta)].sum()
    tied = np.triu(np.where(np.equal.outer(eta, eta), A, 0.0)).sum()
    return -float(ordered + (0.0 if printed else tied))


def tanh_risk(
    loss: Callable, rho: float, s: jax.Array, eta: np.ndarray, weights: np.ndarray
) -> jax.Array:
    """Eq. 3's population form: Σ_y g_y tanh(ρ Σ_y' g'_y' L(s_y − s_y')), g ∝ wη, g' ∝ w(1 − η)."""
    g, g_neg = weights * eta, weights * (1 - eta)
    rank_loss = loss(s[..., :, None] - s[..., None, :]) @ jnp.asarray(g_neg / g_neg.sum())
    return jnp.tanh(rho * rank_loss) @ jnp.asarray(g / g.sum())


def tanh_grid_minimiser(
    loss: Callable, rho: float, eta: np.ndarray, weights: np.ndarray, step: float = 0.03
) -> tuple[float, float, np.ndarray]:
    """(minimum, best value among correct orders, minimiser) on a grid for 3 items, s_1 = 0."""
    axis = np.arange(-3, 3 + step / 2, step)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    s = np.concatenate([np.zeros((len(grid), 1)), grid], axis=1)
    values = np.asarray(jax.jit(lambda s: tanh_risk(loss, rho, s, eta, weights))(jnp.asarray(s)))
    order = np.argsort(eta)
    correct = (np.diff(s[:, order], axis=1) > 0).all(1)
    return float(values.min()), float(values[correct].min()), s[values.argmin()]


# --- The softmax loss, which the paper has not (docs/derivations.md#softmax) --------------------


def softmax_minimiser(eta: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """argmin_s log Σ_y g'_y exp(βs_y) − β Σ_y g_y s_y = log(η/(1 − η))/β, up to a constant.

    The gradient is zero where g' exp(βs) ∝ g, and g/g' ∝ η/(1 − η): increasing in η, whatever w.
    """
    return np.log(eta / (1 - eta)) / beta


def softmax_descent(
    eta: np.ndarray, weights: np.ndarray, beta: float = 1.0, c: float | None = None
) -> np.ndarray:
    """The minimiser of Σ_y g_y φ(Σ_y' g'_y' exp(−β(s_y − s_y'))), φ = log or log(1 + cx), by BFGS."""
    objective = Objective(losses.Exponential(beta=beta), weightings.Log(c=c))
    g, g_neg = (jnp.asarray(part / part.sum()) for part in (weights * eta, weights * (1 - eta)))

    def risk(s):
        return g @ equation.softmax_losses(objective, s, s, g_neg)

    return _descend(risk, len(eta))


def softmax_slopes(s: np.ndarray, eta: np.ndarray, weights: np.ndarray, beta: float = 1.0) -> float:
    """The largest Σ |∂/∂s| of one list: positives and negatives are other items, one positive at a time."""
    objective = Objective(losses.Exponential(beta=beta), weightings.Log())
    g_neg = weights * (1 - eta)

    def summand(s_pos, s_neg):
        return equation.softmax_losses(objective, s_pos[None], s_neg, jnp.asarray(g_neg))[0]

    slopes = [jax.grad(summand, (0, 1))(jnp.asarray(x), jnp.asarray(s)) for x in s]
    return max(float(abs(own) + abs(others).sum()) for own, others in slopes)


def lists(eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every 0/1 list of items with both a relevant and an irrelevant one, and its probability if η is independent."""
    x = np.array(list(itertools.product((0.0, 1.0), repeat=len(eta))))[1:-1]
    return x, np.prod(np.where(x > 0, eta, 1 - eta), axis=1)


def softmax_of_lists(
    x: np.ndarray, probability: np.ndarray, left_out: bool = True, user_power: float = 1.0
) -> np.ndarray:
    """The minimiser of E[N^user_power Σ_p (log(Σ_q exp(s_q) + exp(s_p)) − s_p)/N] over random lists x.

    q runs over the irrelevant items; unless the positives are `left_out`, the sum is over all items instead. Without
    the exp(s_p) a list's loss may fall for ever, since the world of finite lists has no item that is both.
    """
    N = x.sum(1)
    share = jnp.asarray(probability * N**user_power / (probability @ N**user_power))
    g = jnp.asarray(x / N[:, None])
    irrelevant, everything = jnp.asarray(1 - x), jnp.ones(x.shape)

    def risk(s):
        if not left_out:
            return share @ (equation.log_mean_exp(s, everything) - g @ s)
        z = equation.log_mean_exp(s, irrelevant)[:, None] - s[None, :]
        return share @ (g * jax.nn.softplus(z)).sum(1)

    return _descend(risk, x.shape[1])


def gains(x: np.ndarray, probability: np.ndarray, normalised: bool = False) -> np.ndarray:
    """E[x_j], or E[x_j / ideal DCG(x)]: sorting by it maximises the expected DCG, or NDCG."""
    ideal = np.cumsum(1 / np.log2(np.arange(x.shape[1]) + 2))[x.sum(1).astype(int) - 1]
    return probability @ (x / ideal[:, None] if normalised else x)


def _descend(risk: Callable, count: int) -> np.ndarray:
    slope = jax.jit(jax.value_and_grad(risk))
    answer = scipy.optimize.minimize(
        lambda s: tuple(np.asarray(a) for a in slope(jnp.asarray(s))),
        np.zeros(count),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-9, "maxiter": 2000},
    )
    return answer.x - answer.x.mean()
