"""How strong the penalties should be, from the shape of the data alone (SPEC 4.5)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from mfauc_jax._core import host
from mfauc_jax._core.host import total
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.equation import Reg
from mfauc_jax.objective.weights import Weights


class Scale(NamedTuple):
    """What `objective.make` takes as `reg` and `spread`."""

    reg: Reg
    spread: Float[Array, "m"]


def rule(
    X: Interactions,
    weights: Weights,
    strength: float = 0.4,
    spread: float = 1.6,
    spread_power: float = 1 / 3,
    sigma_power: float = 1 / 6,
    user_power: float = 0.5,
    item_power: float = 0.75,
    new: tuple[Interactions, Weights] | None = None,
) -> Scale:
    """λ_i, λ_j and σ_i − 1 for any data, as multiples of the gradient's noise at zero.

        σ_i = max(1, 1.6 (M_i/N_i)^⅓)
        l   = .4 mean(σ)^⅙ (1 + √(n/m)) √(mean_i w_i²/N_i)
        l_i = l w_i^½ / mean(w^½)
        l_j = l (m/n) h_j^¾ / mean(h^¾),      h_j = Σ_i w_i (g_ij + σ_i g′_ij)

    in m θ = Σ w_i θ_i + ½ Σ l_i |u_i|² + ½ Σ l_j |v_j|². Beyond the paper; made for the square loss
    with w_i ∝ N_i^¾, on split seeds 0–4 of four data sets (`experiments/study_top.py` has others).
    `strength` multiplies l: larger favours AUC on sparse data, smaller the top.
    With `new`, λ_i and σ_i are those of other users; l, h and the means stay those of X.
    """
    m, n = total(X.num_users), X.num_items
    rows, items, lengths = X.on_host()
    w, b, g = (np.asarray(a, np.float64) for a in (weights.user, weights.b, weights.g))
    mass = np.asarray(weights.neg_mass, np.float64)
    lengths = np.maximum(lengths, 1)
    usable = w > 0

    def sigmas(lengths, w):
        ratio = np.maximum(n - lengths, 1) / np.maximum(lengths, 1)
        return np.where(w > 0, np.maximum(spread * ratio**spread_power, 1.0), 1.0)

    def heavy(of):
        return np.where(of > 0, of, w[usable].min()) ** user_power

    sigma = sigmas(lengths, w)
    mean_noise = total((w**2 / lengths)[usable].sum()) / total(usable.sum())
    mean_sigma = total(sigma[usable].sum()) / total(usable.sum())
    noise = strength * mean_sigma**sigma_power * (1 + np.sqrt(n / m)) * np.sqrt(mean_noise)
    pull = w * sigma / mass  # g′_ij is b_j / mass_i on the complement
    h = np.bincount(items, w[rows] * g - pull[rows] * b[items], minlength=n) + b * pull.sum()
    held = np.maximum(total(h), 1e-12) ** item_power
    asked, w_asked = (X, w) if new is None else (new[0], np.asarray(new[1].user, np.float64))
    by_user = noise * heavy(w_asked) / (total(heavy(w)[usable].sum()) / total(usable.sum()))
    by_item = noise * (m / n) * held / held.mean()
    reg = Reg(host.floats(by_user), host.floats(by_item * n / m))
    return Scale(reg, host.floats(sigmas(asked.on_host()[2], w_asked) - 1))
