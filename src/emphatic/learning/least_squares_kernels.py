"""The steps of recursive least squares: see ``least_squares``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import types
from numba.extending import register_jitable

from emphatic.engines.compiled import jit_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_f1, _f2, _f3 = (types.Array(types.float64, ndim, "C") for ndim in (1, 2, 3))
_r2, _r3 = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (2, 3))
_b1 = types.Array(types.boolean, 1, "C")

# What a matrix carries from step to step: γ, and with ``emphatic`` ργ'F, else 0.
GAMMA, F = range(2)
# How steps ended: at the last one, at one whose matrix must be inverted anew, or before one that is not finite.
DONE, SINGULAR, DIVERGED = range(3)
#: Beyond this, products would not be finite.
LARGEST = 1e100
#: Cancellation takes digits from a small denominator, and a large one takes as many from P: beyond this, P is not used.
LOST = 1e6


@register_jitable
def record_step(
    t: int, Phi: Floats, Phi_next: Floats, parameters: Floats, R: Floats, theta: Floats, e: Floats, memory: Floats,
    frozen: NDArray[np.bool_], predictions: Floats, weights: Floats, every: int, skip: int, delta: Floats,
) -> int:  # fmt: skip
    """Write the predictions and weights before a step, and its TD errors; −1, or the trace that would be too large."""
    n, G, K = Phi.shape[1], e.shape[0], theta.shape[0]
    for k in range(K):
        if predictions.shape[0]:
            v = 0.0
            for i in range(n):
                v += theta[k, i] * Phi[t, i]
            predictions[t, k] = v
        if weights.shape[0] and t >= skip and (t - skip) % every == 0:
            weights[(t - skip) // every, k] = theta[k]
    for k in range(K):
        g = 0 if G == 1 else k
        d = R[t, k]
        for i in range(n):
            d -= theta[k, i] * (Phi[t, i] - parameters[0, t, g] * Phi_next[t, i])
        fine = abs(d) <= LARGEST
        s = parameters[2, t, g] * (memory[g, F] + parameters[3, t, g])  # F is 0 unless emphatic
        for i in range(n):
            fine = fine and abs(e[g, i]) * parameters[2, t, g] + s * abs(Phi[t, i]) <= LARGEST
            fine = fine and abs(Phi[t, i] - parameters[0, t, g] * Phi_next[t, i]) <= LARGEST
        if not (fine or frozen[min(g, len(frozen) - 1)]):
            return g
        delta[k] = d
    return -1


@jit_for((
    _r2, _r2, _r3, _r2, types.int64, types.int64, types.boolean, _f1, _f3, _f3, _f2, _f2, _f2, _f2, _b1, _f2, _f3,
    types.int64, types.int64, _f1,
))  # fmt: skip
def steps(
    Phi: Floats, Phi_next: Floats, parameters: Floats, R: Floats, begin: int, after: int, emphatic: bool,
    forgetting: Floats, A: Floats, P: Floats, b: Floats, theta: Floats, e: Floats, memory: Floats,
    frozen: NDArray[np.bool_], predictions: Floats, weights: Floats, every: int, skip: int, delta: Floats,
) -> tuple[int, int, int]:  # fmt: skip
    """Steps from ``begin`` on, with φ and φ' (T, n), γ', λ, ρ, I (4, T, G) and R (T, K).

    Each of the G matrices has a learner of its own, or the only one serves all K. Of the first step the matrices up to
    ``after`` have been done, unless it is −1. Predictions (T, K) are written if there is room, and weights (·, K, n)
    before each ``every``-th step, from ``skip`` on. Returns the step, how it ended, and the matrix: A and b of a
    ``SINGULAR`` one are those after the step, P and θ those before it; where one has ``DIVERGED`` none was changed.
    """
    T, n = Phi.shape
    G, K = A.shape[0], theta.shape[0]
    u, Pe, uP, new = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for t in range(begin, T):
        resumed = t == begin and after >= 0
        if not resumed:
            g = record_step(
                t, Phi, Phi_next, parameters, R, theta, e, memory, frozen, predictions, weights, every, skip, delta
            )
            if g >= 0:
                return t, DIVERGED, g
        for g in range(after + 1 if resumed else 0, G):
            if frozen[g]:
                continue
            gamma_next, lambda_, rho, I = (
                parameters[0, t, g],
                parameters[1, t, g],
                parameters[2, t, g],
                parameters[3, t, g],
            )
            gamma, followon, forget = memory[g, GAMMA], memory[g, F] + I, forgetting[g]
            M = lambda_ * I + (1.0 - lambda_) * followon if emphatic else I
            c, s, traced = rho * gamma * lambda_, rho * M, False
            for i in range(n):
                new[i] = c * e[g, i] + s * Phi[t, i]
                traced = traced or new[i] != 0.0
                u[i] = Phi[t, i] - gamma_next * Phi_next[t, i]
            e[g] = new
            memory[g, GAMMA], memory[g, F] = gamma_next, rho * gamma_next * followon if emphatic else 0.0
            if not traced and forget == 1.0:
                continue
            first, last = (0, K) if G == 1 else (g, g + 1)
            gain, largest, whole = 0.0, 0.0, forget
            uP[:] = 0.0
            for i in range(n):
                v = 0.0
                for j in range(n):
                    v += P[g, i, j] * new[j]
                    uP[j] += u[i] * P[g, i, j]
                Pe[i] = v
                gain += u[i] * v
                whole += abs(u[i] * v)
                largest = max(largest, abs(v)) if abs(v) <= LARGEST else LARGEST
            for i in range(n):
                for j in range(n):
                    A[g, i, j] = forget * A[g, i, j] + new[i] * u[j]
            for k in range(first, last):
                for i in range(n):
                    b[k, i] = forget * b[k, i] + R[t, k] * new[i]
            D = forget + gain
            if not (abs(D) * LOST > whole and whole < LOST * forget and largest < LARGEST):
                return t, SINGULAR, g
            for i in range(n):
                v = Pe[i] / D
                for j in range(n):
                    P[g, i, j] = (P[g, i, j] - v * uP[j]) / forget
                for k in range(first, last):
                    theta[k, i] += delta[k] * v
    return T, DONE, 0
