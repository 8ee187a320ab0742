"""Polyak averages: the iterates a stochastic solver's caller keeps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from mfauc_jax._core.factors import Factors


class Averaging(NamedTuple):
    """When averages begin and how they forget.

    Paper (Algorithm 1): weights i/(i + 1) with i the *user index*; here: counted in iterations
    since T₀ (theory/README.md, E16, E17). η > 0 weighs later iterates more (Shamir and Zhang 2013).
    The authors' code counts from the first iteration: `since=0`.
    """

    start: int | jax.Array = 0  # T₀: before it the average is a copy
    eta: float | jax.Array = 0.0
    since: int | jax.Array | None = None  # counted from here; T₀ unless given


def update(rule: Averaging, average: Factors, factors: Factors, iteration: jax.Array) -> Factors:
    """mean ← mean + (1 + η)/(c + η) (current − mean), c = s − T₀; a copy while s ≤ T₀."""
    since = rule.start if rule.since is None else rule.since
    count = jnp.asarray(iteration - since, factors.U.dtype)
    count = count + (0.0 if rule.since is None else 1.0)  # the authors: (1 + η)/(s + η + 1)
    share = jnp.where(iteration > rule.start, (1.0 + rule.eta) / (count + rule.eta), 1.0)
    return jax.tree.map(
        lambda mean, now: mean + share.astype(now.dtype) * (now - mean), average, factors
    )
