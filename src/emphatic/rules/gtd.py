"""GTD(λ): gradient TD with eligibility traces, also known as TDC(λ); stable off-policy for small step sizes.

    e ← ρ(γλe + Iφ)
    θ ← θ + α[δe − γ'(1−λ')(e·w)φ']
    w ← w + β[δe − (w·φ)φ]                β = eta·α unless it is given

e·w is remembered, by recursions in the inner products with φ. With w frozen at 0 (eta = 0) it is td.
Maei (2011), "Gradient temporal-difference learning algorithms", chapter 6; Sutton & Barto (2018), section 12.11.
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, w·φ, e·φ), x_next = (θ·φ', w·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def gtd(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← ρ(γλe + Iφ);  θ ← θ + α[δe − γ'(1−λ')(e·w)φ'];  w ← w + β[δe − (w·φ)φ]"""
    alpha, I, lambda_, rho, gamma_next, delta, beta, lambda_next = step
    gamma, ew, ee = memory
    _, w_phi, e_phi = x
    phi_phi, _, _ = g
    c = rho * gamma * lambda_
    s = rho * I
    ee = c * c * ee + 2.0 * c * s * e_phi + s * s * phi_phi  # from here on e is the new e
    ew = c * ew + s * w_phi
    e_phi = c * e_phi + s * phi_phi
    h = alpha * gamma_next * (1.0 - lambda_next) * ew
    a, b, k = alpha * delta, beta * delta, beta * w_phi  # theta += a e - h phi';  w += b e - k phi
    return (
        ((1.0, 0.0, a * c), (0.0, 1.0, b * c), (0.0, 0.0, c)),
        ((a * s, -h), (b * s - k, 0.0), (s, 0.0)),
        (gamma_next, ew + b * ee - k * e_phi, ee),
    )


rule = Rule(
    "gtd",
    gtd,
    paper="Maei (2011)",
    weights=("theta", "w"),
    effective_step="rho * alpha * I",
    memory=("gamma", "ew", "ee"),
    extra=("beta", "lambda_next"),
    defaults={"beta": "eta", "lambda_next": "lambda_"},
    fixed_point="projected",
)
