"""Compiles ``acting_kernels`` for the rule of a sparse engine with one learner: linear rules and elementwise ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic.engines import compiled
from emphatic.engines.sparse import Layout, Sparse, column_type, functions_for
from emphatic.engines.sparse.elementwise_sparse import SparseElementwise, elementwise_functions, record
from emphatic.engines.unrolled import Functions, tuple_of
from emphatic.rules import ElementwiseRule

if TYPE_CHECKING:
    from emphatic.engines.base import Engine
    from emphatic.rules import AnyRule, Scalars

__all__ = ["SETTINGS", "STATUS", "TIES", "ActingKernels", "Known", "acting_functions", "brought_by_steps"]
__all__ += ["state_type"]

#: Places of an agent's numbers in ``setting``; the rule's extra parameters follow, in their order.
SETTINGS: tuple[str, ...] = (
    *("N", "ALPHA", "GAMMA", "LAMBDA", "SIGMA", "NEXT", "RATIO", "CUTS", "GREEDY"),
    *("SOFTMAX", "KIND", "START", "END", "STEPS"),
)
#: Places of what an agent remembers in ``status``.
STATUS = ("ACTION", "PI", "MU", "IS_GREEDY", "DECISIONS", "DELTA")
#: Action values are tied where they differ by less than this part of the largest, or by less than this near 0.
TIES = 1e-10

# ----------------------------------------------------------- what the kernels call, besides the rule's functions

N = ALPHA = GAMMA = LAMBDA = SIGMA = NEXT = RATIO = CUTS = GREEDY = SOFTMAX = KIND = START = END = STEPS = 0
ACTION = PI = MU = IS_GREEDY = DECISIONS = DELTA = 0
#: (state, index, value, begin, end) → θ·φ; and the same, with the columns of φ up to date then.
value_in: Callable[..., float]
fetch_value: Callable[..., float]
#: (state, index, value, index_next, value_next, begin, end, step) → δ, or NaN where the step was refused.
learn_with: Callable[..., float]
#: (setting, status, lambda, rho, gamma_next, R) → the parameters of a step.
step_of: Callable[..., Scalars]
#: (q) → the number of actions, and (index) → that of the active features of a state.
count_actions: Callable[[NDArray[np.float64]], int]
count_slots: Callable[[NDArray[np.int64]], int]
#: (setting, place) → what the algorithm has there.
fixed: Callable[[NDArray[np.float64], int], float]

#: What a step of an agent brings, by the names of a rule's parameters: those of the last action.
_OF_STEPS = {"rho": "rho", "gamma_next": "gamma", "R": "reward", "pi": "status[PI]", "mu": "status[MU]"}


def brought_by_steps(rule: AnyRule) -> dict[str, str]:
    """The extra parameters of a rule that each step brings, and what they are there; all others are constant."""
    brought = dict(_OF_STEPS)
    for name in rule.extra:
        source = str(rule.defaults.get(name))
        if name not in brought and source in brought:
            brought[name] = brought[source]
    return {name: brought[name] for name in rule.extra if name in brought}


class Known(NamedTuple):
    """What a kernel is compiled for besides the rule: the compiler then knows how long the short loops are.

    Args:
        actions: The number of actions.
        slots: The number of active features of a state.
        numbers: What ``setting`` has at some of its places.
    """

    actions: int
    slots: int
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
    parameters = {"alpha": "setting[ALPHA]", "I": "1.0", "lambda_": "trace"} | _OF_STEPS
    parameters |= {name: f"setting[{len(SETTINGS) + i}]" for i, name in enumerate(rule.extra)} | brought_by_steps(rule)
    step = tuple_of(parameters[name] for name in rule.parameters)
    functions.add("step_of(setting, status, trace, rho, gamma, reward)", f"return {step}")
    elementwise = isinstance(rule, ElementwiseRule)
    lazy = ", ".join(f"state[{i}][0]" if elementwise else f"state[{i}]" for i in range(4))
    row = "index, value, begin, end"
    functions.add(f"value_in(state, {row})", f"return value_of({lazy}, {row})")
    functions.add(f"fetch_value(state, {row})", f"return value_up_to_date({lazy}, {row})")
    arrays = ", ".join(f"state[{i}]" for i in range(11 if elementwise else 5))
    learns = f"learn_step({arrays}, index, value, index_next[begin:end], value_next[begin:end], step)"
    if known is not None and not elementwise:  # features and numbers that need no check
        learns = f"take_step({arrays}, step, index, value, 0, SLOTS, index_next, value_next, begin, end)[0]"
    functions.add("learn_with(state, index, value, index_next, value_next, begin, end, step)", f"return {learns}")
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


@functools.cache
def _module(rule: AnyRule, dtype: str, interpreted: bool) -> Any:
    functions, kernels = acting_functions(rule, dtype)
    return compiled.module(f"acting_{rule.name}_{dtype}", compiled.lean(compiled.compose(functions, *kernels)))


def state_type(rule: AnyRule, dtype: str) -> Any:
    """The type of ``state`` in kernels: of the arrays of a sparse engine."""
    f8, i8 = types.float64, types.int64
    flat, table, cube = (types.Array(f8, ndim, "C") for ndim in (1, 2, 3))
    indices, rows = types.Array(i8, 1, "C"), types.Array(i8, 2, "C")
    if isinstance(rule, ElementwiseRule):
        column = column_type(record(rule, dtype))
        lazy = (types.Array(column, 2, "C"), table, rows, types.Array(f8, 4, "C"))
        return types.Tuple((*lazy, table, rows, indices, table, rows, cube, cube))  # type: ignore[no-untyped-call]
    column = column_type(Layout(rule).fields(dtype))
    return types.Tuple((types.Array(column, 1, "C"), flat, indices, cube, table))  # type: ignore[no-untyped-call]


@functools.cache
def _kernel(rule: AnyRule, dtype: str, name: str, interpreted: bool) -> Any:
    f8, i8 = types.float64, types.int64
    flat, table = (types.Array(f8, ndim, "C") for ndim in (1, 2))
    indices, rows = types.Array(i8, 1, "C"), types.Array(i8, 2, "C")
    state = state_type(rule, dtype)
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

    @functools.cached_property
    def begin(self) -> Any:
        """Compiled when it is first called, as what follows: an agent that runs whole episodes calls none of them."""
        return self._kernel("begin")

    @functools.cached_property
    def act(self) -> Any:
        return self._kernel("act")

    @functools.cached_property
    def appraise(self) -> Any:
        return self._kernel("appraise")

    def _kernel(self, name: str) -> Any:
        return _kernel(self._engine.rule, self._engine.dtype, name, compiled.interpreted())

    def state(self, slots: int) -> tuple[NDArray[Any], ...]:
        """The engine's arrays, with room for so many active features in a step; they hold as long as these suffice."""
        engine = self._engine
        if isinstance(engine, SparseElementwise):
            engine.make_room(slots)
            return engine.arrays
        return engine.arrays
