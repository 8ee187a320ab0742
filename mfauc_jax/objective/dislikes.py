"""Dislikes among the negatives: g′ of an item that the user rejected is multiplied by a factor, then normalised anew.

With the factor c ≥ 1, b_iq = c b_q for q ∈ D_i and b_q for the other negatives, and g′_iq = b_iq / b_i(ω̄_i), which sums
to one as Eq. 3 wants. What the sums over the complement need is in docs/derivations.md#dislikes: a sum over ω̄_i is
the sum over all items, minus b_p at each positive, plus (c − 1) b_q at each dislike. So a dislike is an entry of the
user's row with g = 0 from which the *negative* amount −(c − 1) b_q is taken away.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from mfauc_jax._core import host
from mfauc_jax.data import dislikes
from mfauc_jax.data.interactions import Interactions


class Disliked(NamedTuple):
    """The dislikes of every user with what a draw of negatives needs: g′ is a mixture of two distributions.

    One is b over ω̄_i, the other b over D_i, with the shares 1 − π_i and π_i = (c − 1) b(D_i) / b_i(ω̄_i).
    """

    X: Interactions  # D_i
    factor: Float[Array, ""]  # c
    coin: Int[Array, "m"]  # π_i in units of 1/MASS
    table: Int[Array, "dislikes"] | None  # sums of b within a row, in MASS units; None: uniform


class Entries(NamedTuple):
    """The rows that differ from b: those of the positives or, if there are any, of positives and dislikes."""

    X: Interactions
    g: Float[np.ndarray, " both"]  # 0 for a dislike
    removed: Float[
        np.ndarray, " both"
    ]  # b_q minus b_iq: b_p for a positive, −(c − 1) b_q for a dislike


def entries(X: Interactions, g: np.ndarray, b: np.ndarray, disliked: Disliked | None) -> Entries:
    """The entries of every row of X, with g of the positives and b of the items; X itself without dislikes."""
    if disliked is None:
        return Entries(X, g, b[np.asarray(X.indices)])
    both = dislikes.union(X)
    own_g = np.where(both.positive, g[np.minimum(both.slots, X.nnz - 1)], g.dtype.type(0))
    own_b = b[np.asarray(both.X.indices)]
    extra = (np.asarray(disliked.factor).astype(b.dtype) - 1) * own_b
    return Entries(both.X, own_g, np.where(both.positive, own_b, -extra))


def extra_mass(X: Interactions, b: Float[np.ndarray, " n"], factor: float) -> np.ndarray:
    """(c − 1) b(D_i) of each user, [m]."""
    assert X.dislikes is not None
    rows, items, _ = X.dislikes.on_host()
    return (factor - 1) * np.bincount(rows, b[items], minlength=X.num_users)


def refuse(disliked: Disliked | None, who: str) -> None:
    """Raise ValueError if there are dislikes, which `who` does not take."""
    if disliked is not None:
        raise ValueError(
            f"{who} takes no dislikes: use solver='alternating', 'minibatch', 'dense' or 'full_batch', "
            "or fit without dislikes"
        )


def made(
    X: Interactions,
    b: np.ndarray,
    factor: float,
    mass: np.ndarray,
    table: Int[Array, "dislikes"] | None,
    whole: int,
) -> Disliked:
    """The dislikes of X; `mass` is b_i(ω̄_i), [m], and `whole` the unit of the shares."""
    assert X.dislikes is not None
    share = extra_mass(X, b, factor) / np.where(mass > 0, mass, 1.0)
    coin = np.rint(share * whole)
    return Disliked(X.dislikes, host.floats(factor), host.ints(coin), table)
