"""The gradient rules, in vectors: every e·w here is an inner product of two vectors of n components.

Written from the papers in the notation of `equations`; nothing of the library is imported. In each step the
traces come first; θ and w then use the new traces and the old θ and w. γ and λ are those of t, γ' and λ' those of
t + 1, ρ⁻ is that of t − 1 and 0 before the first step; δ = R + γ'θ·φ' − θ·φ.
"""

from __future__ import annotations

import math

from tests.support.sequence import Array, Result, Sequence, Step, follow


def gtd(s: Sequence) -> Result:
    """GTD(λ), also known as TDC(λ) (Maei 2011):

    e ← ρ(γλe + Iφ);  θ ← θ + α[δe − γ'(1 − λ')(e·w)φ'];  w ← w + β[δe − (w·φ)φ]
    """

    def update(t: int, u: Step, theta: Array, w: Array, e: Array) -> tuple[Array, ...]:
        delta = u.delta(theta)
        e = u.rho * (u.gamma * u.lambda_ * e + u.I * u.phi)
        correction = u.gamma_next * (1.0 - u.lambda_next) * (e @ w) * u.phi_next
        return theta + u.alpha * (delta * e - correction), w + u.beta * (delta * e - (w @ u.phi) * u.phi), e

    return follow(s, "theta w e", update)


def gtd2(s: Sequence) -> Result:
    """GTD2(λ) (Sutton et al. 2009; Maei 2011):

    e and w as in gtd;  θ ← θ + α[(w·φ)φ − γ'(1 − λ')(e·w)φ']
    """

    def update(t: int, u: Step, theta: Array, w: Array, e: Array) -> tuple[Array, ...]:
        delta = u.delta(theta)
        e = u.rho * (u.gamma * u.lambda_ * e + u.I * u.phi)
        correction = u.gamma_next * (1.0 - u.lambda_next) * (e @ w) * u.phi_next
        return (
            theta + u.alpha * ((w @ u.phi) * u.phi - correction),
            w + u.beta * (delta * e - (w @ u.phi) * u.phi),
            e,
        )

    return follow(s, "theta w e", update)


def tdrc(s: Sequence) -> Result:
    """TDRC(λ), TD with regularized corrections (Ghiassian et al. 2020), κ = 1 unless given:

    gtd with w ← w + β[δe − (w·φ)φ − κw]
    """

    def update(t: int, u: Step, theta: Array, w: Array, e: Array) -> tuple[Array, ...]:
        delta, kappa = u.delta(theta), 1.0 if s.kappa is None else s.kappa[t]
        e = u.rho * (u.gamma * u.lambda_ * e + u.I * u.phi)
        correction = u.gamma_next * (1.0 - u.lambda_next) * (e @ w) * u.phi_next
        return (
            theta + u.alpha * (delta * e - correction),
            w + u.beta * (delta * e - (w @ u.phi) * u.phi - kappa * w),
            e,
        )

    return follow(s, "theta w e", update)


def residual_gradient(s: Sequence) -> Result:
    """Residual gradient (Baird 1995), which has no λ: down the gradient of ½ρIδ² in θ, δ's own being γ'φ' − φ."""

    def update(t: int, u: Step, theta: Array) -> tuple[Array, ...]:
        gradient = u.gamma_next * u.phi_next - u.phi
        return (theta - u.alpha * u.rho * u.I * u.delta(theta) * gradient,)

    return follow(s, "theta", update)


def htd(s: Sequence) -> Result:
    """HTD(λ), hybrid TD (Hackman 2012; White & White 2016):

    z ← ρ(γλz + φ);  y ← γλy + φ
    θ ← θ + α[δz + (φ − γ'φ')((z − y)·w)];  w ← w + β[δz − (φ − γ'φ')(y·w)]
    """

    def update(t: int, u: Step, theta: Array, w: Array, z: Array, y: Array) -> tuple[Array, ...]:
        delta = u.delta(theta)
        z = u.rho * (u.gamma * u.lambda_ * z + u.phi)
        y = u.gamma * u.lambda_ * y + u.phi
        difference = u.phi - u.gamma_next * u.phi_next
        return (
            theta + u.alpha * (delta * z + difference * ((z - y) @ w)),
            w + u.beta * (delta * z - difference * (y @ w)),
            z,
            y,
        )

    return follow(s, "theta w z y", update)


def proximal_gtd2(s: Sequence) -> Result:
    """Proximal GTD2(λ), by the extragradient (Mahadevan et al. 2014; Liu et al. 2015):

    w½ = w + β[δe − (w·φ)φ];   θ½ = θ + α[(w·φ)φ − γ'(1 − λ')(e·w)φ'];   δ½ = R + γ'θ½·φ' − θ½·φ
    w ← w + β[δ½e − (w½·φ)φ];  θ ← θ + α[(w½·φ)φ − γ'(1 − λ')(e·w½)φ']
    """

    def update(t: int, u: Step, theta: Array, w: Array, e: Array) -> tuple[Array, ...]:
        e = u.rho * (u.gamma * u.lambda_ * e + u.I * u.phi)

        def moved(at_theta: Array, at_w: Array) -> tuple[Array, Array]:
            """θ and w, moved by what gtd2 says at another θ and w."""
            correction = u.gamma_next * (1.0 - u.lambda_next) * (e @ at_w) * u.phi_next
            return (
                theta + u.alpha * ((at_w @ u.phi) * u.phi - correction),
                w + u.beta * (u.delta(at_theta) * e - (at_w @ u.phi) * u.phi),
            )

        return (*moved(*moved(theta, w)), e)

    return follow(s, "theta w e", update)


