"""TD(λ) with accumulating traces, off-policy by per-decision importance sampling, with interest.

    e ← ρ(γλe + Iφ)
    θ ← θ + αδe

Sutton (1988); the off-policy form as in Sutton, Mahmood & White (2016), section 4, with M = I.
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def td(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← ρ(γλe + Iφ);  θ ← θ + αδe"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    (gamma,) = memory
    c = rho * gamma * lambda_
    s = rho * I
    w = alpha * delta
    return ((1.0, w * c), (0.0, c)), ((w * s, 0.0), (s, 0.0)), (gamma_next,)


rule = Rule(
    "td",
    td,
    paper="Sutton (1988)",
    effective_step="rho * alpha * I",
    memory=("gamma",),
    fixed_point="projected",
)
