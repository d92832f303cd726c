"""The dense engine's steps for an elementwise rule: ``learn_step`` for one learner, ``run_many`` for any number.

A step is tried on X itself, and what X was is kept in Y: where a number leaves its range, X is restored. Functions that
are not here are those of the rule: see ``rule_functions`` and ``unrolled``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emphatic.engines.compiled import inner, small
from emphatic.engines.intrinsics import address

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emphatic.engines.unrolled import (
        ADAPTS, CHANGE, adapt, add_terms, are_finite, component, decide_all, excesses, no_terms, signals,
    )  # fmt: skip
    from emphatic.engines.rule_functions import COUNTER, HUGE, is_acceptable, load, read, real, step_at, store, write
    from emphatic.rules import Scalars

    Array = NDArray[Any]
    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Parameters = tuple[Floats, ...]


@inner
def put_back(X: Array, Y: Array, k: int) -> None:
    """Restore X of learner k as it was before the step."""
    for r in range(X.shape[0]):
        for i in range(X.shape[2]):
            X[r, k, i] = Y[r, k, i]


@inner
def take_step(
    X: Array, Y: Array, scalars: Floats, k: int, phi: Array, phi_next: Array, step: Scalars, frozen: bool
) -> tuple[bool, float, Any]:
    """One step of learner k: whether it was taken, δ, and θ·φ. If it was not, nothing has changed but Y."""
    n = X.shape[2]
    memory, size = load(scalars, k)
    v, v_next = real(0), real(0)
    sums = no_terms()
    for i in range(n):
        z, p, q = read(X, k, i), phi[i], phi_next[i]
        v += z[0] * p
        v_next += z[0] * q
        if not ADAPTS:
            sums = add_terms(sums, z, p, q)
    delta = step[5] + step[4] * np.float64(v_next) - np.float64(v)
    if frozen or not abs(delta) <= HUGE:
        return False, delta, v
    if ADAPTS:
        u = signals(step, memory, delta)
        for i in range(n):
            z, p, q = read(X, k, i), phi[i], phi_next[i]
            write(Y, k, i, z)
            z = adapt(u, z, p)
            write(X, k, i, z)
            sums = add_terms(sums, z, p, q)
    c, s, memory = decide_all(step, memory, delta, sums)
    amiss = 0.0
    change = real(0)
    for i in range(n):
        z, p, q = read(X, k, i), phi[i], phi_next[i]
        if not ADAPTS:
            write(Y, k, i, z)
        z_next = component(s, z, p, q)
        write(X, k, i, z_next)
        amiss += excesses(z_next)
        change += (z_next[0] - z[0]) * q
    if amiss > 0.0 or not are_finite(delta, memory, s, c) or not abs(np.float64(change)) <= HUGE:
        put_back(X, Y, k)
        return False, delta, v
    store(scalars, k, memory, size)
    if CHANGE >= 0:
        scalars[k, CHANGE] = np.float64(change)
    scalars[k, COUNTER] += 1.0
    return True, delta, v


@small
def learn_step(X: Array, Y: Array, scalars: Floats, phi: Array, phi_next: Array, step: Scalars) -> float:
    """One step of one learner; its TD error, or NaN if the step was refused and nothing has changed."""
    n = X.shape[2]
    if phi.shape[0] != n or phi_next.shape[0] != n or not is_acceptable(step):
        return np.nan
    if (address(phi) | address(phi_next)) % phi.itemsize != 0:
        return np.nan
    moved, delta, _ = take_step(X, Y, scalars, 0, phi, phi_next, step, False)
    return float(delta) if moved else np.nan


def run_many(
    X: Array, Y: Array, scalars: Floats, before: Floats, last_delta: Floats, frozen: Flags, freeze: bool, Phi: Array,
    Phi_next: Array, parameters: Parameters, predictions: Array,
) -> int:  # fmt: skip
    """T steps of all learners; −1, or t·K + k if learner k would diverge at step t and must not freeze.

    In the latter case every learner is left before that same step.
    """
    keeps = predictions.shape[0] > 0
    for t in range(Phi.shape[0]):
        for k in range(X.shape[1]):
            for i in range(scalars.shape[1]):
                before[k, i] = scalars[k, i]
            was_frozen = frozen[k]
            moved, delta, v = take_step(X, Y, scalars, k, Phi[t], Phi_next[t], step_at(parameters, t, k), was_frozen)
            if not moved and not was_frozen:
                if not freeze:
                    for earlier in range(k):
                        if not frozen[earlier]:
                            put_back(X, Y, earlier)
                            for i in range(scalars.shape[1]):
                                scalars[earlier, i] = before[earlier, i]
                    return int(t * X.shape[1] + k)
                frozen[k] = True
            last_delta[k] = delta
            if keeps:
                predictions[t, k] = v
    return -1
