"""Problems of control: small worlds as MDPs with exact answers, and environments to act in.

An environment has ``reset(seed=…)`` and ``step(action)`` as in Gymnasium, and needs no package besides NumPy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal, whole
from emphatic.problems.mdp import MDP

__all__ = ["Environment", "MountainCar", "access_control", "cliff_walking", "windy_gridworld"]

#: Up, right, down, left; the king's moves are these and the diagonals.
_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
_DIAGONALS = ((-1, 1), (1, 1), (1, -1), (-1, -1))
_WIND = (0, 0, 0, 1, 1, 1, 2, 2, 1, 0)


def windy_gridworld(*, king: bool = False) -> MDP:
    """The windy gridworld: 7 × 10 cells, from (3, 0) to (3, 7), −1 for each step, a wind that blows upwards.

    State 10·row + column; the optimal path takes 15 steps, and 7 with king's moves. Sutton & Barto (2018), example 6.5
    and exercise 6.9. The target policy is uniform; ``optimal_values`` are those of the best one.

    Args:
        king: Whether diagonal moves are possible too.

    >>> windy_gridworld().optimal_values[30].round(6)
    np.float64(-15.0)
    """
    moves = _MOVES + _DIAGONALS * king
    P = np.zeros((70, len(moves), 71))
    for s in range(70):
        row, column = divmod(s, 10)
        for a, (down, right) in enumerate(moves):
            to_row = min(max(row + down - _WIND[column], 0), 6)
            to = 10 * to_row + min(max(column + right, 0), 9)
            P[s, a, 70 if to == 37 else to] = 1.0
    name = "windy_gridworld"
    return MDP(P, -1.0, 1.0, np.full(len(moves), 1.0 / len(moves)), start=np.eye(70)[30], name=name)


def cliff_walking() -> MDP:
    """Cliff walking: 4 × 12 cells, along a cliff from (3, 0) to (3, 11); −1 for each step, −100 for the cliff.

    State 12·row + column. A step into the cliff leads back to the start. The optimal return is −13. Sutton & Barto
    (2018), example 6.6.

    >>> cliff_walking().optimal_values[36].round(6)
    np.float64(-13.0)
    """
    P, R = np.zeros((48, 4, 49)), np.full((48, 4, 49), -1.0)
    for s in range(48):
        row, column = divmod(s, 12)
        for a, (down, right) in enumerate(_MOVES):
            to = 12 * min(max(row + down, 0), 3) + min(max(column + right, 0), 11)
            if 37 <= to <= 46:
                P[s, a, 36], R[s, a, 36] = 1.0, -100.0
            else:
                P[s, a, 48 if to == 47 else to] = 1.0
    return MDP(P, R, 1.0, np.full(4, 0.25), start=np.eye(48)[36], name="cliff_walking")


def access_control(*, servers: int = 10, priorities: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0), p: float = 0.06) -> MDP:
    """Access-control queuing: accept (action 1) or reject (0) the customer at the head of a queue that never ends.

    State free·(number of priorities) + priority. An accepted customer takes a free server and pays its priority; then
    each busy server becomes free with probability p. Nothing ends: γ = 1, and ``optimal_reward_rate`` is the best rate
    (the book's agent finds about 2.31 with the servers' defaults). Sutton & Barto (2018), example 10.2.

    Args:
        servers: The number of servers.
        priorities: What the customers pay, all equally likely.
        p: The probability with which a busy server becomes free in a step.
    """
    whole("servers", servers, "access_control")
    if not 0.0 < p < 1.0:
        raise refusal("p", "access_control", "be between 0 and 1", repr(p))
    kinds = len(priorities)
    S = (servers + 1) * kinds
    P, R = np.zeros((S, 2, S)), np.zeros((S, 2))
    for free in range(servers + 1):
        for kind, pay in enumerate(priorities):
            for action in (0, 1):
                left = free - 1 if action and free else free
                R[free * kinds + kind, action] = pay if action and free else 0.0
                busy = servers - left
                for freed in range(busy + 1):
                    chance = math.comb(busy, freed) * p**freed * (1.0 - p) ** (busy - freed)
                    to = (left + freed) * kinds
                    P[free * kinds + kind, action, to : to + kinds] += chance / kinds
    start = np.zeros(S)
    start[servers * kinds :] = 1.0 / kinds
    return MDP(P, R, 1.0, [0.5, 0.5], start=start, name="access_control")


class Environment:
    """An MDP as an environment: observations are the numbers of states, and a reward is R of the transition.

    Args:
        mdp: The MDP; its policies do not matter here.
        seed: The seed of its random numbers.
    """

    def __init__(self, mdp: MDP, seed: int | None = None) -> None:
        self.mdp = mdp
        self._generator = np.random.default_rng(seed)
        self._arrivals = mdp.P.cumsum(axis=2)
        self._starts = mdp.start.cumsum()
        self._state = -1

    @property
    def actions(self) -> int:
        """The number of actions."""
        return self.mdp.A

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[int, dict[str, Any]]:
        """Begin an episode in a first state.

        Args:
            seed: Seeds the random numbers.
            options: Not used.
        """
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self._state = _drawn(self._starts, self._generator.random())
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action: the next state, the reward, whether the episode ended, False, and {}.

        Args:
            action: The action's number.
        """
        s = self._state
        if s < 0:
            raise RuntimeError("Environment.step was called before reset(): call reset() first.")
        arrived = _drawn(self._arrivals[s, action], self._generator.random())
        reward = float(self.mdp.R[s, action, arrived])
        if arrived == self.mdp.S:
            self._state = -1
            return s, reward, True, False, {}
        self._state = arrived
        return arrived, reward, False, False, {}


def _drawn(cumulative: NDArray[np.float64], u: float) -> int:
    """The first index whose cumulative probability is above u times their sum."""
    return int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))


class MountainCar:
    """Mountain car: reverse (0), coast (1) or accelerate (2) until the position is 0.5; −1 for each step.

    Observations are (position, velocity). An episode begins at rest between −0.6 and −0.4, and has no time limit.
    Sutton & Barto (2018), example 10.1.

    Args:
        seed: The seed of its random numbers.
    """

    actions = 3

    def __init__(self, seed: int | None = None) -> None:
        self._generator = np.random.default_rng(seed)
        self._position = self._velocity = math.nan

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[tuple[float, float], dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seeds the random numbers.
            options: Not used.
        """
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self._position, self._velocity = -0.6 + 0.2 * self._generator.random(), 0.0
        return (self._position, self._velocity), {}

    def step(self, action: int) -> tuple[tuple[float, float], float, bool, bool, dict[str, Any]]:
        """Take an action: the next observation, −1, whether the goal is reached, False, and {}.

        Args:
            action: 0, 1 or 2.
        """
        if math.isnan(self._position):
            raise RuntimeError("MountainCar.step was called before reset(): call reset() first.")
        push = 0.001 * (action - 1) - 0.0025 * math.cos(3.0 * self._position)
        self._velocity = min(max(self._velocity + push, -0.07), 0.07)
        self._position = min(max(self._position + self._velocity, -1.2), 0.5)
        if self._position <= -1.2:
            self._velocity = 0.0
        return (self._position, self._velocity), -1.0, self._position >= 0.5, False, {}
