"""GQ(λ): gradient TD for action values, for any target policy.

    e ← ργλe + Iφ
    θ ← θ + α[δe − γ'(1−λ')(w·e)φ̄']      φ̄' = Σ_a π(a|S') φ(S', a), passed as phi_next
    w ← w + β[δe − (w·φ)φ]                β = eta·α unless it is given

φ is that of the state and the chosen action, so a log needs ``Phi_next``. ρ scales only the older part of the trace.
Maei & Sutton (2010), "GQ(λ): a general gradient algorithm for temporal-difference prediction learning with
eligibility traces".
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, w·φ, e·φ), x_next = (θ·φ', w·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def gq(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """gtd with e ← ργλe + Iφ and φ' = Σ_a π(a|S')φ(S',a)"""
    alpha, I, lambda_, rho, gamma_next, delta, beta, lambda_next = step
    gamma, ew, ee = memory
    _, w_phi, e_phi = x
    phi_phi, _, _ = g
    c = rho * gamma * lambda_
    s = I
    ee = c * c * ee + 2.0 * c * s * e_phi + s * s * phi_phi
    ew = c * ew + s * w_phi
    e_phi = c * e_phi + s * phi_phi
    h = alpha * gamma_next * (1.0 - lambda_next) * ew
    a, b, k = alpha * delta, beta * delta, beta * w_phi
    return (
        ((1.0, 0.0, a * c), (0.0, 1.0, b * c), (0.0, 0.0, c)),
        ((a * s, -h), (b * s - k, 0.0), (s, 0.0)),
        (gamma_next, ew + b * ee - k * e_phi, ee),
    )


rule = Rule(
    "gq",
    gq,
    paper="Maei & Sutton (2010)",
    weights=("theta", "w"),
    effective_step="alpha * I",
    memory=("gamma", "ew", "ee"),
    extra=("beta", "lambda_next"),
    defaults={"beta": "eta", "lambda_next": "lambda_"},
    action_values=True,
)
