"""Theorems 3.3 and 3.4: what one draw can change, by formula and by enumeration.

A sample is, for each user, n_i draws. Two readings (E33): the *set* of items drawn, as the paper
writes, or the *multiset* of draws, for which its constants are right.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.stats

from mfauc_jax.certify import bounds


def average_difference(num_pos: int, num_items: int, num_users: int = 1) -> float:
    """c_a = (n − 1) / (m |ω_a| |ω̄_a|): the most Ê_S[Q] moves when one draw of user a is replaced.

    n − 1 of the |ω_a||ω̄_a| pairs change, each by at most one.
    """
    return (num_items - 1) / (num_users * num_pos * (num_items - num_pos))


def rademacher_difference(num_pos: int, num_items: int, num_users: int = 1) -> float:
    """2 c_a, for the empirical Rademacher average (proof of Thm 3.4)."""
    return 2 * average_difference(num_pos, num_items, num_users)


def coefficients(draws: Sequence[int], num_items: int, semantics: str = "multiset") -> np.ndarray:
    """C with Ê_S[Q] = Σ_pq C_pq Q(p, q) for one user: (share of p) × (uniform over unseen q)."""
    counts = np.bincount(draws, minlength=num_items).astype(float)
    if semantics == "set":
        counts = (counts > 0).astype(float)
    unseen = (counts == 0).astype(float)
    return np.outer(counts / counts.sum(), unseen / unseen.sum())


def largest_change(before: np.ndarray, after: np.ndarray) -> float:
    """sup over Q ∈ [0, 1] of |Σ (C − C′) Q|: all of the positive part, or all of the negative."""
    change = before - after
    return float(max(change[change > 0].sum(), -change[change < 0].sum()))


def replacements(num_items: int, size: int) -> Iterator[tuple[list[int], list[int]]]:
    """Every sample of `size` draws (order aside) with one of them replaced in every way."""
    for sample in itertools.combinations_with_replacement(range(num_items), size):
        for at, new in itertools.product(range(size), range(num_items)):
            yield list(sample), [*sample[:at], new, *sample[at + 1 :]]


def enumerated_difference(num_items: int, size: int, semantics: str = "multiset") -> float:
    """The supremum over all samples and replacements: what McDiarmid's inequality asks for."""
    return max(
        largest_change(
            coefficients(before, num_items, semantics), coefficients(after, num_items, semantics)
        )
        for before, after in replacements(num_items, size)
    )


def new_item_difference(num_items: int, size: int) -> float:
    """The change when distinct draws exchange one item for one not yet drawn."""
    before, after = list(range(size)), [*range(1, size), size]
    return largest_change(coefficients(before, num_items), coefficients(after, num_items))


def repeated_item_difference(num_items: int, size: int, semantics: str = "multiset") -> float:
    """The change when distinct draws exchange one item for one already drawn, size ≥ 2.

    (n − 1) / (|ω| (|ω̄| + 1)) for multisets, max(1/|ω|, 1/(|ω̄| + 1)) for sets (E34's formula):
    both below c_a.
    """
    before, after = list(range(size)), [*range(1, size), size - 1]
    return largest_change(
        coefficients(before, num_items, semantics), coefficients(after, num_items, semantics)
    )


def set_difference(num_items: int, size: int) -> float:
    """One replacement under set semantics: {a, b} drawn size − 1 and 1 times, then only a (E33)."""
    before, after = [0] * (size - 1) + [1], [0] * size
    return largest_change(
        coefficients(before, num_items, "set"), coefficients(after, num_items, "set")
    )


def rademacher_change(num_items: int, size: int) -> float:
    """|R̂(S) − R̂(S′)| for one user and the class {Q, 1 − Q}: it attains 2 c_a (E34).

    R̂ = |2 Ê[Q] − 1|. Q is 0 on the pairs that S loses, 1 on those it gains, and Ê_S[Q] = ½.
    """
    before = coefficients(list(range(size)), num_items)
    after = coefficients([*range(1, size), size], num_items)
    Q = (after > before).astype(float)
    shared = (before > 0) & (after > 0)
    Q[shared] = 0.5 / before[shared].sum()
    if Q.max() > 1:
        raise ValueError(f"n = {num_items}, |ω| = {size}: more than half of the pairs change")
    averages = (float((C * Q).sum()) for C in (before, after))
    first, second = (abs(2 * average - 1) for average in averages)
    return abs(second - first)


def tail(epsilon: float, differences: np.ndarray) -> float:
    """Theorem 3.3: P{f − E f ≥ ε} ≤ exp(−2ε² / Σ c²)."""
    return float(np.exp(-2 * epsilon**2 / np.square(differences).sum()))


def binomial_tail(size: int, p: float, epsilon: float) -> float:
    """P{mean of `size` coins − p ≥ ε}, exactly: f is a mean, c_i = 1/size."""
    return float(scipy.stats.binom.sf(np.ceil(size * (p + epsilon) - 1e-9) - 1, size, p))


def binomial_lower_tail(size: int, p: float, epsilon: float) -> float:
    """P{p − mean of `size` coins ≥ ε}, exactly: Theorem 3.3's second inequality."""
    return float(scipy.stats.binom.cdf(np.floor(size * (p - epsilon) + 1e-9), size, p))


def theorem_3_4(num_pos: np.ndarray, num_items: int, delta: float) -> float:
    """√((2 ln(1/δ)(n−1)²/m²) Σ 1/(|ω_i||ω̄_i|²)) = 2 ε₁: R ≤ R̂ + this, with probability ≥ 1 − δ."""
    num_pos = np.asarray(num_pos, float)
    total = (1 / (num_pos * (num_items - num_pos) ** 2)).sum()
    return float(np.sqrt(2 * np.log(1 / delta) * total) * (num_items - 1) / len(num_pos))


REGIMES = {  # |ω_i| as a function of n, and the rate the paper gives for Theorem 3.4's term
    "|ω| fixed": (lambda n: 10, lambda m, n: m**-0.5),
    "|ω| = n/2": (lambda n: n // 2, lambda m, n: (m * n) ** -0.5),
    "|ω̄| fixed": (lambda n: n - 10, lambda m, n: (n / m) ** 0.5),
    "|ω| = n − 1": (lambda n: n - 1, lambda m, n: (n / m) ** 0.5),  # also Θ(n): E35
}


def regime(name: str, m: int, n: int, delta: float = 0.05) -> float:
    """Theorem 3.4's term for m users with the same |ω|."""
    num_pos, _ = REGIMES[name]
    return 2 * bounds.mcdiarmid(np.full(m, num_pos(n)), n, delta)


def regime_ratio(name: str, m: int, n: int) -> float:
    """The term divided by its claimed rate: constant in m and n when the claim is right."""
    return regime(name, m, n) / REGIMES[name][1](m, n)
