"""Least squares as a rule of a sweep: no step size, but a ridge and a factor of forgetting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from emphatic.rules._traits import RuleTraits

__all__ = ["LEAST_SQUARES", "LeastSquaresRule"]


@dataclass(frozen=True)
class LeastSquaresRule(RuleTraits):
    """What a sweep asks of a rule, of ``emphatic.LeastSquares``; ``emphasis`` is "gamma" for ELSTD(λ)."""

    name: str
    emphasis: Literal["", "gamma"] = ""
    weights: tuple[str, ...] = ("theta",)
    traces: tuple[str, ...] = ("e",)
    extra: tuple[str, ...] = ("ridge", "forgetting")
    uses: tuple[str, ...] = ("I", "lambda_", "rho", "gamma_next", "R")
    interest: bool = True
    action_values: bool = False
    defaults: Mapping[str, float] = field(default_factory=lambda: {"ridge": 1.0, "forgetting": 1.0}, hash=False)
    extra_ranges: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {"ridge": (math.ulp(0.0), math.inf), "forgetting": (math.ulp(0.0), 1.0)}, hash=False
    )

    @property
    def class_name(self) -> str:
        """The name that messages use."""
        return self.name.upper()


#: The rules of a sweep that are no step-by-step rules of ``emphatic.rules``.
LEAST_SQUARES = {"lstd": LeastSquaresRule("lstd"), "elstd": LeastSquaresRule("elstd", "gamma")}
