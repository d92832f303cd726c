"""Problems of control: small worlds as MDPs with exact answers, and environments to act in.

An environment has ``reset(seed=…)`` and ``step(action)`` as in Gymnasium, and needs no package besides NumPy. What it
does is a compiled function of ``worlds``, which the kernel of an agent's whole episodes calls too.
"""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal, whole
from emphatic.problems.mdp import MDP

__all__ = ["Acrobot", "Environment", "MountainCar", "PuddleWorld", "World", "access_control", "cliff_walking"]
__all__ += ["state_words", "windy_gridworld", "words_of"]

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


@functools.cache
def _kernel(name: str, interpreted: bool) -> Any:
    """One of the functions of ``worlds``, compiled."""
    from numba import types

    from emphatic.engines import compiled

    source = compiled.source_of("emphatic.problems.worlds")
    module = compiled.module("worlds", f"from __future__ import annotations\n\n{source}")
    i8, where = types.int64, (types.Array(types.float64, 1, "C"), types.Array(types.uint64, 1, "C"))
    signature = {"reset": (i8, table_types(), *where), "step": (i8, table_types(), i8, *where, i8)}
    return compiled.direct(compiled.kernel(module, name, *signature[name]))


def table_types() -> Any:
    """The types of ``World.tables`` in kernels."""
    from numba import types

    columns = [types.Array(kind, 1, "C") for kind in (types.int64, types.int64, types.float64, types.float64)]
    return types.Tuple(columns)  # type: ignore[no-untyped-call]


def words_of(seed: object) -> NDArray[np.uint64]:
    """The state of ``numpy.random.default_rng(seed)`` as four words.

    Args:
        seed: Whatever ``numpy.random.default_rng`` takes as a seed.
    """
    return state_words(np.random.PCG64(seed))  # type: ignore[arg-type]


def state_words(bits: np.random.PCG64) -> NDArray[np.uint64]:
    """The state of a bit generator as four words: state and increment, high words first.

    Args:
        bits: The bit generator.
    """
    state = bits.state["state"]
    low = (1 << 64) - 1
    words = [state["state"] >> 64, state["state"] & low, state["inc"] >> 64, state["inc"] & low]
    return np.array(words, np.uint64)


