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
from emphatic.engines.base import DenseSteps, once
from emphatic.engines.unrolled import HUGE, Functions, Slots, tuple_of

if TYPE_CHECKING:
    from emphatic.rules import Rule, Scalars

__all__ = ["LANES", "MOST_FEATURES", "STEPS", "stepper"]

#: Up to here all of a learner's X fits the registers of a lane, more or less.
MOST_FEATURES = 16
#: Learners side by side: at least so many, and as many more at a time as the first-level cache has room for. What a
#: step does once for all of them takes less of the time then.
LANES = 64
_CACHE = 1 << 15
#: Steps that are tried together, and count for each learner that does not diverge.
STEPS = 256

Array = NDArray[Any]
Floats = NDArray[np.float64]


@functools.cache
def kernel(rule: Rule, dtype: str, n: int, probed: bool, interpreted: bool) -> Any:
    """``lanes_kernels.run_lanes`` for this rule and so many features."""
    real, f8, i8 = getattr(types, dtype), types.float64, types.int64
    text = compiled.compose(functions_for(rule, dtype, n, probed=probed), "dense.lanes_kernels")
    module = compiled.module(f"lanes_{rule.name}_{dtype}_{n}{'_probed' * probed}", text)
    table, ids = types.Array(f8, 2, "C"), types.Array(i8, 1, "C")
    flags = types.Array(types.boolean, 1, "C", readonly=True)
    Phi = types.Array(real, 2, "C", readonly=True)
    parameters = compiled.several(types.Array(f8, 2, "A", readonly=True), len(rule.parameters))
    learners = (types.Array(real, 3, "C"), table, types.Array(f8, 1, "C"), ids, ids)
    steps = (Phi, Phi, flags, f8, i8, i8, parameters, types.Array(real, 2, "C"))
    return compiled.kernel(module, "run_lanes", *learners, *steps, table, table, i8, i8)


def stepper(
    rule: Rule, state: tuple[Array, Floats, Floats], steps: DenseSteps
) -> Callable[[NDArray[np.int64], int, int], NDArray[np.int64]]:
    """A function of (learners, t0, t1) that takes these steps, and returns the learners that may diverge, unmoved.

    The state is X, the scalars and the last step's δ.
    """
    X = state[0]
    phi, phi_next, top, parameters, predictions, watch, first = steps
    _, K, n = X.shape
    run_lanes = kernel(rule, X.dtype.name, n, watch.probe is not None, compiled.interpreted())
    failed, varying, goal = np.empty(K, np.int64), tuple(once(p) for p in parameters), np.zeros((n + 1, n + 1))
    if watch.probe is not None:
        goal[: watch.probe.R.shape[1]] = watch.probe.R[0]
    probe = goal, watch.errors, watch.every, watch.first

    def run(learners: NDArray[np.int64], t0: int, t1: int) -> NDArray[np.int64]:
        count = run_lanes(*state, learners, failed, phi, phi_next, first, top, t0, t1, varying, predictions, *probe)
        return failed[:count]

    return run


# ----------------------------------------------------------- what the kernel calls of a rule besides ``rule_functions``
#
# Every component is written out for one n: as a loop over components it takes three times as long. ``vectors`` is a
# tuple of all components of all vectors: a z for each component.

#: The features of each learner.
FEATURES: int
#: Places in a lane, and where in S the first lane has what.
SLOTS: int
AT_MEMORY: int
AT_PREDICTION: int
AT_DELTA: int
AT_ERROR: int
AT_AMISS: int
#: Whether errors are written down.
PROBED: bool

