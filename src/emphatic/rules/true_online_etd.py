"""True online emphatic TD(λ): the core algorithm of this library.

    F ← ρ⁻γF + I                    remembered as ργ'F between steps, as in the pseudocode
    M = λI + (1−λ)F
    S = ραM(1 − ργλ φ·e)
    e ← ργλe + Sφ
    Δ = δe + D(e − ραMφ)            D = (θ_t − θ_{t−1})·φ_t, remembered
    θ ← θ + Δ

Sutton (2015), "True online emphatic TD(λ): quick reference and implementation guide", section 2. In terms of the old
e, with c = ργλ and b = ραM, Δ = w e + q φ where w = (δ + D)c and q = δS + D(S − b); this is exact at c = 0, and the
next D = Δ·φ' is computed without reading θ again.
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def true_online_etd(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← ργλe + Sφ;  θ ← θ + δe + D(e − ραMφ) = θ + w e_old + q φ"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, D, F = memory
    _, e_phi = x
    _, e_phi_next = x_next
    _, phi_phi_next, _ = g
    F = F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    c = rho * gamma * lambda_
    b = rho * alpha * M
    S = b * (1.0 - c * e_phi)
    w = (delta + D) * c
    q = delta * S + D * (S - b)
    D = w * e_phi_next + q * phi_phi_next
    return ((1.0, w), (0.0, c)), ((q, 0.0), (S, 0.0)), (gamma_next, D, rho * gamma_next * F)


rule = Rule(
    "true_online_etd",
    true_online_etd,
    paper="Sutton (2015)",
    effective_step="rho * alpha * M",
    change="D",
    memory=("gamma", "D", "F"),
    emphasis="gamma",
    fixed_point="projected",
    update="F ← ρ⁻γF + I; M = λI + (1−λ)F; e ← ργλe + ραM(1 − ργλ e·φ)φ; θ ← θ + δe + (e − ραMφ)(θ − θ⁻)·φ",
)
