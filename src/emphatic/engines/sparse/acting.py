"""Compiles ``acting_kernels`` for the rule of a sparse engine with one learner: linear rules and elementwise ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.common.names import refusal
from emphatic.engines import compiled
from emphatic.engines.sparse import Layout, Sparse, column_type, functions_for
from emphatic.engines.sparse.elementwise_sparse import SparseElementwise, elementwise_functions, record
from emphatic.engines.unrolled import Functions, tuple_of
from emphatic.rules import ElementwiseRule

if TYPE_CHECKING:
    from emphatic.engines.base import Engine
    from emphatic.rules import AnyRule, Scalars

__all__ = ["SETTINGS", "STATUS", "TIES", "ActingKernels", "Known", "acting_functions"]

#: Places of an agent's numbers in ``setting``.
SETTINGS: tuple[str, ...] = (
    *("N", "ALPHA", "GAMMA", "LAMBDA", "ETA", "SIGMA", "NEXT", "RATIO", "CUTS", "GREEDY"),
    *("SOFTMAX", "KIND", "START", "END", "STEPS"),
)
#: Places of what an agent remembers in ``status``.
STATUS = ("ACTION", "PI", "MU", "IS_GREEDY", "DECISIONS", "DELTA")
#: Action values are tied where they differ by less than this part of the largest, or by less than this near 0.
TIES = 1e-10

# ----------------------------------------------------------- what the kernels call, besides the rule's functions

N = ALPHA = GAMMA = LAMBDA = ETA = SIGMA = NEXT = RATIO = CUTS = GREEDY = SOFTMAX = KIND = START = END = STEPS = 0
ACTION = PI = MU = IS_GREEDY = DECISIONS = DELTA = 0
#: How many agents ``q``, ``target`` and ``behaviour`` have room for.
LANES: int
#: Whether all features are active, and φ(S) and φ(S') have a feature at the same place or not both.
ALIGNED: int
#: (column, table) → H of it as it is when up to date; (column, e, table) sets it so. Both do the same whether or not it
#: is already: that cannot be foreseen by a processor.
current: Callable[[np.void, NDArray[np.float64]], Scalars]
refresh: Callable[[np.void, Scalars, NDArray[np.float64]], None]
#: (sums, h, value) → sums + h·value.
add_current: Callable[[Scalars, Scalars, float], Scalars]
#: (state, index, value, begin, end) → θ·φ; and the same, with the columns of φ up to date then.
value_in: Callable[..., float]
fetch_value: Callable[..., float]
#: (state, index, value, action) → θ·φ(S, a) of aligned features.
value_aligned: Callable[..., float]
#: (state, index, value, index_next, value_next, step) → δ, or NaN where the step was refused.
learn_with: Callable[..., float]
#: (alpha, lambda, rho, gamma_next, R, eta, lambda_next) → the parameters of a step.
step_of: Callable[..., Scalars]
#: (q) → the number of actions, and (index) → that of the active features of a state.
count_actions: Callable[[NDArray[np.float64]], int]
count_slots: Callable[[NDArray[np.int64]], int]
#: (setting, place) → what the algorithm has there.
fixed: Callable[[NDArray[np.float64], int], float]

#: What each parameter of a rule is in a step of an agent.
_PARAMETERS = {
    "alpha": "alpha",
    "I": "1.0",
    "lambda_": "trace",
    "rho": "rho",
    "gamma_next": "gamma",
    "R": "reward",
    "beta": "eta * alpha",
    "lambda_next": "trace_next",
}


class Known(NamedTuple):
    """What a kernel is compiled for besides the rule: the compiler then knows how long the short loops are.

    Args:
        actions: The number of actions.
        slots: The number of active features of a state.
        lanes: How many agents act side by side.
        aligned: Whether all features are active, and φ(S) and φ(S') have a feature at the same place or not both.
        numbers: What ``setting`` has at places that are the same for all agents.
    """

    actions: int
    slots: int
    lanes: int
    aligned: bool
    numbers: tuple[tuple[str, float], ...]


def acting_functions(rule: AnyRule, dtype: str, known: Known | None = None) -> tuple[Functions, list[str]]:
    """The functions of this rule that ``acting_kernels`` calls, and the kernels that must stand before its own."""
    elementwise = isinstance(rule, ElementwiseRule)
    functions = elementwise_functions(rule, dtype) if isinstance(rule, ElementwiseRule) else functions_for(rule, dtype)
    _add(functions, rule, known)
    kernels = ["sparse.sparse_kernels", *["sparse.elementwise_sparse_kernels"] * elementwise, "sparse.acting_kernels"]
    return functions, kernels


def _add(functions: Functions, rule: AnyRule, known: Known | None) -> None:
    """The constants and functions that are declared here."""
    for place, name in (*enumerate(SETTINGS), *enumerate(STATUS)):
        functions.constant(name, place)
    functions.constant("TIES", TIES)
    functions.constant("LANES", 1 if known is None else known.lanes)
    aligned = known is not None and known.aligned and not isinstance(rule, ElementwiseRule)
    functions.constant("ALIGNED", int(aligned))
    unknown = [name for name in rule.parameters if name not in _PARAMETERS]
    if unknown:
        raise refusal("algorithm", "Agent", "have a rule whose parameters an agent knows", f"{unknown[0]!r} of it")
    step = tuple_of(_PARAMETERS[name] for name in rule.parameters)
    functions.add("step_of(alpha, trace, rho, gamma, reward, eta, trace_next)", f"return {step}")
    elementwise = isinstance(rule, ElementwiseRule)
    lazy = ", ".join(f"state[{i}][0]" if elementwise else f"state[{i}]" for i in range(4))
    row = "index, value, begin, end"
    functions.add(f"value_in(state, {row})", f"return value_of({lazy}, {row})")
    functions.add(f"fetch_value(state, {row})", f"return value_up_to_date({lazy}, {row})")
    arrays = ", ".join(f"state[{i}]" for i in range(11 if elementwise else 5))
    learns = f"learn_step({arrays}, index, value, index_next, value_next, step)"
    if known is not None and not elementwise:  # features and numbers that need no check
        learns = f"take_step({arrays}, step, index, value, 0, SLOTS, index_next, value_next, 0, len(index_next))[0]"
    if aligned:
        learns = f"take_aligned_step({arrays}, step, index, value, index_next, value_next)"
        _add_current(functions, Layout(rule))
        functions.add(
            "value_aligned(state, index, value, action)",
            f"return aligned_value({lazy}, index, value, action, ACTIONS)",
        )
    functions.add("learn_with(state, index, value, index_next, value_next, step)", f"return {learns}")
    if known is None:
        functions.add("count_actions(q)", "return q.shape[0]")
        functions.add("count_slots(index)", "return index.shape[-1]")
        functions.add("fixed(setting, place)", "return setting[place]")
        return
    functions.constant("ACTIONS", known.actions)
    functions.constant("SLOTS", known.slots)
    functions.add("count_actions(q)", "return ACTIONS")
    functions.add("count_slots(index)", "return SLOTS")
    cases = [f"if place == {name}:\n        return {value!r}" for name, value in known.numbers]
    functions.add("fixed(setting, place)", *cases, "return setting[place]")


def _add_current(functions: Functions, at: Layout) -> None:
    """``current``, ``refresh`` and ``add_current``."""
    u, w = functions.u, at.w
    h = [f"h{r}" for r in u.vectors]
    lines = [f"h{r} = np.float64(column['H{r}'])" for r in u.vectors]
    for j in u.traces:
        lines.append(f"s = np.uint64(column['E{j}'])")
        lines += [f"h{r} += table[{j - w}, s, {r}] * h{j}" for r in u.weights if j in at.takes[r]]
        lines.append(f"h{j} *= table[{j - w}, s, {w}]")
    stamps = [f"column['E{j}'] = e[{j - w}]" for j in u.traces]
    functions.add("current(column, table)", *lines, f"return {tuple_of(h)}")
    functions.add("refresh(column, e, table)", *lines, *(f"column['H{r}'] = h{r}" for r in u.vectors), *stamps)
    functions.add("add_current(sums, h, v)", f"return {tuple_of(f'sums[{r}] + h[{r}] * v' for r in u.vectors)}")


@functools.cache
def _module(rule: AnyRule, dtype: str, interpreted: bool) -> Any:
    functions, kernels = acting_functions(rule, dtype)
    return compiled.module(f"acting_{rule.name}_{dtype}", compiled.lean(compiled.compose(functions, *kernels)))


@functools.cache
def _kernel(rule: AnyRule, dtype: str, name: str, interpreted: bool) -> Any:
    f8, i8 = types.float64, types.int64
    flat, table, cube = (types.Array(f8, ndim, "C") for ndim in (1, 2, 3))
    indices, rows = types.Array(i8, 1, "C"), types.Array(i8, 2, "C")
    if isinstance(rule, ElementwiseRule):
        column = column_type(record(rule, dtype))
        lazy = (types.Array(column, 2, "C"), table, rows, types.Array(f8, 4, "C"))
        state = types.Tuple((*lazy, table, rows, indices, table, rows, cube, cube))  # type: ignore[no-untyped-call]
    else:
        column = column_type(Layout(rule).fields(dtype))
        state = types.Tuple((types.Array(column, 1, "C"), flat, indices, cube, table))  # type: ignore[no-untyped-call]
    work = (rows, table, indices, flat, flat)
    signature = {
        "begin": (state, flat, flat, flat, *work, flat, flat, f8),
        "act": (state, flat, flat, flat, *work, flat, flat, f8, f8, types.boolean, types.boolean),
        "appraise": (state, flat, *work),
    }
    return compiled.direct(compiled.kernel(_module(rule, dtype, interpreted), name, *signature[name]))


class ActingKernels:
    """The kernels of one engine's rule, and the state that they take."""

    def __init__(self, engine: Engine) -> None:
        assert isinstance(engine, Sparse | SparseElementwise)
        self._engine = engine
        kernel = functools.partial(_kernel, engine.rule, engine.dtype)
        self.begin, self.act, self.appraise = (
            kernel(name, compiled.interpreted()) for name in ("begin", "act", "appraise")
        )

    def state(self, slots: int) -> tuple[NDArray[Any], ...]:
        """The engine's arrays, with room for so many active features in a step; they hold as long as these suffice."""
        engine = self._engine
        if isinstance(engine, SparseElementwise):
            engine.make_room(slots)
            return engine.arrays
        return engine.arrays
