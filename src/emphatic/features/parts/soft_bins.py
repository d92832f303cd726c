"""Overlapping triangles over a range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from emphatic.features.parts._scaled import ScaledPart
from emphatic.features.plan import SOFT, FeaturePlan, Unit
from emphatic.features.readings import Array
from emphatic.features.records import check_at_least_two

__all__ = ["SoftBins"]


@dataclass(frozen=True, repr=False)
class SoftBins(ScaledPart):
    """``bins`` overlapping triangles: a value between two centres makes both active, by 1−w and w.

    w is the relative distance from the first centre, so that predictions are linear between centres. With
    ``spacing="equal"`` the centres are equally far apart; with "quantile" each lies half-way between that place and
    the corresponding quantile of the warm-up's readings.
    """

    kind: ClassVar[str] = "soft_bins"
    bins: int = field(default=20, kw_only=True)

    def check(self) -> None:
        super().check()
        check_at_least_two("bins", self.bins, "SoftBins")

    def units(self, plan: FeaturePlan) -> list[Unit]:
        scales = self.scales(plan, self.bins)
        return [Unit(SOFT, _names(source), (scale,), size=self.bins) for scale, source in scales]


def _names(source: str) -> Callable[[Sequence[Array]], Iterable[str]]:
    return lambda knots: (f"{source} ≈ {centre:.6g}" for centre in knots[0])
