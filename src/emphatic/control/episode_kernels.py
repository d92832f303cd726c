"""Whole episodes of one agent in a world of ``emphatic.problems``.

Functions that are not defined here belong to ``sparse_kernels``, ``acting_kernels``, ``worlds``, the features'
``activate`` and ``episodes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import exact, inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.control.episodes import DIMENSIONS, DIVERGED, DONE, STARTS, WORLD, forget_traces
    from emphatic.engines.sparse.acting import ACTION, count_actions, count_slots
    from emphatic.engines.sparse.acting_kernels import begin_episode, evaluate, pick, take_action
    from emphatic.features.kernels import activate
    from emphatic.problems.worlds import MDP, Tables, enter, follow, following

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Arrays = tuple[NDArray[Any], ...]


@exact
def tile(place: Floats, plan: Arrays, index: Integers, value: Floats) -> None:
    """What ``activate`` does where all features are one exact tile coding of DIMENSIONS readings with even knots.

    As knots are even, the interval of a reading is guessed, and then wrong by one at most, by rounding.
    """
    source, scale, unit, member, knots = plan[3], plan[5], plan[6], plan[8], plan[10]
    tilings, size, offset = count_slots(index), unit[0, 6], unit[0, 2]
    for tiling in range(tilings):
        index[tiling], value[tiling] = tiling, plan[7][0, 0]
    for d in range(DIMENSIONS):
        k = member[d]
        x, start, last = place[source[scale[k, 0], 1]], scale[k, 1], scale[k, 2] - 2
        low, high = knots[start], knots[start + last + 1]
        cell = min(max(int((x - low) / (high - low) * (last + 1)), 0), last)
        cell -= 1 if cell > 0 and knots[start + cell] > x else 0
        cell += 1 if cell < last and knots[start + cell + 1] <= x else 0
        left, right = knots[start + cell], knots[start + cell + 1]
        at = cell + (x - left) / (right - left)
        at = 0.0 if x <= low else last + 1.0 if x >= high else at
        cell = min(int(at), last)
        fine = min(int(at * tilings), (last + 1) * tilings - 1) - cell * tilings
        for tiling in range(tilings):
            above = 1 if fine + tiling * (2 * d + 1) % tilings >= tilings else 0
            index[tiling] = index[tiling] * size + cell + above
    for tiling in range(tilings):
        index[tiling] += offset


@inner
def observe(place: Floats, readings: Floats, plan: Arrays, index: Integers, value: Floats) -> None:
    """Row 1 of the active features: those of the place."""
    if WORLD == MDP:
        index[1, 0], value[1, 0] = int(place[0]), 1.0
    elif DIMENSIONS > 0:
        tile(place, plan, index[1], value[1])
    else:
        for i in range(readings.shape[1]):
            readings[0, i] = place[i]
        activate(readings, *plan, index[1:2], value[1:2])  # type: ignore[call-arg]


def run(
    state: Arrays, setting: Floats, status: Floats, index: Integers, value: Floats, next_index: Integers,
    next_value: Floats, q: Floats, target: Floats, behaviour: Floats, tables: Tables, place: Floats, of_world: Words,
    of_agent: Words, readings: Floats, plan: Arrays, limit: int, cuts_off: bool, decisions: int, progress: Integers,
    returns: Floats, steps: Integers,
) -> None:  # fmt: skip
    """So many decisions, or fewer, in episodes of at most ``limit`` steps; ``progress`` shows where they end.

    Unless ``cuts_off``, an episode goes on where the one before was left.
    """
    actions, episode, starts, diverged = count_actions(q), progress[DONE], progress[STARTS] == 1, False
    while episode < returns.shape[0] and decisions > 0 and not diverged:
        decisions -= 1
        reward, terminated = 0.0, False
        if starts:
            enter(WORLD, tables, place, of_world)
        else:
            reward, terminated = follow(WORLD, tables, actions, place, of_world, int(status[ACTION]))
        action, high, low = -1, of_agent[0], of_agent[1]
        if not terminated:
            observe(place, readings, plan, index, value)
            evaluate(state, setting, index[1], value[1], next_index, next_value, q, True)
            high, low, u = following(high, low, of_agent[2], of_agent[3])
            action = pick(setting, status, q, target, behaviour, u)
        if action < -1:
            diverged = True
        elif starts:
            begin_episode(setting, status, index, value, action, target, behaviour)
            forget_traces(state)
            starts = False
        else:
            returns[episode] += reward
            steps[episode] += 1
            full = steps[episode] >= limit
            action = take_action(
                state, setting, status, index, value, next_index, next_value, action, target, behaviour, reward,
                terminated, full and cuts_off and not terminated,
            )  # fmt: skip
            diverged = action < -1
            if not diverged and (terminated or full):
                episode += 1
                starts = cuts_off
        if not diverged:
            of_agent[0], of_agent[1] = high, low
    progress[DONE], progress[STARTS], progress[DIVERGED] = episode, starts, diverged
