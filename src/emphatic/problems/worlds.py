"""Worlds to act in, as compiled functions: an episode begins, an action is taken.

``place`` (4,) is where an agent is, ``random`` (4,) its stream of random numbers, which are those of
``numpy.random.default_rng``. A world is a number, WORLDS in order; the first is any MDP, given by ``tables``: of each
pair of a state and an action, and of the start, the possible arrivals with their cumulative probabilities and rewards.
Everything is rounded as it stands, so that a world has the same bits wherever it is compiled in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import exact

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Words = NDArray[np.uint64]
    #: (first (pairs + 2,), arrival, cumulative probability, reward); the last of the pairs is the start.
    Tables = tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]

#: The worlds by number.
WORLDS = ("mdp", "mountain_car", "acrobot", "puddle_world")
MDP, CAR, ACROBOT, PUDDLES = 0, 1, 2, 3

# PCG64, as NumPy has it: 128 bits in two words, a multiplication and an addition a step, XSL-RR output.
_MULTIPLIER_HIGH, _MULTIPLIER = np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645)
_HALF, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_TOP, _WORD, _LAST = np.uint64(58), np.uint64(64), np.uint64(63)
_LOST = np.uint64(11)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_UNIT = 1.0 / 9007199254740992.0


@exact
def following(high: Any, low: Any, high_step: Any, low_step: Any) -> tuple[Any, Any, float]:
    """The state after one, high word first, and the number in [0, 1) that it gives; the increment is (…_step)."""
    a, b = low & _LOW_HALF, low >> _HALF
    c, d = _MULTIPLIER & _LOW_HALF, _MULTIPLIER >> _HALF
    middle = ((a * c) >> _HALF) + ((a * d) & _LOW_HALF) + ((b * c) & _LOW_HALF)
    carried = b * d + ((a * d) >> _HALF) + ((b * c) >> _HALF) + (middle >> _HALF)
    product = low * _MULTIPLIER
    low_next = product + low_step
    carry = _ONE if low_next < product else _ZERO
    high_next = carried + high * _MULTIPLIER + low * _MULTIPLIER_HIGH + high_step + carry
    mixed, turn = high_next ^ low_next, high_next >> _TOP
    word = (mixed >> turn) | (mixed << ((_WORD - turn) & _LAST))
    return high_next, low_next, float(word >> _LOST) * _UNIT


@exact
def uniform(random: Words) -> float:
    """The next number of ``default_rng(seed).random()``; ``random`` is (state, increment), high words first."""
    random[0], random[1], u = following(random[0], random[1], random[2], random[3])
    return u


@exact
def drawn(first: int, last: int, cumulative: Floats, u: float) -> int:
    """The first of these whose cumulative probability is above u times their sum."""
    limit, at = u * cumulative[np.uint64(last - 1)], first
    while at < last - 1 and not cumulative[np.uint64(at)] > limit:
        at += 1
    return at


@exact
def accelerations(place: Floats, torque: float) -> tuple[float, float]:
    """Of the acrobot's two angles: Sutton & Barto (1998), figure 11.5, with its masses, lengths and moments."""
    angle, bend, speed, turning = place[0], place[1], place[2], place[3]
    d1 = 0.25 + (1.25 + math.cos(bend)) + 2.0
    d2 = 0.25 + 0.5 * math.cos(bend) + 1.0
    phi2 = 0.5 * 9.8 * math.cos(angle + bend - 0.5 * math.pi)
    phi1 = -0.5 * turning * turning * math.sin(bend) - turning * speed * math.sin(bend)
    phi1 = phi1 + 1.5 * 9.8 * math.cos(angle - 0.5 * math.pi) + phi2
    pull = torque + d2 / d1 * phi1 - 0.5 * speed * speed * math.sin(bend) - phi2
    second = pull / (1.25 - d2 * d2 / d1)
    return -(d2 * second + phi1) / d1, second


