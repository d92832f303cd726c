"""ETD(λ, β): emphatic TD whose follow-on trace decays by β instead of γ, trading bias for variance.

    F ← ρ⁻βF + I          β is ``decay`` at t, counted as 0 wherever γ_t = 0: emphasis never crosses a termination
    M = λI + (1−λ)F
    e ← ρ(γλe + Mφ)
    θ ← θ + αδe

β = γ is etd; β = 0 is td at λ = 1 and at λ = 0 alike (M = I). Between steps F is remembered as ρF, because β
comes with its own step. Hallak, Tamar, Munos & Mannor (2016), "Generalized emphatic temporal difference
learning: bias-variance analysis".
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def etd_beta(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """F ← ρ⁻βF + I;  M = λI + (1−λ)F;  e ← ρ(γλe + Mφ);  θ ← θ + αδe"""
    alpha, I, lambda_, rho, gamma_next, delta, decay = step
    gamma, F = memory
    F = decay * (gamma > 0.0) * F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    c = rho * gamma * lambda_
    s = rho * M
    w = alpha * delta
    return ((1.0, w * c), (0.0, c)), ((w * s, 0.0), (s, 0.0)), (gamma_next, rho * F)


rule = Rule(
    "etd_beta",
    etd_beta,
    paper="Hallak, Tamar, Munos & Mannor (2016)",
    effective_step="rho * alpha * M",
    memory=("gamma", "F"),
    extra=("decay",),
    emphasis="decay",
    fixed_point="projected",
    update="etd with F ← ρ⁻βF + I (β counts as 0 where γ = 0)",
)
