"""WARP (Weston, Bengio, Usunier 2011) and the k-order-statistic loss (Weston, Yee, Weiss 2013).

The loss of a positive p is Φ(rank_i(p)) with Φ(x) = Σ_{t≤x} 1/t, which favours the top of the list. The rank is
estimated by sampling: items are drawn until one is a negative within the margin, s_iq > s_ip − 1. After N draws the
estimate is ⌊(n − 1)/N⌋, and the step goes down the gradient of Φ(⌊(n − 1)/N⌋) max(0, 1 − s_ip + s_iq).

Paper: Φ(x) = Σ 1/x and no margin in the rank; here: Σ_{t≤x} 1/t, with the margin that the loss
has (theory/README.md, E47).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines import pairwise
from mfauc_jax.baselines.pairwise import Descent, Examples, Picked
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.objective.lookups import contains

GROUP = 16  # examples that share their draws of negatives
MEDIAN = (0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # the 5th best of 10, as LightFM


def harmonic(x: int) -> float:
    """Φ(x) = Σ_{t≤x} 1/t."""
    return float((1 / np.arange(1, x + 1)).sum())


@dataclasses.dataclass(frozen=True)
class FirstViolation:
    """q is the first of `trials` draws that violates the margin and is not in ω_i; weight Φ."""

    trials: int = 10

    def __call__(self, key: Key[Array, ""], X: Interactions, examples: Examples) -> Picked:
        """One pair per example. All trials are scored at once; then violators that are positives are passed over.

        Examples in groups of GROUP share a pool of as many draws. Each example tries its own cyclic run of the pool,
        which is a run of independent uniform items. So the scores are a matrix product instead of `trials` gathered
        rows per example. Looking up an item in ω_i costs more than scoring it, so only the first violator of each
        example is looked up; where it is a positive, the next one is, for an eighth of the batch at a time.
        """
        users, pos, u, V = examples
        b, size = users.shape[0], max(GROUP, self.trials)
        groups = -(-b // size)
        pool = pairwise.below(key, (groups, size), X.num_items)
        grouped = jnp.pad(u, ((0, groups * size - b), (0, 0))).reshape(groups, size, -1)
        scores = jnp.einsum("grk,gck->grc", grouped, V[pool])
        run = (jnp.arange(size)[:, None] + jnp.arange(self.trials)[None, :]) % size  # [r, t] → c
        items = pool[:, run].reshape(-1, self.trials)[:b]
        s_neg = jnp.take_along_axis(scores, run[None], 2).reshape(-1, self.trials)[:b]
        violates = s_neg > jnp.einsum("bk,bk->b", u, V[pos])[:, None] - 1.0

        def first_violator(users, items, violates):
            trial = jnp.argmax(violates, 1)
            item = jnp.take_along_axis(items, trial[:, None], 1)[:, 0]
            return trial, item, violates.any(1) & contains(X, users, item)[0]

        def next_violator(state):
            violates, trial, _, positive = state
            stuck = jnp.nonzero(positive, size=max(b // 8, 1), fill_value=b)[0]
            rows = jnp.minimum(stuck, b - 1)
            violates = violates.at[stuck, trial[rows]].set(False, mode="drop")
            retried = first_violator(users[rows], items[rows], violates[rows])
            after = (
                a.at[stuck].set(new, mode="drop") for a, new in zip(state[1:], retried, strict=True)
            )
            return violates, *after

        state = violates, *first_violator(users, items, violates)
        violates, trial, neg, _ = jax.lax.while_loop(lambda s: s[3].any(), next_violator, state)
        ranks = [(X.num_items - 1) // N for N in range(1, self.trials + 1)]
        weights = jnp.asarray([harmonic(rank) for rank in ranks], u.dtype)
        return Picked(pos, neg, jnp.where(violates.any(1), weights[trial], 0.0))


@dataclasses.dataclass(frozen=True)
class OrderStatistic:
    """p is the r-th best by score of K positives drawn from ω_i, with r ~ `places`; q as in WARP."""

    places: tuple[float, ...] = MEDIAN  # probabilities of the ranks 1 … K
    trials: int = 10

    def __call__(self, key: Key[Array, ""], X: Interactions, examples: Examples) -> Picked:
        """One pair per example; of the example, only the user is read."""
        key_pos, key_place, key_neg = jax.random.split(key, 3)
        users, _, u, V = examples
        shape = (users.shape[0], len(self.places))
        start = jnp.broadcast_to(X.indptr[users][:, None], shape)
        count = jnp.broadcast_to(X.row_lengths[users][:, None], shape)
        items = X.indices[start + pairwise.below(key_pos, shape, count)]
        best_first = jnp.argsort(-jnp.einsum("bk,btk->bt", u, V[items]), 1)
        log_probability = jnp.log(jnp.asarray(self.places, u.dtype))
        place = jax.random.categorical(key_place, log_probability, shape=shape[:1])
        chosen = jnp.take_along_axis(best_first, place[:, None], 1)
        pos = jnp.take_along_axis(items, chosen, 1)[:, 0]
        return FirstViolation(self.trials)(key_neg, X, examples._replace(pos=pos))


DEFAULTS = Descent(epochs=20)
ITEM_DEFAULTS = Descent(epochs=50)


def fit(key: Key[Array, ""], X: Interactions, *, trials: int = 10, **changes: Any) -> Factors:
    """WARP on the user–item model, with LightFM's Adagrad and defaults.

    Args:
        key: for the start and the draws.
        X: the positives.
        trials: draws per positive in search of a violating negative.
        changes: new values for fields of `DEFAULTS`, such as rank or epochs.
    """
    descent = DEFAULTS.replace(**changes)
    return pairwise.fit_users(key, X, pairwise.hinge, FirstViolation(trials), descent)


def fit_kos(
    key: Key[Array, ""],
    X: Interactions,
    *,
    places: tuple[float, ...] = MEDIAN,
    trials: int = 10,
    **changes: Any,
) -> Factors:
    """k-OS WARP on the user–item model; `places` are the probabilities of the ranks among K positives."""
    pick = OrderStatistic(places, trials)
    return pairwise.fit_users(key, X, pairwise.hinge, pick, DEFAULTS.replace(**changes))


def fit_items(
    key: Key[Array, ""],
    X: Interactions,
    *,
    places: tuple[float, ...] | None = None,
    trials: int = 10,
    **changes: Any,
) -> Factors:
    """WARP on the item-factor model (see `item_auc`); with `places`, k-OS WARP."""
    pick = FirstViolation(trials) if places is None else OrderStatistic(places, trials)
    return pairwise.fit_items(key, X, pairwise.hinge, pick, ITEM_DEFAULTS.replace(**changes))
