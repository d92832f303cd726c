"""Several tasks on one stream of behaviour, and the Four Rooms, which have eight of them.

Each task has its own target policy, rewards, discount, interest and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emphatic.learning.inputs import refusal
from emphatic.problems.mdp import MDP, check_weights, read_only
from emphatic.problems.stream import FloatArray, Stream

__all__ = ["HALLWAYS", "ROOMS", "SUBTASKS", "Tasks", "four_rooms"]

#: What all tasks have in common: the world, behaviour in it, and features.
_SHARED = ("P", "mu", "Phi", "start", "cells")
#: What a stream has but once for all tasks.
_ONCE = ("states", "actions", "Phi")

#: The Four Rooms' cells a side, and their discount.
SIZE, GAMMA = 11, 0.9
#: The moves: up, down, right, left.
MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))
#: The hallways H0 … H3 as (x, y).
HALLWAYS = ((5, 1), (1, 5), (5, 8), (8, 4))
#: The x and the y of each room's cells, and its hallways.
ROOMS = {
    "SW": (range(5), range(5), (0, 1)),
    "NW": (range(5), range(6, 11), (1, 2)),
    "NE": (range(6, 11), range(5, 11), (2, 3)),
    "SE": (range(6, 11), range(4), (3, 0)),
}
#: The room and the target hallway of each task.
SUBTASKS = (("SW", 0), ("SW", 1), ("NW", 1), ("NW", 2), ("NE", 2), ("NE", 3), ("SE", 3), ("SE", 0))
#: High variance: where behaviour nearly always makes one move, and which.
STUBBORN = {(1, 1): 3, (1, 8): 3, (8, 1): 2, (8, 8): 2}
#: Where the tiles of each of the three tilings meet, along x and along y.
EDGES = (10, 7, 4)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Tasks:
    """K ``MDP``s that differ in π, R, γ, I and λ, and are the same in P, μ, Φ, the first states and ``cells``.

    Learner k of K learns task k: pass ``simulate``'s stream and ``probe`` to ``Learner(rule, n, K)`` unchanged.
    ``tasks[k]`` is task k alone, and arrays have a leading axis K.

    Args:
        tasks: The MDPs.

    >>> from emphatic import Learner, problems
    >>> rooms = problems.four_rooms()
    >>> rooms
    Tasks('four_rooms', K=8, S=104, A=4, n=12)
    >>> stream = rooms.simulate(1000)
    >>> learner = Learner("etd", rooms.n, rooms.K)
    >>> _, error = learner.run(**stream.inputs("etd"), alpha=0.01 * stream.active, probe=rooms.probe)
    >>> error.shape
    (1000, 8)
    """

    tasks: tuple[MDP, ...]
    name: str
    #: The numbers of tasks, states, actions and features.
    K: int
    S: int
    A: int
    n: int
    #: What they share: (S, A, S+1), (S, A), (S, n), (S,) and (S,).
    P: FloatArray
    mu: FloatArray
    Phi: FloatArray
    start: FloatArray
    cells: NDArray[np.int64]
    #: What each has: (K, S, A), and the others (K, S).
    pi: FloatArray
    gamma: FloatArray
    I: FloatArray
    lambda_: FloatArray

    def __init__(self, tasks: Sequence[MDP]) -> None:
        tasks = tuple(tasks) if isinstance(tasks, Sequence) else ()
        if not tasks or not all(isinstance(task, MDP) for task in tasks):
            raise refusal("tasks", "Tasks", "be a list of MDPs", repr(tasks))
        world = tasks[0]
        for k, task in enumerate(tasks):
            for field in _SHARED:
                if not np.array_equal(getattr(task, field), getattr(world, field)):
                    raise refusal("tasks", "Tasks", f"have one {field!r}", f"another in task {k} than in task 0")
        attributes: dict[str, Any] = {"tasks": tasks, "K": len(tasks)}
        attributes |= {name: getattr(world, name) for name in ("name", "S", "A", "n", *_SHARED)}
        for name, value in attributes.items():
            object.__setattr__(self, name, value)
        for name in ("pi", "gamma", "I", "lambda_"):
            object.__setattr__(self, name, self._stack(name))

    def __repr__(self) -> str:
        return f"Tasks({self.name!r}, K={self.K}, S={self.S}, A={self.A}, n={self.n})"

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[MDP]:
        return iter(self.tasks)

    def __getitem__(self, k: int) -> MDP:
        return self.tasks[k]

    @property
    def d_mu(self) -> FloatArray:
        """d_μ (S,)"""
        return self.tasks[0].d_mu

    @cached_property
    def R(self) -> FloatArray:
        """R of each task, (K, S, A, S+1)."""
        return self._stack("R")

    @cached_property
    def v_pi(self) -> FloatArray:
        """The true values of each task, (K, S)."""
        return self._stack("v_pi")

    @cached_property
    def objective(self) -> FloatArray:
        """d_μ·I of each task, (K, S)."""
        return self._stack("objective")

    @cached_property
    def best(self) -> FloatArray:
        """The θ of least error of each task, (K, n)."""
        return self._stack("best")

    @property
    def probe(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(Phi, v_pi, d_μ·I) of shapes (S, n), (K, S) and (K, S), for ``Learner.run(probe=…)`` of K learners."""
        return self.Phi, self.v_pi, self.objective

    def msve(self, theta: ArrayLike, d: ArrayLike | None = None) -> FloatArray:
        """Each task's ``MDP.msve``, (…, K).

        Args:
            theta: Weights (…, K, n).
            d: The weights of the states' errors, (S,) for all tasks or (K, S); by default each task's d_μ·I.
        """
        weights = check_weights(theta, self.n, "msve")
        if weights.ndim < 2 or weights.shape[-2] != self.K:
            raise refusal("theta", "msve", f"have shape (…, {self.K}, {self.n})", f"shape {weights.shape}")
        visits = [None] * self.K if d is None else np.broadcast_to(np.asarray(d, np.float64), (self.K, self.S))
        errors = [task.msve(weights[..., k, :], visits[k]) for k, task in enumerate(self.tasks)]
        return np.stack(errors, axis=-1)

    def rmsve(self, theta: ArrayLike, d: ArrayLike | None = None) -> FloatArray:
        """The root of ``msve``.

        Args:
            theta: Weights (…, K, n).
            d: The weights of the states' errors, (S,) for all tasks or (K, S); by default each task's d_μ·I.
        """
        return np.sqrt(self.msve(theta, d))

    def simulate(self, T: int, *, seed: int | Sequence[int] = 0, runs: int | None = None) -> Stream:
        """T steps of behaviour, as ``MDP.simulate`` makes them for any of the tasks, with R, γ', ρ, … (T, K).

        Args:
            T: The number of steps.
            seed: A whole number of 0 or more, or several.
            runs: The number of runs; run i is the stream of seed (seed, i). None for one run without that axis.
        """
        streams = [task.simulate(T, seed=seed, runs=runs) for task in self.tasks]
        names = [field.name for field in fields(Stream)]
        shared = {name: getattr(streams[0], name) for name in _ONCE}
        separate = [name for name in names if name not in _ONCE]
        return Stream(
            **shared, **{name: np.stack([getattr(stream, name) for stream in streams], axis=-1) for name in separate}
        )

    def _stack(self, name: str) -> FloatArray:
        return read_only(np.stack([getattr(task, name) for task in self.tasks]))


