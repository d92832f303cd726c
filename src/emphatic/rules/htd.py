"""HTD(λ): hybrid TD, which is TD(λ) on-policy and a gradient method off-policy.

    z ← ρ(γλz + φ);   y ← γλy + φ
    θ ← θ + α[δz + (φ − γ'φ')((z − y)·w)]
    w ← w + β[δz − (φ − γ'φ')(y·w)]       β = eta·α unless it is given

On-policy z = y, and θ learns by td. Maei (2011), section 7.4.3; A. White & M. White (2016), "Investigating practical
linear temporal difference learning".
"""

from emphatic.rules import Rule, Scalars, Update


# x = (θ·φ, w·φ, z·φ, y·φ), x_next = (θ·φ', w·φ', z·φ', y·φ'), g = (φ·φ, φ·φ', φ'·φ')
def htd(step: Scalars, memory: Scalars, x: Scalars, x_next: Scalars, g: Scalars) -> Update:
    """z ← ρ(γλz + φ);  y ← γλy + φ;  θ ← θ + α[δz + (φ − γ'φ')((z − y)·w)];  w ← w + β[δz − (φ − γ'φ')(y·w)]"""
    alpha, I, lambda_, rho, gamma_next, delta, beta = step
    gamma, zw, yw, zz, zy = memory
    _, w_phi, z_phi, y_phi = x
    _, _, z_phi_next, y_phi_next = x_next
    phi_phi, phi_phi_next, _ = g
    cy = gamma * lambda_
    cz = rho * cy
    zz = cz * cz * zz + 2.0 * cz * rho * z_phi + rho * rho * phi_phi
    zy = cz * cy * zy + cz * z_phi + rho * cy * y_phi + rho * phi_phi
    zw = cz * zw + rho * w_phi
    yw = cy * yw + w_phi
    u = phi_phi - gamma_next * phi_phi_next  # phi.(phi - gamma' phi')
    zu = cz * (z_phi - gamma_next * z_phi_next) + rho * u
    yu = cy * (y_phi - gamma_next * y_phi_next) + u
    a, b, j, k = alpha * delta, beta * delta, alpha * (zw - yw), beta * yw
    return (
        ((1.0, 0.0, a * cz, 0.0), (0.0, 1.0, b * cz, 0.0), (0.0, 0.0, cz, 0.0), (0.0, 0.0, 0.0, cy)),
        ((a * rho + j, -j * gamma_next), (b * rho - k, k * gamma_next), (rho, 0.0), (1.0, 0.0)),
        (gamma_next, zw + b * zz - k * zu, yw + b * zy - k * yu, zz, zy),
    )


rule = Rule(
    "htd",
    htd,
    paper="Maei (2011), White & White (2016)",
    weights=("theta", "w"),
    effective_step="rho * alpha",
    traces=("z", "y"),
    memory=("gamma", "zw", "yw", "zz", "zy"),
    extra=("beta",),
    defaults={"beta": "eta"},
    interest=False,
    fixed_point="projected",
)
