"""The change of a signal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from emphatic.features.plan import CHANGE
from emphatic.features.sources._smoothed import Smoothed

__all__ = ["Change"]


@dataclass(frozen=True, repr=False)
class Change(Smoothed):
    """How far a signal x is from its trace z of the step before: x_t − z_{t−1}.

    With ``steps=1`` that is x_t − x_{t−1}. It is not known, and no feature of it is active, at the first reading and
    where a reading is missing.
    """

    op: ClassVar[int] = CHANGE
