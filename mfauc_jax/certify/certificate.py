"""A valid generalisation bound for a fitted model.

Certificate C2 is the one to use: positives that training never saw, ranked among the items each
user had not taken, and a concentration inequality. A is the paper's Theorem 3.8 with its proof
repaired and B a sharper cousin; both are printed because the paper has them, and both are
vacuous on every data set tried: A can never beat the all-zero model (SPEC 6.3, the floor).
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mfauc_jax._core import registry
from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import counts as counting

SAMPLING = (
    "users are fixed; user i's positives are independent draws from an unknown D_i, "
    "independent over users, their number fixed in advance (a log of distinct items is read as "
    "draws without a repeat)"
)
ASSUMPTIONS = {
    "A": (
        SAMPLING,
        "the risk is that of a fresh sample: new positives against all items not in it",
        "uniform weights on items and users, φ = identity",
        "uniform over all factors, so rank, λ and scale may be tuned on the same data",
    ),
    "C": (
        SAMPLING,
        "the held-out positives played no part in fitting nor in choosing hyper-parameters",
        "no statement about new users, later times or undiscovered positives' labels",
    ),
}
REFERENCE = {
    "B": "the risk compares a fresh positive with every other item, relevant or not",
    "C1": "D_i is the distribution of user i's next item; it is ranked among all other items",
    "C2": "D_i is the distribution of user i's next new item; it is ranked among all other "
    "items that are not in the user's training set",
}


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What is known, with probability ≥ 1 − δ over the sample, about a fitted model.

    Attributes:
        kind: A, B, C1 or C2 of SPEC 6.3.
        bound: the true AUC is at least this (C), or the true risk at most this (A, B).
        auc: the certified AUC. For A and B it is 1 − bound / L(0), since 1(γ ≤ 0) ≤ L(γ) / L(0).
        vacuous: the all-zero model, of AUC ½ and risk L(0), satisfies the bound as well.
        delta: δ.
        method: the concentration inequality, fixed before looking at the data.
        terms: the numbers that make the bound, and those to compare it with.
        assumptions: under which it is valid.
        subject: whose AUC is certified.
    """

    kind: str
    bound: float
    auc: float
    vacuous: bool
    delta: float
    method: str
    terms: dict[str, float]
    assumptions: tuple[str, ...]
    subject: str = "the true AUC"

    @property
    def sentence(self) -> str:
        """The certificate in one line, for a practitioner."""
        chance = f"with probability {100 * (1 - self.delta):.4g} %"
        if not self.vacuous:
            return f"{chance}, {self.subject} is at least {_digits(self.auc)}"
        if self.kind.startswith("C"):
            low = _digits(max(self.bound, 0.0))
            return f"vacuous: {chance}, {self.subject} is at least {low}, no better than chance"
        never = ", as no bound of this form can be" if self.kind == "A" else ""
        return (
            f"vacuous: {chance}, the true risk is at most {self.bound:.3g}, not below the "
            f"{self.terms['risk_of_zero']:.3g} of the all-zero model{never}"
        )

    def __str__(self) -> str:
        terms = "\n".join(f"  {name:<26} {value:.6g}" for name, value in self.terms.items())
        lines = "\n".join(f"  - {line}" for line in self.assumptions)
        return (
            f"Certificate {self.kind} ({self.method}): {self.sentence}.\n{terms}\nassuming\n{lines}"
        )


def _digits(x: float) -> str:
    """Three digits, rounded down: a certificate must not be rounded up."""
    return f"{np.floor(1000 * x) / 1000:.3f}".replace("0.", ".", 1)


# --- Certificate C: hold-out ------------------------------------------------------------------


