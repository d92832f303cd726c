"""td, true_online_td and true_online_etd once more, as elementwise rules: they must learn what the others do."""

from __future__ import annotations

from typing import Any

from emphatic.rules import ElementwiseRule, Scalars

__all__ = ["WRITTEN_BOTH_WAYS"]


def td_terms(z: Scalars, p: Any, q: Any) -> Scalars:
    return ()


def td(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    (gamma,) = memory
    c = rho * gamma * lambda_
    w = alpha * delta
    return ((1.0, w * c), (0.0, c)), (w, c, rho * I), (gamma_next,)


def td_component(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    w, c, k = s
    theta, e = z
    e = c * e + k * p
    return theta + w * e, e


def true_online_terms(z: Scalars, p: Any, q: Any) -> Scalars:
    theta, e = z
    return (e * p,)


def true_online_td(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, D = memory
    (e_phi,) = sums
    c = rho * gamma * lambda_
    b = rho * alpha * I
    return ((1.0, (delta + D) * c), (0.0, c)), (delta, D, c, b, b * (1.0 - c * e_phi)), (gamma_next, D)


def true_online_etd(step: Scalars, memory: Scalars, sums: Scalars) -> Any:
    alpha, I, lambda_, rho, gamma_next, delta = step
    gamma, D, F = memory
    (e_phi,) = sums
    F = F + I
    M = lambda_ * I + (1.0 - lambda_) * F
    c = rho * gamma * lambda_
    b = rho * alpha * M
    after = (gamma_next, D, rho * gamma_next * F)
    return ((1.0, (delta + D) * c), (0.0, c)), (delta, D, c, b, b * (1.0 - c * e_phi)), after


def true_online_component(s: Scalars, z: Scalars, p: Any, q: Any) -> Scalars:
    delta, D, c, b, S = s
    theta, e = z
    e = c * e + S * p
    return theta + delta * e + D * (e - b * p), e


_VECTORS: dict[str, Any] = {"weights": ("theta",), "traces": ("e",)}

#: By the name of the linear rule that each is.
WRITTEN_BOTH_WAYS = {
    "td": ElementwiseRule("td", td_terms, td, td_component, memory=("gamma",), **_VECTORS),
    "true_online_td": ElementwiseRule(
        "true_online_td", true_online_terms, true_online_td, true_online_component, memory=("gamma", "D"), change="D",
        **_VECTORS,
    ),
    "true_online_etd": ElementwiseRule(
        "true_online_etd", true_online_terms, true_online_etd, true_online_component, memory=("gamma", "D", "F"),
        change="D", **_VECTORS,
    ),
}  # fmt: skip
