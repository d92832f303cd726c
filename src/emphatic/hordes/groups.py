"""Questions with different features: several groups that act as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.features.plan import FeatureColumns
from emphatic.hordes.group import Group
from emphatic.learning.active import Active
from emphatic.questions.evaluator import Targets

__all__ = ["Groups"]

Array = NDArray[np.float64]


class Groups:
    """Several groups that act as one, with answers in the order of the questions."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = tuple(groups)
        self._Q = sum(len(group.questions) for group in groups)

    @property
    def phi(self) -> Active | None:
        """φ of the last row in the first group; None after a cut."""
        return self.groups[0].phi

    def columns(
        self, held: Array, missing: NDArray[np.bool_], time: Any, labels: Mapping[str, Any]
    ) -> list[FeatureColumns]:
        """The columns of each group, all checked before any group learns."""
        return [group.columns(held, missing, time, labels) for group in self.groups]

    def rows(
        self,
        columns: Sequence[FeatureColumns],
        targets: Targets,
        gap: NDArray[np.bool_],
        follows: NDArray[np.bool_],
        learn: bool,
    ) -> Array:
        """As of a group."""
        out = np.empty((len(gap), self._Q))
        for group, own in zip(self.groups, columns, strict=True):
            out[:, group.questions] = group.rows(own, targets.of(group.questions), gap, follows, learn)
        return out

    def begin(self, columns: Sequence[FeatureColumns], x: Array) -> Array:
        """As of a group."""
        each = zip(self.groups, columns, strict=True)
        return self._joined([group.begin(own, x[:, group.questions]) for group, own in each])

    def step(
        self, columns: Sequence[FeatureColumns], targets: Targets, terminated: bool, predict: bool
    ) -> Array | None:
        """As of a group."""
        each = zip(self.groups, columns, strict=True)
        answers = [group.step(own, targets.of(group.questions), terminated, predict) for group, own in each]
        return self._joined(answers) if predict else None

    def catch_up(self) -> None:
        """As of a group."""
        for group in self.groups:
            group.catch_up()

    def cut(self) -> None:
        """As of a group."""
        for group in self.groups:
            group.cut()

    def _joined(self, answers: Sequence[Array | None]) -> Array:
        out = np.empty(self._Q)
        for group, own in zip(self.groups, answers, strict=True):
            out[group.questions] = own
        return out
