"""Bounded true online emphatic TD(λ): trace, step and target are bounded, so that off-policy learning is safe.

    λ_t = λ/max(1, ρ⁻)                  no ratio above 1 lengthens the trace
    F ← min(ρ⁻γF, 10³⁰) + I             (without the bound it would overflow)
    M = λ_t I + (1 − λ_t)F
    b = min(ραM, ½/φ·φ)                 no step along φ goes further than half of the way to its target
    B(v) = min(max(v, low), high)       the returns that are possible: low = −∞ and high = ∞ unless given
    δ = R + γ'B(θ·φ') − θ·φ
    e ← ργλ_t e + b(1 − ργλ_t e·φ)φ
    θ ← θ + (δ + D)e − Dbφ              D = θ·φ − B(θ⁻·φ), remembered

Where every ρ is 1 and no bound is met, it is true_online_etd to the bit. The cut of the trace is that of Espeholt et
al. (2018), "IMPALA: scalable distributed deep-RL with importance weighted actor-learner architectures", c̄ = 1. The
bound of the step is that of Dabney & Barto (2012), "Adaptive step-size for online temporal difference learning", and
Javed, Sharifnassab & Sutton (2024), "SwiftTD: a fast and robust algorithm for temporal difference learning": theirs is
1/φ·φ, here it is ½/φ·φ. F meets its own long after every step is as long as it may be. For cumulants from c to C,
returns lie from min(0, c)/(1 − γ) to max(0, C)/(1 − γ).
"""

import math

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def bounded_etd(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← ργλ_t e + Sφ;  θ ← θ + (δ + D)e − Dbφ = θ + w e_old + q φ"""
    alpha, I, lambda_, rho, gamma_next, delta, low, high = step
    gamma, D, F, rho_before = memory
    _, e_phi = x
    v_next, e_phi_next = x_next
    phi_phi, phi_phi_next, _ = g
    beyond = v_next - min(max(v_next, low), high)
    error = delta - gamma_next * beyond
    cut = lambda_ / max(rho_before, 1.0)
    F = F + I
    M = cut * I + (1.0 - cut) * F
    c = rho * gamma * cut
    b = rho * alpha * M
    b = b / max(2.0 * b * phi_phi, 1.0)  # min(b, ½/φ·φ), also where φ = 0
    S = b * (1.0 - c * e_phi)
    w = (error + D) * c
    q = error * S + D * (S - b)
    D = w * e_phi_next + q * phi_phi_next + beyond
    F = min(rho * gamma_next * F, 1e30)  # else it overflows where behaviour follows π for hundreds of steps
    return ((1.0, w), (0.0, c)), ((q, 0.0), (S, 0.0)), (gamma_next, D, F, rho)


rule = Rule(
    "bounded_etd",
    bounded_etd,
    paper="Espeholt et al. (2018), Dabney & Barto (2012), Javed et al. (2024)",
    effective_step="rho * alpha * M",
    memory=("gamma", "D", "F", "rho_before"),
    extra=("low", "high"),
    defaults={"low": -math.inf, "high": math.inf},
    ordered=("low", "high"),
    emphasis="gamma",
    fixed_point="cut",
    update="true_online_etd with λ/max(1, ρ⁻) for λ, min(ραM, ½/φ·φ) for ραM, and θ·φ' between low and high",
)
