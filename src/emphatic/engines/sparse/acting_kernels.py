"""One step of an agent: action values, the next action, and the update of its learner, in one compiled call.

φ(S, A) has the features of S at A·n + i. The action A' is chosen from θ before the update, and the update follows.
``state`` is the state of a sparse engine with one learner; functions that are not defined here belong to the rule, to
``sparse_kernels`` and to ``acting``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import exact, inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.rule_functions import HUGE, zeros
    from emphatic.engines.sparse import add_held, combine, epochs, fetch
    from emphatic.engines.sparse.acting import (
        ACTION, ALPHA, CUTS, DECISIONS, DELTA, END, ETA, GAMMA, GREEDY, IS_GREEDY, KIND, LAMBDA, MU, N, NEXT, PI,
        RATIO, SIGMA, SOFTMAX, START, STEPS, TIES, count_actions, count_slots, fetch_value, fixed, learn_with, step_of,
        value_in,
    )  # fmt: skip

    State = tuple[NDArray[Any], ...]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]


@inner
def scheduled(setting: Floats, decisions: float) -> float:
    """ε or the temperature at this decision: constant, linear, or geometric from ``START`` to ``END``."""
    share = min(decisions / setting[STEPS], 1.0)
    if setting[KIND] == 1.0:
        rate = setting[START] + share * (setting[END] - setting[START])
    elif setting[KIND] == 2.0:
        rate = setting[START] * (setting[END] / setting[START]) ** share
    else:
        rate = setting[START]
    return float(rate)


@exact  # a sum in this order is computed one by one: gathers, which another could be made of, take longer here
def value_up_to_date(
    columns: NDArray[np.void], scale: Floats, epoch: Integers, table: Floats, index: Integers, value: Floats,
    begin: int, end: int,
) -> float:  # fmt: skip
    """θ·φ; the columns of φ are up to date then, so that the next steps, with many of the same, find them so."""
    h, e = zeros(), epochs(epoch)
    for a in range(begin, end):
        i = index[a]
        if i >= 0:
            fetch(columns[i], e, table)
            h = add_held(h, columns[i], value[a])
    return float(combine(scale, h)[0])


@inner
def evaluate(
    state: State, setting: Floats, index: Integers, value: Floats, next_index: Integers, next_value: Floats, q: Floats,
    fetches: bool,
) -> None:  # fmt: skip
    """θ·φ(S, a) of every action; ``next_index`` and ``next_value`` hold φ(S, a), one action after the other."""
    slots, n = count_slots(index), int(setting[N])
    for a in range(count_actions(q)):
        for i in range(slots):
            next_index[a * slots + i] = a * n + index[i] if 0 <= index[i] < n else -1
            next_value[a * slots + i] = value[i]
        if fetches:
            q[a] = fetch_value(state, next_index, next_value, a * slots, (a + 1) * slots)
        else:
            q[a] = value_in(state, next_index, next_value, a * slots, (a + 1) * slots)


@inner
def find_policies(setting: Floats, status: Floats, q: Floats, target: Floats, behaviour: Floats) -> None:
    """μ(a|S), ε-greedy or softmax, and π(a|S), greedy or the same; values that differ by rounding alone are tied."""
    actions, largest = count_actions(q), q[0]
    for a in range(actions):
        largest = max(largest, q[a])
    least = largest - TIES * max(1.0, abs(largest))
    tied = 0
    for a in range(actions):
        tied += q[a] >= least
    rate, share = scheduled(setting, status[DECISIONS]), 1.0 / tied
    other = rate / actions
    greedy = other + (1.0 - rate) * share
    for a in range(actions):
        target[a] = share if q[a] >= least else 0.0
        behaviour[a] = greedy if q[a] >= least else other
    if setting[SOFTMAX] > 0.0:
        total = 0.0
        for a in range(actions):
            behaviour[a] = np.exp((q[a] - largest) / rate)
            total += behaviour[a]
        for a in range(actions):
            behaviour[a] /= total


@inner
def choose(behaviour: Floats, u: float) -> int:
    """The first action whose cumulative probability is above u."""
    total, action, chosen = 0.0, 0, False
    for a in range(count_actions(behaviour)):  # to the end: which action comes first cannot be foreseen by a processor
        total += behaviour[a]
        action = a if behaviour[a] > 0.0 and not chosen else action
        chosen = chosen or u < total
    return action


@inner
def remember(setting: Floats, status: Floats, action: int, target: Floats, behaviour: Floats) -> None:
    """The action that the agent takes, and how likely it was."""
    status[ACTION] = action
    status[IS_GREEDY] = 1.0 if target[action] > 0.0 else 0.0
    status[MU] = behaviour[action]
    status[PI] = target[action] if fixed(setting, GREEDY) > 0.0 else behaviour[action]


@inner
def weigh_actions(
    setting: Floats, action: int, target: Floats, behaviour: Floats, slots: int, next_index: Integers,
    next_value: Floats,
) -> int:  # fmt: skip
    """Make φ' of φ(S', a): that of A', the mean under π, or σ of one and 1 − σ of the other; how many are active."""
    count = 0
    for a in range(count_actions(target)):
        expected = target[a] if fixed(setting, GREEDY) > 0.0 else behaviour[a]
        sampled = 1.0 if a == action else 0.0
        if fixed(setting, NEXT) == 0.0:
            weight = sampled
        elif fixed(setting, NEXT) == 1.0:
            weight = expected
        else:
            weight = fixed(setting, SIGMA) * sampled + (1.0 - fixed(setting, SIGMA)) * expected
        if weight > 0.0:
            for i in range(slots):
                next_index[count] = next_index[a * slots + i]
                next_value[count] = weight * next_value[a * slots + i]
                count += 1
    return count


