"""Emphatic TD(λ) for action values: φ is of a state and an action, φ' of the target policy's actions.

    F ← ργF + I                     ρ = ρ_t: the action A_t belongs to the pair whose emphasis this is
    M = λI + (1−λ)F
    e ← ργλe + Mφ                   φ = φ(S, A)
    θ ← θ + αδe                     φ̄' = Σ_a π(a|S') φ(S', a), or φ(S', A') on-policy, passed as phi_next

etd multiplies the newest φ by ρ, and F by the ratio of the previous step, because the action of a state is still to
come. The action of a pair is part of the pair, so with pairs etd converges to other values. On-policy (ρ = 1) this rule
is emphatic Sarsa(λ). The emphasis is that of Sutton, Mahmood & White (2016) for the chain of pairs (S, A); no paper
prints the rule for pairs.
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def emphatic_q(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """F ← ργF + I;  M = λI + (1−λ)F;  e ← ργλe + Mφ;  θ ← θ + αδe"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, F = memory
    F = rho * gamma * F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    c = rho * gamma * lambda_
    w = alpha * delta
    return ((1.0, w * c), (0.0, c)), ((w * M, 0.0), (M, 0.0)), (gamma_next, F)


rule = Rule(
    "emphatic_q",
    emphatic_q,
    paper="Sutton, Mahmood & White (2016), for pairs (S, A)",
    effective_step="alpha * M",
    memory=("gamma", "F"),
    emphasis="gamma",
    action_values=True,
)