def held_out_ranks(
    factors: Factors, train: Interactions, held_out: Interactions, reference: str = "unseen"
) -> tuple[np.ndarray, np.ndarray]:
    """F_i(y) of every held-out positive, and its user.

    F_i(y) is the share of the reference scored below y, ties ½. Reference: all items outside
    user i's training set except y ("unseen"), or all items except y ("all"). The other held-out
    items stay in it: F_i must not depend on the other draws.
    """
    for name, F in zip("UV", factors, strict=True):
        if not bool(jnp.isfinite(F).all()):
            raise ValueError(f"{name} has entries that are not finite: the fit diverged")
    m, n = factors.U.shape[0], factors.V.shape[0]
    seen, held_out = counting.check_split(train, held_out, m, n)
    at = counting.count(factors, seen if reference == "unseen" else None, held_out)
    above, level = at.above + at.mates_above, at.level + at.mates_level
    rivals = at.repeated(at.num_neg + at.num_pos) - 1
    some = rivals > 0  # known from the training set alone, so that dropping the rest is harmless
    ranks = 1 - (above[some] + 0.5 * level[some]) / rivals[some]
    return ranks, at.repeated(at.users)[some]


def widths(ranks: np.ndarray, owners: np.ndarray, delta: float) -> dict[str, float]:
    """Half-widths of the three inequalities for (1/m) Σ_i (1/t_i) Σ_y F_i(y), at level δ each.

    "bernstein" and "hoeffding" take a user's held-out items as independent draws;
    "bernstein_users" takes only the users as independent, one mean each.
    """
    _, row, t = np.unique(owners, return_inverse=True, return_counts=True)
    m = len(t)
    weights = 1 / (m * t[row])
    means = np.bincount(row, 1 - ranks) / t
    return {
        "bernstein": bounds.bernstein(
            1 - ranks, weights, delta
        ),  # 1 − F: small where the model is good
        "hoeffding": bounds.hoeffding(weights, delta),
        "bernstein_users": bounds.bernstein(means, np.full(m, 1 / m), delta),
    }


def hold_out(
    factors: Factors,
    train: Interactions,
    held_out: Interactions,
    delta: float = 0.05,
    *,
    kind: str = "C2",
    method: str = "bernstein",
) -> Certificate:
    """true AUC ≥ held-out AUC − width, with probability ≥ 1 − δ (SPEC 6.3, certificate C)."""
    _check_delta(delta)
    reference = registry.lookup("certificate", {"C1": "all", "C2": "unseen"}, kind)
    ranks, owners = held_out_ranks(factors, train, held_out, reference)
    return from_ranks(ranks, owners, delta, kind=kind, method=method)


def from_ranks(
    ranks: np.ndarray,
    owners: np.ndarray,
    delta: float,
    *,
    kind: str = "C2",
    method: str = "bernstein",
    subject: str = "the true AUC",
) -> Certificate:
    """The certificate from F_i(y) of every held-out draw; repeated draws may repeat."""
    half = widths(ranks, owners, delta)
    width = registry.lookup("method", half, method)
    _, row, t = np.unique(owners, return_inverse=True, return_counts=True)
    measured = float((np.bincount(row, ranks) / t).mean())
    bound = max(measured - width, 0.0)
    terms = {"held_out_auc": measured, "half_width": width}
    terms |= {f"half_width_{name}": value for name, value in half.items()}
    terms |= {"num_users": float(len(t)), "num_held_out": float(len(ranks))}
    assumptions = ASSUMPTIONS["C"] + (REFERENCE[kind],)
    return Certificate(kind, bound, bound, bound <= 0.5, delta, method, terms, assumptions, subject)


