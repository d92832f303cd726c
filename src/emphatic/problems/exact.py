"""Exact properties of finite Markov chains: recurrent states, stationary distributions and discounted sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emphatic.problems.checks import FloatArray

__all__ = ["discounted", "least_norm", "recurrent", "stationary", "sums", "visits"]

BoolArray = NDArray[np.bool_]


def recurrent(P: FloatArray, start: FloatArray) -> tuple[BoolArray, bool]:
    """The recurrent states of a chain that begins in ``start``, and whether each can be reached from every other."""
    reach = (P > 0.0) | np.eye(len(P), dtype=bool)
    while True:
        paths = reach.astype(np.float32)
        further = paths @ paths > 0.0
        if (further == reach).all():
            break
        reach = further
    reached = reach[start > 0.0].any(axis=0)
    returns = np.asarray(reached & (~reach | reach.T).all(axis=1))
    return returns, bool(reach[np.ix_(returns, returns)].all())


def visits(P: FloatArray, visited: BoolArray, connected: bool) -> FloatArray:
    """The share of time that a chain spends in each state, given ``recurrent``'s answers."""
    if not connected:
        raise ValueError(
            "d_mu is not unique: there are several sets of states that the behaviour policy never leaves once it is in "
            f"one of them (state {np.flatnonzero(visited)[0]} is in one). Give a 'mu' that can take every state to "
            "every other, or a 'start' from which only one of the sets is reached."
        )
    d = np.zeros(len(P))
    d[visited] = stationary(P[np.ix_(visited, visited)])
    return d


def stationary(P: FloatArray) -> FloatArray:
    """d = Pᵀd, Σd = 1, of an irreducible chain.

    State by state the chain is watched only while it is in those left; no two numbers are ever subtracted, so each
    component is exact to a few units in its last place. Grassmann, Taksar & Heyman (1985).
    """
    P, S = P.copy(), len(P)
    for k in range(S - 1, 0, -1):
        P[:k, k] /= P[k, :k].sum()
        P[:k, :k] += np.outer(P[:k, k], P[k, :k])
    d = np.ones(S)
    for k in range(1, S):
        d[k] = d[:k] @ P[:k, k]
    return np.asarray(d / d.sum())


def discounted(P_pi: FloatArray, discount: FloatArray, name: str) -> FloatArray:
    """P_πΓ, if 𝟙 − P_πΓ can be inverted: every state must lead to a termination or a γ below 1."""
    M = P_pi * discount
    able = M.sum(axis=1) < 1.0 - 1e-12
    while not able.all():
        more = able | (M[:, able] > 0.0).any(axis=1)
        if (more == able).all():
            raise ValueError(
                f"The sum of what follows state {np.argmin(able)} under 'pi' is infinite: no episode ends and no "
                f"'{name}' is below 1 on any way from there. Give a '{name}' below 1, or a P in which 'pi' reaches an "
                "end."
            )
        able = more
    return M


def sums(M: FloatArray, x: FloatArray) -> FloatArray:
    """x + Mx + M²x + … = (𝟙 − M)⁻¹x"""
    return np.asarray(np.linalg.solve(np.eye(len(M)) - M, x), np.float64)


def least_norm(A: FloatArray, b: FloatArray) -> FloatArray | None:
    """The shortest θ with Aθ = b; None if there is no such θ."""
    theta = np.asarray(np.linalg.lstsq(A, b, rcond=None)[0], np.float64)
    scale = np.abs(A).max() * np.abs(theta).max() + np.abs(b).max()
    return theta if np.abs(A @ theta - b).max() <= 1e-9 * scale else None
