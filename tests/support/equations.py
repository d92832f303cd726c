"""The mathematics the library is compared with, written from the equations in plain NumPy.

Nothing of the library is imported here, and nothing is shared with its reference. That follows the pseudocode
of "True Online Emphatic TD(λ): Quick Reference and Implementation Guide" (Sutton 2015), which carries D from
step to step. This text follows the guide's equations (1)–(5) and keeps every θ_t, so that θ_{t−1} stands
where it is written.

    td, true_online_td, etd, etd_beta, true_online_etd, true_online_etd_beta, bounded_etd      sequence → Result
    the gradient rules and those with their own bootstrapping: `tests.support.equations_gradient`
    forward_view         the weights each true online rule is DEFINED to have, without traces: O(T²)
    emphasis_as_a_sum    M_t without F
    fixed_point, …       what the expected updates converge to, in closed form
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tests.support import equations_control, equations_gradient
from tests.support.sequence import Array, Result, Sequence, before

__all__ = [
    "CORE",
    "RULES",
    "Array",
    "FixedPoint",
    "Result",
    "Sequence",
    "fixed_point",
    "msve",
    "stationary",
    "true_values",
]


# --------------------------------------------------------------------------------------------------- emphasis


def followon(s: Sequence, discount: Array | None = None) -> Array:
    """F_t = ρ_{t−1}γ_t F_{t−1} + I_t with F_{−1} = 0 (2); `discount` stands in for γ_t where given."""
    discount = s.gamma if discount is None else discount
    F = np.zeros(s.T)
    for t in range(s.T):
        F[t] = s.I[t] + (s.rho[t - 1] * discount[t] * F[t - 1] if t > 0 else 0.0)
    return F


def emphasis(s: Sequence, discount: Array | None = None) -> Array:
    """M_t = λ_t I_t + (1 − λ_t)F_t (3)."""
    M: Array = s.lambda_ * s.I + (1.0 - s.lambda_) * followon(s, discount)
    return M


def beta_discount(s: Sequence) -> Array:
    """β_t, but 0 wherever γ_t = 0: emphasis never crosses a termination (Hallak et al. 2016)."""
    assert s.decay is not None
    return np.where(s.gamma == 0.0, 0.0, s.decay)


def emphasis_as_a_sum(s: Sequence, discount: Array | None = None) -> Array:
    """M_t = I_t + Σ_{k<t} M_k ρ_k (Π_{i=k+1}^{t−1} γ_iλ_iρ_i) γ_t(1 − λ_t)."""
    g = s.gamma if discount is None else discount
    M = np.zeros(s.T)
    for t in range(s.T):
        inside = (g * s.lambda_ * s.rho)[:t]
        M[t] = s.I[t] + sum(M[k] * s.rho[k] * np.prod(inside[k + 1 :]) * g[t] * (1.0 - s.lambda_[t]) for k in range(t))
    return M


# ---------------------------------------------------------------------------------------------- the six rules


def plain(s: Sequence, M: Array) -> Result:
    """e_t = ρ_t(γ_tλ_t e_{t−1} + M_tφ_t);  θ_{t+1} = θ_t + α_tδ_t e_t."""
    Theta, E = np.zeros((s.T + 1, len(s.theta_0))), np.zeros((s.T + 1, len(s.theta_0)))
    Theta[0], gamma = s.theta_0, s.gamma
    for t in range(s.T):
        delta = s.R[t] + s.gamma_next[t] * Theta[t] @ s.Phi_next[t] - Theta[t] @ s.Phi[t]
        E[t + 1] = s.rho[t] * (gamma[t] * s.lambda_[t] * E[t] + M[t] * s.Phi[t])
        Theta[t + 1] = Theta[t] + s.alpha[t] * delta * E[t + 1]
    return Result({"theta": Theta, "e": E}, np.sum(Theta[:-1] * s.Phi, axis=1), M)


def true_online(s: Sequence, M: Array, *, last: bool = False) -> Result:
    """Equations (1), (4) and (5), with θ_{t−1} as written and θ_{−1} = θ_0:

    e_t = ρ_tγ_tλ_t e_{t−1} + ρ_tα_tM_t(1 − ρ_tγ_tλ_t φ_t·e_{t−1})φ_t
    θ_{t+1} = θ_t + δ_t e_t + (e_t − α_tM_tρ_tφ_t)(θ_t − θ_{t−1})·φ_t

    Where the φ' of one step is not the φ of the next, the φ_t beside θ_t − θ_{t−1} is that φ': what is
    corrected is the value of φ' that step t−1 bootstrapped from. With ``last`` it is φ_t as printed, whatever φ' of
    the step before was; p_t = φ_t.
    """
    Theta, E = np.zeros((s.T + 1, len(s.theta_0))), np.zeros((s.T + 1, len(s.theta_0)))
    Theta[0], gamma = s.theta_0, s.gamma
    for t in range(s.T):
        phi, c = s.Phi[t], s.rho[t] * gamma[t] * s.lambda_[t]
        delta = s.R[t] + s.gamma_next[t] * Theta[t] @ s.Phi_next[t] - Theta[t] @ phi
        E[t + 1] = c * E[t] + s.rho[t] * s.alpha[t] * M[t] * (1.0 - c * phi @ E[t]) * phi
        beside = phi if last else s.Phi_next[t - 1]
        D = (Theta[t] - Theta[t - 1]) @ beside if t > 0 else 0.0
        Theta[t + 1] = Theta[t] + delta * E[t + 1] + (E[t + 1] - s.alpha[t] * M[t] * s.rho[t] * phi) * D
    P = {"p": np.vstack([np.zeros_like(s.Phi[:1]), s.Phi])} if last else {}
    return Result({"theta": Theta, "e": E, **P}, np.sum(Theta[:-1] * s.Phi, axis=1), M)


def td(s: Sequence) -> Result:
    """TD(λ) with importance sampling and interest: e ← ρ(γλe + Iφ)."""
    return plain(s, s.I)


def etd(s: Sequence) -> Result:
    """Emphatic TD(λ) (Sutton, Mahmood & White 2016)."""
    return plain(s, emphasis(s))


def etd_beta(s: Sequence) -> Result:
    """ETD(λ, β) (Hallak et al. 2016): β instead of γ in F."""
    return plain(s, emphasis(s, beta_discount(s)))


def true_online_td(s: Sequence) -> Result:
    """True online TD(λ) (van Seijen & Sutton 2014), off-policy and with interest: M = I."""
    return true_online(s, s.I)


def true_online_etd(s: Sequence) -> Result:
    """True online emphatic TD(λ): the guide's equations (1)–(5)."""
    return true_online(s, emphasis(s))


