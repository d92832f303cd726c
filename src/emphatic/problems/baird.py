"""Baird's counterexample: seven states on which off-policy TD(0) diverges from almost everywhere."""

from __future__ import annotations

import numpy as np

from emphatic.problems.mdp import MDP

#: The weights that the published runs begin with.
THETA_0 = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0, 1.0)


def baird() -> MDP:
    """Seven states with eight weights, which could represent the values exactly.

    States: six upper and one lower; each may be the first.
    Actions: dashed goes to one of the upper states, ⅙ each; solid to the lower one.
    Policies: π goes solid; μ goes dashed with probability 6/7.
    Rewards and discount: R = 0, γ = .99.
    Features: the upper states have values 2θ_i + θ_8, the lower one θ_7 + 2θ_8.
    Known for: off-policy TD(0) and even its expected update diverge. From θ_0 = (1, 1, 1, 1, 1, 1, 10, 1)
        (``emphatic.problems.baird.THETA_0``) (1, 1, 1, 1, 1, 1, 4, −2)·θ stays 44 on every path, and expected
        emphatic updates lead to (22/13 six times, 88/13, −44/13). Sampled, emphatic TD has too much variance here.
    Source: Baird (1995); Sutton & Barto (2018), sections 11.2 and 11.8.

    >>> baird().is_positive_definite("td"), baird().is_positive_definite("etd")
    (False, True)
    """
    P = np.zeros((7, 2, 7))
    P[:, 0, :6] = 1 / 6
    P[:, 1, 6] = 1.0
    Phi = np.zeros((7, 8))
    Phi[range(6), range(6)] = 2.0
    Phi[:6, 7] = 1.0
    Phi[6, 6:] = 1.0, 2.0
    return MDP(P, 0.0, 0.99, [0.0, 1.0], [6 / 7, 1 / 7], Phi, name="baird")
