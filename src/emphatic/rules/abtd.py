"""ABTD(ζ): action-dependent bootstrapping, which keeps the variance of traces low by adapting λ to the action.

    ν = min(ξ, 1/max(π, μ))
    e ← γν⁻π⁻e + φ
    θ ← θ + αρδe

π and μ are the two policies' probabilities of the action taken; λ is ignored. ξ comes from a parameter ζ in [0, 1] and
the extremes of max(π, μ) over all states and actions: ``emphatic.learning.xi``.
Mahmood, Yu & Sutton (2017), "Multi-step off-policy learning without importance sampling ratios".
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def abtd(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """ν = min(ξ, 1/max(π, μ));  e ← γν⁻π⁻e + φ;  θ ← θ + αρδe"""
    alpha, I, lambda_, rho, gamma_next, delta, pi, mu, xi = step
    gamma, nu_pi = memory
    c = gamma * nu_pi
    w = alpha * rho * delta
    nu = min(xi, 1.0 / max(pi, mu))
    return ((1.0, w * c), (0.0, c)), ((w, 0.0), (1.0, 0.0)), (gamma_next, nu * pi)


rule = Rule(
    "abtd",
    abtd,
    paper="Mahmood, Yu & Sutton (2017)",
    effective_step="rho * alpha",
    memory=("gamma", "nu_pi"),
    extra=("pi", "mu", "xi"),
    interest=False,
)
