"""Certificates from held-out positives: the measured AUC minus a width (docs/derivations.md#certificate-held-out)."""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np

from mfauc_jax._core import registry
from mfauc_jax._core.factors import Factors
from mfauc_jax.certify import bounds
from mfauc_jax.certify.certificate import SAMPLING, Certificate, at_least, check_delta, register
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import counts as counting

ASSUMPTIONS = (
    SAMPLING,
    "the held-out positives played no part in fitting nor in choosing hyper-parameters",
    "no statement about new users, later times or undiscovered positives' labels",
)
REFERENCE = {
    "held_out_unseen": "D_i is the distribution of user i's next new item; it is ranked among all "
    "other items that are not in the user's training set",
    "held_out_all": "D_i is the distribution of user i's next item; it is ranked among all other items",
}


def _certified(
    kind: str,
    factors: Factors,
    train: Interactions,
    held_out: Interactions | None,
    delta: float,
    *,
    method: str = "bernstein",
) -> Certificate:
    """A bound on the AUC of a user's next item: a new item among the unseen items, or any item among all others.

    Args:
        kind: held_out_unseen or held_out_all.
        factors: the fitted model.
        train: the positives that it was fitted on.
        held_out: positives that it has never seen.
        delta: δ in (0, 1).
        method: a name in INEQUALITIES; choose it before looking at the data.
    """
    reference = "unseen" if kind == "held_out_unseen" else "all"
    ranks, users = held_out_ranks(factors, train, _needed(kind, held_out), reference)
    return from_ranks(ranks, users, delta, kind=kind, method=method)


held_out_unseen = register(partial(_certified, "held_out_unseen"), "held_out_unseen")
held_out_all = register(partial(_certified, "held_out_all"), "held_out_all")


def _needed(kind: str, held_out: Interactions | None) -> Interactions:
    if held_out is None:
        raise ValueError(
            f"certificate {kind} needs held_out: give positives that were kept from training"
        )
    return held_out


def held_out_ranks(
    factors: Factors, train: Interactions, held_out: Interactions, reference: str = "unseen"
) -> tuple[np.ndarray, np.ndarray]:
    """F_i(y) of every held-out positive y, and its user i.

    F_i(y) is the share of the reference items that are scored below y, ties ½. The reference is all items outside
    user i's training set except y ("unseen"), or all items except y ("all"). The other held-out items belong to it,
    because F_i must not depend on the other draws.
    """
    for name, F in zip("UV", factors, strict=True):
        if not bool(jnp.isfinite(F).all()):
            raise ValueError(
                f"{name} has entries that are not finite, so the fit diverged: lower the learning rate"
            )
    m, n = factors.U.shape[0], factors.V.shape[0]
    seen, held_out = counting.check_split(train, held_out, m, n)
    counts = counting.count(factors, seen if reference == "unseen" else None, held_out)
    above, level = counts.above + counts.mates_above, counts.level + counts.mates_level
    num_reference = counts.repeated(counts.num_neg + counts.num_pos) - 1
    has_reference = (
        num_reference > 0
    )  # this depends on the training set alone, so dropping the others keeps the bound valid
    ranks = 1 - (above[has_reference] + 0.5 * level[has_reference]) / num_reference[has_reference]
    return ranks, counts.repeated(counts.users)[has_reference]


# Half-widths for (1/m) Σ_i (1/t_i) Σ_y F_i(y): `row` is the user of each rank, counted from 0, and `t` holds t_i, the
# number of ranks of each user


def bernstein(ranks: np.ndarray, row: np.ndarray, t: np.ndarray, delta: float) -> float:
    """The half-width by Maurer and Pontil's inequality over the draws."""
    weights = 1 / (len(t) * t[row])
    return bounds.bernstein(1 - ranks, weights, delta)  # 1 − F: small where the model is good


def hoeffding(ranks: np.ndarray, row: np.ndarray, t: np.ndarray, delta: float) -> float:
    """The half-width by Hoeffding's inequality over the draws, which does not depend on the ranks."""
    del ranks
    return bounds.hoeffding(1 / (len(t) * t[row]), delta)


def bernstein_users(ranks: np.ndarray, row: np.ndarray, t: np.ndarray, delta: float) -> float:
    """The half-width by Maurer and Pontil's inequality over users' means; one user's draws may be dependent."""
    means = np.bincount(row, 1 - ranks) / t
    return bounds.bernstein(means, np.full(len(t), 1 / len(t)), delta)


INEQUALITIES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, float], float]] = {
    "bernstein": bernstein,
    "hoeffding": hoeffding,
    "bernstein_users": bernstein_users,
}


def widths(ranks: np.ndarray, users: np.ndarray, delta: float) -> dict[str, float]:
    """The half-width by each inequality, each at level δ."""
    _, row, t = np.unique(users, return_inverse=True, return_counts=True)
    return {name: width(ranks, row, t, delta) for name, width in INEQUALITIES.items()}


def from_ranks(
    ranks: np.ndarray,
    users: np.ndarray,
    delta: float,
    *,
    kind: str = "held_out_unseen",
    method: str = "bernstein",
    subject: str = "the true AUC",
) -> Certificate:
    """The certificate true AUC ≥ held-out AUC − width, from F_i(y) of every held-out draw; draws may be repeated."""
    half = widths(ranks, users, delta)
    width = registry.lookup("method", half, method)
    _, row, t = np.unique(users, return_inverse=True, return_counts=True)
    measured = float((np.bincount(row, ranks) / t).mean())
    bound = max(measured - width, 0.0)
    terms = {"held_out_auc": measured, "half_width": width}
    terms |= {f"half_width_{name}": value for name, value in half.items()}
    terms |= {"num_users": float(len(t)), "num_held_out": float(len(ranks))}
    vacuous = bound <= 0.5
    return Certificate(
        kind=kind,
        bound=bound,
        auc=bound,
        vacuous=vacuous,
        delta=delta,
        method=method,
        terms=terms,
        assumptions=(*ASSUMPTIONS, REFERENCE[kind]),
        claim=at_least(subject, bound) + (", no better than chance" if vacuous else ""),
    )


def by_activity(
    factors: Factors,
    train: Interactions,
    held_out: Interactions,
    delta: float = 0.05,
    *,
    num_groups: int = 4,
    method: str = "bernstein",
) -> tuple[Certificate, ...]:
    """`held_out_unseen` per group of users with a similar N_i in training, each at level δ / groups.

    By Bonferroni all of them hold together with probability ≥ 1 − δ. The groups are quantiles of the training
    activity, so they do not depend on the held-out items.
    """
    check_delta(delta)
    if num_groups < 1:
        raise ValueError(f"num_groups = {num_groups} must be ≥ 1")
    ranks, users = held_out_ranks(factors, train, held_out)
    activity = np.asarray(train.row_lengths)
    known = activity[np.unique(users)]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, num_groups + 1), method="lower"))
    lows = edges[:-1] if len(edges) > 1 else edges
    group = np.searchsorted(lows, activity[users], side="right") - 1
    result = []
    for g, low in enumerate(lows):
        high = lows[g + 1] - 1 if g + 1 < len(lows) else known.max()
        subject = f"the true AUC of users with {low} to {high} training positives"
        in_group = group == g
        group_delta = delta / len(lows)
        certificate = from_ranks(
            ranks[in_group], users[in_group], group_delta, method=method, subject=subject
        )
        result.append(certificate)
    return tuple(result)
