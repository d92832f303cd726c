"""Missing readings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from emphatic.features.parts._part import Part
from emphatic.features.plan import CODE, FeaturePlan, Unit
from emphatic.features.records import check_names
from emphatic.features.sources import Names

__all__ = ["Missing"]


@dataclass(frozen=True, repr=False)
class Missing(Part):
    """A feature for each signal that is 1 where the reading is missing."""

    kind: ClassVar[str] = "missing"
    of: Names

    def check(self) -> None:
        check_names(self.of, "Missing")

    def units(self, plan: FeaturePlan) -> list[Unit]:
        columns = np.array(plan.columns(self.of))
        first = plan.code(len(columns), lambda rows: np.where(rows.missing[:, columns], 0, -1))
        return [Unit(CODE, _name(plan.names[c]), (first + i,), norm=0.0) for i, c in enumerate(columns)]


def _name(signal: str) -> Callable[[Any], list[str]]:
    return lambda knots: [f"{signal} missing"]
