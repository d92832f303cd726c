"""Categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emphatic.features.parts._part import Part
from emphatic.features.plan import CODE, FeaturePlan, Unit
from emphatic.features.readings import CheckedReadings, is_missing
from emphatic.features.records import is_number
from emphatic.learning.inputs import refusal

__all__ = ["OneHot"]


@dataclass(frozen=True, repr=False)
class OneHot(Part):
    """One feature for each of the ``categories``, given or found by the warm-up, and one for any other.

    Of a signal or of a label. None is active where the value is missing (None or NaN).
    """

    kind: ClassVar[str] = "one_hot"
    of: str
    categories: Sequence[str | float] | None = field(default=None, kw_only=True)

    def check(self) -> None:
        if not isinstance(self.of, str):
            raise refusal("of", "OneHot", "be the name of one signal or label", repr(self.of))
        if self.categories is not None:
            given = self.categories if isinstance(self.categories, tuple) else ()
            plain = all(isinstance(c, str | bool) or is_number(c) for c in given)
            if not given or not plain or len(set(given)) < len(given):
                wants = "be a list of different strings or finite numbers"
                raise refusal("categories", "OneHot", wants, repr(self.categories))

    def found_under(self) -> str:
        return self.of

    def find(self, rows: CheckedReadings) -> list[Any]:
        return list(self.categories or rows.categories(self.of))

    def units(self, plan: FeaturePlan) -> list[Unit]:
        categories = plan.found[self.of]
        numbers = {category: i for i, category in enumerate(categories)}
        other = len(numbers)

        def codes(rows: CheckedReadings) -> NDArray[np.int64]:
            column = rows.column(self.of)
            return np.array([[-1 if is_missing(c) else numbers.get(c, other)] for c in column], np.int64).reshape(-1, 1)

        names = [f"{self.of} = {category}" for category in (*categories, "other")]
        return [Unit(CODE, lambda knots: names, (plan.code(1, codes),), size=len(categories) + 1)]
