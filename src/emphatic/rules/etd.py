"""Emphatic TD(λ): each update is weighted by the emphasis M.

    F ← ρ⁻γF + I          remembered as ργ'F between steps, as in Sutton (2015)
    M = λI + (1−λ)F
    e ← ρ(γλe + Mφ)
    θ ← θ + αδe

Sutton, Mahmood & White (2016), "An emphatic approach to the problem of off-policy temporal-difference
learning", equations 16–20.
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def etd(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """F ← ρ⁻γF + I;  M = λI + (1−λ)F;  e ← ρ(γλe + Mφ);  θ ← θ + αδe"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, F = memory
    F = F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    c = rho * gamma * lambda_
    s = rho * M
    w = alpha * delta
    return ((1.0, w * c), (0.0, c)), ((w * s, 0.0), (s, 0.0)), (gamma_next, rho * gamma_next * F)


rule = Rule(
    "etd",
    etd,
    paper="Sutton, Mahmood & White (2016)",
    effective_step="rho * alpha * M",
    memory=("gamma", "F"),
    emphasis="gamma",
    fixed_point="projected",
)
