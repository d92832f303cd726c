"""Boyan's chain: thirteen states whose values four features represent exactly."""

from __future__ import annotations

import numpy as np

from emphatic.problems.mdp import MDP


def boyan() -> MDP:
    """A chain of thirteen states that is walked in steps of one or two.

    States: thirteen and the end; an episode begins in the first.
    Actions: one, which goes on by one state or two, ½ each; from the last but one to the last, and from there to
        the end.
    Policies: the same.
    Rewards and discount: R = −3 from the first eleven states, −2 from the next, 0 at the end; γ = 1.
    Features: four; states 1, 5, 9 and 13 have one each, and those in between are mixtures in steps of ¼.
    Known for: v_π = −24, −22, …, 0 is linear in the features, θ* = (−24, −16, −8, 0), so every TD algorithm can find
        it and only speed differs.
    Source: Boyan (2002), "Technical update: least-squares temporal difference learning".

    >>> boyan().v_pi.round(9).tolist()[:3], bool(abs(boyan().fixed_point("td") - [-24, -16, -8, 0]).max() < 1e-9)
    ([-24.0, -22.0, -20.0], True)
    """
    P, R = np.zeros((13, 1, 14)), np.full(13, -3.0)
    for s in range(11):
        P[s, 0, s + 1 : s + 3] = 0.5
    P[11, 0, 12] = P[12, 0, 13] = 1.0
    R[11:] = -2.0, 0.0
    Phi = np.maximum(0.0, 1.0 - np.abs(np.arange(13)[:, None] / 4 - np.arange(4)))
    return MDP(P, R, 1.0, [1.0], Phi=Phi, start=np.arange(13) == 0, name="boyan")
