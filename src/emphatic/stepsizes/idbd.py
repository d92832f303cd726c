"""IDBD and TIDBD: step sizes by the gradient of the squared error, through a memory of each weight's recent updates.

    β_i ← β_i + μ δ φ_i h_i;  α_i = exp β_i

TIDBD(λ) (Kearney et al. 2018):  h_i ← h_i[1 − φ_i e_i]⁺ + Δ_i, with e the trace that holds the step sizes, αz in the
paper, and Δ_i the change of θ_i, δe_i there. IDBD (Sutton 1992) has no traces: h_i ← h_i[1 − b_iφ_i]⁺ + δb_i; with
λ = 0 the two are the same. ρM, and the true online correction, are in e, b and Δ: see ``weightwise``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from emphatic.rules import Scalars, exp
from emphatic.stepsizes.method import Option
from emphatic.stepsizes.weightwise import WeightwiseStepSize, rule_fields

__all__ = ["IDBD", "TIDBD"]


def _build(emphatic: float, online: float, traced: float) -> dict[str, Any]:
    plain = 1.0 - online

    def signal(step: Scalars, memory: Scalars) -> Scalars:
        alpha, I, lambda_, rho, gamma_next, delta = step
        gamma, F, D, initial, mu = memory
        return (mu * delta * (alpha > 0.0),)

    def adapt(u: Scalars, z: Scalars, p: float) -> Scalars:
        (mu_delta,) = u
        theta, a, h, e = z
        r = exp(mu_delta * p * h)
        return theta, a * r, h, e * r

    def terms(z: Scalars, p: float, q: float) -> Scalars:
        theta, a, h, e = z
        return (e * p,)

    def function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
        alpha, I, lambda_, rho, gamma_next, delta = step
        gamma, F, D, initial, mu = memory
        (e_phi,) = sums
        F = F + I
        M = emphatic * (lambda_ * I + (1.0 - lambda_) * F) + (1.0 - emphatic) * I
        c = rho * gamma * lambda_
        outside = online + plain * alpha
        k = rho * M * (online * alpha + plain)
        w = outside * delta + online * D
        row = w * c
        return (
            ((1.0, 0.0, 0.0, row), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, traced * row), (0.0, 0.0, 0.0, c)),
            (w, c, k, 1.0 - online * c * e_phi, online * D, outside, outside * delta),
            (gamma_next, emphatic * rho * gamma_next * F, D, initial, mu),
        )

    def component(s: Scalars, z: Scalars, p: float, q: float) -> Scalars:
        w, c, k, f, D, outside, step_delta = s
        theta, a, h, e = z
        b = k * a * p
        e = c * e + f * b
        change = w * e - D * b
        decay = max(1.0 - outside * p * (traced * e + (1.0 - traced) * b), 0.0)
        return theta + change, a, h * decay + traced * change + (1.0 - traced) * step_delta * b, e

    return rule_fields(signal, adapt, terms, function, component, weights=("theta", "alphas", "h"), traces=("e",))


@dataclass(frozen=True, eq=False)
class IDBD(WeightwiseStepSize):
    """Incremental delta-bar-delta: β_i ← β_i + μδφ_ih_i.

    Args:
        alpha: the step size that all weights begin with, greater than 0.
        mu: the meta step size, 0 or more.
    """

    alpha: Option = 0.01
    mu: Option = 0.01

    name: ClassVar[str] = "idbd"
    paper: ClassVar[str] = "Sutton (1992)"

    @staticmethod
    def build(emphatic: float, online: float) -> dict[str, Any]:
        return _build(emphatic, online, 0.0)

    def __post_init__(self) -> None:
        self.check(not_negative=("mu",))


@dataclass(frozen=True, eq=False)
class TIDBD(IDBD):
    """Temporal-difference IDBD: β_i ← β_i + μδφ_ih_i with h through the traces.

    Args:
        alpha: the step size that all weights begin with, greater than 0.
        mu: the meta step size, 0 or more.
    """

    name: ClassVar[str] = "tidbd"
    paper: ClassVar[str] = "Kearney et al. (2018)"

    @staticmethod
    def build(emphatic: float, online: float) -> dict[str, Any]:
        return _build(emphatic, online, 1.0)
