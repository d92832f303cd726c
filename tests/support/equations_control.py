"""Action values, average reward and tamer emphasis, written from the papers in plain NumPy.

Nothing of the library is imported here. Emphases are sums over the steps before, not recursions; θ and e follow
``sequence.follow``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.support.sequence import Array, Result, Sequence, Step, follow


def _emphatic(s: Sequence, F: Array, c: Array) -> Result:
    """e ← ρ_t(c_t e + M_tφ); θ ← θ + αδe."""
    M = s.lambda_ * s.I + (1.0 - s.lambda_) * F

    def update(t: int, u: Step, theta: Array, e: Array) -> tuple[Array, ...]:
        e = u.rho * (c[t] * e + M[t] * u.phi)
        return theta + u.alpha * u.delta(theta) * e, e

    return replace(follow(s, "theta e", update), M=M)


def _sum_of_products(s: Sequence, ratios: Array, reach: int) -> Array:
    """F_t = Σ_{j ≤ reach} I_{t−j} Π_{i=t−j}^{t−1} ratio_i γ_{i+1}."""
    F = np.zeros(s.T)
    for t in range(s.T):
        product = 1.0
        for j in range(min(reach, t) + 1):
            if j:
                product *= ratios[t - j] * s.gamma_next[t - j]
            if product == 0.0:
                break
            F[t] += product * s.I[t - j]
    return F


def clipped_etd(s: Sequence) -> Result:
    """etd with ratios of at most ρ̄ in F, 1 unless given (Jiang et al. 2021)."""
    clip = np.ones(s.T) if s.clip is None else s.clip
    return _emphatic(s, _sum_of_products(s, np.minimum(s.rho, clip), s.T), s.gamma * s.lambda_)


def per_etd(s: Sequence) -> Result:
    """PER-ETD(λ) (Guan, Xu & Liang 2022, algorithm 2): F⁰ = M⁰ = I, e⁰ = Iφ; b steps later one update of θ."""
    assert s.period is not None
    period = s.period
    F, begin, M = 0.0, -round(s.count_0), np.zeros(s.T)

    def update(t: int, u: Step, theta: Array, e: Array) -> tuple[Array, ...]:
        nonlocal F, begin
        if t == begin:
            F, M[t], e = u.I, u.I, u.rho * u.I * u.phi
        else:
            F = u.rho_before * u.gamma * F + u.I
            M[t] = u.lambda_ * u.I + (1.0 - u.lambda_) * F
            e = u.rho * (u.gamma * u.lambda_ * e + M[t] * u.phi)
        if t - begin >= period[t]:
            begin = t + 1
            return theta + u.alpha * u.delta(theta) * e, e
        return theta, e

    return replace(follow(s, "theta e", update), M=M)


def emphatic_q(s: Sequence) -> Result:
    """Of pairs: F_t = I_t + Σ_k I_k Π_{i=k+1}^{t} ρ_iγ_i; e ← ργλe + Mφ; θ ← θ + αδe."""
    F, gamma = np.zeros(s.T), s.gamma
    for t in range(s.T):
        product = 1.0
        for k in reversed(range(t + 1)):
            F[t] += product * s.I[k]
            product *= s.rho[k] * gamma[k]
            if product == 0.0:
                break
    M = s.lambda_ * s.I + (1.0 - s.lambda_) * F

    def update(t: int, u: Step, theta: Array, e: Array) -> tuple[Array, ...]:
        e = u.rho * u.gamma * u.lambda_ * e + M[t] * u.phi
        return theta + u.alpha * u.delta(theta) * e, e

    return replace(follow(s, "theta e", update), M=M)


def _differential(s: Sequence, F: Array) -> Result:
    M, rbar = s.lambda_ * s.I + (1.0 - s.lambda_) * F, s.rbar_0

    def update(t: int, u: Step, theta: Array, e: Array) -> tuple[Array, ...]:
        nonlocal rbar
        error = float(u.R - rbar + u.gamma_next * (theta @ u.phi_next) - theta @ u.phi)
        e = u.rho * (u.gamma * u.lambda_ * e + M[t] * u.phi)
        rbar += u.beta * u.rho * error
        return theta + u.alpha * error * e, e

    return replace(follow(s, "theta e", update), M=M)


def differential_td(s: Sequence) -> Result:
    """Wan, Naik & Sutton (2021): δ = R − R̄ + θ·φ' − θ·φ; θ ← θ + αδe; R̄ ← R̄ + βρδ."""
    return _differential(s, s.I)


def differential_etd(s: Sequence) -> Result:
    """The same with M of a follow-on trace that decays by κ_t, 0 where γ_t = 0."""
    assert s.decay is not None
    F = np.zeros(s.T)
    for t in range(s.T):
        carried = s.decay[t] * (s.gamma[t] > 0.0) * s.rho[t - 1] * F[t - 1] if t else 0.0
        F[t] = s.I[t] + carried
    return _differential(s, F)


def _truncated(s: Sequence, n: int) -> Result:
    """Zhang & Whiteson (2022): F_{t,n} = Σ_{j=0}^{n} γʲρ_{t−j:t−1} i_{t−j}."""
    return _emphatic(s, _sum_of_products(s, s.rho, n), s.gamma * s.lambda_)


def _nstep(s: Sequence, n: int) -> Result:
    """Jiang et al. (2021): F_t = I_t + γⁿ(Π_{i=1}^{n} ρ_{t−i})F_{t−n}."""
    F = np.zeros(s.T)
    for t in range(s.T):
        F[t] = s.I[t]
        if t >= n:
            F[t] += np.prod((s.rho * s.gamma_next)[t - n : t]) * F[t - n]
    return _emphatic(s, F, s.gamma * s.lambda_)
