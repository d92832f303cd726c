"""PER-ETD(λ): emphatic TD whose follow-on trace restarts, and whose weights change only at the end of a period.

    within a period: F ← ρ⁻γF + I;  M = λI + (1−λ)F;  e ← ρ(γλe + Mφ), all from 0 at its first step
    at its last step: θ ← θ + αδe

With b = ``period``, a period has b + 1 steps: F is carried over b times before θ changes, as in the paper. period = 0
is td without traces. Where γ = 0, and after ``cut``, F and e start again, but the count of steps continues. θ therefore
changes even if every episode is shorter than a period. The variance of F is bounded for every b, and its bias falls as
γᵇ.
Guan, Xu & Liang (2022), "PER-ETD: a polynomially efficient emphatic temporal difference learning method", algorithms 1
and 2, without the projection of θ.
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def per_etd(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """F ← 0 and e ← 0 before each period; F and e of etd within it; θ ← θ + αδe at its last step alone"""
    alpha, I, lambda_, rho, gamma_next, delta, period = step
    gamma, F, count = memory
    within = 1.0 * (count > 0.0)
    ends = 1.0 * (count >= period)
    F = within * F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    c = within * rho * gamma * lambda_
    s = rho * M
    w = ends * alpha * delta
    return (
        ((1.0, w * c), (0.0, c)),
        ((w * s, 0.0), (s, 0.0)),
        (gamma_next, rho * gamma_next * F, (1.0 - ends) * (count + 1.0)),
    )


rule = Rule(
    "per_etd",
    per_etd,
    paper="Guan, Xu & Liang (2022)",
    effective_step="ends * rho * alpha * M",
    memory=("gamma", "F", "count"),
    lasting=("count",),
    extra=("period",),
    extra_ranges={"period": (0.0, 1e15)},
    emphasis="gamma",
    update="etd with F and e restarted after each period of b + 1 steps; θ changes at its last step alone",
)
