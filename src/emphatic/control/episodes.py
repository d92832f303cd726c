"""Whole episodes of an agent in a compiled world of ``emphatic.problems``, in one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from emphatic import problems
from emphatic.control.observers import MakerObserver, Observer, TableObserver
from emphatic.engines import compiled
from emphatic.engines.sparse.acting import SETTINGS, Known, acting_functions, state_type
from emphatic.features.plan import EXACT
from emphatic.problems import World
from emphatic.problems.control import table_types
from emphatic.rules import AnyRule, ElementwiseRule

__all__ = ["WORLDS", "episode_kernel", "episode_plan"]

#: The control problems by name.
WORLDS: dict[str, Callable[..., World]] = {
    "mountain_car": problems.MountainCar,
    "acrobot": problems.Acrobot,
    "puddle_world": problems.PuddleWorld,
    "windy_gridworld": lambda king=False, **options: problems.Environment(
        problems.windy_gridworld(king=king), **options
    ),
    "cliff_walking": lambda **options: problems.Environment(problems.cliff_walking(), **options),
    "access_control": lambda **options: problems.Environment(problems.access_control(), **options),
}
#: The worlds whose steps the kernel knows; classes that are derived from them may do something else.
_COMPILED = (problems.Environment, problems.MountainCar, problems.Acrobot, problems.PuddleWorld)
#: What the kernel is compiled for, of an agent's numbers.
_FIXED = ("N", "SIGMA", "NEXT", "RATIO", "CUTS", "GREEDY", "SOFTMAX", "KIND")
#: The types and dimensions of ``Features.constant_arguments``.
_PLAN = (
    *(("f8", 1), ("i8", 2), ("f8", 2), ("i8", 2), ("f8", 1), ("i8", 2), ("i8", 2), ("f8", 2), ("i8", 1)),
    *(("f8", 1), ("f8", 1), ("f8", 2), ("i8", 2), ("i8", 2), ("f8", 2), ("f8", 1)),
)
#: The plan where states are observed: there is nothing to activate.
_NO_PLAN = tuple(np.zeros((0,) * ndim, dtype) for dtype, ndim in _PLAN)

# ----------------------------------------------------------- what the kernels call, besides the rule's functions

#: The number of the world, and how many readings are tile-coded where that is all that features are; else 0.
WORLD: int
DIMENSIONS: int
#: Places in ``progress``: episodes done, whether the next decision begins one, whether the learner would diverge.
DONE, STARTS, DIVERGED = range(3)
#: (state): forget the traces.
forget_traces: Callable[..., None]


def episode_plan(observer: Observer, actions: Sequence[object], world: object) -> tuple[NDArray[Any], ...] | None:
    """What ``activate`` takes between readings and results; None where episodes cannot be compiled.

    Args:
        observer: Observes the world for an agent.
        actions: The agent's actions.
        world: Its environment.
    """
    if type(world) not in _COMPILED or not isinstance(world, World) or tuple(actions) != tuple(range(world.actions)):
        return None
    if isinstance(observer, TableObserver):
        states = (len(world.tables[0]) - 2) // world.actions
        return _NO_PLAN if not world.ranges and observer.n >= states else None
    if not isinstance(observer, MakerObserver) or not world.ranges:
        return None
    observer.prepare(np.zeros(len(world.ranges)))
    return observer.maker.constant_arguments() if len(observer.maker.signals) == len(world.ranges) else None


def episode_kernel(
    rule: AnyRule, dtype: str, slots: int, setting: NDArray[np.float64], world: World, plan: tuple[NDArray[Any], ...]
) -> Any:
    """The kernel of whole episodes of an agent in a world.

    Args:
        rule: The rule of the agent's learner.
        dtype: The numbers that it learns in.
        slots: The active features of an observation, at most.
        setting: The numbers of the agent, in the order of ``SETTINGS``.
        world: The world.
        plan: Its ``episode_plan``.
    """
    numbers = dict(zip(SETTINGS, setting.tolist(), strict=False))
    known = Known(world.actions, slots, tuple((name, numbers[name]) for name in _FIXED))
    return _kernel(rule, dtype, known, world.number, _dimensions(plan), compiled.interpreted())


def _dimensions(plan: tuple[NDArray[Any], ...]) -> int:
    """How many readings are tile-coded, where features are one exact tile coding with even knots; else 0."""
    unit = plan[6]  # (op, first slot, first feature, first member, members, …)
    if len(unit) != 1 or unit[0, 0] != EXACT:
        return 0
    for _, start, count in plan[5][:, :3].tolist():
        gaps = np.diff(plan[10][start : start + count])
        if gaps.max() > (1.0 + 1e-6) * gaps.min():
            return 0
    return int(unit[0, 4])


@functools.cache
def _kernel(rule: AnyRule, dtype: str, known: Known, world: int, dimensions: int, interpreted: bool) -> Any:
    """``run`` of ``episode_kernels``, for this rule and world."""
    from emphatic.features import kernels as of_features

    if isinstance(of_features.activate, compiled.LazyKernel) and not interpreted:
        of_features.activate.compile()  # a kernel calls what is compiled
    functions, kernels = acting_functions(rule, dtype, known)
    functions.constant("WORLD", world)
    functions.constant("DIMENSIONS", dimensions)
    for name, number in (("DONE", DONE), ("STARTS", STARTS), ("DIVERGED", DIVERGED)):
        functions.constant(name, number)
    if isinstance(rule, ElementwiseRule):
        forget = [
            "settle(state[0][0], state[1][0], state[2][0], state[3][0])",
            "for i in range(state[0].shape[1]):",
            *(f"    state[0][0, i]['H{j}'] = 0.0" for j in functions.u.traces),
            "    state[0][0, i]['Q'] = 0",
            "state[6][0] = 0",
        ]
    else:
        forget = ["forget(state[0], state[1], state[2], state[3])"]
    forget += ["for i in range(FORGOTTEN):", "    state[4][0, i] = 0.0"]
    forget_traces = "\n    ".join(["@small\ndef forget_traces(state):", *forget])
    # the machine code of ``activate`` is linked in: its module's name is a hash of its source
    activate = f"from emphatic.features.kernels import activate  # {of_features.activate.__module__}\n"
    sources = [compiled.source_of(f"emphatic.{name}") for name in ("problems.worlds", "control.episode_kernels")]
    text = compiled.lean("\n\n".join([compiled.compose(functions, *kernels), forget_traces, activate, *sources]))
    module = compiled.module(f"episodes_{rule.name}_{dtype}", text)

    def array(kind: types.Type, ndim: int) -> types.Type:
        return types.Array(kind, ndim, "C")

    f8, i8, words = types.float64, types.int64, array(types.uint64, 1)
    flat, counts = array(f8, 1), array(i8, 1)
    work = (array(i8, 2), array(f8, 2), counts, flat, flat, flat, flat)
    plan = types.Tuple([array(f8 if kind == "f8" else i8, ndim) for kind, ndim in _PLAN])  # type: ignore[no-untyped-call]
    signature = (
        *(state_type(rule, dtype), flat, flat, *work, table_types(), flat, words),
        *(words, array(f8, 2), plan, i8, types.boolean, i8, counts, flat, counts),
    )
    return compiled.direct(compiled.kernel(module, "run", *signature))
