"""implicit, irspack and lightfm-next behind one shape: fitted, their factors are ours (docs/derivations.md#peers).

All use all cores. implicit's documentation asks for one BLAS thread, which `one_blas_thread` sees to.
LightFM's item biases become a last column of V against a column of ones in U.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse
import threadpoolctl

from mfauc_jax._core.factors import Factors
from mfauc_jax.data.interactions import Interactions

THREADS = os.cpu_count() or 1


@contextlib.contextmanager
def one_blas_thread():
    """BLAS in one thread, that of implicit included, where it is installed."""
    with contextlib.suppress(ImportError):
        import implicit.cpu.als  # noqa: F401  # loaded now, so that it is limited too

    with threadpoolctl.threadpool_limits(1, "blas"):
        yield


def rows(X: Interactions) -> scipy.sparse.csr_matrix:
    """X as implicit wants it, writable."""
    return scipy.sparse.csr_matrix(X.to_scipy(), copy=True)


def implicit_als(rank: int, reg: float, alpha: float, iterations: int = 15, seed: int = 0) -> Any:
    """implicit's alternating least squares, not yet fitted."""
    from implicit.cpu.als import AlternatingLeastSquares

    return AlternatingLeastSquares(
        rank,
        regularization=reg,
        alpha=alpha,
        iterations=iterations,
        random_state=seed,
        num_threads=THREADS,
    )


def implicit_lists(
    U: np.ndarray, V: np.ndarray, seen: Interactions
) -> Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]:
    """implicit's lists of given factors, seen items excluded: (users, length) to items and scores."""
    model, matrix = implicit_als(U.shape[1], 0.0, 1.0), rows(seen)
    model.user_factors, model.item_factors = U, V

    def lists_of(users: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        own = matrix if len(users) == len(U) else matrix[users]
        return model.recommend(users, own, N=length)

    return lists_of


def implicit_bpr(rank: int, iterations: int, **setting: Any) -> Any:
    """implicit's BPR, not yet fitted."""
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    return BayesianPersonalizedRanking(
        rank, iterations=iterations, random_state=0, num_threads=THREADS, **setting
    )


def implicit_factors(model: Any, X: Interactions) -> Factors:
    """The factors after a fit of an implicit model."""
    model.fit(rows(X), show_progress=False)
    return Factors(jnp.asarray(model.user_factors), jnp.asarray(model.item_factors))


class Irspack:
    """irspack's iALS by conjugate gradients ("CG") or iALS++ ("IALSPP"); `go_on` runs further epochs."""

    def __init__(
        self, X: Interactions, rank: int, solver: str, alpha0: float, reg: float, seed: int = 0
    ):
        """Args: alpha0: weight of what was not seen. reg: of users and items alike."""
        from irspack.recommenders import IALSRecommender  # pyright: ignore[reportMissingImports]

        setting: dict[str, Any] = {"alpha0": alpha0, "reg": reg, "solver_type": solver}
        self._model: Any = IALSRecommender(
            rows(X), n_components=rank, n_threads=THREADS, random_seed=seed, **setting
        )
        self._model.start_learning()

    def go_on(self, epochs: int) -> Factors:
        """The factors after so many further epochs."""
        for _ in range(epochs):
            self._model.run_epoch()
        found = self._model.trainer.core_trainer
        return Factors(jnp.asarray(found.user), jnp.asarray(found.item))


class LightFM:
    """lightfm-next's model of a loss; `go_on` fits further epochs and gives the factors so far."""

    def __init__(self, X: Interactions, loss: str, rank: int, alpha: float = 0.0, seed: int = 0):
        """Args: alpha: of users and items alike."""
        from lightfm import LightFM as Model  # pyright: ignore[reportMissingImports]

        self._model: Any = Model(
            rank, loss=loss, item_alpha=alpha, user_alpha=alpha, random_state=seed
        )
        self._matrix = scipy.sparse.coo_matrix(X.to_scipy(), copy=True)  # writable

    def go_on(self, epochs: int) -> Factors:
        """The factors after so many further epochs."""
        model = self._model
        model.fit_partial(self._matrix, epochs=epochs, num_threads=THREADS)
        U = np.pad(model.user_embeddings, ((0, 0), (0, 1)), constant_values=1.0)
        V = np.concatenate([model.item_embeddings, model.item_biases[:, None]], 1)
        return Factors(jnp.asarray(U), jnp.asarray(V))
