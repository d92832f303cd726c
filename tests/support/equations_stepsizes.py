"""Methods with a step size for each weight, from their papers' equations in plain NumPy alone.

The trace z does not hold the step sizes, α is a vector beside it, and θ_{t−1} stands where it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.equations import emphasis
from tests.support.sequence import Array, Sequence

__all__ = ["METHODS", "Outcome"]


@dataclass
class Outcome:
    """Predictions θ_t·φ_t, and what is left after the last step."""

    predictions: Array
    theta: Array
    alphas: Array
    h: Array


def adapted(rule: str, s: Sequence, alpha_0: float, adapt: Any, remember: Any, normalise: bool = False) -> Outcome:
    """``adapt(δ, φ, α)`` gives α, ``remember(α, φ, z, δ, Δ, b, ρ)`` takes note of the update that follows."""
    n = s.Phi.shape[1]
    online, M = rule.startswith("true_online"), emphasis(s) if "etd" in rule else s.I
    theta, before, alphas, z = np.array(s.theta_0), np.array(s.theta_0), np.full(n, alpha_0), np.zeros(n)
    predictions, D = [], 0.0
    for t in range(s.T):
        phi, following, c = s.Phi[t], s.Phi_next[t], s.rho[t] * s.gamma[t] * s.lambda_[t]
        predictions.append(theta @ phi)
        delta = s.R[t] + s.gamma_next[t] * theta @ following - theta @ phi
        if s.alpha[t] > 0.0:
            alphas = adapt(delta, phi, alphas)
        k = s.rho[t] * M[t]
        if normalise:
            alphas = alphas / max(1.0, s.alpha[t] * k * alphas @ phi**2)
        if online:
            k = k * s.alpha[t]
            b = k * alphas * phi
            z = c * z + k * phi * (1.0 - c * (alphas * z) @ phi)
            change = delta * alphas * z + D * (alphas * z - b)
            outside = 1.0
        else:
            b = k * alphas * phi
            z, outside = c * z + k * phi, s.alpha[t]
            change = outside * delta * alphas * z
        remember(phi, outside * alphas * z, change, outside * b, delta)
        before, theta = theta, theta + change
        D = (theta - before) @ following
    return Outcome(np.array(predictions), theta, alphas, remember(None, None, None, None, None))


def tidbd(rule: str, s: Sequence, alpha: float, mu: float, traced: bool = True) -> Outcome:
    """β += μδφh, α = exp β; h ← h[1 − φ e]⁺ + Δ, or with b in the place of e and δb in that of Δ for IDBD."""
    h = np.zeros(s.Phi.shape[1])

    def adapt(delta: float, phi: Array, alphas: Array) -> Array:
        return alphas * np.exp(mu * delta * phi * h)

    def remember(phi: Any, e: Any, change: Any, b: Any, delta: Any) -> Array:
        nonlocal h
        if phi is not None:
            e, change = (e, change) if traced else (b, delta * b)
            h = h * np.maximum(1.0 - phi * e, 0.0) + change
        return h

    return adapted(rule, s, alpha, adapt, remember)


def idbd(rule: str, s: Sequence, alpha: float, mu: float) -> Outcome:
    return tidbd(rule, s, alpha, mu, traced=False)


def autostep(rule: str, s: Sequence, alpha: float, mu: float, tau: float) -> Outcome:
    """Table 1 of Mahmood et al. (2012)."""
    h, v = np.zeros((2, s.Phi.shape[1]))

    def adapt(delta: float, phi: Array, alphas: Array) -> Array:
        nonlocal v
        g = delta * phi * h
        v = np.maximum(np.abs(g), v + alphas * phi**2 * (np.abs(g) - v) / tau)
        return alphas * np.exp(mu * np.divide(g, v, out=np.zeros_like(g), where=v != 0.0))

    def remember(phi: Any, e: Any, change: Any, b: Any, delta: Any) -> Array:
        nonlocal h
        if phi is not None:
            h = h * np.maximum(1.0 - phi * e, 0.0) + change
        return h

    return adapted(rule, s, alpha, adapt, remember, normalise=True)


def rprop(rule: str, s: Sequence, alpha: float, grow: float, shrink: float, smallest: float, largest: float) -> Outcome:
    """The sign of δφ_i against the last one that was not 0."""
    last = np.zeros(s.Phi.shape[1])

    def adapt(delta: float, phi: Array, alphas: Array) -> Array:
        nonlocal last
        sign = np.sign(delta * phi)
        after = np.where(sign * last > 0, np.clip(alphas * grow, smallest, largest), alphas)
        after = np.where(sign * last < 0, np.clip(alphas * shrink, smallest, largest), after)
        last = np.where(sign != 0, sign, last)
        return after

    return adapted(rule, s, alpha, adapt, lambda *_: last)


def meta_gradient(rule: str, s: Sequence, alpha: float, mu: float, eta: float, decay: float, ours: bool) -> Outcome:
    """SwiftTD (Javed et al. 2024) with ρM, and with the whole meta-gradient if ``ours``."""
    n = s.Phi.shape[1]
    M = emphasis(s) if "etd" in rule else s.I
    theta, beta = np.array(s.theta_0), np.full(n, np.log(alpha))
    h, h_before, e, e_bar, p = np.zeros((5, n))
    predictions, D = [], 0.0
    for t in range(s.T):
        phi, c, weight = s.Phi[t], s.rho[t] * s.gamma[t] * s.lambda_[t], s.rho[t] * M[t]
        predictions.append(theta @ phi)
        delta = s.R[t] + s.gamma_next[t] * theta @ s.Phi_next[t] - theta @ phi
        tau = s.alpha[t] * weight * np.exp(beta) @ phi**2
        b = s.alpha[t] * weight * np.exp(beta) * phi * min(1.0, eta / tau if tau > 0 else 1.0)
        if tau > eta:
            active = phi != 0.0
            h, h_before, e_bar = (np.where(active, 0.0, some) for some in (h, h_before, e_bar))
            beta = beta + np.log(decay) * phi**2
        e_phi = c * e @ phi
        e_bar = c * e_bar + b * (1.0 - e_phi) - b * c * phi * e_bar
        e = c * e + b * (1.0 - e_phi)
        p_before, p = p, c * p + weight * phi * (h if ours else h_before)
        gradient = delta * p + (D * c * p_before if ours else 0.0)
        if s.alpha[t] > 0.0:
            beta = beta + mu * gradient / np.exp(beta)
        beta = np.where(e != 0.0, np.minimum(beta, np.log(eta)), beta)
        h, h_before = (
            h - phi * h * e + phi * (h - h_before) * (e - b) + delta * e_bar + D * (e_bar - b),
            h,
        )
        change = delta * e + D * (e - b)
        theta = theta + change
        D = change @ s.Phi_next[t]
    return Outcome(np.array(predictions), theta, np.exp(beta), h)


def swifttd(rule: str, s: Sequence, alpha: float, mu: float, eta: float, decay: float, drop: float) -> Outcome:
    return meta_gradient(rule, s, alpha, mu, eta, decay, ours=False)


def emphatic(rule: str, s: Sequence, alpha: float, mu: float, eta: float, decay: float, drop: float) -> Outcome:
    return meta_gradient(rule, s, alpha, mu, eta, decay, ours=True)


METHODS: dict[str, Callable[..., Outcome]] = {
    "idbd": idbd,
    "tidbd": tidbd,
    "autostep": autostep,
    "rprop": rprop,
    "swifttd": swifttd,
    "emphatic": emphatic,
}
