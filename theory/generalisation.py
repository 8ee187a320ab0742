"""Corollary 3.1, Lemmas 3.2 and 3.3, Theorem 3.8, and coverage where the truth is known.

`Toy` is a world small enough to know everything: few items, known D_i, a finite class of Q.
E_D[Q] means the expectation of the *training-type* average over a fresh sample.
"""

import itertools
from typing import NamedTuple

import jax
import numpy as np

from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds, held_out, spectral
from mfauc_jax.data.interactions import Interactions
from theory import rademacher
from theory.mcdiarmid import coefficients, theorem_3_4

# --- The statements ---------------------------------------------------------------------------


def lemma_3_2(num_pos: np.ndarray, num_items: int, delta: float) -> float:
    """ε₁: sup_Q (E − Ê) ≤ E sup_Q (E − Ê) + ε₁, with probability ≥ 1 − δ. `bounds.mcdiarmid`."""
    return bounds.mcdiarmid(num_pos, num_items, delta)


def corollary_3_1(X: Interactions, lipschitz: float, rho: float, delta: float) -> float:
    """(2 B ρ / m) ‖E − Ē‖₂ + 2 ε₁(δ) as printed. It inherits E38: put E‖G‖₂ for ‖E − Ē‖₂ (E40)."""
    num_pos = spectral.defined_rows(X).num_pos
    deviation = theorem_3_4(num_pos, X.num_items, delta)
    return rademacher.printed_bound(X, lipschitz, rho) + deviation


def corrected_corollary_3_1(
    key, X: Interactions, lipschitz: float, rho: float, delta: float
) -> float:
    """(2 B ρ / m) E‖G‖₂ + 2 ε₁(δ)."""
    deviation = theorem_3_4(spectral.defined_rows(X).num_pos, X.num_items, delta)
    return rademacher.corrected_bound(key, X, lipschitz, rho) + deviation


def theorem_3_8(
    empirical: float, complexity: float, num_pos: np.ndarray, num_items: int, delta: float
) -> float:
    """E_D[Q] ≤ Ê_S[Q] + R(Q) + ε₁(δ), for all Q simultaneously."""
    return empirical + complexity + bounds.mcdiarmid(num_pos, num_items, delta)


def union_form(deviation_at, delta: float) -> float:
    """ε₁(δ/2) + 2 ε₁(δ/2): Theorem 3.8 with R replaced by R̂ through Theorem 3.4, δ/2 each (E41)."""
    return 3 * deviation_at(delta / 2)


def single_form(deviation_at, delta: float) -> float:
    """3 ε₁(δ): one McDiarmid on sup(E − Ê) − R̂, whose differences are 3 c_a (E41)."""
    return 3 * deviation_at(delta)


# --- A world where everything is known --------------------------------------------------------


class Toy(NamedTuple):
    """m users with known D_i over n items, n_i draws each, and K functions Q into [0, 1]."""

    D: np.ndarray  # [m, n]
    size: int  # n_i
    Q: np.ndarray  # [K, m, n, n]


