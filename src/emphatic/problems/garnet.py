"""Garnets: random MDPs of any size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from emphatic.learning.inputs import refusal, whole
from emphatic.problems.checks import FloatArray, seeds
from emphatic.problems.mdp import MDP


def garnet(
    states: int = 30,
    actions: int = 4,
    branching: int = 2,
    n: int | None = 8,
    seed: int | Sequence[int] = 0,
    *,
    gamma: float = 0.95,
    on_policy: bool = False,
) -> MDP:
    """A random MDP, the same for the same arguments.

    States: ``states``; each may be the first, and there are no episodes.
    Actions: ``actions``; each leads to ``branching`` states, drawn anew for each state and action, with
        probabilities that cut the unit interval at random places.
    Policies: π and μ draw each state's probabilities uniformly from all there are; on-policy π = μ.
    Rewards and discount: R(s, a) is standard normal; ``gamma``.
    Features: ``n`` binary ones, half of them (rounded down, at least one) 1 in each state, all states different if
        there are enough; with n = None one per state.
    Known for: no special structure to exploit, so algorithms can be compared over many draws. With a single action
        and successor a draw may fall apart into several chains, and has then no d_μ.
    Source: Archibald, McKinnon & Thomas (1995); with features, Bhatnagar et al. (2009), "Natural actor–critic
        algorithms", whose smaller Garnet has the default sizes.

    >>> garnet(seed=3)
    MDP('garnet', S=30, A=4, n=8)
    """
    S, A = whole("states", states, "garnet"), whole("actions", actions, "garnet")
    b = whole("branching", branching, "garnet")
    if b > S:
        raise refusal("branching", "garnet", f"be at most the number of states, {S}", str(b))
    rng = np.random.default_rng(seeds(seed, "garnet"))
    following = rng.random((S, A, S)).argsort(axis=2)[:, :, :b]
    cuts = np.sort(rng.random((S, A, b - 1)), axis=2)
    P = np.zeros((S, A, S))
    np.put_along_axis(P, following, np.diff(cuts, axis=2, prepend=0.0, append=1.0), axis=2)
    R = rng.standard_normal((S, A))
    pi, mu = rng.dirichlet(np.ones(A), (2, S))
    Phi = None if n is None else _binary(S, whole("n", n, "garnet"), rng)
    return MDP(P, R, gamma, pi, pi if on_policy else mu, Phi, name="garnet")


def _binary(S: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Rows of n bits with half of them 1, no two the same while there are others left."""
    ones = max(1, n // 2)
    room = math.comb(n, ones)
    rows: list[tuple[int, ...]] = []
    used: set[tuple[int, ...]] = set()
    while len(rows) < S:
        row = tuple(sorted(rng.permutation(n)[:ones].tolist()))
        if row not in used:
            used.add(row)
            rows.append(row)
        if len(used) == room:
            used.clear()
    Phi = np.zeros((S, n))
    np.put_along_axis(Phi, np.array(rows), 1.0, axis=1)
    return Phi
