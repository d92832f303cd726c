"""The exponential trace of a signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from emphatic.features.plan import TRACE
from emphatic.features.sources._smoothed import Smoothed

__all__ = ["Trace"]


@dataclass(frozen=True, repr=False)
class Trace(Smoothed):
    """The exponential trace z of a signal x, an average of the past with a memory of about ``steps`` steps.

        z_t = z_{t−1} + (x_t − z_{t−1})/steps

    It starts at the first reading, and stays where a reading is missing. Several ``steps`` make a trace each.

    >>> Trace("*", steps=[4, 16])
    Trace('*', steps=[4, 16])
    """

    op: ClassVar[int] = TRACE
    steps: float | Sequence[float] = field(kw_only=True)
