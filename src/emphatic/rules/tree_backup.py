"""Tree Backup(λ): off-policy learning whose traces are cut by the target policy's probability, not by a ratio.

    e ← γλπ⁻e + φ
    θ ← θ + αρδe

π is the target policy's probability of the action taken. Precup, Sutton & Singh (2000), "Eligibility traces for
off-policy policy evaluation"; for state values as in Ghiassian & Sutton (2021).
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, e·φ), x_next = (θ·φ', e·φ'), g = (φ·φ, φ·φ', φ'·φ')
def tree_backup(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """e ← γλπ⁻e + φ;  θ ← θ + αρδe"""
    alpha, I, lambda_, rho, gamma_next, delta, pi = step
    gamma, pi_before = memory
    c = gamma * lambda_ * pi_before
    w = alpha * rho * delta
    return ((1.0, w * c), (0.0, c)), ((w, 0.0), (1.0, 0.0)), (gamma_next, pi)


rule = Rule(
    "tree_backup",
    tree_backup,
    paper="Precup, Sutton & Singh (2000)",
    effective_step="rho * alpha",
    memory=("gamma", "pi_before"),
    extra=("pi",),
    interest=False,
)
