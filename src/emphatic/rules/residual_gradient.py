"""The residual gradient algorithm: stochastic gradient descent on δ², through φ' as through φ, off-policy.

    θ ← θ + αρIδ(φ − γ'φ')

It has no traces and no memory; λ is ignored. With a small enough step size it is always stable: its expected update is
the gradient of −½ Σ d_μ I E_π[δ²]. It converges neither to the least value error nor to TD's fixed point, but to the
least mean squared TD error (the "naive" algorithm of Sutton & Barto, section 11.5). Where transitions under π are
deterministic, that is the mean squared Bellman error; otherwise the variance of γ'θ·φ' contributes, and even tabular
values are not the true ones.
Baird (1995), "Residual algorithms: reinforcement learning with function approximation", section 4.
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ,), x_next = (θ·φ',), g = (φ·φ, φ·φ', φ'·φ')
def residual_gradient(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """θ ← θ + αρIδ(φ − γ'φ')"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    w = alpha * rho * I * delta
    return ((1.0,),), ((w, -w * gamma_next),), ()


rule = Rule(
    "residual_gradient",
    residual_gradient,
    paper="Baird (1995)",
    effective_step="rho * alpha * I",
    traces=(),
    memory=(),
    fixed_point="residual",
)
