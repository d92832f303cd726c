"""Emphatic differential TD(λ): differential_td with the emphasis of a follow-on trace that decays.

    F ← ρ⁻κF + I                    κ is ``decay`` at t, counted as 0 wherever γ_t = 0
    M = λI + (1−λ)F
    e ← ρ(γλe + Mφ)
    θ ← θ + α(δ − R̄)e
    R̄ ← R̄ + βρ(δ − R̄)               β = eta·α unless it is given; ``cut`` keeps R̄

If γ = 1 and nothing ends, F ← ρ⁻F + I of etd grows without bound. F therefore has its own decay, as in etd_beta. decay
= 0 is differential_td. R̄ is that of Wan, Naik & Sutton (2021), the emphasis that of Hallak, Tamar, Munos & Mannor
(2016); no paper prints the two together in this form.
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def differential_etd(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """F ← ρ⁻κF + I;  M = λI + (1−λ)F;  e ← ρ(γλe + Mφ);  θ ← θ + α(δ − R̄)e;  R̄ ← R̄ + βρ(δ − R̄)"""
    alpha, I, lambda_, rho, gamma_next, delta, beta, decay = step
    gamma, F, rbar = memory
    F = decay * (gamma > 0.0) * F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    difference = delta - rbar
    c = rho * gamma * lambda_
    s = rho * M
    w = alpha * difference
    return ((1.0, w * c), (0.0, c)), ((w * s, 0.0), (s, 0.0)), (gamma_next, rho * F, rbar + beta * rho * difference)


rule = Rule(
    "differential_etd",
    differential_etd,
    paper="Wan, Naik & Sutton (2021), Hallak et al. (2016)",
    effective_step="rho * alpha * M",
    memory=("gamma", "F", "rbar"),
    lasting=("rbar",),
    continuing=True,
    extra=("beta", "decay"),
    defaults={"beta": "eta"},
    emphasis="decay",
    update="differential_td with e ← ρ(γλe + Mφ); F ← ρ⁻κF + I; M = λI + (1−λ)F",
)
