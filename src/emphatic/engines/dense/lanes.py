"""lanes: the dense engine for many learners of few features, which run side by side in the processor's lanes.

The kernel is generated for one n, with every component written out: a lane holds all of a learner's X. Cost a step and
learner: O(m n), at the speed of arithmetic, and n²/2 more where it is probed. A lane whose numbers leave the range
affects no other: it is identified after the chunk, and its learner is left as it was when the chunk began.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.base import Watch
from emphatic.engines.dense.lanes_functions import LANES, functions_for

if TYPE_CHECKING:
    from emphatic.engines.base import Arrays
    from emphatic.rules import Rule

__all__ = ["LANES", "MOST_FEATURES", "STEPS", "stepper"]

#: Up to here all of a learner's X fits the registers of a lane, more or less.
MOST_FEATURES = 16
#: Steps that are tried together, and count for each learner that does not diverge.
STEPS = 256


@functools.cache
def kernel(rule: Rule, dtype: str, n: int, probed: bool, interpreted: bool) -> Any:
    """``lanes_kernels.run_lanes`` for this rule and so many features."""
    real, f8, i8 = getattr(types, dtype), types.float64, types.int64
    text = compiled.compose(functions_for(rule, dtype, n, probed=probed), "dense.lanes_kernels")
    module = compiled.module(f"lanes_{rule.name}_{dtype}_{n}{'_probed' * probed}", text)
    table, ids = types.Array(f8, 2, "C"), types.Array(i8, 1, "C")
    Phi = types.Array(real, 2, "C", readonly=True)
    parameters = compiled.several(types.Array(f8, 2, "A", readonly=True), len(rule.parameters))
    return compiled.kernel(
        module, "run_lanes", types.Array(real, 3, "C"), table, types.Array(f8, 1, "C"), ids, ids, Phi, Phi, f8, i8,
        i8, parameters, types.Array(real, 2, "C"), table, table, i8, i8,
    )  # fmt: skip


def stepper(
    rule: Rule, state: tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]], phi: NDArray[Any],
    phi_next: NDArray[Any], top: float, parameters: Arrays, predictions: NDArray[Any], watch: Watch,
) -> Callable[[NDArray[np.int64], int, int], NDArray[np.int64]]:  # fmt: skip
    """A function of (learners, t0, t1) that takes these steps, and returns the learners that may diverge, unmoved.

    The state is X, the scalars and the last step's δ.
    """
    X = state[0]
    _, K, n = X.shape
    run_lanes = kernel(rule, X.dtype.name, n, watch.probe is not None, compiled.interpreted())
    failed, varying, goal = np.empty(K, np.int64), tuple(_once(p) for p in parameters), np.zeros((n + 1, n + 1))
    if watch.probe is not None:
        goal[: watch.probe.R.shape[1]] = watch.probe.R[0]
    probe = goal, watch.errors, watch.every, watch.first

    def steps(learners: NDArray[np.int64], t0: int, t1: int) -> NDArray[np.int64]:
        count = run_lanes(*state, learners, failed, phi, phi_next, top, t0, t1, varying, predictions, *probe)
        return failed[:count]

    return steps


def _once(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """A parameter (T, K) without what is repeated: (1, K), (T, 1) or (1, 1) where it does not vary over the other."""
    rows = p[:1] if p.strides[0] == 0 else p
    return rows[:, :1] if p.strides[1] == 0 else rows
