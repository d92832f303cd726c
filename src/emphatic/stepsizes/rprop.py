"""RPROP's signs: a weight's step size grows while its gradient keeps its sign, and falls when the sign changes.

    g_i = δφ_i;  α_i ← min(α_i·grow, largest) where g_i g⁻_i > 0,  max(α_i·shrink, smallest) where it is < 0

with g⁻_i the last g_i that was not 0. Riedmiller & Braun (1993), "A direct adaptive method for faster backpropagation
learning: the RPROP algorithm", section II; there the update itself is a sign too, here it is the rule's, with α_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from emphatic.common.names import refusal
from emphatic.rules import Scalars
from emphatic.stepsizes.method import Option, check_number
from emphatic.stepsizes.weightwise import WeightwiseStepSize, rule_fields

__all__ = ["RPROP"]


def _build(emphatic: float, online: float) -> dict[str, Any]:
    plain = 1.0 - online

    def signal(step: Scalars, memory: Scalars) -> Scalars:
        alpha, I, lambda_, rho, gamma_next, delta = step
        gamma, F, D, initial, grow, shrink, smallest, largest = memory
        return delta * (alpha > 0.0), grow - 1.0, shrink - 1.0, smallest, largest

    def adapt(u: Scalars, z: Scalars, p: float) -> Scalars:
        delta, up, down, smallest, largest = u
        theta, a, g_before, e = z
        g = delta * p
        sign = 1.0 * (g > 0.0) - 1.0 * (g < 0.0)
        agreed = sign * g_before
        r = 1.0 + up * (agreed > 0.0) + down * (agreed < 0.0)
        # A step size outside its limits stays there until it changes.
        limited = min(max(a * r, smallest), largest)
        moved = 1.0 * (agreed > 0.0) + 1.0 * (agreed < 0.0)
        after = moved * limited + (1.0 - moved) * a
        still = 1.0 - 1.0 * (g > 0.0) - 1.0 * (g < 0.0)
        ratio = moved * (limited / max(a, 1e-37)) + (1.0 - moved)
        return theta, after, sign + still * g_before, e * ratio

    def terms(z: Scalars, p: float, q: float) -> Scalars:
        theta, a, g_before, e = z
        return (e * p,)

    def function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
        alpha, I, lambda_, rho, gamma_next, delta = step
        gamma, F, D, initial, grow, shrink, smallest, largest = memory
        (e_phi,) = sums
        F = F + I
        M = emphatic * (lambda_ * I + (1.0 - lambda_) * F) + (1.0 - emphatic) * I
        c = rho * gamma * lambda_
        k = rho * M * (online * alpha + plain)
        w = (online + plain * alpha) * delta + online * D
        return (
            ((1.0, 0.0, 0.0, w * c), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, c)),
            (w, c, k, 1.0 - online * c * e_phi, online * D),
            (gamma_next, emphatic * rho * gamma_next * F, D, initial, grow, shrink, smallest, largest),
        )

    def component(s: Scalars, z: Scalars, p: float, q: float) -> Scalars:
        w, c, k, f, D = s
        theta, a, g_before, e = z
        b = k * a * p
        e = c * e + f * b
        return theta + w * e - D * b, a, g_before, e

    return rule_fields(signal, adapt, terms, function, component, weights=("theta", "alphas", "g"), traces=("e",))


@dataclass(frozen=True, eq=False)
class RPROP(WeightwiseStepSize):
    """Step sizes that follow the signs of δφ_i: times ``grow`` where one agrees with the last, else ``shrink``.

    Args:
        alpha: the step size that all weights begin with, greater than 0.
        grow: the factor where the sign stays, 1 or more.
        shrink: the factor where the sign changes, greater than 0 and at most 1.
        smallest: the least step size, greater than 0.
        largest: the greatest step size, at least ``smallest``.
    """

    alpha: Option = 0.01
    grow: Option = 1.2
    shrink: Option = 0.5
    smallest: Option = 1e-6
    largest: Option = 1.0

    name: ClassVar[str] = "rprop"
    paper: ClassVar[str] = "Riedmiller & Braun (1993)"

    @staticmethod
    def build(emphatic: float, online: float) -> dict[str, Any]:
        return _build(emphatic, online)

    def __post_init__(self) -> None:
        self.check(positive=("alpha", "smallest", "largest"))
        finite = float(np.finfo(np.float64).max)
        check_number(self, "grow", np.nextafter(1.0, 0.0), finite, "1 or more, and finite")
        check_number(self, "shrink", 0.0, 1.0, "greater than 0 and at most 1")
        if np.max(np.subtract(self.smallest, self.largest)) > 0.0:
            got = f"smallest={self.smallest!r} and largest={self.largest!r}"
            raise refusal("smallest", "RPROP", "be at most 'largest'", got)