def true_online_etd_beta(s: Sequence) -> Result:
    """True online ETD(λ) with β instead of γ in F."""
    return true_online(s, emphasis(s, beta_discount(s)))


def true_online_td_separate(s: Sequence) -> Result:
    """True online TD(λ) as printed, with θ_{t−1} (van Seijen et al. 2016)."""
    return true_online(s, s.I, last=True)


def true_online_etd_separate(s: Sequence) -> Result:
    """True online emphatic TD(λ) as printed, with θ_{t−1}."""
    return true_online(s, emphasis(s), last=True)


def true_online_etd_beta_separate(s: Sequence) -> Result:
    """The same with β instead of γ in F."""
    return true_online(s, emphasis(s, beta_discount(s)), last=True)


def bounded_etd(s: Sequence) -> Result:
    """True online emphatic TD with λ_t/max(1, ρ_{t−1}), a step of at most ½/φ·φ, and the bootstrapped value in a range:

    b_t = min(ρ_tα_tM_t, ½/φ_t·φ_t);  δ_t = R + γ'B_t(θ_t·φ'_t) − θ_t·φ_t
    e_t = ρ_tγ_tλ_t e_{t−1} + b_t(1 − ρ_tγ_tλ_t φ_t·e_{t−1})φ_t
    θ_{t+1} = θ_t + δ_t e_t + (e_t − b_tφ_t)(θ_t·φ'_{t−1} − B_{t−1}(θ_{t−1}·φ'_{t−1}))
    """
    s = replace(s, lambda_=s.lambda_ / np.maximum(1.0, before(s.rho)))
    M = emphasis(s)
    low = np.full(s.T, -np.inf) if s.low is None else s.low
    high = np.full(s.T, np.inf) if s.high is None else s.high
    square = np.sum(s.Phi**2, axis=1)
    furthest = np.divide(0.5, square, out=np.full(s.T, np.inf), where=square > 0.0)
    b, gamma = np.minimum(s.rho * s.alpha * M, furthest), s.gamma
    Theta, E = np.zeros((s.T + 1, len(s.theta_0))), np.zeros((s.T + 1, len(s.theta_0)))
    Theta[0], correction = s.theta_0, 0.0
    for t in range(s.T):
        phi, phi_next, c = s.Phi[t], s.Phi_next[t], s.rho[t] * gamma[t] * s.lambda_[t]
        target = np.median([low[t], Theta[t] @ phi_next, high[t]])
        delta = s.R[t] + s.gamma_next[t] * target - Theta[t] @ phi
        E[t + 1] = c * E[t] + b[t] * (1.0 - c * phi @ E[t]) * phi
        Theta[t + 1] = Theta[t] + delta * E[t + 1] + (E[t + 1] - b[t] * phi) * correction
        correction = Theta[t + 1] @ phi_next - target
    return Result({"theta": Theta, "e": E}, np.sum(Theta[:-1] * s.Phi, axis=1), M)


