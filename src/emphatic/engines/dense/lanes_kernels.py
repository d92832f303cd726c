"""The dense engine's kernel for many learners of few features, which run side by side.

Functions that are not defined here belong to the rule: see ``rule_functions`` and ``lanes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import small
from emphatic.engines.intrinsics import address, use_widest_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.dense.lanes import (
        AT_AMISS, AT_DELTA, AT_ERROR, AT_MEMORY, AT_PREDICTION, FEATURES, LANES, PROBED, SLOTS, components, goal_of,
        lane_error, lane_products, lane_state, lane_step, lane_vectors, move_lane, set_state, spread_all,
    )  # fmt: skip
    from emphatic.engines.rule_functions import (
        COUNTER, FORGOTTEN, LIMIT, MEMORY, VECTORS, WEIGHTS, bounds, decide, is_finite, is_small, real, rounded,
    )  # fmt: skip

    Array = NDArray[Any]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@small
def spread(S: Floats, at: int, values: Floats, t: int, t0: int, learners: Integers) -> None:
    """Copy a parameter of step t into its lanes, unless it is still there from the step before.

    It is (T, K), with 1 for T or K where it does not vary over the steps or the learners.
    """
    if t == t0 or values.shape[0] > 1:
        row = t if values.shape[0] > 1 else 0
        if values.shape[1] == 1:
            value = values[row, 0]
            for k in range(learners.shape[0]):
                S[at + k] = value
        else:
            for k in range(learners.shape[0]):
                S[at + k] = values[row, learners[k]]


def run_lanes(
    X: Array, scalars: Floats, last_delta: Floats, learners: Integers, failed: Integers, Phi: Array, Phi_next: Array,
    first: Flags, top: float, t0: int, t1: int, parameters: tuple[Floats, ...], predictions: Array, goal: Floats,
    errors: Floats, every: int, begin: int,
) -> int:  # fmt: skip
    """Steps t0 … t1 − 1 of these learners, in ascending order; returns how many may diverge.

    These are in ``failed``, and have not moved. A lane whose numbers leave the range does not affect the others. Before
    step ``begin`` and every ``every``-th after it errors are recorded.
    """
    use_widest_vectors()
    keeps, is_broken = predictions.shape[0] > 0, first.shape[0] > 0
    count = 0
    u = goal_of(goal)
    # Both from the beginning of a cache line on: elsewhere each load may touch two lines.
    numbers, places = VECTORS * FEATURES * LANES, SLOTS * LANES
    lines, slots = np.empty(numbers + 64, X.dtype), np.empty(places + 8)
    at, slot = -address(lines) % 64 // lines.itemsize, -address(slots) % 64 // 8
    Z, S = lines[at : at + numbers], slots[slot : slot + places]
    for left in range(0, learners.shape[0], LANES):
        who = learners[left : left + LANES]
        lanes = who.shape[0]
        in_a_row = who[lanes - 1] - who[0] == lanes - 1
        for k in range(lanes):
            S[AT_AMISS + k] = 0.0
            for r in range(VECTORS):
                for i in range(FEATURES):
                    Z[(r * FEATURES + i) * LANES + k] = X[r, who[k], i]
            for i in range(MEMORY + VECTORS):
                S[AT_MEMORY + i * LANES + k] = scalars[who[k], i]
        for t in range(t0, t1):
            if is_broken and first[t]:
                for i in range(FORGOTTEN):
                    for k in range(lanes):
                        S[AT_MEMORY + i * LANES + k] = 0.0
                for i in range(WEIGHTS * FEATURES, VECTORS * FEATURES):
                    for k in range(lanes):
                        Z[i * LANES + k] = real(0)
            spread_all(S, parameters, t, t0, who)
            p, q = components(Phi, t), components(Phi_next, t)
            if PROBED and t >= begin and (t - begin) % every == 0:
                # In a loop of its own: between the products and the update there are too few registers left for it.
                for k in range(lanes):
                    S[AT_ERROR + k] = lane_error(u, Z, k)
                for k in range(lanes):
                    errors[(t - begin) // every, who[k]] = S[AT_ERROR + k]
            for k in range(lanes):
                vectors = lane_vectors(Z, k)
                x, x_next, g = lane_products(vectors, p, q)
                memory, size = lane_state(S, k)
                delta, c, memory = decide(lane_step(S, k), memory, x, x_next, g)
                size = bounds(c, size, top, top)
                S[AT_AMISS + k] += 0.0 if is_finite(delta, memory) and is_small(c, size, LIMIT) else 1.0
                set_state(S, k, memory, size, x[0], delta)
                move_lane(Z, k, rounded(c), vectors, p, q)
            if keeps and in_a_row:
                row = predictions[t, who[0] : who[0] + lanes]
                for k in range(lanes):
                    row[k] = S[AT_PREDICTION + k]
            elif keeps:
                for k in range(lanes):
                    predictions[t, who[k]] = S[AT_PREDICTION + k]
        for k in range(lanes):
            if S[AT_AMISS + k] > 0.0:
                failed[count] = who[k]
                count += 1
            else:
                for r in range(VECTORS):
                    for i in range(FEATURES):
                        X[r, who[k], i] = Z[(r * FEATURES + i) * LANES + k]
                for i in range(MEMORY + VECTORS):
                    scalars[who[k], i] = S[AT_MEMORY + i * LANES + k]
                scalars[who[k], COUNTER] += t1 - t0
                last_delta[who[k]] = S[AT_DELTA + k]
    return count
