"""Polyak averages of the iterates, which a stochastic solver returns."""

import jax
import jax.numpy as jnp

from mfauc_jax._core.factors import Factors
from mfauc_jax._core.fields import count, number
from mfauc_jax._core.settings import Settings


class Averaging(Settings):
    """Polyak averages of the iterates: when they begin, and how much later iterates count.

    Paper (Algorithm 1): weights i/(i + 1) with i the *user index*; here: i counts iterations since T₀
    (theory/README.md, E16, E17). η > 0 weighs later iterates more (Shamir and Zhang 2013). The authors' code
    counts from the first iteration: `since=0`.
    """

    prefixed = True
    start: int = count(0, swept=True, help="T₀, the iteration after which factors are averaged")
    eta: float = number(
        3.0, least=0, help="η, a larger one weighs later iterates more; the paper has 0"
    )
    since: int | None = count(
        None, optional=True, help="the iteration from which averages count; None: T₀"
    )


def update(rule: Averaging, average: Factors, factors: Factors, iteration: jax.Array) -> Factors:
    """mean ← mean + (1 + η)/(c + η) (current − mean), c = s − T₀; a copy of the current factors until both begin."""
    since = rule.start if rule.since is None else rule.since
    elapsed = jnp.asarray(iteration - since, factors.U.dtype)
    elapsed = elapsed + (0.0 if rule.since is None else 1.0)  # the authors: (1 + η)/(s + η + 1)
    averaged = (iteration > rule.start) & (elapsed >= 1)  # `since` may be later than T₀
    share = jnp.where(averaged, (1.0 + rule.eta) / (elapsed + rule.eta), 1.0)
    return jax.tree.map(
        lambda mean, now: mean + share.astype(now.dtype) * (now - mean), average, factors
    )
