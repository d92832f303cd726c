"""True online ETD(λ, β) with (θ − θ⁻)·φ as printed: true_online_etd_last with the follow-on trace of etd_beta.

    F ← ρ⁻βF + I          β = β_t, counted as 0 wherever γ_t = 0; remembered as ρF between steps
    M, S, D, e, θ, p as in true_online_etd_last

β = γ is true_online_etd_last; β = 0 is true_online_td_last. The follow-on trace is that of Hallak, Tamar, Munos &
Mannor (2016).
"""

from __future__ import annotations

from typing import Any

from emphatic.rules import Rule, Scalars, Update


def true_online_etd_beta_last(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """true_online_etd_beta with D = (θ − θ⁻)·φ;  p ← φ"""
    alpha, I, lambda_, rho, gamma_next, delta, decay = step
    gamma, change_e, change_p, F = memory  # θ − θ⁻ = change_e e − change_p p
    _, e_phi, p_phi = x
    D = change_e * e_phi - change_p * p_phi
    F = decay * (gamma > 0.0) * F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    c = rho * gamma * lambda_
    b = rho * alpha * M
    S = b * (1.0 - c * e_phi)
    w = (delta + D) * c
    q = delta * S + D * (S - b)
    return (
        ((1.0, w, 0.0), (0.0, c, 0.0), (0.0, 0.0, 0.0)),
        ((q, 0.0), (S, 0.0), (1.0, 0.0)),
        (gamma_next, delta + D, D * b, rho * F),
    )


def effective_step(step: Scalars, memory: Scalars) -> Any:
    """ραM"""
    alpha, I, lambda_, rho, gamma_next, delta, decay = step
    gamma, change_e, change_p, F = memory
    F = decay * (gamma > 0.0) * F + I
    return rho * alpha * (lambda_ * I + (1.0 - lambda_) * F)


rule = Rule(
    "true_online_etd_beta_last",
    true_online_etd_beta_last,
    paper="Sutton (2015), Hallak et al. (2016)",
    weights=("theta",),
    effective_step=effective_step,
    traces=("e", "p"),
    memory=("gamma", "change_e", "change_p", "F"),
    extra=("decay",),
    emphasis="decay",
    fixed_point="projected",
    update="true_online_etd_beta with D = (θ − θ⁻)·φ; p ← φ",
)
