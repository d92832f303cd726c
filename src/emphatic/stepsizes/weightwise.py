"""A step size for each weight: the base of all such methods.

The rules that they apply to, td, true_online_td, etd and true_online_etd, are one algorithm with two switches:

    F ← ρ⁻γF + I;  M = λI + (1−λ)F          (M = I without ``emphatic``)
    c = ργλ;  k = ρM;  b_i = k α_i φ_i
    e_i ← c e_i + b_i(1 − c e·φ)             (without the bracket unless ``online``)
    Δ_i = δe_i + D(e_i − b_i)                 (D = 0 unless ``online``)
    θ_i ← θ_i + Δ_i

Traces hold their step sizes, so that inactive components move by scalars: where α_i changes, e_i changes with it. The
``alpha`` of a step multiplies all α_i; as in the rules themselves, it is in the trace if ``online`` and outside it if
not. A method fits these rules by α_i → ρMα_i and γλ → ργλ in whatever it was published for.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from emphatic.rules import AnyRule, ElementwiseRule, get
from emphatic.stepsizes.method import StepSize, check_number

__all__ = ["WeightwiseRule", "WeightwiseStepSize", "rule_fields"]

_FINITE = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class WeightwiseRule(ElementwiseRule):
    """A rule whose step sizes, one for each weight, are set by a method."""

    of: AnyRule | None = None
    kind: type[WeightwiseStepSize] | None = None

    @property
    def base(self) -> Any:
        return self.of

    @property
    def stepsize(self) -> dict[str, str]:
        assert self.kind is not None
        return {"name": self.kind.name}

    @property
    def set_from_outside(self) -> tuple[str, ...]:
        assert self.kind is not None
        return ("alphas",) if self.kind.vectors is WeightwiseStepSize.vectors else self.vectors

    def __reduce__(self) -> Any:
        return make_rule, (self.of, self.kind)


@functools.cache
def make_rule(base: AnyRule, kind: type[WeightwiseStepSize]) -> WeightwiseRule:
    """The base rule with its step sizes set by a method of this kind."""
    if base.name not in kind.fits or base != get(base.name):  # (an own rule may have the name of another)
        known, namesake = ", ".join(kind.fits), "another rule of the name " * (base.name in kind.fits)
        raise ValueError(
            f"The 'stepsize' parameter {kind.name!r} is for the rules {known} of the library. "
            f"Got {namesake}{base.name!r} instead."
        )
    names = kind.options_in_memory or [field.name for field in fields(kind)]
    options = tuple(f"stepsize_{name}" for name in names)
    return WeightwiseRule(
        f"{base.name} with {kind.name}",
        memory=("gamma", "F", "D", *options),
        lasting=options,
        change="D",
        paper=kind.paper,
        emphasis=base.emphasis,
        fixed_point=base.fixed_point,
        of=base,
        kind=kind,
        **kind.build(float("etd" in base.name), float(base.name.startswith("true_online"))),
    )


def rule_fields(*functions: Callable[..., Any], **names: object) -> dict[str, Any]:
    """The fields of an elementwise rule: its functions, each under its own name, and the names of its vectors."""
    return {function.__name__: function for function in functions} | names


@dataclass(frozen=True, eq=False)
class WeightwiseStepSize(StepSize):
    """A method that sets a step size for each weight; all begin at ``alpha``."""

    #: The rules that it applies to; its source; its options in the rule's memory, where they are not the fields.
    fits: ClassVar[tuple[str, ...]] = ("td", "true_online_td", "etd", "true_online_etd")
    paper: ClassVar[str] = ""
    options_in_memory: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    @abstractmethod
    def build(emphatic: float, online: float) -> dict[str, Any]:
        """The fields of the rule that the method makes of one of the rules that it fits.

        Args:
            emphatic: 1 for a rule with emphasis, else 0.
            online: 1 for a true online rule, else 0.
        """

    def rule(self, base: AnyRule) -> AnyRule:
        return make_rule(base, type(self))

    def vectors(self) -> dict[str, Any]:
        return {"alphas": getattr(self, "alpha")}  # noqa: B009

    def check(self, *, positive: tuple[str, ...] = ("alpha",), not_negative: tuple[str, ...] = ()) -> None:
        """Check that these options are in their range, and finite."""
        for name in positive:
            check_number(self, name, 0.0, _FINITE, "greater than 0 and finite")
        for name in not_negative:
            check_number(self, name, -np.nextafter(0.0, 1.0), _FINITE, "0 or more, and finite")
