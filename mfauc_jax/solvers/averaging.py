"""Polyak averages: the iterates a stochastic solver's caller keeps."""

import jax
import jax.numpy as jnp

from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import count, number
from mfauc_jax._core.settings import Settings


class Averaging(Settings):
    """When averages begin and how they forget.

    Paper (Algorithm 1): weights i/(i + 1) with i the *user index*; here: counted in iterations
    since T₀ (theory/README.md, E16, E17). η > 0 weighs later iterates more (Shamir and Zhang 2013).
    The authors' code counts from the first iteration: `since=0`.
    """

    prefixed = True
    start: int = count(0, swept=True, help="T₀, the iteration after which factors are averaged")
    eta: float = number(3.0, least=0, help="η, later iterates weigh more; 0 in the paper")
    since: int | None = count(
        None, optional=True, help="iterations are counted from here; T₀ unless given"
    )


def update(rule: Averaging, average: Factors, factors: Factors, iteration: jax.Array) -> Factors:
    """mean ← mean + (1 + η)/(c + η) (current − mean), c = s − T₀; a copy while s ≤ T₀."""
    since = rule.start if rule.since is None else rule.since
    passed = jnp.asarray(iteration - since, factors.U.dtype)
    passed = passed + (0.0 if rule.since is None else 1.0)  # the authors: (1 + η)/(s + η + 1)
    share = jnp.where(iteration > rule.start, (1.0 + rule.eta) / (passed + rule.eta), 1.0)
    return jax.tree.map(
        lambda mean, now: mean + share.astype(now.dtype) * (now - mean), average, factors
    )
