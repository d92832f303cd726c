"""θ → 2θ: two states on which off-policy TD(0) diverges."""

from __future__ import annotations

from numpy.typing import ArrayLike

from emphatic.problems.mdp import MDP


def two_theta(lambda_: ArrayLike = 0.0) -> MDP:
    """θ → 2θ: two states of one weight, whose values are θ and 2θ.

    States: two; either may be the first.
    Actions: left goes to the first state, right to the second.
    Policies: π goes right; μ goes either way, ½ each.
    Rewards and discount: R = 0, γ = .9.
    Features: φ = 1 and φ = 2.
    Known for: A = −.2 in off-policy TD(0), which diverges; A = 3.4 in ETD(0), which does not.
    Source: Sutton, Mahmood & White (2016), sections 3 and 4; Tsitsiklis & Van Roy (1997).

    >>> float(two_theta().A_matrix("td")[0, 0].round(12)), float(two_theta().A_matrix("etd")[0, 0].round(12))
    (-0.2, 3.4)
    """
    to = [[1.0, 0.0], [0.0, 1.0]]
    return MDP([to, to], 0.0, 0.9, [0.0, 1.0], [0.5, 0.5], [[1.0], [2.0]], lambda_=lambda_, name="two_theta")