#: The rules with emphasis, and those they come from.
CORE: dict[str, Callable[[Sequence], Result]] = {
    f.__name__: f for f in (td, true_online_td, etd, etd_beta, true_online_etd, true_online_etd_beta)
}
#: The true online rules that keep the last φ.
LAST: dict[str, Callable[[Sequence], Result]] = {
    f.__name__: f for f in (true_online_td_separate, true_online_etd_separate, true_online_etd_beta_separate)
}
RULES = (
    CORE
    | LAST
    | {"bounded_etd": bounded_etd}
    | {
        name: f
        for module in (equations_gradient, equations_control)
        for name, f in vars(module).items()
        if getattr(f, "__module__", "") == module.__name__ and not name.startswith("_")
    }
)


# ----------------------------------------------------------------------------------------------- forward view


def forward_view(s: Sequence, M: Array) -> Array:
    """The rows θ_0 … θ_T of the exact online forward view, for any emphasis M:

    θᵗ_0 = θ_0;  θᵗ_{k+1} = θᵗ_k + α_kM_kρ_k(Yᵗ_k − φ_k·θᵗ_k)φ_k for k < t;  θ_t = θᵗ_t
    Yᵗ_t = φ_t·θ_{t−1};  Yᵗ_k = R_{k+1} + γ_{k+1}[(1 − ρ_{k+1}λ_{k+1})φ_{k+1}·θ_k + ρ_{k+1}λ_{k+1}Yᵗ_{k+1}]

    For one unbroken sequence: φ'_t = φ_{t+1}.
    """
    assert np.array_equal(s.Phi_next[:-1], s.Phi[1:])
    Theta = np.zeros((s.T + 1, len(s.theta_0)))
    Theta[0] = s.theta_0
    for t in range(1, s.T + 1):
        Y = np.zeros(t + 1)
        Y[t] = s.Phi_next[t - 1] @ Theta[t - 1]
        for k in reversed(range(t)):
            # At the horizon, k + 1 = t, both terms are φ_t·θ_{t−1} and their weights do not matter.
            rho_lambda = s.rho[k + 1] * s.lambda_[k + 1] if k + 1 < t else 1.0
            bootstrap = s.Phi_next[k] @ Theta[k]
            Y[k] = s.R[k] + s.gamma_next[k] * ((1.0 - rho_lambda) * bootstrap + rho_lambda * Y[k + 1])
        theta = s.theta_0.copy()
        for k in range(t):
            theta += s.alpha[k] * M[k] * s.rho[k] * (Y[k] - s.Phi[k] @ theta) * s.Phi[k]
        Theta[t] = theta
    return Theta


# ----------------------------------------------------------------------------------------------- fixed points


@dataclass(frozen=True)
class FixedPoint:
    """f, m, the key matrix diag(m)(𝟙 − P^λ), A and b of the expected update A θ = b, and its solution θ*."""

    f: Array
    m: Array
    key: Array
    A: Array
    b: Array

    @property
    def theta(self) -> Array:
        return np.linalg.solve(self.A, self.b)


def fixed_point(
    Phi: Array,
    P: Array,
    r: Array,
    gamma: Array,
    lambda_: Array,
    d: Array,
    I: Array,
    *,
    emphatic: bool = True,
) -> FixedPoint:
    """Of (emphatic) TD(λ) in a finite chain; γ, λ, I and d_μ are one number a state, P and r are under π:

    i = d_μI;  f = (𝟙 − ΓPᵀ)⁻¹i;  m = Λi + (𝟙 − Λ)f, or m = i without emphasis
    P^λ = 𝟙 − (𝟙 − PΓΛ)⁻¹(𝟙 − PΓ);  A = Φᵀdiag(m)(𝟙 − P^λ)Φ;  b = Φᵀdiag(m)(𝟙 − PΓΛ)⁻¹r
    """
    one, Gamma, Lambda = np.eye(len(d)), np.diag(gamma), np.diag(lambda_)
    i = d * I
    f = np.linalg.solve(one - Gamma @ P.T, i)
    m = Lambda @ i + (one - Lambda) @ f if emphatic else i
    P_lambda = one - np.linalg.solve(one - P @ Gamma @ Lambda, one - P @ Gamma)
    key = np.diag(m) @ (one - P_lambda)
    b = Phi.T @ np.diag(m) @ np.linalg.solve(one - P @ Gamma @ Lambda, r)
    return FixedPoint(f, m, key, Phi.T @ key @ Phi, b)


def stationary(P: Array) -> Array:
    """The d with d = dP and Σd = 1, of a chain with one recurrent class."""
    S = len(P)
    d, *_ = np.linalg.lstsq(np.vstack([P.T - np.eye(S), np.ones(S)]), np.append(np.zeros(S), 1.0), rcond=None)
    return np.asarray(d, dtype=np.float64)


def true_values(P: Array, r: Array, gamma: Array) -> Array:
    """v = (𝟙 − PΓ)⁻¹r."""
    return np.linalg.solve(np.eye(len(r)) - P * gamma, r)


def msve(Phi: Array, theta: Array, v: Array, d: Array) -> float:
    """Σ_s d(s)(φ(s)·θ − v(s))²."""
    return float(d @ (Phi @ theta - v) ** 2)
