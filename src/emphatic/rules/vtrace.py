"""V-trace(λ): off-policy TD whose traces grow by no more than a ratio of 1, and whose TD errors by no more than ρ̄.

    e ← γλ min(ρ⁻, 1)e + φ
    θ ← θ + α min(ρ, ρ̄)δe          ρ̄ is ``rho_bar``: ∞ unless it is given

ρ̄ = ∞ is the form of Ghiassian & Sutton (2021), "An empirical comparison of off-policy prediction learning algorithms on
the Collision task", whose δ has the whole ratio; at λ = 0 it is td. ρ̄ = 1 is the form of Espeholt et al. (2018),
"IMPALA: scalable distributed deep-RL with importance weighted actor-learner architectures", δ = min(ρ, ρ̄)(R + γ'v' − v)
with traces c = λ min(ρ, 1) (their c̄ = 1, remark 2). A finite ρ̄ bounds the variance of updates. The values are then
not those of π, but of the policy ∝ min(ρ̄μ, π), between μ and π (section 4.1 there): ρ̄ affects what is learned, and λ
how fast.
"""

import math

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def vtrace(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← γλ min(ρ⁻, 1)e + φ;  θ ← θ + α min(ρ, rho_bar)δe"""
    alpha, I, lambda_, rho, gamma_next, delta, rho_bar = step
    gamma, rho_before = memory
    c = gamma * lambda_ * min(rho_before, 1.0)
    w = alpha * min(rho, rho_bar) * delta
    return ((1.0, w * c), (0.0, c)), ((w, 0.0), (1.0, 0.0)), (gamma_next, rho)


rule = Rule(
    "vtrace",
    vtrace,
    paper="Espeholt et al. (2018), Ghiassian & Sutton (2021)",
    effective_step="min(rho, rho_bar) * alpha",
    memory=("gamma", "rho_before"),
    extra=("rho_bar",),
    defaults={"rho_bar": math.inf},
    extra_ranges={"rho_bar": (0.0, math.inf)},
    interest=False,
)
