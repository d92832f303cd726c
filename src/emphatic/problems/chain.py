"""The five-state chain: what emphasis does about off-policy learning."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from emphatic.problems.mdp import MDP


def chain(lambda_: ArrayLike = 0.0, I: ArrayLike = 1.0) -> MDP:
    """Five states in a row with three features between them.

    States: five; the first is that on the left.
    Actions: left and right move one state; at the ends the outward one stays.
    Policies: π goes right; μ goes left with probability ⅔.
    Rewards and discount: R = 1 on every step, γ = (0, 1, 1, 1, 0).
    Features: (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1).
    Known for: d_μ = (16, 8, 4, 2, 1)/31 but m = (16, 24, 28, 30, 1)/31: emphasis looks where π goes and μ seldom
        does, and leaves an MSVE of 1.73 where off-policy TD(0) leaves 2.88. The best possible is .67.
    Source: Sutton, Mahmood & White (2016), section 5.

    >>> (chain().emphasis("etd") * 31).round(12).tolist()
    [16.0, 24.0, 28.0, 30.0, 1.0]
    """
    P = np.zeros((5, 2, 5))
    for s in range(5):
        P[s, 0, max(s - 1, 0)] = P[s, 1, min(s + 1, 4)] = 1.0
    Phi = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1]]
    return MDP(
        P, 1.0, [0, 1, 1, 1, 0], [0, 1], [2 / 3, 1 / 3], Phi, I=I, lambda_=lambda_, start=[1, 0, 0, 0, 0], name="chain"
    )