@overload
def four_rooms(task: int, high_variance: bool = False) -> MDP: ...


@overload
def four_rooms(task: None = None, high_variance: bool = False) -> Tasks: ...


def four_rooms(task: int | None = None, high_variance: bool = False) -> MDP | Tasks:
    """Four rooms on 11 × 11 cells, joined by hallways: eight tasks, how soon a hallway would be reached.

    States: the 104 cells without a wall, in the order of their numbers 11y + x (``cells``); one endless stream from
        (0, 0). Walls: x = 5; y = 5 for x < 5; y = 4 for x > 5; but for the hallways H0 (5, 1), H1 (1, 5), H2 (5, 8)
        and H3 (8, 4).
    Actions: up, down, right, left move one cell, and stay where they would meet a wall or leave the grid.
    Policies: π takes every action that shortens the way to the target hallway equally often, in the cells of the
        task's room and its other hallway; elsewhere it is undefined. μ takes each action with ¼; in the
        ``high_variance`` variant, at (1, 1) and (1, 8) left and at (8, 1) and (8, 8) right with .97, the others with
        .01.
    Rewards and discount: R = 1 on entering the target hallway; γ = .9 on arriving in a cell where the task is active,
        else 0; so v = .9^(d−1) at a distance of d.
    Interest: 1 where the task is active, that is where π is defined, else 0.
    Features: three tilings of 2 × 2, index 4k + [x ≥ c] + 2[y ≥ c] with c = 10, 7, 4 for k = 0, 1, 2: n = 12.
    Known for: products of importance sampling ratios up to 2¹⁴, and 25 times that in the other variant.
    Source: Ghiassian & Sutton (2021), "An empirical comparison of off-policy prediction learning algorithms in the
        Four Rooms environment". The tasks are SW→H0, SW→H1, NW→H1, NW→H2, NE→H2, NE→H3, SE→H3, SE→H0.

    Args:
        task: The number of a task, 0 to 7, for its MDP; None for all as ``Tasks``.
        high_variance: Whether behaviour is the variant that nearly always makes one move in four of the cells.

    >>> rooms = four_rooms(0)
    >>> rooms
    MDP('four_rooms', S=104, A=4, n=12)
    >>> rooms.cells[:6].tolist(), rooms.v_pi[:5].round(4).tolist()
    ([0, 1, 2, 3, 4, 6], [0.5905, 0.6561, 0.729, 0.81, 0.9])
    """
    if not isinstance(high_variance, bool | np.bool_):
        raise refusal("high_variance", "four_rooms", "be True or False", repr(high_variance))
    if task is None:
        return Tasks([_task(k, bool(high_variance)) for k in range(len(SUBTASKS))])
    if isinstance(task, bool) or not isinstance(task, int | np.integer) or not 0 <= task < len(SUBTASKS):
        raise refusal("task", "four_rooms", f"be a number from 0 to {len(SUBTASKS) - 1}, or None for all", repr(task))
    return _task(int(task), bool(high_variance))


