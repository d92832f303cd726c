"""Example 9.4 of Sutton & Barto: interest and emphasis on four states in a row."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from emphatic.problems.mdp import MDP


def example_9_4(I: ArrayLike = (1.0, 0.0, 0.0, 0.0), lambda_: ArrayLike = 1.0) -> MDP:
    """Four states in a row, two to a feature, of which only the first is of interest.

    States: four and the end; an episode begins in the first.
    Actions: one, which goes on to the next state.
    Policies: the same.
    Rewards and discount: R = 1 on every step, γ = 1: v_π = (4, 3, 2, 1).
    Features: (1, 0), (1, 0), (0, 1), (0, 1).
    Known for: with λ = 1 (Monte Carlo) θ_1 = 4, the interesting state's value, and θ_2 is never touched; with
        λ = (1, 1, 0, 1) (two-step) θ = (4, 2). Interest everywhere gives (3.5, 1.5) with λ = 1 and (3.25, 1.75) with
        λ = 0.
    Source: Sutton & Barto (2018), example 9.4 in section 9.11.

    >>> example_9_4(lambda_=[1, 1, 0, 1]).fixed_point("etd").round(9).tolist()
    [4.0, 2.0]
    """
    P = np.eye(5)[1:].reshape(4, 1, 5)
    Phi = [[1, 0], [1, 0], [0, 1], [0, 1]]
    return MDP(P, 1.0, 1.0, [1.0], Phi=Phi, I=I, lambda_=lambda_, start=[1, 0, 0, 0], name="example_9_4")
