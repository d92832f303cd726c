"""TD(λ) and ETD(λ) with K settings at once in NumPy, errors at every step; and a walk through an MDP in plain Python.

A learner that diverges does so for all to see: its numbers become infinite, then NaN.
"""

from __future__ import annotations

from bisect import bisect
from typing import Any

import numpy as np

from benchmarks.studies.check import Array
from emphatic.problems import MDP, Stream

#: Steps whose errors are made together: the fastest of 16, 64, 256 with 228 settings of 6 features.
BLOCK = 64


def triangle(mdp: MDP) -> tuple[Array, Array]:
    """U and q with RMSVE(θ) = ‖Uθ − q‖."""
    both = np.asarray(np.linalg.qr(np.sqrt(mdp.d_mu)[:, None] * np.column_stack([mdp.Phi, mdp.v_pi]), mode="r"))
    return np.ascontiguousarray(both[:, :-1]), both[:, -1].copy()


def emphases(rule: str, stream: Stream, lambda_: Array) -> list[Any]:
    """M of every step, a number or (K,): it does not depend on θ."""
    if rule == "td":
        return [1.0] * stream.T
    out, F = [], 0.0
    for rho, gamma_next in zip(stream.rho.tolist(), stream.gamma_next.tolist(), strict=True):
        F += 1.0
        out.append(lambda_ + (1.0 - lambda_) * F)
        F *= rho * gamma_next
    return out


def plain(rule: str, mdp: MDP, stream: Stream, alpha: Array, lambda_: Array) -> Array:
    """The rule's lines with an axis K: θ and e are (K, n), in place; errors (T, K) by a matrix product a step."""
    U, q = triangle(mdp)
    K, n, gamma = len(alpha), mdp.n, 0.0
    theta, e, spare = np.zeros((3, K, n))
    out, off = np.empty((stream.T, K)), np.empty((K, len(q)))
    for t, M in enumerate(emphases(rule, stream, lambda_)):
        np.matmul(theta, U.T, off)
        off -= q
        np.einsum("ks,ks->k", off, off, out=out[t])
        rho, phi, gamma_next = stream.rho[t], stream.Phi[t], stream.gamma_next[t]
        delta = stream.R[t] + gamma_next * (theta @ stream.Phi[t + 1]) - theta @ phi
        e *= (rho * gamma * lambda_)[:, None]
        e += np.multiply(np.reshape(rho * M, (-1, 1)), phi, spare)
        theta += np.multiply(e, (alpha * delta)[:, None], spare)
        gamma = gamma_next
    return np.sqrt(out, out)


def tuned(rule: str, mdp: MDP, stream: Stream, alpha: Array, lambda_: Array) -> Array:
    """Learners are columns; all that does not depend on θ is made ahead; errors of a block of steps are made together.

    Where ρ = 0 nothing is learned, and nothing is computed.
    """
    U, q = triangle(mdp)
    K, n, T = len(alpha), mdp.n, stream.T
    theta = np.zeros((BLOCK + 1, n, K))
    e, spare = np.zeros((2, n, K))
    v, delta, off, out = np.empty((2, K)), np.empty(K), np.empty((BLOCK, len(q), K)), np.empty((T, K))
    M, gamma = emphases(rule, stream, lambda_), np.concatenate([[0.0], stream.gamma_next[:-1]])
    for t0 in range(0, T, BLOCK):
        t1 = min(t0 + BLOCK, T)
        theta[0] = theta[BLOCK]
        decay = np.multiply.outer((stream.rho * gamma)[t0:t1], lambda_)
        scaled = (stream.rho[t0:t1, None] * stream.Phi[t0:t1])[:, :, None]
        rest = (array[t0:t1].tolist() for array in (stream.rho, stream.R, stream.gamma_next))
        for i, (rho, R, gamma_next) in enumerate(zip(*rest, strict=True)):
            now, following = theta[i], theta[i + 1]
            if rho == 0.0:
                e[:] = 0.0
                following[:] = now
                continue
            np.matmul(stream.Phi[t0 + i : t0 + i + 2], now, v)
            np.multiply(v[1], gamma_next, delta)
            delta -= v[0]
            if R:
                delta += R
            delta *= alpha
            e *= decay[i]
            e += scaled[i] if rule == "td" else np.multiply(scaled[i], M[t0 + i], spare)
            np.add(now, np.multiply(e, delta, spare), following)
        theta[BLOCK] = theta[t1 - t0]
        np.matmul(U, theta[:-1], off)
        off -= q[:, None]
        off *= off
        np.add.reduce(off[: t1 - t0], 1, out=out[t0:t1])
    return np.sqrt(out, out)


def walk(mdp: MDP, T: int, seed: int) -> dict[str, Any]:
    """T steps under μ, one after the other, with each state's outcomes in a list; then what ``run`` takes."""
    S = mdp.S
    chances = (mdp.mu[:, :, None] * mdp.P).reshape(S, -1).cumsum(axis=1).tolist()
    begin, u = mdp.start.cumsum().tolist(), np.random.default_rng(seed).random((2, T + 1)).tolist()
    s, states, chosen = bisect(begin, u[0][T]), [], []
    for draw, other in zip(u[0][:T], u[1], strict=False):
        k = bisect(chances[s], draw)
        states.append(s)
        chosen.append(k)
        s = k % (S + 1)
        if s == S:
            s = bisect(begin, other)
    at, (a, x) = np.array([*states, s]), np.divmod(np.array(chosen), S + 1)
    return {
        "Phi": mdp.Phi[at],
        "R": mdp.R[at[:-1], a, x],
        "gamma_next": np.where(x == S, 0.0, mdp.gamma[at[1:]]),
        "rho": (mdp.pi / np.where(mdp.mu > 0.0, mdp.mu, 1.0))[at[:-1], a],
        "states": at,
    }
