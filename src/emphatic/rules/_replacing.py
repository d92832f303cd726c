"""TD(λ) with replacing traces: a feature that is active has its own value for a trace, whatever was there before.

    e_i ← φ_i where φ_i ≠ 0, else ργλe_i
    θ ← θ + αδe

No scalar A and B can express "where φ_i ≠ 0", so this is an elementwise rule. Singh & Sutton (1996), "Reinforcement
learning with replacing eligibility traces". Their variant that also clears the traces of the actions not taken does not
fit: it needs the features of all actions of S, and a rule is given only φ(S, A) and φ'.
"""

from __future__ import annotations

from typing import Any

from emphatic.rules._elementwise import ElementwiseRule
from emphatic.rules._rule import Scalars

__all__ = ["replacing_td"]


def terms(z: Scalars, p: float, q: float) -> Scalars:
    """No sums besides θ·φ and θ·φ'."""
    return ()


def function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    """e_i ← φ_i where φ_i ≠ 0, else ργλe_i;  θ ← θ + αδe"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    (gamma,) = memory
    c = rho * gamma * lambda_
    w = alpha * delta
    return ((1.0, w * c), (0.0, c)), (w, c, rho * I), (gamma_next,)


def component(s: Scalars, z: Scalars, p: float, q: float) -> Scalars:
    """The i-th components of θ and e."""
    w, c, k = s
    theta, e = z
    active = 1.0 * (p > 0.0) + 1.0 * (p < 0.0)
    e = active * k * p + (1.0 - active) * c * e
    return theta + w * e, e


#: TD(λ) with replacing traces; fed pairs (S, A), Sarsa(λ) with replacing traces.
replacing_td = ElementwiseRule(
    "replacing_td",
    terms,
    function,
    component,
    memory=("gamma",),
    paper="Singh & Sutton (1996)",
)
