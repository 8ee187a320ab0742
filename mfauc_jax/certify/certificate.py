"""A valid generalisation bound for a fitted model, by its name.

Use `held_out_unseen`: positives that training never saw are ranked among the items that each user had not taken,
and a concentration inequality says how far their AUC may be from the truth. `rademacher_users` is the paper's
Theorem 3.8 with its proof repaired and `rademacher_draws` a sharper relative. Both are here because the paper has
them, and both are vacuous on every data set tried: the first can never beat the all-zero model
(docs/derivations.md#floor).

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
    """What is known, with probability ≥ 1 − δ over the sample, about a fitted model.

    Attributes:
        kind: its name in CERTIFICATES.
        bound: the true AUC is at least this (held_out_*), or the true risk is at most this (rademacher_*).
        auc: the certified AUC. For the Rademacher kinds it is 1 − bound / L(0), since 1(γ ≤ 0) ≤ L(γ) / L(0).
        vacuous: the all-zero model, of AUC ½ and risk L(0), satisfies the bound as well.
        delta: δ.
        method: the concentration inequality, or the loss; fixed before looking at the data.
        terms: the numbers that make the bound, and those to compare it with.
        assumptions: under which it is valid.
        claim: what holds, in words.
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
        """The certificate in one line, for a practitioner."""
        warning = "vacuous: " if self.vacuous else ""
        return f"{warning}with probability {100 * (1 - self.delta):.4g} %, {self.claim}"

    def __str__(self) -> str:
        terms = "\n".join(f"  {name:<26} {value:.6g}" for name, value in self.terms.items())
        lines = "\n".join(f"  - {line}" for line in self.assumptions)
        return (
            f"Certificate {self.kind} ({self.method}): {self.sentence}.\n{terms}\nassuming\n{lines}"
        )


def at_least(subject: str, auc: float) -> str:
    """The claim in words, with three digits, rounded down: a certificate must not be rounded up."""
    return f"{subject} is at least " + f"{np.floor(1000 * auc) / 1000:.3f}".replace("0.", ".", 1)


Maker = Callable[..., Certificate]
CERTIFICATES: dict[str, Maker] = {}


def register(make: Maker, name: str | None = None) -> Maker:
    """Enter a certificate under a name, by default its function's."""
    CERTIFICATES[name or make.__name__] = make
    return make


def options_of(kind: str) -> dict[str, Any]:
    """The options that a kind of certificate takes, with their defaults."""
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
        train: what it was fitted on.
        held_out: positives it has never seen, of the same shape.
        delta: the certificate may fail with this probability.
        kind: a name in CERTIFICATES; None is held_out_unseen if there are held-out positives, else rademacher_users.
        options: the kind's own, see its function: `method` of the held-out kinds; `loss`, `draws` and `key` of the
            Rademacher kinds.
    """
    kind = kind or ("rademacher_users" if held_out is None else "held_out_unseen")
    known = options_of(kind)
    for name in options.keys() - known.keys():
        homes = [other for other in CERTIFICATES if name in options_of(other)]
        hint = f"it belongs to {', '.join(homes)}" if homes else registry.choose_from(known, name)
        raise TypeError(f"certificate {kind} has no option {name!r}: {hint}")
    check_delta(delta)
    return CERTIFICATES[kind](factors, train, held_out, delta, **options)


def check_delta(delta: float) -> None:
    """Refuse what is not a probability of failure."""
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta} must be in (0, 1): the chance that the bound fails")
