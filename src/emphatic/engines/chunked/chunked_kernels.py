"""The chunked engine's kernels: ``dual`` runs a chunk's steps on V = X Pᵀ, ``fold`` applies the result to X.

Functions that are not defined here belong to the rule: see ``rule_functions`` and the engine. CHUNKED.md
derives what is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.chunked import (
        AT_AMISS, AT_C, AT_DELTA, AT_GROWTH, AT_MEMORY, AT_PRODUCTS, AT_SHARES, AT_STEP, AT_TAILS, GROWING, LANES, OVER,
        PAIRED, PRODUCTS, SHARES, SHORTEST, SLOTS, TAILS, are_within, coefficients_at, folded, grown, is_tame,
        lane_coefficients, lane_products, lane_state, lane_step, lane_tails, scanned, set_scan, set_state, tails_at,
    )  # fmt: skip
    from emphatic.engines.rule_functions import (
        COEFFICIENTS, COUNTER, FORGOTTEN, MEMORY, PARAMETERS, VECTORS, WEIGHTS, bounds, decide, excess, is_finite, read,
        real, update, write,
    )  # fmt: skip

    Array = NDArray[Any]
    Floats = NDArray[np.float64]


@inner
def underflows(P: Array, G: Array) -> bool:
    """Whether a row of P is so short, but not 0, that its products are not exact."""
    for row in range(P.shape[0]):
        if G[row, row] < SHORTEST:
            for i in range(P.shape[1]):
                if P[row, i] != 0.0:
                    return True
    return False


def dual(
    V: Array, W: Array, Q: Array, tail: Array, P: Array, G: Array, at: NDArray[np.int64], top: float, scalars: Floats,
    after: Floats, last_delta: Floats, amiss: NDArray[np.bool_], left: int, lanes: int, t0: int, rows: int,
    first: NDArray[np.bool_], parameters: tuple[Floats, ...], predictions: Array,
) -> int:  # fmt: skip
    """The steps from t0 on of a block of learners on V; the results are W, tail and after. Returns how many are amiss.

    The results of those in ``amiss`` are not valid: their numbers, or what the chunk makes of them, may overflow. They
    do not affect the other lanes.
    """
    keeps, is_broken = predictions.shape[0] > 0, first.shape[0] > 0
    lanes = min(lanes, LANES)
    L = at.shape[0]
    S = np.empty(SLOTS * LANES)
    for i in range(MEMORY + VECTORS):
        for k in range(lanes):
            S[AT_MEMORY + i * LANES + k] = scalars[left + k, i]
    for i in range(GROWING):
        for k in range(lanes):
            S[AT_GROWTH + i * LANES + k] = 0.0
    doubtful = 1.0 if underflows(P, G) else 0.0
    for k in range(lanes):
        S[AT_AMISS + k] = doubtful
    for t in range(L):
        p = at[t]
        if is_broken and first[t0 + t]:
            for i in range(FORGOTTEN):
                for k in range(lanes):
                    S[AT_MEMORY + i * LANES + k] = 0.0
            for r in range(WEIGHTS, VECTORS):
                for row in range(p, rows):
                    for k in range(lanes):
                        V[r, row, k] = real(0)
        g = (np.float64(G[p, p]), np.float64(G[p, p + 1]), np.float64(G[p + 1, p + 1]))
        for i in range(PARAMETERS):
            values = parameters[i]
            if t == 0 or values.strides[0] != 0:
                for k in range(lanes):
                    S[AT_STEP + i * LANES + k] = values[t0 + t, left + k]
        for i in range(len(PRODUCTS)):
            r, ahead = PRODUCTS[i]
            for k in range(lanes):
                S[AT_PRODUCTS + i * LANES + k] = V[r, p + ahead, k]
        if keeps:
            for k in range(lanes):
                predictions[t0 + t, left + k] = V[0, p, k]
        for k in range(lanes):
            memory, size, growth = lane_state(S, k)
            x, x_next = lane_products(S, k)
            delta, c, memory = decide(lane_step(S, k), memory, x, x_next, g)
            size, growth = bounds(c, size, top, top), grown(c, growth)
            fine = is_finite(delta, memory) and is_tame(c, size, growth, x, x_next)
            S[AT_AMISS + k] += 0.0 if fine else 1.0
            set_state(S, k, memory, size, growth, delta, excess(c))
        for i in range(COEFFICIENTS):
            for k in range(lanes):
                Q[i, t, k] = real(S[AT_C + i * LANES + k])
        alone = rows - (rows - p - 1) % 2 if PAIRED else p + 1
        for row in range(p + 1, alone, 2):
            g_p, g_next, h_p, h_next = G[p, row], G[p + 1, row], G[p, row + 1], G[p + 1, row + 1]
            for k in range(lanes):
                q, z, y = coefficients_at(Q, t, k), read(V, row, k), read(V, row + 1, k)
                write(V, row, k, update(q, z, g_p, g_next))
                write(V, row + 1, k, update(q, y, h_p, h_next))
        for row in range(alone, rows):
            g_p, g_next = G[p, row], G[p + 1, row]
            for k in range(lanes):
                write(V, row, k, update(coefficients_at(Q, t, k), read(V, row, k), g_p, g_next))
    for r in range(VECTORS):
        for row in range(rows):
            for k in range(lanes):
                W[r, row, k] = real(0)
    for i in range(TAILS):
        for k in range(lanes):
            S[AT_TAILS + i * LANES + k] = 1.0 if i < VECTORS else 0.0
    for t in range(L - 1, -1, -1):
        p = at[t]
        for i in range(COEFFICIENTS):
            for k in range(lanes):
                S[AT_C + i * LANES + k] = Q[i, t, k]
        for k in range(lanes):
            shares, tails = scanned(lane_tails(S, k), lane_coefficients(S, k))
            S[AT_AMISS + k] += 0.0 if are_within(shares, tails) else 1.0
            set_scan(S, k, shares, tails)
        for i in range(len(SHARES)):
            r, ahead = SHARES[i]
            for k in range(lanes):
                W[r, p + ahead, k] += real(S[AT_SHARES + i * LANES + k])
        if is_broken and first[t0 + t]:  # nothing is left of earlier traces: their own scales, and what weights take
            for i in range(WEIGHTS, TAILS):
                for k in range(lanes):
                    S[AT_TAILS + i * LANES + k] = 0.0
    for i in range(MEMORY + VECTORS):
        for k in range(lanes):
            after[left + k, i] = S[AT_MEMORY + i * LANES + k]
    for i in range(TAILS):
        for k in range(lanes):
            entry = S[AT_TAILS + i * LANES + k] - OVER[i]
            tail[i, left + k] = real(entry if i >= VECTORS or abs(entry) >= SHORTEST else 0.0)
    for k in range(lanes):
        after[left + k, COUNTER] = scalars[left + k, COUNTER] + L
        last_delta[left + k] = S[AT_DELTA + k]
    count = 0
    for k in range(lanes):
        amiss[left + k] = S[AT_AMISS + k] > 0.0
        count += amiss[left + k]
    return count


def fold(
    X: Array, scalars: Floats, new: Array, tail: Array, after: Floats, apart: NDArray[np.bool_], first: int, lanes: int
) -> None:
    """X ← A_total X + W P for a block of learners, and the scalars after the chunk; not for those apart."""
    for k in range(lanes):
        if not apart[first + k]:
            tails = tails_at(tail, first + k)
            for i in range(X.shape[2]):
                write(X, first + k, i, folded(tails, read(X, first + k, i), read(new, k, i)))
            for i in range(scalars.shape[1]):
                scalars[first + k, i] = after[first + k, i]
