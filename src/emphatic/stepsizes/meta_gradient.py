"""SwiftTD, and its extension to emphatic TD: step sizes by the gradient of the error through the true online update.

Every weight has α_i = exp β_i, and h_i = ∂θ_i/∂β_i is carried along, with the effect of β_i on other weights left out
(exact for one feature). With c = ργλ, b_i = ρMα_iφ_i and D = (θ_t − θ_{t−1})·φ_t the update is

    e ← c e + b(1 − c φ·e);   θ ← θ + δe + D(e − b)

Differentiate by β_i, with ē = ∂e_i/∂β_i and ∂b_i/∂β_i = b_i, and with targets held fixed, as TD does, so that
∂δ/∂β_i = −φ_ih_i and ∂D/∂β_i = φ_i(h_i − h⁻_i) (old e and ē on the right of the first line, new ones below):

    ē ← c ē + b(1 − c φ·e) − b c φ_iē_i
    h_new = h − φ_ih e + φ_i(h − h⁻)(e − b) + δē + D(ē − b)

The error is J = ½ Σ_k ρ_kM_k (Y_k − φ_k·θ_k)², with Y_k the λ-return that step k is owed when all is known: its
remainder is Y_k − φ_k·θ_{k−1} = Σ_{j≥k} c_{k+1}…c_j (δ_j + D_j). So each step j adds (δ_j + D_j) c_{k+1}…c_j to what
was to be learned at k, and −∂J/∂β_i = Σ_k ρ_kM_k (Y_k − φ_k·θ_k) φ_k h_k. Gathered by j, with p ← c p + ρMφ_ih_i,

    −∂J/∂β_i = Σ_t (δ_t p_t + D_t c_t p_{t−1})

for in D's own step k = t there is φ_t·θ_t, not φ_t·θ_{t−1}, so that the newest term of p is left out. Then

    β_i ← β_i + μ (δ p_i + D c p⁻_i)/α_i

SwiftTD (Javed, Sharifnassab & Sutton 2024) lacks the last term and has h⁻ in p. In both, with ρM = 1 there:

- the effective step τ = ρM Σ α_iφ_i² is bounded: b is scaled by η/τ where τ > η;
- where it is hit, α_i ← α_i ε^{φ_i²} and h_i, h⁻_i, ē_i ← 0 for the active weights;
- α_i ≤ η for every weight with a trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from emphatic.rules import Scalars, exp
from emphatic.stepsizes.method import Option, check_number
from emphatic.stepsizes.weightwise import WeightwiseStepSize, rule_fields

__all__ = ["Emphatic", "SwiftTD"]


def _build(emphatic: float, ours: float) -> dict[str, Any]:
    theirs = 1.0 - ours

    def terms(z: Scalars, p: float, q: float) -> Scalars:
        theta, a, h, d, e, e_bar, trace = z
        return a * p * p, e * p

    def function(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
        alpha, I, lambda_, rho, gamma_next, delta = step
        gamma, F, D, initial, mu, inverse_eta, decrease, drop = memory
        squares, e_phi = sums
        F = F + I
        M = emphatic * (lambda_ * I + (1.0 - lambda_) * F) + (1.0 - emphatic) * I
        c = rho * gamma * lambda_
        over = alpha * rho * M * squares * inverse_eta
        k = alpha * rho * M / max(over, 1.0)
        hit = 1.0 * (over > 1.0)
        meta = mu * (alpha > 0.0)
        zero = 0.0
        return (
            (
                (1.0, zero, zero, zero, zero, zero, zero),
                (zero, 1.0, zero, zero, zero, zero, zero),
                (zero, zero, 1.0, zero, zero, zero, zero),
                (zero, zero, zero, zero, zero, zero, zero),
                (zero, zero, zero, zero, c, zero, zero),
                (zero, zero, zero, zero, zero, c, zero),
                (zero, zero, zero, zero, zero, zero, c),
            ),
            (
                (delta + D),
                D,
                c,
                k,
                1.0 - c * e_phi,
                rho * M,
                hit,
                decrease * hit,
                meta * delta,
                ours * meta * D * c,
                inverse_eta,
            ),
            (gamma_next, emphatic * rho * gamma_next * F, D, initial, mu, inverse_eta, decrease, drop),
        )

    def component(s: Scalars, z: Scalars, p: float, q: float) -> Scalars:
        w, D, c, k, f, weight, hit, decrease, meta, meta_D, inverse_eta = s
        theta, a, h, d, e, e_bar, trace = z
        kept = 1.0 - hit * ((p > 0.0) * 1.0 + (p < 0.0) * 1.0)
        b = k * a * p
        h = kept * h
        h_before = h - kept * d
        e_bar = c * kept * e_bar
        e = c * e + f * b
        e_bar = e_bar + b * (f - p * e_bar)
        trace_before = trace
        trace = c * trace + weight * p * (ours * h + theirs * h_before)
        h_new = h - h_before * p * (e - b) - h * p * b + w * e_bar - D * b
        a = a * exp(decrease * p * p)
        moved = a * exp((meta * trace + meta_D * trace_before) / max(a, 1e-37))
        live = 1.0 * (e > 0.0) + 1.0 * (e < 0.0)
        limited = moved / max(1.0, live * moved * inverse_eta)
        return theta + w * e - D * b, limited, h_new, h_new - h, e, e_bar, trace

    names = {"weights": ("theta", "alphas", "h"), "traces": ("d", "e", "e_bar", "p"), "eager": "stepsize_drop"}
    return rule_fields(terms, function, component, **names)


@dataclass(frozen=True, eq=False)
class MetaGradient(WeightwiseStepSize):
    """The base of both methods.

    Every weight with a trace moves in every step. The sparse engine drops the traces of a weight when they have decayed
    to ``drop`` of what they were when its feature was last active, so that its cost grows as γλ → 1; others keep all.

    Args:
        alpha: the step size that all weights begin with, greater than 0.
        mu: the meta step size, 0 or more.
        eta: the bound on the effective step, greater than 0; infinity for none.
        decay: the factor on α_i where the bound is hit, 0 < decay ≤ 1.
        drop: to what part its traces decay before the sparse engine drops them, 0 or more.
    """

    alpha: Option = 1e-3
    mu: Option = 1e-3
    eta: Option = 0.5
    decay: Option = 0.9
    drop: Option = 1e-8

    fits: ClassVar[tuple[str, ...]] = ("true_online_td", "true_online_etd")
    options_in_memory: ClassVar[tuple[str, ...]] = ("alpha", "mu", "inverse_eta", "log_decay", "drop")

    def __post_init__(self) -> None:
        self.check(not_negative=("mu", "drop"))
        check_number(self, "eta", 0.0, float("inf"), "greater than 0")
        check_number(self, "decay", 0.0, 1.0, "greater than 0 and at most 1")

    def memory(self) -> dict[str, Any]:
        memory = super().memory()
        eta, decay = memory.pop("stepsize_eta"), memory.pop("stepsize_decay")
        return memory | {"stepsize_inverse_eta": 1.0 / np.asarray(eta), "stepsize_log_decay": np.log(decay)}

    @classmethod
    def restored(cls, header: Mapping[str, Any], memory: Mapping[str, Any]) -> Self:
        with np.errstate(divide="ignore"):
            eta = np.float64(1.0) / memory["stepsize_inverse_eta"]
        decay = np.exp(memory["stepsize_log_decay"])
        return super().restored(header, {**memory, "stepsize_eta": eta, "stepsize_decay": decay})


@dataclass(frozen=True, eq=False)
class SwiftTD(MetaGradient):
    """SwiftTD as published, for true_online_td; extended by ρM for true_online_etd.

    Args:
        alpha: the step size that all weights begin with, greater than 0.
        mu: the meta step size, 0 or more.
        eta: the bound on the effective step, greater than 0; infinity for none.
        decay: the factor on α_i where the bound is hit, 0 < decay ≤ 1.
        drop: to what part its traces decay before the sparse engine drops them, 0 or more.
    """

    name: ClassVar[str] = "swifttd"
    paper: ClassVar[str] = "Javed, Sharifnassab & Sutton (2024)"

    @staticmethod
    def build(emphatic: float, online: float) -> dict[str, Any]:
        return _build(emphatic, 0.0)


@dataclass(frozen=True, eq=False)
class Emphatic(MetaGradient):
    """The whole meta-gradient of the emphatic true online update, with SwiftTD's bound and decay.

    Args:
        alpha: the step size that all weights begin with, greater than 0.
        mu: the meta step size, 0 or more.
        eta: the bound on the effective step, greater than 0; infinity for none.
        decay: the factor on α_i where the bound is hit, 0 < decay ≤ 1.
        drop: to what part its traces decay before the sparse engine drops them, 0 or more.
    """

    name: ClassVar[str] = "emphatic"

    @staticmethod
    def build(emphatic: float, online: float) -> dict[str, Any]:
        return _build(emphatic, 1.0)
