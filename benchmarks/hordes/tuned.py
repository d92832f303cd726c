"""Sutton's pseudocode over K learners in NumPy, as fast as we could make it: the hardest comparison, not line for line.

Learners are the columns. Each in its best blocks, (n, K) is within a tenth of (K, n) at n = K = 1024 and twice as fast
for few features and for the robot: a number a learner then goes along the rows that lie together in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.hordes.streams import Array, Horde, each
from benchmarks.streams import NAMES

AHEAD = 64  # steps


class TunedHorde:
    """Dense φ, a whole log: what does not depend on θ and e is made for many steps at once.

    Products by ``dot`` (one ``dot`` with two φ is slower); D is θ_t·φ_t less what θ_{t−1}·φ_t was, which both are
    there; every operation writes in place. Learners go in blocks, each of which takes all steps before the next.
    """

    def __init__(self, n: int, K: int, dtype: str, block: int) -> None:
        self._blocks = [slice(k, min(k + block, K)) for k in range(0, K, block)]
        self._states = [np.zeros((3, n, part.stop - part.start), dtype) for part in self._blocks]

    @property
    def theta(self) -> Array:
        return np.concatenate([state[0].T for state in self._states])

    def run(self, stream: Horde) -> Array:
        """Learn from the first step on, with the weights there are; the predictions."""
        predictions = np.empty((stream.T, stream.K), stream.dtype)
        for part, state in zip(self._blocks, self._states, strict=True):
            own = {name: p[:, part] if p.shape[1] > 1 else p for name, p in stream.parameters.items()}
            state[1] = 0.0
            _run(state, stream.dense, own, predictions[:, part])
        return predictions


def _run(state: Array, Phi: Array, parameters: dict[str, Array], predictions: Array) -> None:
    theta, e, spare = state
    rows, columns = list(Phi), list(Phi[:, :, None])
    v_next, D, S, x = np.zeros((4, theta.shape[1]), theta.dtype)
    dot, multiply, add, subtract = np.dot, np.multiply, np.add, np.subtract
    T, F, gamma = len(predictions), np.zeros((1, 1)), np.zeros((1, 1))
    dot(rows[0], theta, v_next)
    for begin in range(0, T, AHEAD):
        size = min(AHEAD, T - begin)
        own = {name: p[begin : begin + size] if len(p) > 1 else p for name, p in parameters.items()}
        b, c, F, gamma = _ahead(own, size, F, gamma)
        b, c = (np.broadcast_to(p, (size, p.shape[1])).astype(theta.dtype, copy=False) for p in (b, c))
        R, gamma_next = (each(own[name], size, theta.dtype) for name in ("R", "gamma_next"))
        for i, t in enumerate(range(begin, begin + size)):
            phi, column, b_t, c_t = rows[t], columns[t], b[i], c[i]
            v = predictions[t]
            dot(phi, theta, v)
            subtract(v, v_next, D)
            dot(rows[t + 1], theta, v_next)
            dot(phi, e, S)
            multiply(S, c_t, S)  # S = b (1 − c e·φ)
            subtract(1.0, S, S)
            multiply(S, b_t, S)
            multiply(e, c_t, e)  # e ← c e + S φ
            multiply(column, S, spare)
            add(e, spare, e)
            multiply(v_next, gamma_next[i], x)  # δ + D
            subtract(x, v, x)
            add(x, R[i], x)
            add(x, D, x)
            multiply(e, x, spare)  # θ ← θ + (δ + D) e − D b φ
            add(theta, spare, theta)
            multiply(D, b_t, D)
            multiply(column, D, spare)
            subtract(theta, spare, theta)


def _ahead(p: dict[str, Array], size: int, F: Array, gamma: Array) -> tuple[Array, Array, Array, Array]:
    """b = ρ α M and c = ρ γ λ of the next steps, and what ρ γ' F and γ are after them."""
    alpha, I, lambda_, rho, _, gamma_next = (p[name] for name in NAMES)
    gamma_next = np.broadcast_to(gamma_next, (size, gamma_next.shape[1]))
    decay, F_t = rho * gamma_next, F[0]
    all_F = np.empty((size, max(I.shape[1], decay.shape[1])))
    if all_F.shape[1] == 1:  # numbers, not arrays of one
        decay, F_t = decay[:, 0].tolist(), float(F_t[0])
    for t, I_t in enumerate(each(I, size)):
        all_F[t] = F_t = F_t + I_t
        F_t = decay[t] * F_t
    b = rho * alpha * (lambda_ * I + (1 - lambda_) * all_F)
    before = np.concatenate([np.broadcast_to(gamma, gamma_next[:1].shape), gamma_next[:-1]])
    return b, rho * before * lambda_, np.reshape(F_t, (1, -1)), gamma_next[-1:]


class TunedNexting:
    """Binary φ given by index, a call a step: traces are dense and decay in place, products sum the active rows.

    The dense part goes in blocks of rows, so that e is read from memory once.
    """

    def __init__(self, n: int, K: int, active: int, dtype: str, block: int = 64) -> None:
        self._theta, self.e = np.zeros((2, n, K), dtype)
        self._spare, self._block = np.empty((block, K), dtype), block
        self.F = self.gamma = np.zeros(K, dtype)
        self._v_next = np.zeros(K, dtype)
        self._taken, self._ones = np.empty((active, K), dtype), np.ones(active, dtype)

    @property
    def theta(self) -> Array:
        return self._theta.T

    def learn(
        self, alpha: Any, I: Any, lambda_: Any, phi: Array, rho: Any, R: Any, phi_next: Array, gamma_next: Any
    ) -> Array:
        """One step with φ, φ' as indices; φ is the φ' of the step before."""
        theta, e = self._theta, self.e
        v, v_next, e_phi = self._sum(theta, phi), self._sum(theta, phi_next), self._sum(e, phi)
        D = v - self._v_next
        delta: Array = R + gamma_next * v_next - v
        F = self.F + I
        b = rho * alpha * (lambda_ * I + (1 - lambda_) * F)
        c = rho * self.gamma * lambda_
        S = b * (1 - c * e_phi)
        a, q = (delta + D) * c, delta * S + D * (S - b)
        for i in range(0, len(e), self._block):
            rows, sums = e[i : i + self._block], theta[i : i + self._block]
            spare = self._spare[: len(rows)]
            np.multiply(rows, a, spare)
            np.add(sums, spare, sums)
            np.multiply(rows, c, rows)
        self._add(theta, phi, q)  # θ ← θ + a e + q φ
        self._add(e, phi, S)  # e ← c e + S φ
        self.F, self.gamma, self._v_next = rho * gamma_next * F, gamma_next, v_next
        return delta

    def _sum(self, X: Array, rows: Array) -> Array:
        np.take(X, rows, 0, self._taken, "clip")  # with "raise" NumPy would make a copy first
        sums: Array = self._ones.dot(self._taken)
        return sums

    def _add(self, X: Array, rows: Array, more: Array) -> None:
        np.take(X, rows, 0, self._taken, "clip")
        np.add(self._taken, more, self._taken)
        X[rows] = self._taken
