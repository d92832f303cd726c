"""Four Rooms against its definition in words: a map drawn by hand, distances by search, and closed facts."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from emphatic import Learner, problems
from emphatic.problems import MDP, Tasks

#: The world with y upwards: '#' a wall, a letter a room's cell (s, n, e, w for SW, NW, NE, SE), a digit a hallway.
MAP = """
nnnnn#eeeee
nnnnn#eeeee
nnnnn2eeeee
nnnnn#eeeee
nnnnn#eeeee
#1####eeeee
sssss###3##
sssss#wwwww
sssss#wwwww
sssss0wwwww
sssss#wwwww
"""
ROWS = MAP.split()[::-1]
#: (room, target, the room's other hallway) of tasks 0 to 7.
TASKS = ["s01", "s10", "n12", "n21", "e23", "e32", "w30", "w03"]
STEPS = {0: (0, 1), 1: (0, -1), 2: (1, 0), 3: (-1, 0)}


def at(x: int, y: int) -> str:
    return ROWS[y][x] if 0 <= x <= 10 and 0 <= y <= 10 else "#"


def arrive(x: int, y: int, action: int) -> tuple[int, int]:
    dx, dy = STEPS[action]
    return (x, y) if at(x + dx, y + dy) == "#" else (x + dx, y + dy)


def distances(target: str, within: str) -> dict[tuple[int, int], int]:
    """Moves to the target hallway from each cell, by breadth-first search through the task's own cells."""
    (start,) = [(x, y) for x in range(11) for y in range(11) if at(x, y) == target]
    found, queue = {start: 0}, deque([start])
    while queue:
        cell = queue.popleft()
        for action in STEPS:
            other = arrive(*cell, action)
            if other not in found and at(*other) in within:
                found[other] = found[cell] + 1
                queue.append(other)
    return found


