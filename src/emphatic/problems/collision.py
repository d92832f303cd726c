"""The collision task: how soon the wall would be hit by going straight on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emphatic.problems.checks import seeds
from emphatic.problems.mdp import MDP


def collision(seed: int | Sequence[int] = 0) -> MDP:
    """Eight states in a row towards a wall; features are drawn from ``seed``.

    States: eight; an episode begins in one of the first four, ¼ each.
    Actions: forward moves one state, and from the last ends the episode; turn ends it.
    Policies: π goes forward; μ does in the first four states, and turns half of the time in the others.
    Rewards and discount: R = 1 for going forward from the last state, else 0; γ = .9.
    Features: six binary ones, three of them 1 in each state, each such choice equally likely.
    Known for: v_π(s) = .9^(8−s) and d_μ = (2, 4, 6, 8, 8, 4, 2, 1)/35; off-policy algorithms differ in speed and in
        what they converge to, and the emphatic ones do best.
    Source: Ghiassian & Sutton (2021), "An empirical comparison of off-policy prediction learning algorithms on the
        collision task".

    >>> round(collision().rmsve([0.0] * 6), 5)
    0.68908
    """
    P, R = np.zeros((8, 2, 9)), np.zeros((8, 2))
    for s in range(8):
        P[s, 0, s + 1] = P[s, 1, 8] = 1.0
    R[7, 0] = 1.0
    mu = np.full((8, 2), 0.5)
    mu[:4] = 1.0, 0.0
    start = [0.25] * 4 + [0.0] * 4
    Phi = np.zeros((8, 6))
    rng = np.random.default_rng(seeds(seed, "collision"))
    np.put_along_axis(Phi, rng.random((8, 6)).argsort(axis=1)[:, :3], 1.0, axis=1)
    return MDP(P, R, 0.9, [1.0, 0.0], mu, Phi, start=start, name="collision")
