"""True online GTD(λ) with (θ − θ⁻)·φ as printed, even if φ is not φ' of the previous step.

    h = αγ'(1−λ')(w·ê)
    D = (θ_t − θ_{t−1})·φ_t = (δ + D)⁻ e·φ − (αρD)⁻ p·φ − h⁻ p'·φ        the factors are remembered
    e, ê, x, w as in true_online_gtd
    θ ← θ + δe + D(e − αρφ) − hφ'
    p ← φ;  p' ← φ'

It differs from true_online_gtd as true_online_td_last does from true_online_td, at the cost of two more vectors. van
Hasselt, Mahmood & Sutton (2014), "Off-policy TD(λ) with a true online equivalence".
"""

from __future__ import annotations

from typing import Any

from emphatic.rules import Rule, Scalars, Update


def true_online_gtd_last(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """true_online_gtd with D = (θ − θ⁻)·φ;  p ← φ;  p' ← φ'"""
    alpha, I, lambda_, rho, gamma_next, delta, beta, lambda_next = step
    # θ − θ⁻ = change_e e − change_p p − change_p_next p'
    gamma, rho_before, change_e, change_p, change_p_next, w_hat, x_hat = memory
    _, w_phi, e_phi, hat_phi, x_phi, p_phi, p_next_phi = x
    phi_phi, _, _ = g
    D = change_e * e_phi - change_p * p_phi - change_p_next * p_next_phi
    c, cx = rho * gamma * lambda_, rho_before * gamma * lambda_
    b = rho * alpha
    s, sx = b * (1.0 - c * e_phi), beta * (1.0 - cx * x_phi)
    hat_phi = c * hat_phi + rho * phi_phi
    x_hat = cx * c * x_hat + cx * rho * x_phi + sx * hat_phi
    w_hat = c * w_hat + rho * w_phi
    h, k, u = alpha * gamma_next * (1.0 - lambda_next) * w_hat, beta * w_phi, rho * delta
    w, q = (delta + D) * c, delta * s + D * (s - b)
    return (
        (
            (1.0, 0.0, w, 0.0, 0.0, 0.0, 0.0),
            (0.0, 1.0, 0.0, 0.0, u * cx, 0.0, 0.0),
            (0.0, 0.0, c, 0.0, 0.0, 0.0, 0.0),
            (0.0, 0.0, 0.0, c, 0.0, 0.0, 0.0),
            (0.0, 0.0, 0.0, 0.0, cx, 0.0, 0.0),
            (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        ),
        ((q, -h), (u * sx - k, 0.0), (s, 0.0), (rho, 0.0), (sx, 0.0), (1.0, 0.0), (0.0, 1.0)),
        (gamma_next, rho, delta + D, D * b, h, w_hat + u * x_hat - k * hat_phi, x_hat),
    )


def effective_step(step: Scalars, memory: Scalars) -> Any:
    """ρα"""
    alpha, I, lambda_, rho, gamma_next, delta, beta, lambda_next = step
    return rho * alpha


rule = Rule(
    "true_online_gtd_last",
    true_online_gtd_last,
    paper="van Hasselt, Mahmood & Sutton (2014)",
    weights=("theta", "w"),
    effective_step=effective_step,
    traces=("e", "e_hat", "x", "p", "p_next"),
    memory=("gamma", "rho_before", "change_e", "change_p", "change_p_next", "w_hat", "x_hat"),
    extra=("beta", "lambda_next"),
    defaults={"beta": "eta", "lambda_next": "lambda_"},
    interest=False,
    fixed_point="projected",
    update="true_online_gtd with D = (θ − θ⁻)·φ; p ← φ; p' ← φ'",
)
