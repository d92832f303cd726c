"""V-trace(λ): off-policy TD whose traces grow by no more than a ratio of 1.

    e ← γλ min(ρ⁻, 1)e + φ
    θ ← θ + αρδe

At λ = 0 it is td. Espeholt et al. (2018), "IMPALA: scalable distributed deep-RL with importance weighted
actor-learner architectures"; in this form as in Ghiassian & Sutton (2021).
"""

from __future__ import annotations

from typing import Any

from emphatic.rules import Rule, Scalars, Update


def vtrace(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← γλ min(ρ⁻, 1)e + φ;  θ ← θ + αρδe"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, rho_before = memory
    c = gamma * lambda_ * min(rho_before, 1.0)
    w = alpha * rho * delta
    return ((1.0, w * c), (0.0, c)), ((w, 0.0), (1.0, 0.0)), (gamma_next, rho)


def effective_step(step: Scalars, memory: Scalars) -> Any:
    """ρα"""
    alpha, I, lambda_, rho, gamma_next, delta = step
    return rho * alpha


rule = Rule(
    "vtrace",
    vtrace,
    paper="Espeholt et al. (2018)",
    weights=("theta",),
    effective_step=effective_step,
    traces=("e",),
    memory=("gamma", "rho_before"),
    interest=False,
    class_name="VTrace",
)
