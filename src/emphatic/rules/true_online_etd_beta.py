"""True online ETD(λ, β): true_online_etd with the follow-on trace of etd_beta.

    F ← ρ⁻βF + I          β is ``decay`` at t, counted as 0 wherever γ_t = 0; remembered as ρF between steps
    M, S, e, θ as in true_online_etd

β = γ is true_online_etd; β = 0 is true_online_td. The follow-on trace is that of Hallak, Tamar, Munos & Mannor (2016).
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def true_online_etd_beta(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """F ← ρ⁻βF + I;  e ← ργλe + Sφ;  θ ← θ + δe + D(e − ραMφ) = θ + w e_old + q φ"""
    alpha, I, lambda_, rho, gamma_next, delta, decay = step
    gamma, D, F = memory
    _, e_phi = x
    _, e_phi_next = x_next
    _, phi_phi_next, _ = g
    F = decay * (gamma > 0.0) * F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    c = rho * gamma * lambda_
    b = rho * alpha * M
    S = b * (1.0 - c * e_phi)
    w = (delta + D) * c
    q = delta * S + D * (S - b)
    D = w * e_phi_next + q * phi_phi_next
    return ((1.0, w), (0.0, c)), ((q, 0.0), (S, 0.0)), (gamma_next, D, rho * F)


rule = Rule(
    "true_online_etd_beta",
    true_online_etd_beta,
    paper="Sutton (2015), Hallak et al. (2016)",
    effective_step="rho * alpha * M",
    change="D",
    memory=("gamma", "D", "F"),
    extra=("decay",),
    emphasis="decay",
    fixed_point="projected",
    update="true_online_etd with etd_beta's F",
)