def toy(seed: int = 0, m: int = 6, n: int = 6, size: int = 3, K: int = 12) -> Toy:
    """Random D_i, and Q = σ(−γ) for random scores of growing scale, each with its mirror 1 − Q."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((K // 2, m, n)) * np.linspace(0.5, 4, K // 2)[:, None, None]
    half = 1 / (1 + np.exp(scores[..., :, None] - scores[..., None, :]))
    return Toy(rng.dirichlet(np.ones(n), m), size, np.concatenate([half, 1 - half]))


def sample_averages(world: Toy, draws: np.ndarray) -> np.ndarray:
    """T_i(Q) of samples draws[d, i, :], multiset semantics: [d, K, m]."""
    n = world.D.shape[1]
    counts = (draws[..., None] == np.arange(n)).sum(2)  # [d, m, n]
    unseen = (counts == 0) / (counts == 0).sum(2, keepdims=True)
    return np.einsum("dmp,kmpq,dmq->dkm", counts / world.size, world.Q, unseen)


def expected_averages(world: Toy) -> np.ndarray:
    """E_D[T_i(Q)], exactly, by listing every sample of every user: [K, m]."""
    n = world.D.shape[1]
    total = np.zeros(world.Q.shape[:2])
    for sample in itertools.product(range(n), repeat=world.size):
        chance = world.D[:, list(sample)].prod(1)  # [m]
        total += chance * (world.Q * coefficients(sample, n)).sum((2, 3))
    return total


class Simulation(NamedTuple):
    """What happened over many samples S (and ghosts S̃)."""

    deviation: np.ndarray  # sup_Q (E[Q] − Ê_S[Q])
    swap: np.ndarray  # sup_Q (Ê_S̃[Q] − Ê_S[Q])
    rhat: np.ndarray  # R̂(Q), all 2^m signs listed


def simulate(key, world: Toy, draws: int = 4000) -> Simulation:
    """Draw samples from the known distribution and evaluate every term of Theorem 3.8."""
    T, T_ghost = _two_samples(key, world, draws)
    truth = expected_averages(world).mean(1)
    m = len(world.D)
    signs = rademacher.sign_vectors(m)
    rhat = 2 / m * np.mean([(T @ nu).max(1) for nu in signs], axis=0)
    deviation = (truth[None, :] - T.mean(2)).max(1)
    return Simulation(deviation, (T_ghost - T).mean(2).max(1), rhat)


def _two_samples(key, world: Toy, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """T_i(Q) of `draws` samples S and of as many ghosts S̃, [draws, K, m] each."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    n = world.D.shape[1]
    first, ghost = (
        np.stack([rng.choice(n, (draws, world.size), p=D) for D in world.D], axis=1)
        for _ in range(2)
    )
    return sample_averages(world, first), sample_averages(world, ghost)


# --- Worlds in which the bounds are nearly attained -------------------------------------------


def every_function(m: int, n: int) -> Toy:
    """One draw per user from n equally likely items; Q(i, p, q) is any 0/1 function of p.

    With another function for each user (`listed`, or `simulate_free`) R̂ = 1, and the class fits any
    sample: sup (E − Ê) = E sup (Ẽ − Ê) = 1 − 1/n. Lemma 3.3 cannot have a smaller constant than 2 in R̂.
    """
    subsets = np.array(list(itertools.product([0.0, 1.0], repeat=n)))
    Q = np.broadcast_to(subsets[:, None, :, None], (len(subsets), m, n, n))
    return Toy(np.full((m, n), 1 / n), 1, Q)


