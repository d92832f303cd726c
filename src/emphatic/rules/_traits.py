"""What both kinds of rules have in common."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from emphatic.rules._fields import RANGES, STEP

__all__ = ["RuleFields", "RuleTraits"]


class RuleTraits:
    """Names and ranges that follow from a rule's fields."""

    name: str
    weights: tuple[str, ...]
    traces: tuple[str, ...]
    extra: tuple[str, ...]
    extra_ranges: Mapping[str, tuple[float, float]]
    interest: bool
    action_values: bool
    form: Any

    @property
    def base(self) -> Any:
        """The rule itself, or the one whose step sizes a method sets."""
        return self

    @property
    def plain(self) -> Any:
        """The rule itself, or the one that ``separate`` made exact."""
        return self

    @property
    def stepsize(self) -> dict[str, str] | None:
        """A checkpoint's entry for the step-size method, if there is one."""
        return None

    @property
    def not_lazy_because(self) -> str:
        """Why each step has to visit every component of the vectors; "" where active ones are enough."""
        return ""

    @property
    def is_lazy(self) -> bool:
        """Whether components that are not active move by scalars alone: the sparse engine visits only active ones."""
        return not self.not_lazy_because

    @functools.cached_property
    def free_next(self) -> bool:
        """Whether φ' need not be φ of the next step: it is an expectation over actions, or a trace holds the last φ."""
        A, B = self.form
        traces = range(len(self.weights), len(self.vectors))
        return self.action_values or any(not any(entry != 0.0 for entry in A[r]) and B[r] == (1.0, 0.0) for r in traces)

    @functools.cached_property
    def vectors(self) -> tuple[str, ...]:
        """The rows of X: weights first, then traces."""
        return self.weights + self.traces

    @functools.cached_property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of a step: ``step``'s names with the cumulant R in place of δ."""
        return tuple("R" if name == "delta" else name for name in STEP) + self.extra

    @functools.cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The least and the largest value of each parameter."""
        ranges = {**RANGES, **self.extra_ranges}
        found = {name: ranges.get(name, (-math.inf, math.inf)) for name in self.parameters}
        return found if self.interest else found | {"I": (1.0, 1.0)}

    def __getstate__(self) -> dict[str, Any]:
        """The fields; derived values are computed again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class RuleFields(RuleTraits):
    """The keywords of both kinds of rules."""

    extra: tuple[str, ...] = ()
    defaults: Mapping[str, float | str] = field(default_factory=dict, hash=False)
    interest: bool = True
    paper: str = ""
    extra_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    emphasis: Literal["", "gamma", "decay"] = ""
    fixed_point: Literal["", "projected", "cut", "residual"] = ""
    action_values: bool = False
    update: str = ""
    change: str = ""
    lasting: tuple[str, ...] = ()
    continuing: bool = False
    ordered: tuple[str, ...] = ()

    @property
    def shared(self) -> dict[str, Any]:
        """The names of what it keeps, and its keywords, for a rule that is made from it."""
        names = ("weights", "traces", "memory", *(field.name for field in fields(RuleFields)))
        return {name: getattr(self, name) for name in names}
