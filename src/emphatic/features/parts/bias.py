"""A constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from emphatic.features.parts._part import Part
from emphatic.features.plan import CONSTANT, FeaturePlan, Unit

__all__ = ["Bias"]


@dataclass(frozen=True, repr=False)
class Bias(Part):
    """One feature that is always 1."""

    kind: ClassVar[str] = "bias"

    def units(self, plan: FeaturePlan) -> list[Unit]:
        return [Unit(CONSTANT, lambda knots: ["bias"])]