def one_coin(m: int, n: int, size: int) -> Toy:
    """One function, 1 on half of the items: Ê_S[Q] is a mean of m · size fair coins, and R = 0."""
    Q = np.broadcast_to((np.arange(n) < n // 2)[None, None, :, None].astype(float), (1, m, n, n))
    return Toy(np.full((m, n), 1 / n), size, Q)


def listed(world: Toy) -> Toy:
    """The class with any one of the K functions for each user: K^m functions."""
    K, m = world.Q.shape[:2]
    choices = np.array(list(itertools.product(range(K), repeat=m)))
    return world._replace(Q=world.Q[choices, np.arange(m)])


def simulate_free(key, world: Toy, draws: int = 4000) -> Simulation:
    """`simulate(key, listed(world))` user by user: a supremum of sums over users is the sum of suprema.

    2 E_ν sup ν_i T_i = sup T_i + sup (−T_i), whatever the number of users.
    """
    T, T_ghost = _two_samples(key, world, draws)
    deviation = (expected_averages(world)[None] - T).max(1).mean(1)
    rhat = (T.max(1) - T.min(1)).mean(1)
    return Simulation(deviation, (T_ghost - T).max(1).mean(1), rhat)


def coin_rhats(key, m: int, size: int, chance: float, draws: int = 20_000) -> np.ndarray:
    """R̂ of {Q_i, 1 − Q_i}, each for itself, where Q_i is 1 on items of D_i-mass `chance`: the mean of |2 T_i − 1|.

    One draw moves R̂ by 2/(m · size), which is Theorem 3.4's 2 c_a for n much larger than `size`.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    T = rng.binomial(size, chance, (draws, m)) / size
    return np.abs(2 * T - 1).mean(1)


# --- Scope (E45) ------------------------------------------------------------------------------


def popularity_change(tau: float = 2.0, m: int = 40, n: int = 8) -> float:
    """m times the change of Ê[Q] when one draw is replaced and g ∝ p̂^τ, p̂ taken from the sample.

    Half of the users own items 0 and 1, the others 2 and 3; Q is 1 on item 0 only. When one user
    exchanges item 0 for item 4, the weight of item 0 falls for everyone who owns it.
    """
    before = np.zeros((m, n))
    before[: m // 2, :2] = before[m // 2 :, 2:4] = 1
    after = before.copy()
    after[0, 0], after[0, 4] = 0, 1

    def total(Z):
        weight = Z * Z.mean(0) ** tau
        return (weight[:, 0] / weight.sum(1)).sum()

    return float(abs(total(before) - total(after)))


def tanh_is_not_linear(rho: float = 2.0) -> tuple[float, float]:
    """(tanh of a mean, mean of tanhs) of losses 0 and 1: not an average of some Q(i, p, q)."""
    return float(np.tanh(rho * 0.5)), float(np.tanh(rho * np.array([0.0, 1.0])).mean())


# --- Coverage of the held-out certificates ----------------------------------------------------


class Coverage(NamedTuple):
    """Of one inequality, over repeated held-out samples from a known distribution."""

    failures: float  # share of certificates above the true AUC
    width: float  # mean half-width


class World(NamedTuple):
    """A fitted model and the distribution of each user's next new item."""

    F: np.ndarray  # F_i(y): rank of y among the user's unseen items, [m, n]; 0 where seen
    D: np.ndarray  # D_i(y), 0 where seen, [m, n]

    @property
    def auc(self) -> float:
        """(1/m) Σ_i E_{y ∼ D_i} F_i(y): what `held_out_unseen` certifies."""
        return float((self.D * self.F).sum(1).mean())


def world(factors: Factors, train: Interactions, taste: np.ndarray) -> World:
    """The truth when user i's next new item has probability ∝ taste_ij on the unseen items."""
    seen = train.to_scipy().toarray() > 0
    everything_else = Interactions.from_scipy((~seen).astype(float))
    ranks, users = held_out.held_out_ranks(factors, train, everything_else)
    F = np.zeros(seen.shape)
    F[users, np.asarray(everything_else.indices)] = ranks
    D = np.where(seen, 0.0, taste)
    return World(F, D / D.sum(1, keepdims=True))


def draw_held_out(rng: np.random.Generator, truth: World, sizes: np.ndarray):
    """t_i independent draws from D_i, with replacement: (F of each, its user)."""
    users = np.repeat(np.arange(len(sizes)), sizes)
    cumulated = truth.D.cumsum(1)
    uniform = rng.random(len(users)) * cumulated[users, -1]
    items = (cumulated[users] <= uniform[:, None]).sum(1)
    return truth.F[users, items], users


def coverage(
    key, truth: World, sizes: np.ndarray, delta: float, draws: int = 200
) -> dict[str, Coverage]:
    """How often each inequality's certificate exceeds the true AUC, and its mean half-width."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    found: dict[str, list] = {}
    for _ in range(draws):
        ranks, users = draw_held_out(rng, truth, sizes)
        for method in held_out.INEQUALITIES:
            c = held_out.from_ranks(ranks, users, delta, method=method)
            found.setdefault(method, []).append((c.bound > truth.auc, c.terms["half_width"]))
    return {name: Coverage(*np.mean(pairs, axis=0)) for name, pairs in found.items()}
