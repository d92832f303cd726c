"""What one learner is given, step by step, and what it makes of it: the records that the equations go between.

Nothing of the library is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Sequence:
    """What one learner is given: at t: φ_t, φ'_t, R_{t+1}, γ_{t+1}, α_t, λ_t, ρ_t, I_t, and a rule's own parameters.

    φ'_t is φ_{t+1} in a single sequence; it need not be where several sequences are joined.
    """

    Phi: Array  # (T, n)
    Phi_next: Array  # (T, n)
    R: Array  # this and all below but the weights: (T,)
    gamma_next: Array
    alpha: Array
    lambda_: Array
    rho: Array
    I: Array
    theta_0: Array  # (n,)
    w_0: Array | None = None  # (n,)
    beta: Array | None = None
    eta: Array | None = None
    lambda_next: Array | None = None
    kappa: Array | None = None
    pi: Array | None = None
    mu: Array | None = None
    xi: Array | None = None
    rho_bar: Array | None = None
    decay: Array | None = None
    period: Array | None = None
    clip: Array | None = None
    low: Array | None = None
    high: Array | None = None
    rbar_0: float = 0.0  # R̄ before the first step
    count_0: float = 0.0  # steps of the period before the first one here

    @property
    def T(self) -> int:
        return len(self.R)

    @property
    def gamma(self) -> Array:
        """γ_t. Before the first step there is nothing to discount: γ_0 = 0."""
        return before(self.gamma_next)

    @property
    def second(self) -> Array:
        """The second step size: β_t, which is eta_t·α_t where only eta is given, and α_t where neither is."""
        if self.beta is not None:
            return self.beta
        return self.alpha if self.eta is None else np.asarray(self.eta * self.alpha)


def before(values: Array) -> Array:
    """Those of t − 1, and 0 before the first step."""
    return np.concatenate([np.zeros_like(values[:1]), values[:-1]])


@dataclass(frozen=True)
class Result:
    """Every vector before the first step and after each, (T+1, n), by its name; the prediction θ_t·φ_t of every step;
    M_t of every step where the rule has it."""

    rows: Mapping[str, Array]
    predictions: Array
    M: Array | None = None

    @property
    def Theta(self) -> Array:
        return self.rows["theta"]

    @property
    def last(self) -> dict[str, Array]:
        """Every vector as the last step left it."""
        return {name: np.array(rows[-1]) for name, rows in self.rows.items()}

    @property
    def theta(self) -> Array:
        return self.last["theta"]

    @property
    def e(self) -> Array:
        return self.last["e"]


@dataclass(frozen=True)
class Step:
    """What there is at step t; `_before` is what there was at t − 1."""

    phi: Array
    phi_next: Array
    phi_next_before: Array
    R: float
    gamma: float
    gamma_next: float
    alpha: float
    beta: float
    lambda_: float
    lambda_next: float
    rho: float
    rho_before: float
    I: float

    def delta(self, theta: Array) -> float:
        """δ = R + γ'θ·φ' − θ·φ."""
        return float(self.R + self.gamma_next * (theta @ self.phi_next) - theta @ self.phi)


def follow(s: Sequence, names: str, update: Callable[..., tuple[Array, ...]]) -> Result:
    """The vectors called `names` through all steps: `update(t, step, *vectors)` gives the new ones.

    All start at 0 but for θ, and θ_{−1}, which is θ_0, and w where a w_0 is given.
    """
    which = names.split()
    rows = {name: np.zeros((s.T + 1, len(s.theta_0))) for name in which}
    for name in {"theta", "theta_before"} & set(which):
        rows[name][0] = s.theta_0
    if s.w_0 is not None and "w" in rows:
        rows["w"][0] = s.w_0
    lambda_next = s.lambda_ if s.lambda_next is None else s.lambda_next
    gamma, rho_before, Phi_next_before, beta = s.gamma, before(s.rho), before(s.Phi_next), s.second
    for t in range(s.T):
        step = Step(
            phi=s.Phi[t],
            phi_next=s.Phi_next[t],
            phi_next_before=Phi_next_before[t],
            R=s.R[t],
            gamma=gamma[t],
            gamma_next=s.gamma_next[t],
            alpha=s.alpha[t],
            beta=beta[t],
            lambda_=s.lambda_[t],
            lambda_next=lambda_next[t],
            rho=s.rho[t],
            rho_before=rho_before[t],
            I=s.I[t],
        )
        for name, vector in zip(which, update(t, step, *(rows[name][t] for name in which)), strict=True):
            rows[name][t + 1] = vector
    return Result(rows, np.sum(rows["theta"][:-1] * s.Phi, axis=1))
