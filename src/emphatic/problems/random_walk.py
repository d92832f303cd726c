"""The random walk with an exit at either end."""

from __future__ import annotations

import math

import numpy as np

from emphatic.learning.inputs import refusal, whole
from emphatic.problems.mdp import MDP


def random_walk(states: int = 19, features: str = "tabular", rewards: tuple[float, float] = (-1.0, 1.0)) -> MDP:
    """States in a row between two exits, left and right equally likely.

    States: ``states`` of them, 3 or more; an episode begins in the middle.
    Actions: left and right move one state, and from the ends of the row end the episode.
    Policies: π = μ, ½ each: on-policy.
    Rewards and discount: ``rewards`` on leaving to the left and to the right, else 0; γ = 1.
    Features: "tabular", one per state; "inverted", all but that one, each 1/√(states − 1); "dependent", about half as
        many as states: the first n states have one more feature each, the others one less, all of length 1.
    Known for: v_π rises linearly from one exit's reward to the other's. 19 states compare TD(λ) algorithms (Sutton &
        Barto); 5 states with rewards (0, 1) and these three representations, gradient-TD algorithms (Sutton et al.).
    Source: Sutton & Barto (2018), examples 6.2 and 7.1, section 12.5; Sutton, Maei et al. (2009), section 8.

    >>> random_walk(3).v_pi.tolist(), random_walk(5, "dependent").n
    ([-0.5, 0.0, 0.5], 3)
    """
    S = whole("states", states, "random_walk")
    if S < 3:
        raise refusal("states", "random_walk", "be 3 or more", str(S))
    P, R = np.zeros((S, 2, S + 1)), np.zeros((S, 2))
    for s in range(S):
        P[s, 0, s - 1] = P[s, 1, s + 1] = 1.0  # −1 is the last column, the end
    if np.shape(rewards) != (2,):
        raise refusal("rewards", "random_walk", "be two numbers", repr(rewards))
    R[0, 0], R[-1, 1] = rewards
    if features == "tabular":
        Phi = np.eye(S)
    elif features == "inverted":
        Phi = (1.0 - np.eye(S)) / math.sqrt(S - 1)
    elif features == "dependent":
        n, row = S // 2 + 1, np.arange(S)[:, None]
        on = (np.arange(n) <= row) & (np.arange(n) > row - n)
        Phi = on / np.sqrt(on.sum(axis=1, keepdims=True))
    else:
        raise refusal("features", "random_walk", "be 'tabular', 'inverted' or 'dependent'", repr(features))
    start = np.arange(S) == S // 2
    return MDP(P, R, 1.0, [0.5, 0.5], Phi=Phi, start=start, name="random_walk")
