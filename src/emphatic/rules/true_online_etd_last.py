"""True online emphatic TD(λ) with (θ − θ⁻)·φ as printed, even if φ is not φ' of the previous step.

    F, M, S as in true_online_etd;  b = ραM
    D = (θ_t − θ_{t−1})·φ_t = (δ + D)⁻ e·φ − (Db)⁻ p·φ        (δ + D)⁻ and (Db)⁻ are remembered
    e ← ργλe + Sφ
    θ ← θ + δe + D(e − bφ)
    p ← φ

It differs from true_online_etd as true_online_td_last does from true_online_td.
Sutton (2015), "True online emphatic TD(λ): quick reference and implementation guide", equations (1) to (5).
"""

from __future__ import annotations

from typing import Any

from emphatic.rules import Rule, Scalars, Update


def true_online_etd_last(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """true_online_etd with D = (θ − θ⁻)·φ;  p ← φ"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, change_e, change_p, F = memory  # θ − θ⁻ = change_e e − change_p p
    _, e_phi, p_phi = x
    D = change_e * e_phi - change_p * p_phi
    F = F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    c = rho * gamma * lambda_
    b = rho * alpha * M
    S = b * (1.0 - c * e_phi)
    w = (delta + D) * c
    q = delta * S + D * (S - b)
    return (
        ((1.0, w, 0.0), (0.0, c, 0.0), (0.0, 0.0, 0.0)),
        ((q, 0.0), (S, 0.0), (1.0, 0.0)),
        (gamma_next, delta + D, D * b, rho * gamma_next * F),
    )


def effective_step(step: Scalars, memory: Scalars) -> Any:
    """ραM"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, change_e, change_p, F = memory
    F = F + I
    return rho * alpha * (lambda_ * I + (1.0 - lambda_) * F)


rule = Rule(
    "true_online_etd_last",
    true_online_etd_last,
    paper="Sutton (2015)",
    weights=("theta",),
    effective_step=effective_step,
    traces=("e", "p"),
    memory=("gamma", "change_e", "change_p", "F"),
    emphasis="gamma",
    fixed_point="projected",
    update="true_online_etd with D = (θ − θ⁻)·φ; p ← φ",
)