@inner
def ratio(setting: Floats, status: Floats) -> float:
    """What scales the trace before this action: 1, ρ, π(A|S), or σρ + (1 − σ)π(A|S)."""
    if fixed(setting, RATIO) == 0.0:
        factor = 1.0
    elif fixed(setting, RATIO) == 1.0:
        factor = status[PI] / status[MU]
    elif fixed(setting, RATIO) == 2.0:
        factor = status[PI]
    else:
        factor = fixed(setting, SIGMA) * status[PI] / status[MU] + (1.0 - fixed(setting, SIGMA)) * status[PI]
    return float(factor)


@inner
def are_finite_readings(readings: Floats) -> bool:
    """Whether an observation can be learned from."""
    fine = True
    for i in range(readings.shape[0]):
        fine = fine and abs(readings[i]) <= HUGE
    return bool(fine)


@inner
def pick(setting: Floats, status: Floats, q: Floats, target: Floats, behaviour: Floats, u: float) -> int:
    """The action for the values q, and with which probabilities; −3 if they are not finite."""
    for a in range(count_actions(q)):
        if not abs(q[a]) <= HUGE:
            return -3
    find_policies(setting, status, q, target, behaviour)
    return choose(behaviour, u)


@inner
def begin_episode(
    setting: Floats, status: Floats, index: Integers, value: Floats, action: int, target: Floats, behaviour: Floats
) -> None:
    """The action that was picked is the first of an episode that begins in row 1."""
    status[DECISIONS] += 1.0
    remember(setting, status, action, target, behaviour)
    for i in range(count_slots(index)):
        index[0, i], value[0, i] = index[1, i], value[1, i]


@inner
def take_action(
    state: State, setting: Floats, status: Floats, index: Integers, value: Floats, next_index: Integers,
    next_value: Floats, action: int, target: Floats, behaviour: Floats, reward: float, terminated: bool,
    truncated: bool,
) -> int:  # fmt: skip
    """Learn from the step to row 1, where ``action`` was picked, unless it terminated; the action, −1 at an end.

    −3 if the learner would diverge: nothing has changed then.
    """
    slots, n, count, gamma = count_slots(index), int(setting[N]), 0, 0.0
    if not terminated:
        gamma = setting[GAMMA]
        count = weigh_actions(setting, action, target, behaviour, slots, next_index, next_value)
    rho = ratio(setting, status)
    trace = setting[LAMBDA] * (status[IS_GREEDY] if fixed(setting, CUTS) > 0.0 else 1.0)
    offset, first = int(status[ACTION]) * n, index[0]
    for i in range(slots):
        index[2, i] = offset + first[i] if 0 <= first[i] < n else -1
    step = step_of(setting[ALPHA], trace, rho, gamma, reward, fixed(setting, ETA), setting[LAMBDA])
    delta = learn_with(state, index[2], value[0], next_index[:count], next_value[:count], step)
    if not abs(delta) <= HUGE:
        return -3
    status[DELTA] = delta
    if not terminated:
        status[DECISIONS] += 1.0
        remember(setting, status, action, target, behaviour)
    if terminated or truncated:
        return -1
    for i in range(slots):
        index[0, i], value[0, i] = index[1, i], value[1, i]
    return action


def begin(
    state: State, setting: Floats, status: Floats, readings: Floats, index: Integers, value: Floats,
    next_index: Integers, next_value: Floats, q: Floats, target: Floats, behaviour: Floats, u: float,
) -> int:  # fmt: skip
    """The first action of an episode that begins in row 1; −2 if the observation is not finite, −3 if q is not."""
    if not are_finite_readings(readings):
        return -2
    evaluate(state, setting, index[1], value[1], next_index, next_value, q, True)
    action = pick(setting, status, q, target, behaviour, u)
    if action >= 0:
        begin_episode(setting, status, index, value, action, target, behaviour)
    return action


def act(
    state: State, setting: Floats, status: Floats, readings: Floats, index: Integers, value: Floats,
    next_index: Integers, next_value: Floats, q: Floats, target: Floats, behaviour: Floats, u: float,
    reward: float, terminated: bool, truncated: bool,
) -> int:  # fmt: skip
    """Learn from the step to the observation in row 1; the next action, or −1 at an end.

    −2 if the observation is not finite and −3 if the learner would diverge: nothing has changed then.
    """
    if not are_finite_readings(readings):
        return -2
    action = -1
    if not terminated:
        evaluate(state, setting, index[1], value[1], next_index, next_value, q, True)
        action = pick(setting, status, q, target, behaviour, u)
        if action < 0:
            return action
    return take_action(
        state, setting, status, index, value, next_index, next_value, action, target, behaviour, reward, terminated,
        truncated,
    )  # fmt: skip


def appraise(
    state: State, setting: Floats, index: Integers, value: Floats, next_index: Integers, next_value: Floats, q: Floats
) -> None:
    """``evaluate``, as a function of its own, that changes nothing."""
    evaluate(state, setting, index[2], value[2], next_index, next_value, q, False)
