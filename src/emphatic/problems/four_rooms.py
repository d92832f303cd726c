"""Four rooms joined by hallways: eight questions about how soon a hallway would be reached."""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray

from emphatic.learning.inputs import refusal
from emphatic.problems.checks import FloatArray
from emphatic.problems.mdp import MDP
from emphatic.problems.tasks import Tasks

__all__ = ["HALLWAYS", "ROOMS", "SUBTASKS", "four_rooms"]

SIZE = 11
GAMMA = 0.9
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


@overload
def four_rooms(task: int, high_variance: bool = False) -> MDP: ...


@overload
def four_rooms(task: None = None, high_variance: bool = False) -> Tasks: ...


def four_rooms(task: int | None = None, high_variance: bool = False) -> MDP | Tasks:
    """Four rooms on 11 × 11 cells and eight tasks, one of which is given by its number; without one, all as ``Tasks``.

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
    following = _moves(xy, numbers)
    P = np.zeros((S, A, S))
    P[np.arange(S)[:, None], np.arange(A), following] = 1.0
    room, hallway = SUBTASKS[number]
    columns, rows, doors = ROOMS[room]
    other = next(HALLWAYS[door] for door in doors if door != hallway)
    target = _state(xy, HALLWAYS[hallway])
    active = np.array([(x in columns and y in rows) or (x, y) == other for x, y in xy.tolist()])
    # Within a room nothing is in the way: the distance is that of the moves needed along x and along y.
    distance = np.abs(xy - HALLWAYS[hallway]).sum(axis=1)
    shorter = (distance[following] < distance[:, None]) & active[:, None]
    R = (following == target) & (np.arange(S) != target)[:, None]
    pi = shorter / np.maximum(shorter.sum(axis=1, keepdims=True), 1)
    mu = np.full((S, A), 1.0 / A)
    if high_variance:
        for cell, action in STUBBORN.items():
            mu[_state(xy, cell)] = np.where(np.arange(A) == action, 0.97, 0.01)
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


def _moves(xy: NDArray[np.int64], numbers: dict[tuple[int, int], int]) -> NDArray[np.int64]:
    """The state that each action leads to, (S, A)."""
    return np.array(
        [[numbers.get((x + dx, y + dy), s) for dx, dy in MOVES] for s, (x, y) in enumerate(xy.tolist())], np.int64
    )


def _state(xy: NDArray[np.int64], cell: tuple[int, int]) -> int:
    return int(np.flatnonzero((xy == cell).all(axis=1))[0])


def _tiles(xy: NDArray[np.int64]) -> FloatArray:
    """Three tilings of 2 × 2, (S, 12)."""
    Phi = np.zeros((len(xy), 4 * len(EDGES)))
    for k, edge in enumerate(EDGES):
        at = xy >= edge
        Phi[np.arange(len(xy)), 4 * k + at[:, 0] + 2 * at[:, 1]] = 1.0
    return Phi
