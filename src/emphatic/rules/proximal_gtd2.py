"""Proximal GTD2(λ): two steps of gtd2 (mirror-prox), the second with the gradient at the first one's result.

    e ← ρ(γλe + Iφ)
    θ½ = θ + α[(w·φ)φ − γ'(1−λ')(e·w)φ'];     w½ = w + β[δe − (w·φ)φ];     δ½ = δ at θ½
    θ ← θ + α[(w½·φ)φ − γ'(1−λ')(e·w½)φ'];    w ← w + β[δ½e − (w½·φ)φ]

β = eta·α unless it is given. Mahadevan, Liu, Thomas, Dabney, Giguere, Jacek, Gemp & Liu (2014), "Proximal
reinforcement learning"; the form with traces as in Ghiassian & Sutton (2021).
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, w·φ, e·φ), x_next = (θ·φ', w·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def proximal_gtd2(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """θ½, w½ ← gtd2;  θ ← θ + α[(w½·φ)φ − γ'(1−λ')(e·w½)φ'];  w ← w + β[δ½e − (w½·φ)φ], δ½ = δ at θ½"""
    alpha, I, lambda_, rho, gamma_next, delta, beta, lambda_next = step
    gamma, ew, ee = memory
    _, w_phi, e_phi = x
    phi_phi, phi_phi_next, phi_next_phi_next = g
    c = rho * gamma * lambda_
    s = rho * I
    ee = c * c * ee + 2.0 * c * s * e_phi + s * s * phi_phi
    ew = c * ew + s * w_phi
    e_phi = c * e_phi + s * phi_phi
    r = gamma_next * (1.0 - lambda_next)
    q, h = alpha * w_phi, alpha * r * ew  # theta_half - theta = q phi - h phi'
    delta_half = delta + gamma_next * (q * phi_phi_next - h * phi_next_phi_next) - (q * phi_phi - h * phi_phi_next)
    w_phi_half = w_phi + beta * (delta * e_phi - w_phi * phi_phi)
    ew_half = ew + beta * (delta * ee - w_phi * e_phi)
    b, k = beta * delta_half, beta * w_phi_half
    return (
        ((1.0, 0.0, 0.0), (0.0, 1.0, b * c), (0.0, 0.0, c)),
        ((alpha * w_phi_half, -alpha * r * ew_half), (b * s - k, 0.0), (s, 0.0)),
        (gamma_next, ew + b * ee - k * e_phi, ee),
    )


rule = Rule(
    "proximal_gtd2",
    proximal_gtd2,
    paper="Mahadevan et al. (2014)",
    weights=("theta", "w"),
    effective_step="rho * alpha * I",
    memory=("gamma", "ew", "ee"),
    extra=("beta", "lambda_next"),
    defaults={"beta": "eta", "lambda_next": "lambda_"},
    fixed_point="projected",
)
