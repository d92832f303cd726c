"""GTD2(λ): the other gradient of the projected Bellman error, which follows w instead of δ.

    e ← ρ(γλe + Iφ)
    θ ← θ + α[(w·φ)φ − γ'(1−λ')(e·w)φ']
    w ← w + β[δe − (w·φ)φ]                β = eta·α unless it is given

Sutton, Maei, Precup, Bhatnagar, Silver, Szepesvári & Wiewiora (2009), "Fast gradient-descent methods for
temporal-difference learning with linear function approximation"; with traces as in Maei (2011).
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, w·φ, e·φ), x_next = (θ·φ', w·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def gtd2(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """θ ← θ + α[(w·φ)φ − γ'(1−λ')(e·w)φ'];  e, w as gtd"""
    alpha, I, lambda_, rho, gamma_next, delta, beta, lambda_next = step
    gamma, ew, ee = memory
    _, w_phi, e_phi = x
    phi_phi, _, _ = g
    c = rho * gamma * lambda_
    s = rho * I
    ee = c * c * ee + 2.0 * c * s * e_phi + s * s * phi_phi
    ew = c * ew + s * w_phi
    e_phi = c * e_phi + s * phi_phi
    h = alpha * gamma_next * (1.0 - lambda_next) * ew
    b, k = beta * delta, beta * w_phi
    return (
        ((1.0, 0.0, 0.0), (0.0, 1.0, b * c), (0.0, 0.0, c)),
        ((alpha * w_phi, -h), (b * s - k, 0.0), (s, 0.0)),
        (gamma_next, ew + b * ee - k * e_phi, ee),
    )


rule = Rule(
    "gtd2",
    gtd2,
    paper="Sutton, Maei et al. (2009)",
    weights=("theta", "w"),
    effective_step="rho * alpha * I",
    memory=("gamma", "ew", "ee"),
    extra=("beta", "lambda_next"),
    defaults={"beta": "eta", "lambda_next": "lambda_"},
    fixed_point="projected",
)
