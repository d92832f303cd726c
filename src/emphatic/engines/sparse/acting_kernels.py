"""One step of an agent: action values, the next action, and the update of its learner, in one compiled call.

φ(S, A) has the features of S at A·n + i. The action A' is chosen from θ before the update, and the update follows.
``state`` is the state of a sparse engine with one learner; ``target`` is π and ``behaviour`` μ. Functions that are not
defined here belong to the rule, to ``sparse_kernels`` and to ``acting``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import exact, inner
from emphatic.engines.intrinsics import get_apart, put_apart

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.rule_functions import HUGE, zeros
    from emphatic.engines.sparse import add_held, combine, epochs, fetch
    from emphatic.engines.sparse.acting import (
        ACTION, CUTS, DECISIONS, DELTA, END, GAMMA, GREEDY, IS_GREEDY, KIND, LAMBDA, MU, N, NEXT, PI, RATIO, SIGMA,
        SOFTMAX, START, STEPS, TIES, count_actions, count_slots, fetch_value, fixed, learn_with, step_of, value_in,
    )  # fmt: skip

    State = tuple[NDArray[Any], ...]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]


@inner
def scheduled(setting: Floats, decisions: float) -> float:
    """ε or the temperature at this decision: constant, linear, or geometric from ``START`` to ``END``."""
    rate = setting[START]
    if fixed(setting, KIND) > 0.0:
        share = min(decisions / setting[STEPS], 1.0)
        if fixed(setting, KIND) == 1.0:
            rate += share * (setting[END] - rate)
        else:
            rate *= (setting[END] / rate) ** share
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
    slots, n = count_slots(index), int(fixed(setting, N))
    for a in range(count_actions(q)):
        for i in range(slots):
            next_index[a * slots + i] = a * n + index[i] if 0 <= index[i] < n else -1
            next_value[a * slots + i] = value[i]
        if fetches:
            q[a] = fetch_value(state, next_index, next_value, a * slots, (a + 1) * slots)
        else:
            q[a] = value_in(state, next_index, next_value, a * slots, (a + 1) * slots)


@inner
def find_policies(rate: float, q: Floats, target: Floats, behaviour: Floats) -> None:
    """μ(a|S), ε-greedy with ε = ``rate``, and the greedy π(a|S); values that differ by rounding alone are tied."""
    actions, largest = count_actions(q), get_apart(q, 0, 0)
    for a in range(actions):
        largest = max(largest, get_apart(q, a, 0))
    least = largest - TIES * max(1.0, abs(largest))
    tied = 0.0
    for a in range(actions):
        tied += 1.0 if get_apart(q, a, 0) >= least else 0.0
    share, least_likely = 1.0 / max(tied, 1.0), rate / actions  # none is tied where a value is NaN
    greedy = least_likely + (1.0 - rate) * share
    for a in range(actions):
        is_best = get_apart(q, a, 0) >= least
        put_apart(target, a, 1, share if is_best else 0.0)
        put_apart(behaviour, a, 2, greedy if is_best else least_likely)


@inner
def soften(rate: float, q: Floats, behaviour: Floats) -> None:
    """μ(a|S) of a softmax policy with this temperature."""
    actions, largest, total = count_actions(q), q[0], 0.0
    for a in range(actions):
        largest = max(largest, q[a])
    for a in range(actions):
        behaviour[a] = np.exp((q[a] - largest) / rate)
        total += behaviour[a]
    for a in range(actions):
        behaviour[a] /= total


@inner
def choose(q: Floats, behaviour: Floats, u: float) -> int:
    """The first action whose cumulative probability is above u; −3 if values are not finite."""
    total, action, chosen, fine = 0.0, 0, False, True
    for a in range(count_actions(q)):  # to the end: which action comes first cannot be foreseen by a processor
        likely = get_apart(behaviour, a, 2)
        total += likely
        action = a if likely > 0.0 and not chosen else action
        chosen = chosen or u < total
        fine = fine and abs(get_apart(q, a, 0)) <= HUGE
    return action if fine else -3


@inner
def remember(setting: Floats, status: Floats, action: int, target: Floats, behaviour: Floats) -> None:
    """The action that the agent takes, and how likely it was."""
    at = action
    status[ACTION] = action
    status[IS_GREEDY] = 1.0 if target[at] > 0.0 else 0.0
    status[MU] = behaviour[at]
    status[PI] = target[at] if fixed(setting, GREEDY) > 0.0 else behaviour[at]


@inner
def weigh_actions(
    setting: Floats, action: int, target: Floats, behaviour: Floats, slots: int, next_index: Integers,
    next_value: Floats,
) -> int:  # fmt: skip
    """Make φ' of φ(S', a): that of A', the mean under π, or σ of one and 1 − σ of the other; how many are active."""
    count, actions = 0, count_actions(target)
    for a in range(actions):
        expected = target[a] if fixed(setting, GREEDY) > 0.0 else behaviour[a]
        sampled = 1.0 if a == action else 0.0
        if fixed(setting, NEXT) == 0.0:
            weight = sampled
        elif fixed(setting, NEXT) == 1.0:
            weight = expected
        else:
            weight = fixed(setting, SIGMA) * sampled + (1.0 - fixed(setting, SIGMA)) * expected
        for i in range(slots):  # in any case: which actions have a weight cannot be foreseen by a processor
            next_index[count + i] = next_index[a * slots + i]
            next_value[count + i] = weight * next_value[a * slots + i]
        count += slots if weight > 0.0 else 0
    return count


@inner
def ratio(setting: Floats, status: Floats) -> float:
    """What scales the trace before this action: 1, ρ, π(A|S), σρ + (1 − σ)π(A|S), or min(1, ρ)."""
    if fixed(setting, RATIO) == 0.0:
        factor = 1.0
    elif fixed(setting, RATIO) == 1.0:
        factor = status[PI] / status[MU]
    elif fixed(setting, RATIO) == 2.0:
        factor = status[PI]
    elif fixed(setting, RATIO) == 4.0:
        factor = min(1.0, status[PI] / status[MU])
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
    """The action of one agent for the values q, and with which probabilities; −3 if they are not finite."""
    rate = scheduled(setting, status[DECISIONS])
    find_policies(rate, q, target, behaviour)
    if fixed(setting, SOFTMAX) > 0.0:
        soften(rate, q, behaviour)
    return choose(q, behaviour, u)


@inner
def begin_episode(
    setting: Floats, status: Floats, index: Integers, value: Floats, action: int, target: Floats, behaviour: Floats
) -> None:  # fmt: skip
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
    slots, n, first_next, end_next, gamma = count_slots(index), int(fixed(setting, N)), 0, 0, 0.0
    if not terminated:
        gamma = setting[GAMMA]
        if fixed(setting, NEXT) == 0.0:  # φ' is φ(S', A') as it stands
            first_next, end_next = action * slots, (action + 1) * slots
        else:
            end_next = weigh_actions(setting, action, target, behaviour, slots, next_index, next_value)
    rho = ratio(setting, status)
    trace = setting[LAMBDA] * (status[IS_GREEDY] if fixed(setting, CUTS) > 0.0 else 1.0)
    previous = int(status[ACTION])
    for i in range(slots):
        index[2, i] = previous * n + index[0, i] if 0 <= index[0, i] < n else -1
    step = step_of(setting, status, trace, rho, gamma, reward)
    delta = learn_with(state, index[2], value[0], next_index, next_value, first_next, end_next, step)
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
