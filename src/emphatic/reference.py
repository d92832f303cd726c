"""True online emphatic TD(λ): the pseudocode of Sutton (2015), line for line, in plain NumPy.  Read this first.

Sutton (2015), "True online emphatic TD(λ): quick reference and implementation guide", section 3. Slow and obvious:
every fast path of this library is compared with it. Three points that the guide leaves open, and how they are settled
here:

- **The terminal state's interest.** An episodic task is one sequence in which the terminal state is a special state
  with γ = 0 and φ = 0. Give it I = 0 (its φ is zero, so it can learn nothing, and with γ = 0 nothing of F survives
  it). Skipping that call altogether is the same: call ``learn`` with γ' = 0, φ' = 0, and next with the first state
  of the next episode.
- **e ≥ 0 does not hold in general**, though the guide says so: with signed features, or where ργλ φ·e > 1 makes S
  negative, e has entries of both signs. Nothing in the algorithm needs e ≥ 0.
- **φ' need not be the next φ** (several sequences in one log): D is Δ·φ' with the φ' of that same call.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["TrueOnlineETD"]


class TrueOnlineETD:
    """``init``, ``learn`` and ``predict`` as in Sutton (2015).

    Args:
        n: The number of features.

    >>> learner = TrueOnlineETD(2)
    >>> learner.learn(0.1, 1.0, 0.9, np.array([1.0, 0.0]), 1.0, 0.5, np.array([0.0, 1.0]), 0.95)
    0.5
    >>> learner.predict(np.array([1.0, 0.0]))
    0.05
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.e: NDArray[np.float64] = np.zeros(n)
        self.theta: NDArray[np.float64] = np.zeros(n)  # or arbitrary
        self.F = self.D = self.gamma = 0.0

    def learn(
        self,
        alpha: float,
        I: float,
        lambda_: float,
        phi: NDArray[np.float64],
        rho: float,
        R: float,
        phi_next: NDArray[np.float64],
        gamma_next: float,
    ) -> float:
        """One step, in the guide's order: alpha through rho are at t, the others at t+1.

        Args:
            alpha: α_t, the step size.
            I: I_t, the interest.
            lambda_: λ_t, the bootstrapping parameter.
            phi: φ_t, the features (n,).
            rho: ρ_t, the importance sampling ratio.
            R: R_{t+1}, the reward.
            phi_next: φ_{t+1}, the next features (n,).
            gamma_next: γ_{t+1}, the discount.

        Returns:
            δ_t, the TD error.
        """
        delta = R + gamma_next * self.theta @ phi_next - self.theta @ phi
        self.F = self.F + I  # F was ρ_{t−1} γ_t F_{t−1}; now it is F_t
        M = lambda_ * I + (1 - lambda_) * self.F
        S = rho * alpha * M * (1 - rho * self.gamma * lambda_ * (phi @ self.e))
        self.e = rho * self.gamma * lambda_ * self.e + S * phi
        Delta = delta * self.e + self.D * (self.e - rho * alpha * M * phi)  # D here is (θ_t − θ_{t−1})·φ_t
        self.theta = self.theta + Delta
        self.D = float(Delta @ phi_next)
        self.F = rho * gamma_next * self.F
        self.gamma = gamma_next
        return float(delta)

    def predict(self, phi: ArrayLike) -> float:
        """θ·φ

        Args:
            phi: φ, the features (n,).
        """
        return float(self.theta @ np.asarray(phi))
