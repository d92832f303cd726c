"""Many agents at once: each with features, weights, a world and random numbers of its own.

The agents are advanced in groups, a step of each in turn: what one waits for (memory, the chain from values to action
to world) is hidden behind the work of the others, and the weights of a group stay in the cache. Every agent does what
it would do alone. Functions that are not defined here belong to ``sparse_kernels``, ``acting_kernels``, ``worlds``, the
features' ``activate`` and ``many``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.control.many import DIVERGED, DONE, IN_EPISODE, STARTS, cut_lane, lane_of
    from emphatic.engines.sparse.acting_kernels import begin_episode, evaluate, take_action
    from emphatic.features.kernels import activate
    from emphatic.problems.worlds import MDP, Tables, enter, enter_table, follow, follow_table, uniform

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Arrays = tuple[NDArray[Any], ...]


def train(
    state: Arrays, setting: Floats, status: Floats, world: int, tables: Tables, place: Floats, of_world: Words,
    of_agent: Words, plan: Arrays, index: Integers, value: Floats, readings: Floats, row_index: Integers,
    row_value: Floats, outcome: Floats, next_index: Integers, next_value: Floats, q: Floats, target: Floats,
    behaviour: Floats, lanes: Integers, progress: Integers, episodes: int, limit: int, continuing: bool,
    returns: Floats, steps: Integers,
) -> None:  # fmt: skip
    """Episodes of every agent, of at most ``limit`` steps; of a world without an end, blocks of so many steps.

    ``outcome`` has the reward of a lane's step and whether it ended the episode; ``progress`` what was done so far.
    """
    K, group, actions = place.shape[0], readings.shape[0], q.shape[1]
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
                if world == MDP:
                    if progress[k, STARTS] == 1:
                        enter_table(tables, place[k], of_world[k])
                    else:
                        reward, ended = follow_table(tables, actions, place[k], of_world[k], int(status[k, 0]))
                        outcome[lane, 0], outcome[lane, 1] = reward, 1.0 if ended else 0.0
                    row_index[lane, 0], row_value[lane, 0] = int(place[k, 0]), 1.0
                else:
                    if progress[k, STARTS] == 1:
                        enter(world, place[k], of_world[k])
                    else:
                        reward, ended = follow(world, place[k], of_world[k], int(status[k, 0]))
                        outcome[lane, 0], outcome[lane, 1] = reward, 1.0 if ended else 0.0
                    for i in range(readings.shape[1]):
                        readings[lane, i] = place[k, i]
            if world != MDP:
                activate(readings[:live], *plan, row_index[:live], row_value[:live])  # type: ignore[call-arg]
            for lane in range(live):
                k = lanes[lane]
                for i in range(row_index.shape[1]):
                    index[k, 1, i], value[k, 1, i] = row_index[lane, i], row_value[lane, i]
                if outcome[lane, 1] == 0.0:
                    evaluate(
                        lane_of(state, k), setting[k], row_index[lane], row_value[lane], next_index[lane],
                        next_value[lane], q[lane], True,
                    )  # fmt: skip
            for lane in range(live):
                k = lanes[lane]
                terminated = outcome[lane, 1] > 0.0
                u = 0.0 if terminated else uniform(of_agent[k])
                if progress[k, STARTS] == 1:
                    progress[k, STARTS] = 0
                    action = begin_episode(setting[k], status[k], index[k], value[k], q[lane], target, behaviour, u)
                    cut_lane(state, k)
                    if action < 0:
                        progress[k, DIVERGED] = 1
                    continue
                at = progress[k, DONE]
                returns[k, at] += outcome[lane, 0]
                progress[k, IN_EPISODE] += 1
                full = progress[k, IN_EPISODE] >= limit
                action = take_action(
                    lane_of(state, k), setting[k], status[k], index[k], value[k], next_index[lane], next_value[lane],
                    q[lane], target, behaviour, u, outcome[lane, 0], terminated,
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
