"""How good intervals are: the share of returns inside, and a score that rewards narrow ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emphatic.scores.measures import finite

__all__ = ["IntervalScores"]

Array = NDArray[np.float64]


class IntervalScores:
    """Scores of the intervals of Q questions in the two halves of a log, from blocks of rows in order: sums only.

    The interval score of a return G with the interval [l, u], of which a share α is to be missed, is

        u − l + 2/α (l − G)⁺ + 2/α (G − u)⁺

    in the unit of G: less is better, and it is least, in the mean, at the α/2 and 1 − α/2 quantiles (Winkler 1972;
    Gneiting & Raftery 2007, section 6.2). ``half`` is the first row of the second half.

    >>> scores = IntervalScores(1, 0, 0.8)
    >>> G = np.array([[1.0, 2.0, 5.0, 3.0]])
    >>> scores.add(0, np.zeros((4, 1)), np.full((4, 1), 4.0), G, np.array([[True, True, True, False]]))
    >>> scores.second
    [{'coverage': 0.6666666666666666, 'interval_score': 7.333333333333333}]
    """

    def __init__(self, Q: int, half: int, coverage: float) -> None:
        self._half, self._penalty = half, 2.0 / (1.0 - coverage)
        self._rows, self._inside = np.zeros((2, Q), np.int64), np.zeros((2, Q), np.int64)
        self._total = np.zeros((2, Q))

    def add(self, start: int, low: Array, high: Array, G: Array, known: NDArray[np.bool_]) -> None:
        """The next B rows, from ``start`` on: the ends (B, Q), NaN where there is no interval, and returns (Q, B)."""
        low, high = low.T, high.T
        middle = min(max(self._half - start, 0), low.shape[1])
        for which, some in enumerate((slice(0, middle), slice(middle, None))):
            l, u, g = low[:, some], high[:, some], G[:, some]
            use = known[:, some] & ~np.isnan(l)
            with np.errstate(over="ignore", invalid="ignore"):
                missed = np.maximum(l - g, 0.0) + np.maximum(g - u, 0.0)
                score = np.where(use, u - l + self._penalty * missed, 0.0)
            self._rows[which] += use.sum(axis=1)
            self._inside[which] += (use & (l <= g) & (g <= u)).sum(axis=1)
            self._total[which] += score.sum(axis=1)

    @property
    def first(self) -> list[dict[str, float | None]]:
        """The coverage and mean score of each question in the first half; None where no return is known."""
        return self._of(0)

    @property
    def second(self) -> list[dict[str, float | None]]:
        """The same in the second half."""
        return self._of(1)

    def _of(self, which: int) -> list[dict[str, float | None]]:
        each = zip(*(part[which].tolist() for part in (self._rows, self._inside, self._total)), strict=True)
        return [
            {
                "coverage": inside / rows if rows else None,
                "interval_score": finite(total / rows) if rows else None,
            }
            for rows, inside, total in each
        ]
