"""Descent on the host for the users of a block: one system, Newton steps, or gradient steps on the sphere, per user."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np


class Local(NamedTuple):
    """f, ∇f and the convex part of ∇²f at some u, for the users of a block."""

    value: Any  # [b]
    gradient: Any  # [b, k]
    hessian: Any  # [b, k, k]


def solve(H: np.ndarray, r: np.ndarray, ridge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """u = H⁻¹ r of each user, and |H u − r|²/2λ.

    This runs on the host in float64, where NumPy solves one small system after the other; `solvers.sweeps` says
    what several at the same time do to XLA's threads.
    """
    H, r = H.astype(np.float64), r.astype(np.float64)[:, :, None]
    u = np.linalg.solve(H + _damping(H), r)
    return u[:, :, 0], _gap((H @ u - r)[:, :, 0], ridge)


def newton(
    evaluate: Callable[[Any], Local], ridge: np.ndarray, rank: int, tolerance: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """u of each user of a block, by Newton steps from 0, and |∇f|²/2λ.

    The loop is plain Python, and the k × k systems are solved on the host in float64, one after the other (see
    `solvers.sweeps` for the reason).
    """
    u = np.zeros((len(ridge), rank), ridge.dtype)
    current, length = _host(evaluate(u)), np.ones(len(u))
    noise = 32 * np.finfo(u.dtype).eps
    for _ in range(steps):
        if ((_gap(current.gradient, ridge) <= tolerance) | (length < 1e-4)).all():
            break
        gradient, hessian = current.gradient.astype(np.float64), current.hessian.astype(np.float64)
        direction = -np.linalg.solve(hessian + _damping(hessian), gradient[:, :, None])[:, :, 0]
        fall = -(direction * gradient).sum(1)  # twice the gain that a full step should have
        rounding = noise * (1 + np.abs(current.value))
        if (fall <= rounding).all():
            break
        trial = (u + length[:, None] * direction).astype(u.dtype)
        proposed = _host(evaluate(trial))
        accepted = proposed.value <= current.value - 1e-4 * length * fall + rounding
        u = np.where(accepted[:, None], trial, u)
        current = (
            proposed
            if accepted.all()
            else Local(*map(partial(_choose, accepted), proposed, current))
        )
        length = np.where(accepted, 1.0, length / 2)
    return u, _gap(current.gradient, ridge)


def on_sphere(evaluate: Callable, zeros: np.ndarray, steps: int) -> np.ndarray:
    """u of length one for each user of a block, by gradient steps along the sphere from the direction of −∇f(0)."""
    dtype = zeros.dtype
    u = _unit(-np.asarray(evaluate(zeros)[1]))
    value, gradient = map(np.asarray, evaluate(u))
    length = 1 / (np.linalg.norm(gradient, axis=1) + 1e-30)
    for _ in range(steps):
        tangent = gradient - (gradient * u).sum(1, keepdims=True) * u
        fall = (tangent**2).sum(1)
        if (length * fall <= 32 * np.finfo(dtype).eps * (1 + np.abs(value))).all():
            break
        trial = _unit(u - length[:, None] * tangent).astype(dtype)
        proposed, slope = map(np.asarray, evaluate(trial))
        accepted = proposed <= value - 1e-4 * length * fall
        u, gradient = (
            np.where(accepted[:, None], *pair) for pair in ((trial, u), (slope, gradient))
        )
        value = np.where(accepted, proposed, value)
        length = np.where(accepted, 1.5 * length, length / 4)
    return u


def _unit(u: np.ndarray) -> np.ndarray:
    return u / np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1e-30)


def _gap(gradient: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """|∇f|²/2λ; nan where λ is 0."""
    return (gradient**2).sum(1) / np.where(ridge > 0, 2 * ridge, np.nan)


def _damping(H: np.ndarray) -> np.ndarray:
    """A small multiple of the identity to add to H, which may be singular if λ is 0."""
    return 1e-9 * np.eye(H.shape[1]) * np.abs(H).max((1, 2), keepdims=True)


def _choose(accepted: np.ndarray, proposed: np.ndarray, current: np.ndarray) -> np.ndarray:
    return np.where(accepted.reshape(-1, *[1] * (current.ndim - 1)), proposed, current)


def _host(local: Local) -> Local:
    return Local(*map(np.asarray, local))
