"""Certificates: valid generalisation bounds for a fitted model, each known by its name.

Use `held_out_unseen`: positives that training never saw are ranked among the items that each user had not taken,
and a concentration inequality says how far their AUC may be from the truth. `rademacher_users` is the paper's
Theorem 3.8 with its proof repaired, and `rademacher_draws` is a sharper variant. Both are here because the paper has
such bounds, and both are vacuous on every data set tried: the first can never be better than the bound of the all-zero
model (docs/derivations.md#floor).

To add a certificate, write a function (factors, train, held_out, delta, *, its own options) → Certificate, decorate it
with `register`, and import its module in `certify/__init__.py`. `certify` and the command line then know it by the
function's name.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from mfauc_jax._core import registry
from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions

SAMPLING = (
    "users are fixed; user i's positives are independent draws from an unknown D_i, "
    "independent over users, their number fixed in advance (a log of distinct items is read as "
    "draws without a repeat)"
)  # what every certificate assumes


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A statement about a fitted model that holds with probability ≥ 1 − δ over the sample.

    Attributes:
        kind: the name of the certificate in CERTIFICATES.
        bound: the true AUC is at least this (held_out_*), or the true risk is at most this (rademacher_*).
        auc: the certified AUC. For the Rademacher kinds it is 1 − bound / L(0), since 1(γ ≤ 0) ≤ L(γ) / L(0).
        vacuous: the all-zero model, of AUC ½ and risk L(0), satisfies the bound as well.
        delta: δ, the probability with which the statement may be wrong.
        method: the concentration inequality, or the loss; it must be chosen before looking at the data.
        terms: the numbers that the bound is made of, and those to compare it with.
        assumptions: what the bound needs to be valid.
        claim: the statement in words.
    """

    kind: str
    bound: float
    auc: float
    vacuous: bool
    delta: float
    method: str
    terms: dict[str, float]
    assumptions: tuple[str, ...]
    claim: str

    @property
    def sentence(self) -> str:
        """The statement and its probability in one line."""
        warning = "vacuous: " if self.vacuous else ""
        return f"{warning}with probability {100 * (1 - self.delta):.4g} %, {self.claim}"

    def __str__(self) -> str:
        terms = "\n".join(f"  {name:<26} {value:.6g}" for name, value in self.terms.items())
        lines = "\n".join(f"  - {line}" for line in self.assumptions)
        return (
            f"Certificate {self.kind} ({self.method}): {self.sentence}.\n{terms}\nassuming\n{lines}"
        )


def at_least(subject: str, auc: float) -> str:
    """The claim in words, with the AUC rounded down to three digits: a certificate must not be rounded up."""
    return f"{subject} is at least " + f"{np.floor(1000 * auc) / 1000:.3f}".replace("0.", ".", 1)


Maker = Callable[..., Certificate]
CERTIFICATES: dict[str, Maker] = {}


def register(make: Maker, name: str | None = None) -> Maker:
    """Register a certificate under a name, by default that of its function."""
    CERTIFICATES[name or make.__name__] = make
    return make


def options_of(kind: str) -> dict[str, Any]:
    """The options of a kind of certificate, with their defaults."""
    make = registry.lookup("certificate", CERTIFICATES, kind)
    declared = inspect.signature(make).parameters.values()
    return {p.name: p.default for p in declared if p.kind is p.KEYWORD_ONLY}


def certify(
    factors: Factors,
    train: Interactions,
    held_out: Interactions | None = None,
    delta: float = 0.05,
    *,
    kind: str | None = None,
    **options: Any,
) -> Certificate:
    """The certificate of a fitted model.

    Args:
        factors: the fitted model.
        train: the positives that it was fitted on.
        held_out: positives that it has never seen, of the same shape.
        delta: δ in (0, 1), the probability with which the certificate may fail.
        kind: a name in CERTIFICATES; None: held_out_unseen if there are held-out positives, else rademacher_users.
        options: options of the kind, see its function: `method` of the held-out kinds; `loss`, `draws` and `key` of
            the Rademacher kinds.
    """
    kind = kind or ("rademacher_users" if held_out is None else "held_out_unseen")
    known = options_of(kind)
    for name in options.keys() - known.keys():
        owners = [other for other in CERTIFICATES if name in options_of(other)]
        hint = f"it belongs to {', '.join(owners)}" if owners else registry.choose_from(known, name)
        raise TypeError(f"certificate {kind} has no option {name!r}: {hint}")
    check_delta(delta)
    return CERTIFICATES[kind](factors, train, held_out, delta, **options)


def check_delta(delta: float) -> None:
    """Raise ValueError unless delta is in (0, 1)."""
    if not isinstance(delta, float | np.floating) or not 0 < delta < 1:
        raise ValueError(
            f"delta = {delta} must be in (0, 1): it is the probability that the bound fails"
        )
