"""Autostep: IDBD with its meta-gradient normalised, and with step sizes that never overshoot.

    g_i = δφ_ih_i;  v_i ← max(|g_i|, v_i + α_iφ_i²(|g_i| − v_i)/τ);  α_i ← α_i exp(μ g_i/v_i) where v_i ≠ 0
    N = max(ρM Σ α_iφ_i², 1);  α_i ← α_i/N for all i
    h_i ← h_i(1 − φ_ie_i)⁺ + Δ_i

Mahmood, Sutton, Degris & Pilarski (2012), "Tuning-free step-size adaptation", table 1, where e_i = b_i = α_iφ_i and
ρM = 1, so that φ_ie_i ≤ 1 by N. Traces, ρM and the true online correction are as in ``weightwise``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from emphatic.rules import Scalars, exp
from emphatic.stepsizes.method import Option
from emphatic.stepsizes.weightwise import WeightwiseStepSize, rule_fields

__all__ = ["Autostep"]


def _build(emphatic: float, online: float) -> dict[str, Any]:
    plain = 1.0 - online

    def signal(step: Scalars, memory: Scalars) -> Scalars:
        alpha, I, lambda_, rho, gamma_next, delta = step
        gamma, F, D, initial, mu, tau = memory
        return delta * (alpha > 0.0), mu, 1.0 / tau * (alpha > 0.0)

    def adapt(u: Scalars, z: Scalars, p: float) -> Scalars:
        delta, mu, rate = u
        theta, a, h, v, e = z
        g = delta * p * h
        size = max(g, -g)
        v = max(size, v + a * p * p * (size - v) * rate)
        r = exp(mu * g / max(v, 1e-37))
        return theta, a * r, h, v, e * r

    def terms(z: Scalars, p: float, q: float) -> Scalars:
        theta, a, h, v, e = z
        return a * p * p, e * p

    def function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
        alpha, I, lambda_, rho, gamma_next, delta = step
        gamma, F, D, initial, mu, tau = memory
        squares, e_phi = sums
        F = F + I
        M = emphatic * (lambda_ * I + (1.0 - lambda_) * F) + (1.0 - emphatic) * I
        n = 1.0 / max(alpha * rho * M * squares, 1.0)
        c = rho * gamma * lambda_ * n
        outside = online + plain * alpha
        k = rho * M * (online * alpha + plain)
        w = outside * delta + online * D
        zero = 0.0
        return (
            (
                (1.0, zero, zero, zero, w * c),
                (zero, n, zero, zero, zero),
                (zero, zero, 1.0, zero, w * c),
                (zero, zero, zero, 1.0, zero),
                (zero, zero, zero, zero, c),
            ),
            (w, c, k, n, 1.0 - online * c * e_phi, online * D, outside),
            (gamma_next, emphatic * rho * gamma_next * F, D, initial, mu, tau),
        )

    def component(s: Scalars, z: Scalars, p: float, q: float) -> Scalars:
        w, c, k, n, f, D, outside = s
        theta, a, h, v, e = z
        a = n * a
        b = k * a * p
        e = c * e + f * b
        change = w * e - D * b
        return theta + change, a, h * max(1.0 - outside * p * e, 0.0) + change, v, e

    return rule_fields(signal, adapt, terms, function, component, weights=("theta", "alphas", "h", "v"), traces=("e",))


@dataclass(frozen=True, eq=False)
class Autostep(WeightwiseStepSize):
    """Autostep: IDBD whose steps do not depend on the scale of the errors, and never overshoot.

    Args:
        alpha: the step size that all weights begin with, greater than 0.
        mu: the meta step size, 0 or more.
        tau: the number of steps in which the normaliser v forgets, greater than 0.
    """

    alpha: Option = 0.01
    mu: Option = 0.01
    tau: Option = 1e4

    name: ClassVar[str] = "autostep"
    paper: ClassVar[str] = "Mahmood, Sutton, Degris & Pilarski (2012)"

    @staticmethod
    def build(emphatic: float, online: float) -> dict[str, Any]:
        return _build(emphatic, online)

    def __post_init__(self) -> None:
        self.check(positive=("alpha", "tau"), not_negative=("mu",))
