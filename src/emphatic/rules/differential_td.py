"""Differential TD(λ): values relative to the average reward R̄, which is learned beside them.

    δ̄ = δ − R̄ = R − R̄ + γ'θ·φ' − θ·φ        γ' = 1 where the stream continues
    e ← ρ(γλe + Iφ)
    θ ← θ + αδ̄e
    R̄ ← R̄ + βρδ̄                              β = eta·α unless it is given; ``cut`` keeps R̄

``learn`` returns δ, without R̄. With pairs (S, A) it is differential Sarsa(λ). With φ' of a greedy action, and λ = 0
at actions that are not greedy, it is differential Q-learning. At λ = 0 it is td with one more feature (φ = √eta, φ' =
0); with λ > 0 it is not, because R̄ has no trace. Wan, Naik & Sutton (2021), "Learning and planning in average-reward
Markov decision processes", equations 3 to 6; Sutton & Barto (2018), section 10.3.
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def differential_td(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← ρ(γλe + Iφ);  θ ← θ + α(δ − R̄)e;  R̄ ← R̄ + βρ(δ − R̄)"""
    alpha, I, lambda_, rho, gamma_next, delta, beta = step
    gamma, rbar = memory
    difference = delta - rbar
    c = rho * gamma * lambda_
    s = rho * I
    w = alpha * difference
    return ((1.0, w * c), (0.0, c)), ((w * s, 0.0), (s, 0.0)), (gamma_next, rbar + beta * rho * difference)


rule = Rule(
    "differential_td",
    differential_td,
    paper="Wan, Naik & Sutton (2021)",
    effective_step="rho * alpha * I",
    memory=("gamma", "rbar"),
    lasting=("rbar",),
    continuing=True,
    extra=("beta",),
    defaults={"beta": "eta"},
)
