"""Many agents at once: each with features, weights, a world and random numbers of its own.

LANES agents are advanced side by side, a step of each in turn: what one waits for (memory, the chain from values to
action to world) is hidden behind the work of the others. What is the same arithmetic for all of them (tiles, random
numbers, the probabilities of actions) is done for all lanes by one loop over arrays in which a number of one lane is
followed by that of the next: a processor computes several lanes with one instruction. An agent that has finished leaves
its lane to the next. Every agent does what it would do alone. Functions that are not defined here belong to
``sparse_kernels``, ``acting_kernels``, ``worlds``, the features' ``activate`` and ``many``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import exact, inner
from emphatic.engines.intrinsics import get_apart, prefetch_near, put_apart

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.control.many import DIMENSIONS, DIVERGED, DONE, IN_EPISODE, IS_DENSE, STARTS, WORLD, cut_lane, lane_of
    from emphatic.engines.sparse.acting import ACTION, ALIGNED, DECISIONS, LANES, SOFTMAX, count_actions, count_slots
    from emphatic.engines.sparse.acting_kernels import (
        begin_episode,
        choose,
        evaluate,
        find_policies,
        scheduled,
        soften,
        take_action,
    )  # fmt: skip
    from emphatic.features.kernels import activate
    from emphatic.problems.worlds import MDP, Tables, enter, enter_table, follow, follow_table, following

    Columns = NDArray[np.void]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Arrays = tuple[NDArray[Any], ...]


@exact
def tile(live: int, readings: Floats, plan: Arrays, index: Integers) -> None:
    """What ``activate`` does where all features are one exact tile coding of DIMENSIONS readings with even knots.

    ``readings`` has the first reading of each lane, then the second one, and ``index`` so the tilings. As knots are
    even, the interval of a reading is guessed, and then wrong by one at most, by rounding.
    """
    source, scale, unit, member, knots = plan[3], plan[5], plan[6], plan[8], plan[10]
    tilings, size, offset = count_slots(index), unit[0, 6], unit[0, 2]
    for d in range(DIMENSIONS):
        k = member[d]
        at_reading, start, last = source[scale[k, 0], 1] * LANES, scale[k, 1], scale[k, 2] - 2
        low, high = knots[start], knots[start + last + 1]
        for lane in range(live):
            x = get_apart(readings, at_reading + lane, 0)
            cell = min(max(int((x - low) / (high - low) * (last + 1)), 0), last)
            cell -= 1 if cell > 0 and get_apart(knots, start + cell, 1) > x else 0
            cell += 1 if cell < last and get_apart(knots, start + cell + 1, 1) <= x else 0
            left, right = get_apart(knots, start + cell, 1), get_apart(knots, start + cell + 1, 1)
            at = cell + (x - left) / (right - left)
            at = 0.0 if x <= low else last + 1.0 if x >= high else at
            cell = min(int(at), last)
            fine = min(int(at * tilings), (last + 1) * tilings - 1) - cell * tilings
            for tiling in range(tilings):
                i = tiling if d == 0 else get_apart(index, tiling * LANES + lane, 2)
                above = 1 if fine + tiling * (2 * d + 1) % tilings >= tilings else 0
                i = i * size + cell + above
                put_apart(index, tiling * LANES + lane, 2, i + offset if d == DIMENSIONS - 1 else i)


@exact
def draw(live: int, words: Words, ended: Floats, u: Floats) -> None:
    """The next random number of every lane, but where ``ended`` is 1.

    ``words`` has the first word of each lane, then the second one, and so on.
    """
    for lane in range(live):
        high, low = get_apart(words, lane, 0), get_apart(words, LANES + lane, 1)
        high_next, low_next, number = following(
            high, low, get_apart(words, 2 * LANES + lane, 2), get_apart(words, 3 * LANES + lane, 3)
        )
        stays = get_apart(ended, lane, 4) > 0.0
        put_apart(words, lane, 0, high if stays else high_next)
        put_apart(words, LANES + lane, 1, low if stays else low_next)
        put_apart(u, lane, 5, number)


@inner
def ask_for(columns: Columns, index: Integers, actions: int) -> None:
    """Ask for the columns of a state: those of one lane come from memory while those of others are computed with."""
    size = actions * columns.itemsize
    for i in range(count_slots(index)):
        prefetch_near(columns, index[i] * size)
        prefetch_near(columns, (index[i] + 1) * size - 1)


@inner
def pick_all(
    live: int, lanes: Words, setting: Floats, status: Floats, rate: Floats, q: Floats, target: Floats,
    behaviour: Floats, u: Floats, chosen: Integers,
) -> None:  # fmt: skip
    """The next action of every lane; −3 where values are not finite."""
    for lane in range(live):
        rate[lane] = scheduled(setting[lanes[lane]], status[lanes[lane], DECISIONS])
    for lane in range(live):
        find_policies(get_apart(rate, lane, 3), q, target, behaviour, lane)
    for lane in range(live):
        if setting[lanes[lane], SOFTMAX] > 0.0:
            soften(rate[lane], q, behaviour, lane)
    for lane in range(live):
        put_apart(chosen, lane, 3, choose(q, behaviour, lane, get_apart(u, lane, 4)))


def train(
    state: Arrays, setting: Floats, status: Floats, tables: Tables, dense: Floats, place: Floats, of_world: Words,
    of_agent: Words, plan: Arrays, index: Integers, value: Floats, readings: Floats, row_index: Integers,
    row_value: Floats, next_index: Integers, next_value: Floats, lane_readings: Floats, tiles: Integers, q: Floats,
    target: Floats, behaviour: Floats, rewards: Floats, ended: Floats, never: Floats, u: Floats, rate: Floats,
    lanes: Words, chosen: Integers, world_words: Words, agent_words: Words, progress: Integers, episodes: int,
    limit: int, continuing: bool, returns: Floats, steps: Integers,
) -> None:  # fmt: skip
    """Episodes of every agent, of at most ``limit`` steps; of a world without an end, blocks of so many steps.

    ``progress`` has what was done so far; ``ended`` is 1 where a lane's step ended its episode, and ``never`` is 0.
    """
    K, actions, slots, live, waiting, changes = place.shape[0], count_actions(q), count_slots(index), 0, 0, True
    while changes or live > 0:
        if changes:  # agents that are done leave their lanes, and the next ones take them
            lane = 0
            while lane < live:
                k = lanes[lane]
                if progress[k, DIVERGED] == 1 or progress[k, DONE] >= episodes:
                    live -= 1
                    lanes[lane] = lanes[live]
                    for i in range(4):
                        of_agent[k, i], of_world[k, i] = agent_words[i * LANES + lane], world_words[i * LANES + lane]
                        agent_words[i * LANES + lane] = agent_words[i * LANES + live]
                        world_words[i * LANES + lane] = world_words[i * LANES + live]
                else:
                    lane += 1
            while live < LANES and waiting < K:
                if progress[waiting, DIVERGED] == 0 and episodes > 0:
                    lanes[live] = waiting
                    for i in range(4):
                        agent_words[i * LANES + live] = of_agent[waiting, i]
                        world_words[i * LANES + live] = of_world[waiting, i]
                    live += 1
                waiting += 1
            changes = False
        if WORLD == MDP:
            draw(live, world_words, never, u)
        for lane in range(live):
            k, reward, has_ended = lanes[lane], 0.0, False
            if WORLD == MDP:
                if progress[k, STARTS] == 1:
                    enter_table(tables, place[k], u[lane])
                else:
                    reward, has_ended = follow_table(tables, actions, place[k], u[lane], int(status[k, ACTION]))
                if IS_DENSE == 1:
                    for i in range(slots):
                        index[k, 1, i], value[k, 1, i] = i, dense[int(place[k, 0]), i]
                else:
                    index[k, 1, 0], value[k, 1, 0] = int(place[k, 0]), 1.0
            else:
                random = world_words[lane::LANES]
                if progress[k, STARTS] == 1:
                    enter(WORLD, place[k], random)
                else:
                    reward, has_ended = follow(WORLD, place[k], random, int(status[k, ACTION]))
                for i in range(readings.shape[1]):
                    readings[lane, i] = lane_readings[i * LANES + lane] = place[k, i]
            rewards[lane], ended[lane] = reward, 1.0 if has_ended else 0.0
        if DIMENSIONS > 0:
            tile(live, lane_readings, plan, tiles)
            for lane in range(live):
                for i in range(slots):
                    index[lanes[lane], 1, i], value[lanes[lane], 1, i] = tiles[i * LANES + lane], plan[7][0, 0]
        elif WORLD != MDP:
            activate(readings[:live], *plan, row_index[:live], row_value[:live])  # type: ignore[call-arg]
            for lane in range(live):
                for i in range(slots):
                    index[lanes[lane], 1, i], value[lanes[lane], 1, i] = row_index[lane, i], row_value[lane, i]
        if ALIGNED == 1 and LANES > 1 and DIMENSIONS > 0:
            for lane in range(live):
                ask_for(state[0][lanes[lane]], index[lanes[lane], 1], actions)
        for lane in range(live):
            k = lanes[lane]
            if ended[lane] == 0.0:
                evaluate(
                    lane_of(state, k), setting[k], index[k, 1], value[k, 1], next_index[lane], next_value[lane], q,
                    lane, True,
                )  # fmt: skip
        draw(live, agent_words, ended, u)
        pick_all(live, lanes, setting, status, rate, q, target, behaviour, u, chosen)
        for lane in range(live):
            k, terminated = lanes[lane], ended[lane] > 0.0
            action = -1 if terminated else chosen[lane]
            if action < -1:
                progress[k, DIVERGED], changes = 1, True
                continue
            if progress[k, STARTS] == 1:
                progress[k, STARTS] = 0
                begin_episode(setting[k], status[k], index[k], value[k], action, target, behaviour, lane)
                cut_lane(state, k)
                continue
            at = np.uint64(progress[k, DONE])
            returns[k, at] += rewards[lane]
            progress[k, IN_EPISODE] += 1
            full = progress[k, IN_EPISODE] >= limit
            action = take_action(
                lane_of(state, k), setting[k], status[k], index[k], value[k], next_index[lane], next_value[lane],
                action, target, behaviour, lane, rewards[lane], terminated,
                full and not terminated and not continuing,
            )  # fmt: skip
            if action < -1:
                progress[k, DIVERGED], changes = 1, True
            elif terminated or full:
                steps[k, at] = progress[k, IN_EPISODE]
                progress[k, IN_EPISODE] = 0
                progress[k, DONE] += 1
                progress[k, STARTS], changes = 0 if continuing and not terminated else 1, True