@pytest.mark.parametrize("k", range(8))
@pytest.mark.parametrize("high_variance", [False, True])
def test_the_definition(k: int, high_variance: bool) -> None:
    rooms = problems.four_rooms(k, high_variance)
    room, target, other = tuple(TASKS[k])
    cells = [number for number in range(121) if at(number % 11, number // 11) != "#"]
    assert rooms.cells.tolist() == cells
    assert len(cells) == rooms.S == 104
    way = distances(target, room + other)
    for s, number in enumerate(cells):
        x, y = number % 11, number // 11
        active = at(x, y) in room + other
        assert rooms.I[s] == active
        assert rooms.gamma[s] == 0.9 * active
        assert rooms.v_pi[s] == pytest.approx(0.9 ** (way[x, y] - 1) if active else 0.0, abs=1e-14)
        shorter = [a for a in STEPS if active and way.get(arrive(x, y, a), 99) < way[x, y]]
        assert rooms.pi[s].tolist() == [1 / len(shorter) if a in shorter else 0.0 for a in STEPS]
        chances = [0.25] * 4
        if high_variance and (x, y) in ((1, 1), (1, 8), (8, 1), (8, 8)):
            chances = [0.01] * 4
            chances[3 if x == 1 else 2] = 0.97
        assert rooms.mu[s] == pytest.approx(chances, abs=1e-15)
        for a in STEPS:
            x_next, y_next = arrive(x, y, a)
            s_next = cells.index(11 * y_next + x_next)
            assert rooms.P[s, a].tolist() == [float(i == s_next) for i in range(105)]
            enters = at(x_next, y_next) == target and s_next != s
            assert rooms.R[s, a, s_next] == enters
        ones = [4 * i + (x >= c) + 2 * (y >= c) for i, c in enumerate((10, 7, 4))]
        assert np.flatnonzero(rooms.Phi[s]).tolist() == ones
        assert rooms.Phi[s, ones].tolist() == [1.0] * 3


def test_closed_facts() -> None:
    rooms = problems.four_rooms()
    assert [int(task.I.sum()) for task in rooms] == [26, 26, 26, 26, 31, 31, 21, 21]
    assert rooms.d_mu == pytest.approx(np.full(104, 1 / 104), abs=1e-15)  # a step back is as likely as one there
    # At the other hallway of its room: 8 moves away on the left, 7 at the top right, 6 at the bottom right.
    ends = [v[list(rooms.cells).index(x + 11 * y)] for v, (x, y) in zip(rooms.v_pi, _others(), strict=True)]
    assert ends == pytest.approx([0.9 ** (d - 1) for d in (8, 8, 7, 7, 7, 7, 6, 6)], abs=1e-14)
    assert np.flatnonzero(rooms.start).tolist() == [0]
    assert rooms[0].xi(0.5) == 1.0
    assert rooms[0].xi(1.0) == 4.0


def _others() -> list[tuple[int, int]]:
    hallways = {"0": (5, 1), "1": (1, 5), "2": (5, 8), "3": (8, 4)}
    return [hallways[task[2]] for task in TASKS]


@pytest.mark.long
def test_all_tasks_are_the_tasks_one_by_one() -> None:
    rooms, each = problems.four_rooms(), [problems.four_rooms(k) for k in range(8)]
    assert isinstance(rooms, Tasks)
    for name in ("pi", "R", "gamma", "I", "lambda_", "v_pi", "objective", "best"):
        assert np.array_equal(getattr(rooms, name), np.stack([getattr(task, name) for task in each])), name
    theta = np.random.default_rng(0).normal(size=(3, 8, 12))
    assert np.allclose(rooms.rmsve(theta), np.stack([each[k].rmsve(theta[:, k]) for k in range(8)], axis=1))
    d = np.arange(104.0)
    assert rooms.msve(theta[0], d)[5] == each[5].msve(theta[0, 5], d)
    stream, one = rooms.simulate(300, seed=4, runs=2), each[6].simulate(300, seed=4, runs=2)
    assert (stream.runs, stream.T, stream.R.shape) == (2, 300, (2, 300, 8))
    for name in ("R", "gamma_next", "rho", "pi", "mu", "I", "lambda_", "lambda_next", "active"):
        assert np.array_equal(getattr(stream, name)[..., 6], getattr(one, name)), name
    assert np.array_equal(stream.states, one.states)


def test_a_stream_is_active_where_the_task_is() -> None:
    rooms = problems.four_rooms(3)
    stream = rooms.simulate(2000, seed=1)
    now, following = stream.states[:-1], stream.states[1:]
    assert stream.states[0] == 0
    assert np.array_equal(stream.active, rooms.I[now] == 1.0)
    assert np.array_equal(stream.gamma_next, 0.9 * rooms.I[following])
    assert not stream.rho[~stream.active].any()
    assert set(stream.rho[stream.active]) <= {0.0, 2.0, 4.0}


@pytest.mark.plain
@pytest.mark.parametrize("rule", ["gtd2", "htd", "td", "tree_backup"])
def test_nothing_is_learned_where_the_policy_is_undefined(rule: str) -> None:
    """With α = 0 there, as in the literature; ρ = 0 alone lets gtd2 and htd go on learning."""
    stream = problems.four_rooms(4).simulate(3000, seed=2)  # it begins in another room
    begin = int(np.argmax(stream.active))
    inputs = stream.inputs(rule)
    learner = Learner(rule, 12, engine="reference")
    learner.theta = np.ones(12)

    def run(first: int, last: int, alpha: Any) -> None:
        part = {k: v[first : last + (k == "Phi")] for k, v in inputs.items()}
        learner.run(**part, alpha=alpha, predictions=False)

    def learned() -> list[Any]:
        return [getattr(learner, weights).copy() for weights in learner.rule.weights]

    run(0, begin, 0.1 * stream.active[:begin])
    assert (learner.theta == 1.0).all()
    leave = begin + int(np.argmin(stream.active[begin:]))
    back = leave + int(np.argmax(stream.active[leave:])) if stream.active[leave:].any() else stream.T
    run(begin, leave, 0.1)
    before = learned()
    run(leave, back, 0.1 * stream.active[leave:back])
    assert all(map(np.array_equal, before, learned()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": 8}, "'task' parameter of four_rooms must be a number from 0 to 7, or None for all. Got 8"),
        ({"task": True}, "'task'"),
        ({"high_variance": "yes"}, "'high_variance' parameter of four_rooms must be True or False"),
    ],
)
def test_bad_arguments(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        problems.four_rooms(**given)


def test_undefined_policies() -> None:
    """Allowed where there is no interest, as zeros or NaN; refused where the way on would lead there."""
    P = np.zeros((2, 2, 2))
    P[0, :, 1] = P[1, :, 0] = 1.0
    half: dict[str, Any] = {"P": P, "R": 1.0, "mu": [0.5, 0.5], "I": [1.0, 0.0]}
    for none in (0.0, np.nan):
        mdp = MDP(gamma=[0.9, 0.0], pi=[[1.0, 0.0], [none, none]], **half)
        assert mdp.defined.tolist() == [True, False]
        assert mdp.v_pi.tolist() == [1.0, 0.0]
        assert mdp.fixed_point("etd").round(12).tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match=r"'gamma' parameter of MDP must be 0 in state 1, where 'pi' is undefined"):
        MDP(gamma=0.9, pi=[[1.0, 0.0], [0.0, 0.0]], **half)
    with pytest.raises(ValueError, match=r"'pi' parameter of MDP must sum to 1 over actions. Got 0.0 for state 0"):
        MDP(gamma=0.0, pi=[[0.0, 0.0], [0.0, 0.0]], **half)
    with pytest.raises(ValueError, match=r"'mu' parameter of MDP must be given if 'pi' is undefined"):
        MDP(gamma=0.0, pi=[[1.0, 0.0], [0.0, 0.0]], **half | {"mu": None})
    with pytest.raises(ValueError, match=r"'cells' parameter of MDP must be 2 different whole numbers"):
        MDP(gamma=0.0, pi=[1.0, 0.0], cells=[3, 3], **half)


def test_tasks_share_their_world() -> None:
    with pytest.raises(ValueError, match="'tasks' parameter of Tasks must have one 'mu'"):
        Tasks([problems.four_rooms(0), problems.four_rooms(1, high_variance=True)])
    with pytest.raises(ValueError, match="'tasks' parameter of Tasks must be a list of MDPs"):
        Tasks([])
    with pytest.raises(ValueError, match=r"'theta' parameter of msve must have shape \(…, 8, 12\)"):
        problems.four_rooms().msve(np.zeros(12))