def by_activity(
    factors: Factors,
    train: Interactions,
    held_out: Interactions,
    delta: float = 0.05,
    *,
    num_groups: int = 4,
    method: str = "bernstein",
) -> tuple[Certificate, ...]:
    """C2 for each group of users of similar N_i in training, each at level δ / groups.

    By Bonferroni all of them hold together with probability ≥ 1 − δ. The groups are quantiles of
    the training activity, so they do not depend on the held-out items.
    """
    _check_delta(delta)
    if num_groups < 1:
        raise ValueError(f"num_groups = {num_groups} must be ≥ 1")
    ranks, owners = held_out_ranks(factors, train, held_out)
    activity = np.asarray(train.row_lengths)
    known = activity[np.unique(owners)]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, num_groups + 1), method="lower"))
    lows = edges[:-1] if len(edges) > 1 else edges
    group = np.searchsorted(lows, activity[owners], side="right") - 1
    result = []
    for g, low in enumerate(lows):
        high = lows[g + 1] - 1 if g + 1 < len(lows) else known.max()
        subject = f"the true AUC of users with {low} to {high} training positives"
        mine = group == g
        group_delta = delta / len(lows)
        found = from_ranks(
            ranks[mine], owners[mine], group_delta, kind="C2", method=method, subject=subject
        )
        result.append(found)
    return tuple(result)


# --- Certificates A and B: Rademacher ---------------------------------------------------------


def rademacher(
    key: Key[Array, ""],
    factors: Factors,
    train: Interactions,
    delta: float = 0.05,
    *,
    kind: str = "A",
    loss: str = "sigmoid",
    beta: float = 1.0,
    draws: int = 1500,
) -> Certificate:
    """E[L] ≤ Ê[L] + (2 B ρ_l / m) Ê‖·‖₂ + 3 w ε(δ′), for all factors: `bounds.rademacher`."""
    _check_delta(delta)
    norm = bounds.expected_norm(key, train, kind, delta=delta, draws=draws)
    terms = bounds.rademacher(norm, factors, train, loss=loss, beta=beta)
    return from_terms(norm, terms, loss)


def from_terms(norm: bounds.ExpectedNorm, terms: dict[str, float], loss: str) -> Certificate:
    """The certificate from the terms of `bounds.rademacher`: one norm serves many models."""
    zero = terms["risk_of_zero"]
    bound = terms["empirical_risk"] + terms["complexity"] + terms["deviation"]
    auc, vacuous = max(0.0, 1 - bound / zero), bound >= zero
    assumptions = ASSUMPTIONS["A"]
    if norm.kind == "B":
        assumptions = (SAMPLING, REFERENCE["B"], *assumptions[2:])
    method = f"{loss} loss"
    return Certificate(norm.kind, bound, auc, vacuous, norm.delta, method, terms, assumptions)


def certify(
    factors: Factors,
    train: Interactions,
    held_out: Interactions | None = None,
    delta: float = 0.05,
    *,
    kind: str | None = None,
    method: str = "bernstein",
    loss: str = "sigmoid",
    beta: float = 1.0,
    draws: int = 1500,
    key: Key[Array, ""] | None = None,
) -> Certificate:
    """The certificate of a fitted model: C2 if there are held-out positives, else A.

    Args:
        factors: the fitted model.
        train: what it was fitted on.
        held_out: positives it has never seen, of the same shape.
        delta: the certificate may fail with this probability.
        kind: A, B, C1 or C2.
        method: C's inequality: bernstein, hoeffding or bernstein_users. Choose before looking.
        loss: the surrogate of A and B; its constants are known for the names in `losses`.
        beta: its slope.
        draws: random matrices behind A and B.
        key: randomness of A and B; C needs none.
    """
    kind = kind or ("A" if held_out is None else "C2")
    registry.lookup("certificate", dict.fromkeys(("A", "B", "C1", "C2")), kind)
    if kind.startswith("C"):
        if held_out is None:
            raise ValueError(f"certificate {kind} needs held_out: positives kept from training")
        return hold_out(factors, train, held_out, delta, kind=kind, method=method)
    if key is None:
        raise ValueError(f"certificate {kind} draws random matrices: pass key=jax.random.key(0)")
    return rademacher(key, factors, train, delta, kind=kind, loss=loss, beta=beta, draws=draws)


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta} must be in (0, 1): the chance that the bound fails")
