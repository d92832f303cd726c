"""What the lanes kernel needs of a rule besides ``rule_functions``, for one n: every component is written out.

As a loop over components it takes three times as long. ``vectors`` is a tuple of all components of all vectors: a z for
each component.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.engines.unrolled import HUGE, Functions, Slots, tuple_of
from emphatic.rules import Rule, Scalars

Array = NDArray[Any]
Floats = NDArray[np.float64]

#: Learners side by side, and their features.
LANES = 64
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
#: (goal) → what is not 0 of it; (that, Z, k) → the error of lane k: see ``probe``.
goal_of: Callable[[Floats], Scalars]
lane_error: Callable[[Scalars, Array, int], float]


def functions_for(rule: Rule, dtype: str, n: int, *, probed: bool) -> Functions:
    """The rule's functions, with those that are declared here."""
    functions = Functions(rule, dtype)
    u, add, parameters, features = functions.u, functions.add, range(len(rule.parameters)), range(n)
    slots = Slots(functions, LANES, memory=u.M, size=u.m, step=len(parameters), prediction=1, delta=1, error=1, amiss=1)
    functions.constant("FEATURES", n)
    functions.constant("PROBED", probed)

    def place(r: int, i: int) -> str:
        return f"Z[{(r * n + i) * LANES} + k]"

    add("lane_state(S, k)", slots.get("memory", "size"))
    add("lane_step(S, k)", slots.get("step"))
    outputs = [f"{slots.places[name][0]} = {name}" for name in ("prediction", "delta")]
    add("set_state(S, k, memory, size, prediction, delta)", *slots.put("memory", "size"), *outputs)
    at = [f"AT_STEP + {i * LANES}" for i in parameters]
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