@exact
def wrapped(angle: float) -> float:
    """The same angle from −π to π."""
    turns = math.floor((angle + math.pi) / (2.0 * math.pi))
    return angle - 2.0 * math.pi * turns


@exact
def depth(x: float, y: float) -> float:
    """How far inside the puddles a point is: 0.1 minus its distance from the middle line of each, summed."""
    along = min(max(x, 0.1), 0.45)
    inside = max(0.1 - math.sqrt((x - along) * (x - along) + (y - 0.75) * (y - 0.75)), 0.0)
    along = min(max(y, 0.4), 0.8)
    return inside + max(0.1 - math.sqrt((x - 0.45) * (x - 0.45) + (y - along) * (y - along)), 0.0)


@exact
def enter(world: int, tables: Tables, place: Floats, random: Words) -> None:
    """Begin an episode."""
    if world == MDP:
        start = tables[0].shape[0] - 2
        place[0] = tables[1][drawn(tables[0][start], tables[0][start + 1], tables[2], uniform(random))]
    elif world == CAR:
        place[0], place[1] = -0.6 + 0.2 * uniform(random), 0.0
    elif world == ACROBOT:
        for i in range(4):
            place[i] = 0.0
    else:
        place[0], place[1] = uniform(random), uniform(random)
        while place[0] + place[1] >= 1.9:
            place[0], place[1] = uniform(random), uniform(random)


@exact
def follow(world: int, tables: Tables, actions: int, place: Floats, random: Words, action: int) -> tuple[float, bool]:
    """Take an action: the reward, and whether the episode has ended; the last state of an MDP is left as it is then."""
    if world == MDP:
        pair = int(place[0]) * actions + action
        first, last = tables[0][np.uint64(pair)], tables[0][np.uint64(pair + 1)]
        at = np.uint64(drawn(first, last, tables[2], uniform(random)))
        ended = tables[1][at] * actions >= tables[0].shape[0] - 2
        if not ended:
            place[0] = tables[1][at]
        return tables[3][at], ended
    if world == CAR:
        push = 0.001 * (action - 1) - 0.0025 * math.cos(3.0 * place[0])
        place[1] = min(max(place[1] + push, -0.07), 0.07)
        place[0] = min(max(place[0] + place[1], -1.2), 0.5)
        if place[0] <= -1.2:
            place[1] = 0.0
        return -1.0, place[0] >= 0.5
    if world == ACROBOT:
        for _ in range(4):
            first, second = accelerations(place, action - 1.0)
            place[2] = min(max(place[2] + 0.05 * first, -4.0 * math.pi), 4.0 * math.pi)
            place[3] = min(max(place[3] + 0.05 * second, -9.0 * math.pi), 9.0 * math.pi)
            place[0] = wrapped(place[0] + 0.05 * place[2])
            place[1] = wrapped(place[1] + 0.05 * place[3])
        return -1.0, -math.cos(place[0]) - math.cos(place[0] + place[1]) > 1.0
    radius = 0.01 * math.sqrt(-2.0 * math.log(1.0 - uniform(random)))
    direction = 2.0 * math.pi * uniform(random)
    right = 0.05 if action == 1 else -0.05 if action == 3 else 0.0
    up = 0.05 if action == 0 else -0.05 if action == 2 else 0.0
    place[0] = min(max(place[0] + right + radius * math.cos(direction), 0.0), 1.0)
    place[1] = min(max(place[1] + up + radius * math.sin(direction), 0.0), 1.0)
    return -1.0 - 400.0 * depth(place[0], place[1]), place[0] + place[1] >= 1.9


def reset(world: int, tables: Tables, place: Floats, random: Words) -> None:
    """``enter``, as a function of its own; and so ``follow``."""
    enter(world, tables, place, random)


def step(world: int, tables: Tables, actions: int, place: Floats, random: Words, action: int) -> tuple[float, bool]:
    return follow(world, tables, actions, place, random, action)
