"""The meta-gradient through the emphatic true online update, by finite differences through the whole recursion.

For one feature the recursions of ``emphatic.stepsizes.meta_gradient`` are exact. Targets are held fixed, as TD does:
what a step bootstraps from is that of the unperturbed run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import emphatic
from emphatic.stepsizes import Emphatic
from tests.support.streams import relative_error

T = 12


@dataclass
class Path:
    """A stream of one feature; everything varies, ρ and γ are 0 now and then."""

    phi: Any
    R: Any
    gamma: Any
    lambda_: Any
    rho: Any
    I: Any


def drawn(seed: int) -> Path:
    rng = np.random.default_rng(seed)
    gamma = np.append(rng.uniform(0.0, 1.0, T), 0.5) * (rng.random(T + 1) > 0.15)
    gamma[0] = 0.0
    rho = rng.exponential(size=T) * (rng.random(T) > 0.15)
    return Path(rng.normal(size=T + 1), rng.normal(size=T), gamma, rng.random(T), rho, rng.random(T))


def followed(s: Path, beta: float, bootstrap: Any = None) -> dict[str, Any]:
    """θ_t, δ_t, D_t, M_t and θ_t·φ_{t+1} of the update, from its equations; targets from ``bootstrap`` where given."""
    theta = before = 0.3
    e = F = 0.0
    rows: dict[str, list[float]] = {name: [] for name in ("theta", "delta", "D", "M", "following")}
    for t in range(T):
        phi, c = s.phi[t], s.rho[t] * s.gamma[t] * s.lambda_[t]
        F = (s.rho[t - 1] if t else 0.0) * s.gamma[t] * F + s.I[t]
        M = s.lambda_[t] * s.I[t] + (1.0 - s.lambda_[t]) * F
        b = s.rho[t] * M * np.exp(beta) * phi
        following = theta * s.phi[t + 1] if bootstrap is None else bootstrap[t]
        delta, D = s.R[t] + s.gamma[t + 1] * following - theta * phi, (theta - before) * phi
        for name, value in (("theta", theta), ("delta", delta), ("D", D), ("M", M), ("following", following)):
            rows[name].append(value)
        e = c * e + b * (1.0 - c * phi * e)
        before, theta = theta, theta + delta * e + D * (e - b)
    found: dict[str, Any] = {name: np.array(values) for name, values in rows.items()}
    return found | {"last": theta}


def error(s: Path, path: dict[str, Any], targets: Any) -> float:
    """½ Σ ρM (Y − φθ)², with M as it is (it does not depend on β)."""
    return float(0.5 * np.sum(s.rho * path["M"] * (targets - s.phi[:T] * path["theta"]) ** 2))


def lambda_returns(s: Path, path: dict[str, Any]) -> Any:
    """Y_k = φ_k·θ_{k−1} + Σ_j c_{k+1}…c_j (δ_j + D_j), as known at the end."""
    c = s.rho * s.gamma[:T] * s.lambda_
    theta_before = np.concatenate([[0.3], path["theta"][:-1]])
    found = []
    for k in range(T):
        products = np.concatenate([[1.0], np.cumprod(c[k + 1 :])])
        found.append(s.phi[k] * theta_before[k] + products @ (path["delta"] + path["D"])[k:])
    return np.array(found)


@pytest.mark.parametrize("seed", range(20))
def test_h_and_the_meta_gradient_are_those_of_finite_differences(seed: int) -> None:
    s, beta, step = drawn(seed), np.log(0.2), 1e-5
    path = followed(s, beta)
    learner = emphatic.Learner(
        "true_online_etd", 1, engine="reference", stepsize=Emphatic(0.2, mu=0.0, eta=np.inf, decay=1.0)
    )
    learner.theta = [0.3]
    gradient = 0.0
    for t in range(T):
        p_before, D = learner.p[0], learner.D
        assert relative_error(learner.theta[0], path["theta"][t]) < 1e-10
        delta = learner.learn(
            1.0, s.I[t], s.lambda_[t], s.phi[t : t + 1], s.rho[t], s.R[t], s.phi[t + 1 : t + 2], s.gamma[t + 1]
        )
        c = s.rho[t] * s.gamma[t] * s.lambda_[t]
        gradient += delta * learner.p[0] + D * c * p_before
    up, down = (followed(s, beta + sign * step, path["following"]) for sign in (1.0, -1.0))
    h = (up["last"] - down["last"]) / (2.0 * step)
    assert abs(learner.h[0] - h) < 1e-7 * (1.0 + abs(h))
    Y = lambda_returns(s, path)
    found = -(error(s, up, Y) - error(s, down, Y)) / (2.0 * step)
    assert abs(gradient - found) < 1e-7 * (1.0 + abs(found))
