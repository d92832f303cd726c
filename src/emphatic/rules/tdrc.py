"""TDRC(λ): gtd with the secondary weights regularised, robust to their step size.

    e ← ρ(γλe + Iφ)
    θ ← θ + α[δe − γ'(1−λ')(e·w)φ']
    w ← w + β[δe − (w·φ)φ − κw]           β = eta·α unless it is given; κ = 1

κ → 0 is gtd, κ → ∞ is td. Ghiassian, Patterson, Garg, Gupta, A. White & M. White (2020), "Gradient
temporal-difference learning with regularized corrections".
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, w·φ, e·φ), x_next = (θ·φ', w·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def tdrc(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """gtd with w ← w + β[δe − (w·φ)φ − κw]"""
    alpha, I, lambda_, rho, gamma_next, delta, beta, lambda_next, kappa = step
    gamma, ew, ee = memory
    _, w_phi, e_phi = x
    phi_phi, _, _ = g
    c = rho * gamma * lambda_
    s = rho * I
    ee = c * c * ee + 2.0 * c * s * e_phi + s * s * phi_phi
    ew = c * ew + s * w_phi
    e_phi = c * e_phi + s * phi_phi
    h = alpha * gamma_next * (1.0 - lambda_next) * ew
    a, b, k, d = alpha * delta, beta * delta, beta * w_phi, 1.0 - beta * kappa
    return (
        ((1.0, 0.0, a * c), (0.0, d, b * c), (0.0, 0.0, c)),
        ((a * s, -h), (b * s - k, 0.0), (s, 0.0)),
        (gamma_next, d * ew + b * ee - k * e_phi, ee),
    )


rule = Rule(
    "tdrc",
    tdrc,
    paper="Ghiassian et al. (2020)",
    weights=("theta", "w"),
    effective_step="rho * alpha * I",
    memory=("gamma", "ew", "ee"),
    extra=("beta", "lambda_next", "kappa"),
    defaults={"beta": "eta", "lambda_next": "lambda_", "kappa": 1.0},
    fixed_point="projected",
)
