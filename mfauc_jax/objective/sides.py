"""The penalty of a model with features: v_j = A f_j + d_j, u_i = B g_i + e_i (docs/derivations.md#features).

    ½ (Σ λ_i |u_i − B g_i|² + Σ λ_c |b_c|²)/m + ½ (Σ λ_j |v_j − A f_j|² + Σ λ_c |a_c|²)/n

takes the place of ½ (Σ λ_i |u_i|²/m + Σ λ_j |v_j|²/n); the data term of Eq. 3 stays. A and B are functions of the
factors: the ridge regression of V on the features. So a model is U and V, with or without features.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from mfauc_jax._core import digests
from mfauc_jax._core.factors import Factors
from mfauc_jax.objective import exact
from mfauc_jax.objective.equation import Objective
from mfauc_jax.objective.penalties import Reg, by_row

SHARED = 2.0  # the variance that λ_j allows v_j is shared by two parts: d_j, and the sum over its features
STEPS = 1000  # of conjugate gradients, at most
TOLERANCE = 1e-12  # of the squared residual, relative


def of_own_parts(reg: Any) -> Reg:
    """λ of users outside the training set, where users have features: that of e_i, twice what it was for u_i."""
    reg = reg if isinstance(reg, Reg) else Reg(reg, reg)
    return reg._replace(user=SHARED * np.asarray(reg.user))


class Side(NamedTuple):
    """The features of the items, or of the users, of a problem."""

    matrix: Any  # f_j as rows, a scipy.sparse.csr_array, [n, p]
    reg: Float[np.ndarray, " p"]  # λ_c
    row_reg: Float[np.ndarray, " n"]  # λ_j of d_j; 0 where a row is not fitted, which is then A f_j

    @classmethod
    def of(cls, kind: str, matrix: Any, reg: Any, fitted: Bool[np.ndarray, " n"]) -> "Side":
        """The side of a problem with the given λ_j of v_j; `kind` is "item" or "user", for messages."""
        if matrix.shape[0] != len(fitted):
            raise ValueError(
                f"{matrix.shape[0]} rows of features for {len(fitted)} {kind}s: give one each"
            )
        own = np.asarray(reg, np.float64) * fitted
        by_feature = matrix.multiply(matrix).T @ own
        return cls(matrix, np.where(by_feature > 0, by_feature, 1.0), SHARED * own)

    def in_own_units(self) -> "Side":
        """The same side with f_jc/s_c, a_c s_c and λ_c/s_c² for f_jc, a_c and λ_c: A f_j and the penalty stay.

        s_c is the root mean square of the feature over the rows that have it, times the root of the mean number of
        features per row: then Σ_c f_jc² is about 1, whatever the units and the number of features.
        """
        import scipy.sparse

        matrix: Any = scipy.sparse.csr_array(self.matrix, copy=True)
        matrix.eliminate_zeros()
        numbers = np.bincount(matrix.indices, minlength=matrix.shape[1])
        squares = np.bincount(matrix.indices, matrix.data**2, minlength=matrix.shape[1])
        per_row = max(1.0, matrix.nnz / max(1, (np.diff(matrix.indptr) > 0).sum()))
        unit = np.sqrt(np.where(numbers > 0, squares / np.maximum(numbers, 1), 1.0) * per_row)
        matrix.data = matrix.data / unit[matrix.indices]
        return self._replace(matrix=matrix, reg=self.reg / unit**2)

    def coefficients(self, F: Any) -> Float[np.ndarray, "p k"]:
        """A: the minimum of Σ λ_j |v_j − A f_j|² + Σ λ_c |a_c|² for the rows v_j of F, by conjugate gradients."""
        F = np.asarray(F, np.float64)
        target = self.matrix.T @ (self.row_reg[:, None] * F)
        squares = self.matrix.multiply(self.matrix).T @ self.row_reg
        diagonal = np.maximum(squares + self.reg, 1e-30)[:, None]
        A, residual = np.zeros_like(target), target
        z = residual / diagonal
        direction, rho = z, (residual * z).sum(0)
        least = TOLERANCE * rho
        for _ in range(STEPS):
            if (rho <= least).all():
                break
            image = self.matrix.T @ (self.row_reg[:, None] * (self.matrix @ direction))
            image += self.reg[:, None] * direction
            bend = (direction * image).sum(0)
            length = np.where(bend > 0, rho / np.where(bend > 0, bend, 1.0), 0.0)
            A, residual = A + length * direction, residual - length * image
            z = residual / diagonal
            new = (residual * z).sum(0)
            direction = z + new / np.where(rho > 0, rho, 1.0) * direction
            rho = new
        return A

    def digest(self) -> str:
        """A digest of the features and of λ_c."""
        entries = self.matrix.tocoo()
        found = digests.entries(entries.row, entries.col, entries.data), digests.entries(self.reg)
        return str([part.tolist() for part in found])

    def penalty(self, F: Any, A: Any = None) -> float:
        """½ (Σ λ_j |v_j − A f_j|² + Σ λ_c |a_c|²)/n of the rows v_j of F; A is the best one unless it is given."""
        F = np.asarray(F, np.float64)
        A = self.coefficients(F) if A is None else np.asarray(A, np.float64)
        own = (self.row_reg * ((F - self.matrix @ A) ** 2).sum(1)).sum()
        return 0.5 * float(own + (self.reg * (A**2).sum(1)).sum()) / len(F)


class Sides(NamedTuple):
    """The features of a problem; None where there are none."""

    items: Side | None = None
    users: Side | None = None

    def value(self, objective: Objective, factors: Factors, plan: exact.Plan) -> float:
        """θ(U, V) with features: the data term of Eq. 3, and the penalty for the best A and B."""
        reg = by_row(objective.reg, *(len(F) for F in factors))
        if self.items is not None:
            reg = reg._replace(item=0.0)
        if self.users is not None:
            reg = reg._replace(user=0.0)
        theta = float(exact.value(objective._replace(reg=reg), factors, plan))
        own = zip(self, reversed(factors), strict=True)
        return theta + sum(side.penalty(F) for side, F in own if side is not None)
