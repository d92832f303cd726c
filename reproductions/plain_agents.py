"""Agents written apart from the library, from the books and papers, in plain NumPy: what ``Agent`` is compared with.

θ and traces are dense vectors of actions·n components. Nothing of the library is imported here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["ALGORITHMS", "PlainAgent"]

Array = NDArray[np.float64]


class PlainAgent:
    """One agent; ``phi`` makes φ(S), (n,), of an observation.

    The action is the first whose cumulative probability is above a random number; values that differ by rounding alone
    are tied. The target policy of those with q in their name but q_sigma, and of retrace, is the greedy one, and else
    the agent's own.
    """

    def __init__(
        self,
        algorithm: str,
        phi: Callable[..., Array],
        n: int,
        actions: int,
        alpha: float,
        gamma: float,
        lambda_: float,
        epsilon: float,
        seed: int,
        sigma: float = 0.5,
        eta: float = 1.0,
    ) -> None:
        self.phi, self.n, self.actions, self.sigma, self.eta = phi, n, actions, sigma, eta
        self.alpha, self.gamma, self.lambda_, self.epsilon = alpha, gamma, lambda_, epsilon
        self.random = np.random.default_rng(seed)
        self.theta, self.e, self.w = (np.zeros(n * actions) for _ in range(3))
        self.theta_before = np.zeros(n * actions)
        self.q_old, self.F, self.rbar, self.first = 0.0, 0.0, 0.0, True
        self.update = getattr(self, f"learn_{algorithm}")

    def pair(self, state: Array, action: int) -> Array:
        """φ(S, A): the features of the state at A·n + i."""
        x = np.zeros(self.n * self.actions)
        x[action * self.n : (action + 1) * self.n] = state
        return x

    def values(self, observation: object) -> Array:
        """θ·φ(S, a) of every action."""
        return np.asarray(self.theta.reshape(self.actions, self.n) @ self.phi(observation))

    def policies(self, q: Array) -> tuple[Array, Array]:
        """The greedy policy, and the ε-greedy one."""
        tied = q >= q.max() - 1e-10 * max(1.0, abs(q.max()))
        greedy = tied / tied.sum()
        return greedy, self.epsilon / self.actions + (1.0 - self.epsilon) * greedy

    def choose(self, observation: object) -> int:
        """Choose the next action, and remember how likely it was."""
        self.state = self.phi(observation)
        self.q = self.values(observation)
        self.greedy, self.soft = self.policies(self.q)
        u, total = self.random.random(), 0.0
        for action in range(self.actions):
            total += self.soft[action]
            if u < total:
                break
        return action

    def start(self, observation: object) -> int:
        """Begin an episode."""
        self.e[:], self.F, self.q_old, self.first = 0.0, 0.0, 0.0, True
        action = self.choose(observation)
        self._take(action)
        return action

    def _take(self, action: int) -> None:
        self.x = self.pair(self.state, action)
        self.was_greedy = self.greedy[action] > 0.0
        self.ratio_greedy = self.greedy[action] / self.soft[action]
        self.pi = self.soft[action]

    def step(self, reward: float, observation: object, terminated: bool = False) -> int | None:
        """Learn from a step; the next action."""
        before = self.theta.copy()
        if terminated:
            self.soft, self.greedy = np.zeros(self.actions), np.zeros(self.actions)
            self.q, self.state, action = np.zeros(self.actions), np.zeros(self.n), 0
        else:
            action = self.choose(observation)
        self.update(reward, 0.0 if terminated else self.gamma, action)
        self.theta_before, self.first = before, False
        if terminated:
            return None
        self._take(action)
        return action

    def expected(self, policy: Array) -> Array:
        """φ̄' = Σ_a π(a|S')φ(S', a)."""
        return np.concatenate([probability * self.state for probability in policy])

    # Each of these is one step: of Sutton & Barto (2018) where a page is named. c is γλ, 0 at the first step.

    @property
    def decay(self) -> float:
        return 0.0 if self.first else self.gamma * self.lambda_

    def learn_sarsa(self, R: float, gamma: float, action: int) -> None:
        """Sarsa(λ), accumulating traces (section 12.7)."""
        delta = R + gamma * self.q[action] - self.theta @ self.x
        self.e = self.decay * self.e + self.x
        self.theta = self.theta + self.alpha * delta * self.e

    def learn_true_online_sarsa(self, R: float, gamma: float, action: int) -> None:
        """True online Sarsa(λ) (page 307)."""
        q, q_next = self.theta @ self.x, gamma and self.q[action]
        delta = R + gamma * q_next - q
        c = self.gamma * self.lambda_
        self.e = c * self.e + (1.0 - self.alpha * c * (self.e @ self.x)) * self.x
        self.theta = self.theta + self.alpha * (delta + q - self.q_old) * self.e
        self.theta = self.theta - self.alpha * (q - self.q_old) * self.x
        self.q_old = q_next

    def learn_expected_sarsa(self, R: float, gamma: float, action: int) -> None:
        """Expected Sarsa(λ), on-policy (section 12.9)."""
        delta = R + gamma * (self.soft @ self.q) - self.theta @ self.x
        self.e = self.decay * self.e + self.x
        self.theta = self.theta + self.alpha * delta * self.e

    def _true_online(self, delta: float, c: float) -> None:
        """van Seijen et al. (2016), equation 5, with θ_{t−1} as printed."""
        change = 0.0 if self.first else (self.theta - self.theta_before) @ self.x
        self.e = c * self.e + self.alpha * (1.0 - c * (self.e @ self.x)) * self.x
        self.theta = self.theta + delta * self.e + change * (self.e - self.alpha * self.x)

    def learn_true_online_expected_sarsa(self, R: float, gamma: float, action: int) -> None:
        """The same with φ̄'; no paper prints it."""
        self._true_online(float(R + gamma * (self.soft @ self.q) - self.theta @ self.x), self.decay)

    def learn_watkins_q(self, R: float, gamma: float, action: int) -> None:
        """Watkins's Q(λ) (section 12.10): the traces before an action that is not greedy are cut."""
        delta = R + gamma * self.q.max() - self.theta @ self.x
        self.e = self.decay * self.was_greedy * self.e + self.x
        self.theta = self.theta + self.alpha * delta * self.e

    def learn_true_online_watkins_q(self, R: float, gamma: float, action: int) -> None:
        """The true online form of the same; no paper prints it."""
        self._true_online(R + gamma * self.q.max() - self.theta @ self.x, self.decay * self.was_greedy)

    def learn_greedy_gq(self, R: float, gamma: float, action: int) -> None:
        """Greedy-GQ(λ): GQ(λ) (section 12.11) with the greedy policy."""
        x_next = self.expected(self.greedy)
        delta = R + gamma * (self.theta @ x_next) - self.theta @ self.x
        self.e = self.decay * self.ratio_greedy * self.e + self.x
        beta = self.eta * self.alpha
        correction = gamma * (1.0 - self.lambda_) * (self.e @ self.w) * x_next
        self.theta, self.w = (
            self.theta + self.alpha * (delta * self.e - correction),
            self.w + beta * (delta * self.e - (self.w @ self.x) * self.x),
        )

    def learn_tree_backup_control(self, R: float, gamma: float, action: int) -> None:
        """Tree backup(λ) (section 12.10): e ← γλπ(A|S)e + φ."""
        delta = R + gamma * (self.soft @ self.q) - self.theta @ self.x
        self.e = self.decay * self.pi * self.e + self.x
        self.theta = self.theta + self.alpha * delta * self.e

    def learn_retrace(self, R: float, gamma: float, action: int) -> None:
        """Retrace(λ) (Munos et al. 2016, equation 4) with the greedy policy: e ← γλ min(1, ρ)e + φ."""
        delta = R + gamma * self.q.max() - self.theta @ self.x
        self.e = self.decay * min(1.0, self.ratio_greedy) * self.e + self.x
        self.theta = self.theta + self.alpha * delta * self.e

    def learn_q_sigma(self, R: float, gamma: float, action: int) -> None:
        """Q(σ) with traces (De Asis et al. 2018; Yang et al. 2018), on-policy, so that ρ = 1."""
        target = self.sigma * self.q[action] + (1.0 - self.sigma) * (self.soft @ self.q)
        delta = R + gamma * target - self.theta @ self.x
        self.e = self.decay * (self.sigma + (1.0 - self.sigma) * self.pi) * self.e + self.x
        self.theta = self.theta + self.alpha * delta * self.e

    def learn_emphatic_sarsa(self, R: float, gamma: float, action: int) -> None:
        """Sarsa(λ) with F ← γF + 1 and M = λ + (1−λ)F."""
        delta = R + gamma * self.q[action] - self.theta @ self.x
        self.F = (0.0 if self.first else self.gamma) * self.F + 1.0
        self.e = self.decay * self.e + (self.lambda_ + (1.0 - self.lambda_) * self.F) * self.x
        self.theta = self.theta + self.alpha * delta * self.e

    def learn_differential_sarsa(self, R: float, gamma: float, action: int) -> None:
        """Differential semi-gradient Sarsa (page 251), with traces."""
        self._differential(R - self.rbar + gamma * self.q[action] - self.theta @ self.x, self.decay)

    def learn_differential_q(self, R: float, gamma: float, action: int) -> None:
        """Differential Q-learning (Wan, Naik & Sutton 2021), with Watkins's traces."""
        delta = R - self.rbar + gamma * self.q.max() - self.theta @ self.x
        self._differential(delta, self.decay * self.was_greedy)

    def _differential(self, delta: float, c: float) -> None:
        self.rbar += self.eta * self.alpha * delta
        self.e = c * self.e + self.x
        self.theta = self.theta + self.alpha * delta * self.e


#: The names of the algorithms that are written here.
ALGORITHMS = tuple(name.removeprefix("learn_") for name in vars(PlainAgent) if name.startswith("learn_"))
