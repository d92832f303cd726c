"""Many agents at once: each with features, weights, a world and random numbers of its own.

The agents are advanced in groups, a step of each in turn: what one waits for (memory, the chain from values to action
to world) is hidden behind the work of the others, and the weights of a group stay in the cache. Every agent does what
it would do alone. Functions that are not defined here belong to ``sparse_kernels``, ``acting_kernels``, ``worlds``, the
features' ``activate`` and ``many``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import exact

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.control.many import DIMENSIONS, DIVERGED, DONE, IN_EPISODE, IS_DENSE, STARTS, WORLD, cut_lane, lane_of
    from emphatic.engines.sparse.acting import count_actions, count_slots
    from emphatic.engines.sparse.acting_kernels import begin_episode, evaluate, pick, take_action
    from emphatic.features.kernels import activate
    from emphatic.problems.worlds import MDP, Tables, enter, enter_table, follow, follow_table, uniform

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Arrays = tuple[NDArray[Any], ...]


@exact
def tile(readings: Floats, plan: Arrays, index: Integers, value: Floats) -> None:
    """What ``activate`` does for one row where all features are one exact tile coding of DIMENSIONS readings.

    The compiler knows how many tilings there are. Knots are mostly even: the interval of a reading is guessed first.
    """
    source, scale, unit, real, member, knots = plan[3], plan[5], plan[6], plan[7], plan[8], plan[10]
    tilings, size = count_slots(index), unit[0, 6]
    for tiling in range(tilings):
        index[tiling], value[tiling] = tiling, real[0, 0]
    for d in range(DIMENSIONS):
        k = member[d]
        x, start, last = readings[source[scale[k, 0], 1]], scale[k, 1], scale[k, 2] - 2
        low, high = knots[start], knots[start + last + 1]
        cell = min(max(int((x - low) / (high - low) * (last + 1)), 0), last)
        while cell > 0 and knots[start + cell] > x:
            cell -= 1
        while cell < last and knots[start + cell + 1] <= x:
            cell += 1
        left, right = knots[start + cell], knots[start + cell + 1]
        at = 0.0 if x <= low else last + 1.0 if x >= high else cell + (x - left) / (right - left)
        cell = min(int(at), last)
        fine = min(int(at * tilings), (last + 1) * tilings - 1) - cell * tilings
        for tiling in range(tilings):
            above = fine + tiling * (2 * d + 1) % tilings >= tilings
            index[tiling] = index[tiling] * size + cell + (1 if above else 0)
    for tiling in range(tilings):
        index[tiling] += unit[0, 2]


def train(
    state: Arrays, setting: Floats, status: Floats, tables: Tables, dense: Floats, place: Floats, of_world: Words,
    of_agent: Words, plan: Arrays, index: Integers, value: Floats, readings: Floats, row_index: Integers,
    row_value: Floats, outcome: Floats, next_index: Integers, next_value: Floats, q: Floats, target: Floats,
    behaviour: Floats, lanes: Integers, chosen: Integers, progress: Integers, episodes: int, limit: int,
    continuing: bool, returns: Floats, steps: Integers,
) -> None:  # fmt: skip
    """Episodes of every agent, of at most ``limit`` steps; of a world without an end, blocks of so many steps.

    ``outcome`` has the reward of a lane's step and whether it ended the episode; ``progress`` what was done so far.
    """
    K, group, actions = place.shape[0], readings.shape[0], count_actions(q)
    for first in range(0, K, group):
        live = 0
        for k in range(first, min(first + group, K)):
            if progress[k, DIVERGED] == 0 and episodes > 0:
                lanes[live] = k
                live += 1
        while live > 0:
            for lane in range(live):
                k = lanes[lane]
                outcome[lane, 0], outcome[lane, 1] = 0.0, 0.0
                if WORLD == MDP:
                    if progress[k, STARTS] == 1:
                        enter_table(tables, place[k], of_world[k])
                    else:
                        reward, ended = follow_table(tables, actions, place[k], of_world[k], int(status[k, 0]))
                        outcome[lane, 0], outcome[lane, 1] = reward, 1.0 if ended else 0.0
                    if IS_DENSE == 1:
                        for i in range(count_slots(row_index)):
                            row_index[lane, i], row_value[lane, i] = i, dense[int(place[k, 0]), i]
                    else:
                        row_index[lane, 0], row_value[lane, 0] = int(place[k, 0]), 1.0
                else:
                    if progress[k, STARTS] == 1:
                        enter(WORLD, place[k], of_world[k])
                    else:
                        reward, ended = follow(WORLD, place[k], of_world[k], int(status[k, 0]))
                        outcome[lane, 0], outcome[lane, 1] = reward, 1.0 if ended else 0.0
                    for i in range(readings.shape[1]):
                        readings[lane, i] = place[k, i]
            if DIMENSIONS > 0:
                for lane in range(live):
                    tile(readings[lane], plan, row_index[lane], row_value[lane])
            elif WORLD != MDP:
                activate(readings[:live], *plan, row_index[:live], row_value[:live])  # type: ignore[call-arg]
            for lane in range(live):
                k = lanes[lane]
                for i in range(count_slots(row_index)):
                    index[k, 1, i], value[k, 1, i] = row_index[lane, i], row_value[lane, i]
                if outcome[lane, 1] == 0.0:
                    evaluate(
                        lane_of(state, k), setting[k], row_index[lane], row_value[lane], next_index[lane],
                        next_value[lane], q[lane], True,
                    )  # fmt: skip
            for lane in range(live):
                k = lanes[lane]
                chosen[lane] = -1
                if outcome[lane, 1] == 0.0:
                    u = uniform(of_agent[k])
                    chosen[lane] = pick(setting[k], status[k], q[lane], target[lane], behaviour[lane], u)
            for lane in range(live):
                k, action, terminated = lanes[lane], chosen[lane], outcome[lane, 1] > 0.0
                if action < -1:
                    progress[k, DIVERGED] = 1
                    continue
                if progress[k, STARTS] == 1:
                    progress[k, STARTS] = 0
                    begin_episode(setting[k], status[k], index[k], value[k], action, target[lane], behaviour[lane])
                    cut_lane(state, k)
                    continue
                at = progress[k, DONE]
                returns[k, at] += outcome[lane, 0]
                progress[k, IN_EPISODE] += 1
                full = progress[k, IN_EPISODE] >= limit
                action = take_action(
                    lane_of(state, k), setting[k], status[k], index[k], value[k], next_index[lane], next_value[lane],
                    action, target[lane], behaviour[lane], outcome[lane, 0], terminated,
                    full and not terminated and not continuing,
                )  # fmt: skip
                if action < -1:
                    progress[k, DIVERGED] = 1
                elif terminated or full:
                    steps[k, at] = progress[k, IN_EPISODE]
                    progress[k, IN_EPISODE] = 0
                    progress[k, DONE] = at + 1
                    progress[k, STARTS] = 0 if continuing and not terminated else 1
            lane = 0
            while lane < live:
                k = lanes[lane]
                if progress[k, DIVERGED] == 1 or progress[k, DONE] >= episodes:
                    live -= 1
                    lanes[lane] = lanes[live]
                else:
                    lane += 1
