"""The seed's lines with an axis K, in plain NumPy: θ and e are (K, n), every operation on them is in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.hordes.streams import Array, Horde


class NumPyHorde:
    """Dense φ. What is a number for one learner is (K,) here, or still a number where all learners share it."""

    def __init__(self, n: int, K: int, dtype: str) -> None:
        self.theta, self.e, self._Delta, self._spare = np.zeros((4, K, n), dtype)
        self.F = self.D = np.zeros(K, dtype)
        self.gamma: Any = 0.0

    def learn(
        self, alpha: Any, I: Any, lambda_: Any, phi: Array, rho: Any, R: Any, phi_next: Array, gamma_next: Any
    ) -> Array:
        """One step; the predictions θ·φ before it."""
        theta, e, Delta, spare, D = self.theta, self.e, self._Delta, self._spare, self.D
        v: Array = theta @ phi
        delta = R + gamma_next * (theta @ phi_next) - v
        F = self.F + I
        b = rho * alpha * (lambda_ * I + (1 - lambda_) * F)
        c = rho * self.gamma * lambda_
        S = b * (1 - c * (e @ phi))
        e *= column(c, e)  # e ← c e + S φ
        e += np.multiply(column(S, e), phi, spare)
        np.multiply(e, column(delta + D, e), Delta)  # Δ ← δ e + D (e − b φ)
        Delta -= np.multiply(column(D * b, e), phi, spare)
        theta += Delta
        self.D = Delta @ phi_next
        self.F, self.gamma = rho * gamma_next * F, gamma_next
        return v

    def run(self, stream: Horde) -> Array:
        """Learn from the first step on, with the weights there are; the predictions."""
        self.e[:] = 0.0
        self.F = self.D = np.zeros_like(self.D)
        self.gamma = 0.0
        predictions = np.empty((stream.T, stream.K), stream.dtype)
        for v, arguments in zip(predictions, stream.calls(stream.dense, stream.dtype), strict=True):
            v[:] = self.learn(*arguments)
        return predictions


class NumPyNexting:
    """Binary φ given by index: products take the active columns; e decays and θ takes of it whole."""

    def __init__(self, n: int, K: int, dtype: str) -> None:
        self.theta, self.e, self._Delta = np.zeros((3, K, n), dtype)
        self.F = self.D = np.zeros(K, dtype)
        self.gamma: Any = 0.0

    def learn(
        self, alpha: Any, I: Any, lambda_: Any, phi: Array, rho: Any, R: Any, phi_next: Array, gamma_next: Any
    ) -> Array:
        """One step with φ, φ' as indices."""
        theta, e, Delta, D = self.theta, self.e, self._Delta, self.D
        delta: Array = R + gamma_next * total(theta, phi_next) - total(theta, phi)
        F = self.F + I
        b = rho * alpha * (lambda_ * I + (1 - lambda_) * F)
        c = rho * self.gamma * lambda_
        S = b * (1 - c * total(e, phi))
        e *= column(c, e)  # e ← c e + S φ
        e[:, phi] += column(S, e)
        np.multiply(e, column(delta + D, e), Delta)  # Δ ← δ e + D (e − b φ)
        Delta[:, phi] -= column(D * b, e)
        theta += Delta
        self.D = total(Delta, phi_next)
        self.F, self.gamma = rho * gamma_next * F, gamma_next
        return delta


def column(p: Any, like: Array) -> Array:
    """A number a learner, or one for all, as a factor of rows."""
    return np.asarray(p, like.dtype)[..., None]


def total(X: Array, phi: Array) -> Array:
    """X·φ of every learner; ``take`` is faster than ``X[:, phi]``."""
    sums: Array = X.take(phi, axis=1).sum(axis=1)
    return sums
