"""Peers, tuned: each has as many fits as `mf.tune`, on the same held-out tenth of the training positives.

irspack's iALS is tuned by irspack itself (Optuna, its own evaluator and pruning), the others by Optuna's TPE with the
ranges below and the judge of `mf.tune`. EASE (Steck 2019) is closed: B = I − P diag(1/P_jj), P = (XᵀX + λI)⁻¹; it is no
factorisation, so its scores X B are evaluated as the factors X and Bᵀ, some users at a time.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from experiments import peers
from mfauc_jax import evaluate, tuning
from mfauc_jax._core.factors import Factors
from mfauc_jax.baselines import bpr
from mfauc_jax.data import splits
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import formulas

EASE_ITEMS = 20_000  # the inverse of a larger matrix takes too long
Range = tuple[float, float]


class Tuned(NamedTuple):
    """A fitted opponent."""

    factors: Factors | None
    weights: np.ndarray | None  # B of EASE, [n, n], in place of factors
    settings: dict[str, Any]
    seconds: tuple[float, float]  # of tuning, of the last fit


def implicit_als(X: Interactions, rank: int, seed: int, reg: float, alpha: float) -> Factors:
    """implicit's ALS, 15 iterations."""
    with peers.one_blas_thread():
        return peers.implicit_factors(peers.implicit_als(rank, reg, alpha, seed=seed), X)


def warp(X: Interactions, rank: int, seed: int, alpha: float, epochs: float) -> Factors:
    """lightfm-next's WARP."""
    return peers.LightFM(X, "warp", rank, alpha, seed).go_on(round(epochs))


def own_bpr(X: Interactions, rank: int, seed: int, reg: float, learning_rate: float) -> Factors:
    """BPR of this library."""
    return bpr.fit(jax.random.key(seed), X, rank=rank, reg=reg, learning_rate=learning_rate)


RANGES: dict[str, tuple[Callable[..., Factors], dict[str, Range]]] = {
    "implicit ALS": (implicit_als, {"reg": (1.0, 1000.0), "alpha": (0.5, 100.0)}),
    "lightfm-next WARP": (warp, {"alpha": (1e-6, 1e-2), "epochs": (10.0, 40.0)}),
    "BPR": (own_bpr, {"reg": (1e-4, 1e-1), "learning_rate": (0.01, 0.3)}),
}
NAMES = ("irspack iALS", *RANGES, "EASE")


def tuned(name: str, X: Interactions, budget: int, rank: int, seed: int, criterion: str) -> Tuned:
    """The opponent, tuned by `budget` fits on a part of X and fitted to all of X."""
    begun, split = time.perf_counter(), tuning.held_out_part(X, seed)
    if name == "irspack iALS":
        best = _irspack_search(split, budget, rank, seed)
    elif name == "EASE":
        best = _ease_search(X, split, budget, criterion, seed)
    else:
        fit, ranges = RANGES[name]
        judge = tuning.judge_of(split, criterion, seed)

        def worth(**setting: float) -> float:
            return float(np.nanmean(judge(fit(split.train, rank, seed, **setting))))

        best = searched(worth, ranges, budget, seed)
    chosen = time.perf_counter()
    factors, weights = jax.block_until_ready(fitted(name, X, rank, seed, best))
    return Tuned(factors, weights, best, (chosen - begun, time.perf_counter() - chosen))


def fitted(
    name: str, X: Interactions, rank: int, seed: int, settings: dict[str, Any]
) -> tuple[Factors | None, np.ndarray | None]:
    """The opponent with these settings, fitted to X: factors, or B of EASE."""
    if name == "EASE":
        return None, ease(X, **settings)
    fit = _irspack if name == "irspack iALS" else RANGES[name][0]
    return fit(X, rank, seed, **settings), None


def searched(worth: Callable[..., float], ranges: dict[str, Range], budget: int, seed: int) -> dict:
    """The best setting that Optuna's TPE finds, every range on a log scale."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(
        lambda trial: worth(
            **{
                name: trial.suggest_float(name, *bounds, log=True)
                for name, bounds in ranges.items()
            }
        ),
        n_trials=budget,
    )
    return study.best_params


def _irspack_search(split: Any, budget: int, rank: int, seed: int) -> dict[str, Any]:
    """α₀, λ and the epochs (at most 16) of irspack's iALS by its own search, on the same held-out positives."""
    from irspack import Evaluator
    from irspack.recommenders import IALSRecommender

    logging.getLogger("irspack").setLevel(logging.ERROR)
    own: dict[str, Any] = {"n_components": rank, "n_threads": peers.THREADS}
    best, _ = IALSRecommender.tune(
        peers.rows(split.train),
        Evaluator(peers.rows(split.test), cutoff=20, target_metric="ndcg", n_threads=peers.THREADS),
        n_trials=budget,
        tuning_random_seed=seed,
        **own,
    )
    return {k: v for k, v in best.items() if k not in own}


def _irspack(X: Interactions, rank: int, seed: int, **settings: Any) -> Factors:
    """irspack's iALS."""
    from irspack.recommenders import IALSRecommender

    own = {"n_components": rank, "n_threads": peers.THREADS, "random_seed": seed}
    model = IALSRecommender(peers.rows(X), **own, **settings).learn()  # pyright: ignore
    U, V = model.get_user_embedding(), model.get_item_embedding()
    return Factors(jnp.asarray(U), jnp.asarray(V))


def ease(X: Interactions, reg: float) -> np.ndarray:
    """B, [n, n], with a diagonal of zeros."""
    rows = scipy.sparse.csr_matrix(X.to_scipy(), dtype=np.float32)
    gram = (rows.T @ rows).toarray()
    gram[np.diag_indices_from(gram)] += reg
    P = np.linalg.inv(gram)
    B = P / -np.diag(P)
    np.fill_diagonal(B, 0.0)
    return B


def of_item_weights(
    B: np.ndarray, X: Interactions, test: Interactions, at: tuple[int, ...], block: int = 1000
) -> dict[str, np.ndarray]:
    """`evaluate` per user of the scores X B, in blocks of users, for those with held-out positives."""
    rows = scipy.sparse.csr_matrix(X.to_scipy(), dtype=np.float32)
    users = np.flatnonzero(test.on_host()[2])
    alike = np.ones((X.num_items, 1))  # diversity is not asked for, and would compare rows of B
    parts, Bt = [], jnp.asarray(B.T)
    for first in range(0, len(users), block):
        own = users[first : first + block]
        factors = Factors(jnp.asarray(rows[own].toarray()), Bt)
        part = evaluate(factors, X.take(own), test.take(own), at, per_user=True, features=alike)
        parts.append({name: values for name, values in part.items() if np.ndim(values)})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _ease_search(
    X: Interactions, split: Any, budget: int, criterion: str, seed: int
) -> dict[str, float]:
    """λ of EASE, on a scale of its own, by at most 4000 judges."""
    if X.num_items > EASE_ITEMS:
        raise ValueError(f"EASE inverts an n × n matrix: {X.num_items} items are too many")
    tries = min(budget, 16 if X.num_items < 5000 else 5)
    judges = splits.generator(seed).permutation(np.flatnonzero(split.test.on_host()[2]))[:4000]
    seen, wanted = split.train.take(judges), split.test.take(judges)
    size = formulas.parse(criterion)[1] or 1

    def worth(reg: float) -> float:
        found = of_item_weights(ease(split.train, reg), seen, wanted, (size,))
        return float(np.nanmean(found[criterion]))

    return {"reg": float(max(np.geomspace(20.0, 2000.0, tries), key=worth))}
