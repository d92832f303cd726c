"""Many sparse φ in compressed rows: what the sparse engine reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rows", "block", "survey"]


@dataclass(eq=False, slots=True)
class Rows:
    """Row t has the features ``index[start[t]:start[t+1]]``, −1 being "none", with the ``value`` of each."""

    start: NDArray[np.int64]
    index: NDArray[np.int64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def indices(self) -> NDArray[np.int64]:
        """All indices; of one row, what ``Active`` calls so."""
        return self.index[self.start[0] : self.start[-1]]

    @property
    def values(self) -> NDArray[np.float64]:
        """The values of ``indices``."""
        return self.value[self.start[0] : self.start[-1]]

    def block(self, begin: int, end: int) -> Rows:
        """Rows begin … end−1, without a copy."""
        return Rows(self.start[begin : end + 1], self.index, self.value)

    def dense(self, n: int, dtype: Any) -> NDArray[Any]:
        """The same as an array (T, n)."""
        out = np.zeros((len(self), n), dtype)
        row = np.repeat(np.arange(len(self)), np.diff(self.start))
        active = (self.indices >= 0) & (self.indices < n)
        out[row[active], self.indices[active]] = self.values[active]
        return out

    @staticmethod
    def of(dense: NDArray[Any]) -> Rows:
        """The components of an array (T, n) that are not zero."""
        row, index = np.nonzero(dense)
        start = np.zeros(len(dense) + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=len(dense)), out=start[1:])
        return Rows(start, index.astype(np.int64), dense[row, index].astype(np.float64))


def survey(index: NDArray[np.int64], start: NDArray[np.int64]) -> tuple[int, bool, int]:
    """(row, repeated, index) of the first row with an index below −1 or repeated.

    (−1, False, the largest index) if there is none.
    """
    from emphatic.engines import scan

    return scan.survey(index, start)


def block(features: NDArray[Any] | Rows, begin: int, end: int) -> NDArray[Any] | Rows:
    """The features of these steps, without a copy."""
    return features.block(begin, end) if isinstance(features, Rows) else features[begin:end]