def _task(number: int, high_variance: bool) -> MDP:
    """One of the eight."""
    xy, numbers = _free_cells()
    S, A = len(xy), len(MOVES)
    # An action that would meet a wall or leave the grid stays where it is.
    moves = [[numbers.get((x + dx, y + dy), s) for dx, dy in MOVES] for (x, y), s in numbers.items()]
    next_state = np.array(moves, np.int64)
    P = np.zeros((S, A, S))
    P[np.arange(S)[:, None], np.arange(A), next_state] = 1.0
    room, hallway = SUBTASKS[number]
    columns, rows, doors = ROOMS[room]
    entrance = next(HALLWAYS[door] for door in doors if door != hallway)
    target = numbers[HALLWAYS[hallway]]
    active = np.array([(x in columns and y in rows) or (x, y) == entrance for x, y in xy.tolist()])
    # Within a room nothing is in the way: the distance is that of the moves needed along x and along y.
    distance = np.abs(xy - HALLWAYS[hallway]).sum(axis=1)
    shorter = (distance[next_state] < distance[:, None]) & active[:, None]
    R = (next_state == target) & (np.arange(S) != target)[:, None]
    pi = shorter / np.maximum(shorter.sum(axis=1, keepdims=True), 1)
    mu = np.full((S, A), 1.0 / A)
    if high_variance:
        for cell, action in STUBBORN.items():
            mu[numbers[cell]] = np.where(np.arange(A) == action, 0.97, 0.01)
    start = (xy == 0).all(axis=1)
    cells = SIZE * xy[:, 1] + xy[:, 0]
    return MDP(P, R, GAMMA * active, pi, mu, _tiles(xy), I=active, start=start, name="four_rooms", cells=cells)


def _free_cells() -> tuple[NDArray[np.int64], dict[tuple[int, int], int]]:
    """(x, y) of every cell without a wall, (S, 2), in the order of their numbers; and the state of each."""
    cells = [(x, y) for y in range(SIZE) for x in range(SIZE)]
    free = [cell for cell in cells if cell in HALLWAYS or not _is_wall(*cell)]
    return np.array(free), {cell: state for state, cell in enumerate(free)}


def _is_wall(x: int, y: int) -> bool:
    """Whether there is a wall, or a hallway through it."""
    return x == 5 or (y == 5 and x < 5) or (y == 4 and x > 5)


def _tiles(xy: NDArray[np.int64]) -> FloatArray:
    """Three tilings of 2 × 2, (S, 12)."""
    Phi = np.zeros((len(xy), 4 * len(EDGES)))
    for k, edge in enumerate(EDGES):
        at = xy >= edge
        Phi[np.arange(len(xy)), 4 * k + at[:, 0] + 2 * at[:, 1]] = 1.0
    return Phi
