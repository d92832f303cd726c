"""Exact answers about finite Markov chains: where they go, how often they are where, and sums along the way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emphatic.problems.checks import TOLERANCE, FloatArray

__all__ = ["least_norm", "never_left", "recurrent", "stationary", "sums"]

BoolArray = NDArray[np.bool_]


def recurrent(P: FloatArray, start: FloatArray) -> tuple[BoolArray, bool]:
    """The states to which a chain begun in ``start`` returns for ever, and whether each can be had from each other."""
    reach = (P > 0.0) | np.eye(len(P), dtype=bool)
    while True:
        paths = reach.astype(np.float32)
        further = paths @ paths > 0.0
        if (further == reach).all():
            break
        reach = further
    reached = reach[start > 0.0].any(axis=0)
    returns: BoolArray = reached & (~reach | reach.T).all(axis=1)
    return returns, bool(reach[np.ix_(returns, returns)].all())


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
    return d / d.sum()


def never_left(M: FloatArray) -> FloatArray:
    """The states of a sub-stochastic matrix from which nothing is ever lost: 𝟙 − M is singular if there are any."""
    able = M.sum(axis=1) < 1.0 - TOLERANCE
    while True:
        more = able | (M[:, able] > 0.0).any(axis=1)
        if (more == able).all():
            return np.flatnonzero(~able)
        able = more


def sums(M: FloatArray, x: FloatArray) -> FloatArray:
    """x + Mx + M²x + … = (𝟙 − M)⁻¹x"""
    return np.linalg.solve(np.eye(len(M)) - M, x)


def least_norm(A: FloatArray, b: FloatArray) -> FloatArray | None:
    """The shortest θ with Aθ = b; None if there is no such θ."""
    theta = np.linalg.lstsq(A, b, rcond=None)[0]
    scale = np.abs(A).max() * np.abs(theta).max() + np.abs(b).max()
    return theta if np.abs(A @ theta - b).max() <= 1e-9 * scale else None
