"""True online TD(λ) with (θ − θ⁻)·φ as printed, even if φ is not φ' of the previous step.

    c = ργλ;  b = ραI;  s = b(1 − c e·φ)
    D = (θ_t − θ_{t−1})·φ_t = (δ + D)⁻ e·φ − (Db)⁻ p·φ        (δ + D)⁻ and (Db)⁻ are remembered
    e ← c e + s φ
    θ ← θ + δe + D(e − bφ)
    p ← φ

true_online_td uses Δ·φ' of the previous step for D, as the pseudocode does. The two rules are equal if φ' of each step
is φ of the next step, and differ otherwise. Here the last φ is kept as a trace p, at the cost of one more vector.
van Seijen, Mahmood, Pilarski, Machado & Sutton (2016), "True online temporal-difference learning", equation (5).
"""

from __future__ import annotations

from typing import Any

from emphatic.rules import Rule, Scalars, Update


def true_online_td_last(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """true_online_td with D = (θ − θ⁻)·φ;  p ← φ"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, change_e, change_p = memory  # θ − θ⁻ = change_e e − change_p p
    _, e_phi, p_phi = x
    D = change_e * e_phi - change_p * p_phi
    c = rho * gamma * lambda_
    b = rho * alpha * I
    s = b * (1.0 - c * e_phi)
    w = (delta + D) * c
    q = delta * s + D * (s - b)
    return (
        ((1.0, w, 0.0), (0.0, c, 0.0), (0.0, 0.0, 0.0)),
        ((q, 0.0), (s, 0.0), (1.0, 0.0)),
        (gamma_next, delta + D, D * b),
    )


def effective_step(step: Scalars, memory: Scalars) -> Any:
    """ραI"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    return rho * alpha * I


rule = Rule(
    "true_online_td_last",
    true_online_td_last,
    paper="van Seijen et al. (2016)",
    weights=("theta",),
    effective_step=effective_step,
    traces=("e", "p"),
    memory=("gamma", "change_e", "change_p"),
    fixed_point="projected",
    update="true_online_td with D = (θ − θ⁻)·φ; p ← φ",
)
