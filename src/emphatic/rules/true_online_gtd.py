"""True online GTD(λ): gradient TD that equals an online forward view exactly.

    e ← ρ(γλe + α(1 − ργλ e·φ)φ)
    ê ← ρ(γλê + φ)
    x ← ρ⁻γλx + β(1 − ρ⁻γλ x·φ)φ          β = eta·α unless it is given
    θ ← θ + δe + D(e − αρφ) − αγ'(1−λ')(w·ê)φ'
    w ← w + ρδx − β(w·φ)φ

D = (θ_t − θ_{t−1})·φ_t, w·ê and x·ê are remembered. With β = 0 it is true_online_td. van Hasselt, Mahmood & Sutton
(2014), "Off-policy TD(λ) with a true online equivalence".
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, w·φ, e·φ, ê·φ, x·φ), x_next = (θ·φ', w·φ', e·φ', ê·φ', x·φ'), g = (φ·φ, φ·φ', φ'·φ')
def true_online_gtd(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← ρ(γλe + α(1 − ργλ e·φ)φ);  ê ← ρ(γλê + φ);  x ← ρ⁻γλx + β(1 − ρ⁻γλ x·φ)φ;
    θ ← θ + δe + D(e − αρφ) − αγ'(1−λ')(w·ê)φ';  w ← w + ρδx − β(w·φ)φ"""
    alpha, I, lambda_, rho, gamma_next, delta, beta, lambda_next = step
    gamma, rho_before, D, w_hat, x_hat = memory
    _, w_phi, e_phi, hat_phi, x_phi = x
    _, _, e_phi_next, _, _ = x_next
    phi_phi, phi_phi_next, phi_next_phi_next = g
    c, cx = rho * gamma * lambda_, rho_before * gamma * lambda_
    b = rho * alpha
    s, sx = b * (1.0 - c * e_phi), beta * (1.0 - cx * x_phi)
    hat_phi = c * hat_phi + rho * phi_phi
    x_hat = cx * c * x_hat + cx * rho * x_phi + sx * hat_phi
    w_hat = c * w_hat + rho * w_phi
    h, k, u = alpha * gamma_next * (1.0 - lambda_next) * w_hat, beta * w_phi, rho * delta
    w, q = (delta + D) * c, delta * s + D * (s - b)
    D = w * e_phi_next + q * phi_phi_next - h * phi_next_phi_next
    return (
        (
            (1.0, 0.0, w, 0.0, 0.0),
            (0.0, 1.0, 0.0, 0.0, u * cx),
            (0.0, 0.0, c, 0.0, 0.0),
            (0.0, 0.0, 0.0, c, 0.0),
            (0.0, 0.0, 0.0, 0.0, cx),
        ),
        ((q, -h), (u * sx - k, 0.0), (s, 0.0), (rho, 0.0), (sx, 0.0)),
        (gamma_next, rho, D, w_hat + u * x_hat - k * hat_phi, x_hat),
    )


rule = Rule(
    "true_online_gtd",
    true_online_gtd,
    paper="van Hasselt, Mahmood & Sutton (2014)",
    weights=("theta", "w"),
    effective_step="rho * alpha",
    traces=("e", "e_hat", "x"),
    change="D",
    memory=("gamma", "rho_before", "D", "w_hat", "x_hat"),
    extra=("beta", "lambda_next"),
    defaults={"beta": "eta", "lambda_next": "lambda_"},
    interest=False,
    fixed_point="projected",
)
