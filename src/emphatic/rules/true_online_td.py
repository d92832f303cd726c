"""True online TD(λ): the online λ-return algorithm, exactly, at the cost of TD(λ); off-policy and with interest.

    c = ργλ;  b = ραI;  s = b(1 − c e·φ)
    e ← c e + s φ
    θ ← θ + δe + D(e − bφ)          D = (θ_t − θ_{t−1})·φ_t, remembered

It is true_online_etd with M = I. van Seijen & Sutton (2014), "True online TD(λ)"; van Seijen, Mahmood, Pilarski,
Machado & Sutton (2016), "True online temporal-difference learning", algorithm 1.
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def true_online_td(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← ργλe + s φ;  θ ← θ + δe + D(e − ραIφ) = θ + w e_old + q φ"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, D = memory
    _, e_phi = x
    _, e_phi_next = x_next
    _, phi_phi_next, _ = g
    c = rho * gamma * lambda_
    b = rho * alpha * I
    s = b * (1.0 - c * e_phi)
    w = (delta + D) * c
    q = delta * s + D * (s - b)
    D = w * e_phi_next + q * phi_phi_next
    return ((1.0, w), (0.0, c)), ((q, 0.0), (s, 0.0)), (gamma_next, D)


rule = Rule(
    "true_online_td",
    true_online_td,
    paper="van Seijen & Sutton (2014)",
    effective_step="rho * alpha * I",
    change="D",
    memory=("gamma", "D"),
    fixed_point="projected",
    update="true_online_etd with M = I",
)