#: The tables of a world that is no MDP.
NO_TABLES = (np.zeros(2, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


class World:
    """An environment that is compiled: one of ``worlds``, with a state and random numbers of its own.

    Args:
        seed: The seed of its random numbers.
        limit: Episodes are truncated after this many steps; None for no limit.
    """

    #: The number of the world, and how many actions it has.
    number: ClassVar[int]
    actions: int
    #: The numbers of an observation, as (low, high); none where states are observed.
    ranges: ClassVar[tuple[tuple[float, float], ...]] = ()
    #: Whether episodes never end.
    continuing = False

    def __init__(self, seed: int | None = None, *, limit: int | None = None) -> None:
        if limit is not None:
            whole("limit", limit, type(self).__name__)
        self.limit = limit
        #: What its kernels take: tables of states, words of random numbers, and where an episode is.
        self.tables: tuple[NDArray[Any], ...] = NO_TABLES
        self.random = words_of(seed)
        self.place = np.zeros(4)
        self._steps = -1

    def seed_with(self, seed: object) -> None:
        """Start the random numbers of ``numpy.random.default_rng(seed)``.

        Args:
            seed: A whole number, or a list of such.
        """
        self.random = words_of(seed)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: its first observation, and {}.

        Args:
            seed: Seeds the random numbers.
            options: Not used.
        """
        from emphatic.engines.compiled import interpreted

        if seed is not None:
            self.seed_with(seed)
        _kernel("reset", interpreted())(self.number, self.tables, self.place, self.random)
        follow = _kernel("step", interpreted())
        self._follow = functools.partial(follow, self.number, self.tables, self.actions, self.place, self.random)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action: the next observation, the reward, whether the episode ended, whether it was truncated, {}.

        Args:
            action: The action's number.
        """
        if self._steps < 0:
            raise RuntimeError(f"{type(self).__name__}.step was called before reset(): call reset() first.")
        if not 0 <= action < self.actions:
            raise refusal("action", type(self).__name__, f"be from 0 to {self.actions - 1}", repr(action))
        reward, ended = self._follow(action)
        self._steps += 1
        truncated = self.limit is not None and self._steps >= self.limit and not ended
        observation = self._observe()
        if ended or truncated:
            self._steps = -1
        return observation, reward, ended, truncated, {}

    def _observe(self) -> Any:
        """What is observed of the place."""
        place = self.place.tolist()
        return tuple(place[: len(self.ranges)])


class Environment(World):
    """An MDP as an environment: observations are the numbers of states, and a reward is R of the transition.

    After the end of an episode the last state is observed again.

    Args:
        mdp: The MDP; its policies do not matter here.
        seed: The seed of its random numbers.
        limit: Episodes are truncated after this many steps; None for no limit.
    """

    number = 0

    def __init__(self, mdp: MDP, seed: int | None = None, *, limit: int | None = None) -> None:
        super().__init__(seed, limit=limit)
        self.mdp, self.actions = mdp, mdp.A
        start = np.zeros((1, mdp.P.shape[2]))
        start[0, : mdp.S] = mdp.start
        P = np.concatenate([mdp.P.reshape(mdp.S * mdp.A, -1), start])
        R = np.concatenate([np.broadcast_to(mdp.R, mdp.P.shape).reshape(mdp.S * mdp.A, -1), np.zeros_like(start)])
        pair, arrival = np.nonzero(P)
        first = np.searchsorted(pair, np.arange(len(P) + 1))
        columns = first, arrival, P.cumsum(axis=1)[pair, arrival], R[pair, arrival]
        self.tables = tuple(map(np.ascontiguousarray, columns))
        self.continuing = bool((arrival < mdp.S).all())

    def _observe(self) -> int:
        return int(self.place[0])


class MountainCar(World):
    """Mountain car: reverse (0), coast (1) or accelerate (2) until the position is 0.5; −1 for each step.

    Observations are (position, velocity). An episode begins at rest between −0.6 and −0.4. Sutton & Barto (2018),
    example 10.1.

    Args:
        seed: The seed of its random numbers.
        limit: Episodes are truncated after this many steps; None for no limit.
    """

    number, actions = 1, 3
    ranges = ((-1.2, 0.5), (-0.07, 0.07))


class Acrobot(World):
    """The acrobot: swing two links up by a torque of −1 (0), 0 (1) or 1 (2) at their joint; −1 for each step.

    Observations are (θ₁, θ₂, θ̇₁, θ̇₂). An episode begins at rest, hanging down, and ends when the tip is a link's length
    above the upper joint. An action lasts for four Euler steps of 0.05. Sutton & Barto (1st edition, 1998), section
    11.3.

    Args:
        seed: Not used: nothing is random here.
        limit: Episodes are truncated after this many steps; None for no limit.
    """

    number, actions = 2, 3
    ranges = tuple((-size, size) for size in (math.pi, math.pi, 4.0 * math.pi, 9.0 * math.pi))


class PuddleWorld(World):
    """The puddle world: up (0), right (1), down (2) or left (3) by 0.05 in the unit square, to its upper right corner.

    Observations are (x, y). A move has normal noise of deviation 0.01 in both directions, and the reward is −1, less
    400 times the depth in two puddles of radius 0.1 about the lines (.1, .75)–(.45, .75) and (.45, .4)–(.45, .8), after
    the move. An episode begins anywhere but at the goal, and ends where x + y is 1.9 or more. Sutton (1996).

    Args:
        seed: The seed of its random numbers.
        limit: Episodes are truncated after this many steps; None for no limit.
    """

    number, actions = 3, 4
    ranges = ((0.0, 1.0), (0.0, 1.0))
