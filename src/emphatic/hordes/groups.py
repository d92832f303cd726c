"""Questions with features of their own: several groups as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emphatic.hordes.group import Group
from emphatic.hordes.reading import FeatureInputs
from emphatic.learning.active import Active
from emphatic.questions.evaluator import Targets

__all__ = ["Groups"]

Array = NDArray[np.float64]


class Groups:
    """Several groups as one, whose answers are in the order of the questions."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = tuple(groups)
        self._Q = sum(len(group.questions) for group in groups)

    @property
    def phi(self) -> Active | None:
        """φ of the last row in the first group; None after a cut."""
        return self.groups[0].phi

    def rows(
        self, readings: FeatureInputs, targets: Targets, gap: NDArray[np.bool_], follows: NDArray[np.bool_], learn: bool
    ) -> Array:
        """As of a group."""
        self.check(readings)
        out = np.empty((len(gap), self._Q))
        for group in self.groups:
            out[:, group.questions] = group.rows(readings, targets.of(group.questions), gap, follows, learn)
        return out

    def begin(self, readings: FeatureInputs, x: Array) -> Array:
        """As of a group."""
        self.check(readings)
        return self._joined([group.begin(readings, x[:, group.questions]) for group in self.groups])

    def step(self, readings: FeatureInputs, targets: Targets, terminated: bool, predict: bool) -> Array | None:
        """As of a group."""
        self.check(readings)
        each = [group.step(readings, targets.of(group.questions), terminated, predict) for group in self.groups]
        return self._joined(each) if predict else None

    def catch_up(self) -> None:
        """As of a group."""
        for group in self.groups:
            group.catch_up()

    def cut(self) -> None:
        """As of a group."""
        for group in self.groups:
            group.cut()

    def check(self, readings: FeatureInputs) -> None:
        """What any group refuses is refused before another has learned."""
        for group in self.groups:
            group.check(readings)

    def _joined(self, answers: Sequence[Array | None]) -> Array:
        out = np.empty(self._Q)
        for group, own in zip(self.groups, answers, strict=True):
            out[group.questions] = own
        return out
