"""Clipped emphatic TD(λ): the ratios in the follow-on trace are clipped, so that its variance is bounded.

    F ← min(ρ⁻, ρ̄)γF + I            ρ̄ is ``clip``: 1 unless it is given
    M = λI + (1−λ)F
    e ← ρ(γλe + Mφ)
    θ ← θ + αδe

Only the emphasis is clipped. Updates have the whole ratio, so the values remain those of π, with other weights for the
states. If no ratio is above ρ̄, this rule is etd. Jiang, Zahavy, Xu, White, Hessel, Blundell & van Hasselt (2021),
"Emphatic algorithms for deep reinforcement learning", clipped traces.
"""

import math

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def clipped_etd(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """F ← min(ρ⁻, ρ̄)γF + I;  M = λI + (1−λ)F;  e ← ρ(γλe + Mφ);  θ ← θ + αδe"""
    alpha, I, lambda_, rho, gamma_next, delta, clip = step
    gamma, F = memory
    F = F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    c = rho * gamma * lambda_
    s = rho * M
    w = alpha * delta
    return ((1.0, w * c), (0.0, c)), ((w * s, 0.0), (s, 0.0)), (gamma_next, min(rho, clip) * gamma_next * F)


rule = Rule(
    "clipped_etd",
    clipped_etd,
    paper="Jiang et al. (2021)",
    effective_step="rho * alpha * M",
    memory=("gamma", "F"),
    extra=("clip",),
    defaults={"clip": 1.0},
    extra_ranges={"clip": (0.0, math.inf)},
    emphasis="gamma",
)