#: (S, k) → what lane k has: memory and size; step.
lane_state: Callable[[Floats, int], tuple[Scalars, Scalars]]
lane_step: Callable[[Floats, int], Scalars]
#: (S, k, memory, size, prediction, δ): put these there.
set_state: Callable[[Floats, int, Scalars, Scalars, Any, Any], None]
#: (S, parameters, t, t0, learners): ``spread`` for each parameter.
spread_all: Callable[[Floats, tuple[Floats, ...], int, int, NDArray[np.int64]], None]
#: (Phi, t) → a row of it.
components: Callable[[Array, int], Scalars]
#: (Z, k) → the vectors of lane k.
lane_vectors: Callable[[Array, int], tuple[Scalars, ...]]
#: (vectors, p, q) → x, x_next and g, with p and q the rows of φ and φ'.
lane_products: Callable[[tuple[Scalars, ...], Scalars, Scalars], tuple[Scalars, Scalars, Scalars]]
#: (Z, k, c, vectors, p, q): the vectors of lane k after the step.
move_lane: Callable[[Array, int, Scalars, tuple[Scalars, ...], Scalars, Scalars], None]
#: (goal) → what is not 0 of it; (that, Z, k) → the error of lane k: see ``Probe``.
goal_of: Callable[[Floats], Scalars]
lane_error: Callable[[Scalars, Array, int], float]


def functions_for(rule: Rule, dtype: str, n: int, *, probed: bool) -> Functions:
    """The rule's functions, with those that are declared here."""
    functions = Functions(rule, dtype)
    u, add, parameters, features = functions.u, functions.add, range(len(rule.parameters)), range(n)
    groups = {"memory": u.M, "size": u.m, "step": len(parameters), "prediction": 1, "delta": 1, "error": 1, "amiss": 1}
    size = u.m * n * np.dtype(dtype).itemsize + 8 * sum(groups.values())
    count = max(1, _CACHE // (LANES * size)) * LANES
    slots = Slots(functions, count, **groups)
    functions.constant("FEATURES", n)
    functions.constant("PROBED", probed)

    def place(r: int, i: int) -> str:
        return f"Z[{(r * n + i) * count} + k]"

    add("lane_state(S, k)", slots.get("memory", "size"))
    add("lane_step(S, k)", slots.get("step"))
    outputs = [f"{slots.places[name][0]} = {name}" for name in ("prediction", "delta")]
    add("set_state(S, k, memory, size, prediction, delta)", *slots.put("memory", "size"), *outputs)
    at = [f"AT_STEP + {i * count}" for i in parameters]
    spread = [f"spread(S, {at[i]}, parameters[{i}], t, t0, learners)" for i in parameters]
    add("spread_all(S, parameters, t, t0, learners)", *spread)
    add("components(Phi, t)", f"return {tuple_of(f'Phi[t, {i}]' for i in features)}")
    vectors = (tuple_of(place(r, i) for r in u.vectors) for i in features)
    add("lane_vectors(Z, k)", f"return {tuple_of(vectors)}")
    sums = (f"sums = add_products(sums, vectors[{i}], p[{i}], q[{i}])" for i in features)
    add("lane_products(vectors, p, q)", "sums = no_products()", *sums, "return split_products(sums)")
    # Component by component: all updates before all stores would need more registers than there are.
    moves = []
    for i in features:
        moves.append(f"z = update(c, vectors[{i}], p[{i}], q[{i}])")
        moves += [f"{place(r, i)} = z[{r}]" for r in u.vectors]
    add("move_lane(Z, k, c, vectors, p, q)", *moves)
    if probed:
        triangle = [(i, j) for i in range(n + 1) for j in range(i, n + 1)]
        names = tuple_of(f"u{i}_{j}" for i, j in triangle)
        rows = [" + ".join(f"u{i}_{j} * z{j}" for j in range(i, n)) for i in features]
        square = " + ".join([*(f"h{i} * h{i}" for i in features), f"u{n}_{n} * u{n}_{n}"])
        add("goal_of(goal)", f"return {tuple_of(f'goal[{i}, {j}]' for i, j in triangle)}")
        add(
            "lane_error(goal, Z, k)",
            f"{names} = goal",
            *(f"z{i} = np.float64({place(0, i)})" for i in features),
            *(f"h{i} = {row} - u{i}_{n}" for i, row in enumerate(rows)),
            f"square = {square}",
            f"return np.sqrt(square) if square <= {HUGE!r} else np.inf",
        )
    else:
        add("goal_of(goal)", "return ()")
        add("lane_error(goal, Z, k)", "return 0.0")
    return functions