def true_online_gtd(s: Sequence) -> Result:
    """True online GTD(λ) (van Hasselt, Mahmood & Sutton 2014):

    e ← ρ(γλe + α(1 − ργλ e·φ)φ);  ê ← ρ(γλê + φ);  x ← ρ⁻γλx + β(1 − ρ⁻γλ x·φ)φ
    θ ← θ + δe + (e − αρφ)(θ − θ⁻)·φ − αγ'(1 − λ')(w·ê)φ';  w ← w + ρδx − β(w·φ)φ

    The φ beside θ − θ⁻ is the φ' of the step before, as in the other true online rules.
    """
    return _true_online_gtd(s, last=False)


def true_online_gtd_separate(s: Sequence) -> Result:
    """True online GTD(λ) with (θ − θ⁻)·φ as printed, whatever φ' of the step before was; p = φ, p_next = φ'."""
    return _true_online_gtd(s, last=True)


def _true_online_gtd(s: Sequence, *, last: bool) -> Result:
    def update(
        t: int, u: Step, theta: Array, theta_before: Array, w: Array, e: Array, e_hat: Array, x: Array, *kept: Array
    ) -> tuple[Array, ...]:
        delta, D = u.delta(theta), (theta - theta_before) @ (u.phi if last else u.phi_next_before)
        c, c_before = u.rho * u.gamma * u.lambda_, u.rho_before * u.gamma * u.lambda_
        e = u.rho * (u.gamma * u.lambda_ * e + u.alpha * (1.0 - c * (e @ u.phi)) * u.phi)
        e_hat = u.rho * (u.gamma * u.lambda_ * e_hat + u.phi)
        x = c_before * x + u.beta * (1.0 - c_before * (x @ u.phi)) * u.phi
        correction = u.alpha * u.gamma_next * (1.0 - u.lambda_next) * (w @ e_hat) * u.phi_next
        return (
            theta + delta * e + (e - u.alpha * u.rho * u.phi) * D - correction,
            theta,
            w + u.rho * delta * x - u.beta * (w @ u.phi) * u.phi,
            e,
            e_hat,
            x,
            *((u.phi, u.phi_next) if last else ()),
        )

    return follow(s, "theta theta_before w e e_hat x" + " p p_next" * last, update)


def gq(s: Sequence) -> Result:
    """GQ(λ) (Maei & Sutton 2010) for action values: φ' is φ̄' = Σ_a π(a|S')φ(S', a).

    e ← ργλe + Iφ;  θ ← θ + α[δe − γ'(1 − λ')(w·e)φ̄'];  w ← w + β[δe − (w·φ)φ]
    """

    def update(t: int, u: Step, theta: Array, w: Array, e: Array) -> tuple[Array, ...]:
        delta = u.delta(theta)
        e = u.rho * u.gamma * u.lambda_ * e + u.I * u.phi
        correction = u.gamma_next * (1.0 - u.lambda_next) * (w @ e) * u.phi_next
        return theta + u.alpha * (delta * e - correction), w + u.beta * (delta * e - (w @ u.phi) * u.phi), e

    return follow(s, "theta w e", update)


def tree_backup(s: Sequence) -> Result:
    """Tree Backup(λ) for state values (Precup, Sutton & Singh 2000): e ← γλπ⁻e + φ;  θ ← θ + αρδe."""
    assert s.pi is not None
    pi = s.pi

    def update(t: int, u: Step, theta: Array, e: Array) -> tuple[Array, ...]:
        e = u.gamma * u.lambda_ * (pi[t - 1] if t > 0 else 0.0) * e + u.phi
        return theta + u.alpha * u.rho * u.delta(theta) * e, e

    return follow(s, "theta e", update)


def vtrace(s: Sequence) -> Result:
    """V-trace(λ) (Espeholt et al. 2018): e ← γλ min(ρ⁻, 1)e + φ;  θ ← θ + α min(ρ, ρ̄)δe, with ρ̄ = ∞ if not given."""
    rho_bar = [math.inf] * s.T if s.rho_bar is None else s.rho_bar

    def update(t: int, u: Step, theta: Array, e: Array) -> tuple[Array, ...]:
        e = u.gamma * u.lambda_ * min(u.rho_before, 1.0) * e + u.phi
        return theta + u.alpha * min(u.rho, rho_bar[t]) * u.delta(theta) * e, e

    return follow(s, "theta e", update)


def abtd(s: Sequence) -> Result:
    """ABTD(ζ), action-dependent bootstrapping (Mahmood, Yu & Sutton 2017), which has no λ:

    ν = min(ξ, 1/max(π, μ));  e ← γν⁻π⁻e + φ;  θ ← θ + αρδe
    """
    assert s.pi is not None
    assert s.mu is not None
    assert s.xi is not None
    nu_pi = [min(xi, 1.0 / max(pi, mu)) * pi for pi, mu, xi in zip(s.pi, s.mu, s.xi, strict=True)]

    def update(t: int, u: Step, theta: Array, e: Array) -> tuple[Array, ...]:
        e = u.gamma * (nu_pi[t - 1] if t > 0 else 0.0) * e + u.phi
        return theta + u.alpha * u.rho * u.delta(theta) * e, e

    return follow(s, "theta e", update)
