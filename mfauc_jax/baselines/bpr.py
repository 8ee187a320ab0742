"""BPR (Rendle et al. 2009) in its own weighting: all triples (i, p, q) of X count alike.

    (1/|D|) Σ_{(i,p,q) ∈ D} −ln σ(u_i·v_p − u_i·v_q) + ½ λ (|u_i|² + |v_p|² + |v_q|²)

with D = {(i, p, q): p ∈ ω_i, q ∈ ω̄_i}. So user i counts ∝ N_i M_i, and the regulariser of a row counts ∝ the number of
its triples. `equation.make("logistic")` of this library counts every user alike: the two agree only if N_i is the same
for all users (theory/README.md, E11).
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines import pairwise
from mfauc_jax.baselines.pairwise import Descent, Examples, Picked
from mfauc_jax.data import ragged
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective import lookups, losses


@dataclasses.dataclass(frozen=True)
class Triple:
    """p as drawn, and q the first of `tries` drawn items that is not in ω_i; no pair if all of them are.

    With one try, the triples that remain are uniform on D, since a user loses the share N_i/n of its draws. With more
    tries, users count ∝ N_i. `popular` draws q as the item of a random positive, as LightFM does.
    """

    tries: int = 1
    popular: bool = False

    def __call__(self, key: Key[Array, ""], X: Interactions, examples: Examples) -> Picked:
        """One pair per example, of weight 1, or 0 if no negative was drawn."""
        users, pos, u, _ = examples
        shape = (users.shape[0], self.tries)
        bound = X.nnz if self.popular else X.num_items
        items = pairwise.below(key, shape, bound)
        items = X.indices[items] if self.popular else items
        relevant, _ = lookups.contains(X, jnp.broadcast_to(users[:, None], shape), items)
        first = jnp.argmin(relevant, 1)[:, None]
        neg, hit = (jnp.take_along_axis(a, first, 1)[:, 0] for a in (items, relevant))
        return Picked(pos, neg, 1.0 - hit.astype(u.dtype))


DEFAULTS = Descent(reg=0.002, epochs=40, bootstrap=True)


def fit(
    key: Key[Array, ""], X: Interactions, *, tries: int = 1, popular: bool = False, **changes: Any
) -> Factors:
    """BPR by LearnBPR: bootstrap draws from D, in minibatches.

    Args:
        key: for the start and the draws.
        X: the positives.
        tries: draws per negative; the paper has 1 (see `Triple`).
        popular: draw negatives ∝ their popularity.
        changes: new values for fields of `DEFAULTS`, such as rank or learning_rate.
    """
    descent = DEFAULTS.replace(**changes)
    return pairwise.fit_users(key, X, losses.logistic, Triple(tries, popular), descent)


def objective(factors: Factors, X: Interactions, *, reg: ArrayLike = 0.0) -> Float[Array, ""]:
    """The objective: the exact mean over D, in O(Σ N_i n). For small data and tests."""
    U, V = factors
    scores = U @ V.T  # [m, n]
    norms_u, norms_v = (U * U).sum(1), (V * V).sum(1)
    total, triples = jnp.zeros((), U.dtype), 0.0
    for users, items, _, real in ragged.buckets(X):
        s = scores[users]
        relevant = jnp.zeros(s.shape, bool).at[jnp.arange(len(users))[:, None], items].set(True)
        neg = 1.0 - relevant  # [b, n]
        margin = jnp.take_along_axis(s, items, 1)[:, :, None] - s[:, None, :]  # [b, P, n]
        squares = (
            norms_u[users][:, None, None] + norms_v[items][:, :, None] + norms_v[None, None, :]
        )
        each = losses.logistic(margin) + 0.5 * reg * squares
        total += jnp.einsum("bpq,bp,bq->", each, real, neg)
        triples += jnp.einsum("bp,bq->", real, neg)
    return total / triples
