"""How good intervals are: the share of returns inside, and a score that rewards narrow ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emphatic.scores.measures import finite

__all__ = ["IntervalScores"]

Array = NDArray[np.float64]


class IntervalScores:
    """Scores of the intervals of Q questions from row ``first`` on; blocks of rows come in order, only sums are kept.

    The interval score of a return G with the interval [l, u], of which a share α is to be missed, is

        u − l + 2/α (l − G)⁺ + 2/α (G − u)⁺

    in the unit of G: less is better, and it is least, in the mean, at the α/2 and 1 − α/2 quantiles (Winkler 1972;
    Gneiting & Raftery 2007, section 6.2).

    >>> scores = IntervalScores(1, 0, 0.8)
    >>> G = np.array([[1.0, 2.0, 5.0, 3.0]])
    >>> scores.add(0, np.zeros((4, 1)), np.full((4, 1), 4.0), G, np.array([[True, True, True, False]]))
    >>> scores.scores()
    [{'coverage': 0.6666666666666666, 'interval_score': 7.333333333333333}]
    """

    def __init__(self, Q: int, first: int, coverage: float) -> None:
        self._first, self._penalty = first, 2.0 / (1.0 - coverage)
        self._rows, self._inside, self._total = np.zeros(Q, np.int64), np.zeros(Q, np.int64), np.zeros(Q)

    def add(self, start: int, low: Array, high: Array, G: Array, known: NDArray[np.bool_]) -> None:
        """The next B rows, from ``start`` on: ends (B, Q), NaN where there is none; returns, where known, (Q, B)."""
        some = slice(max(0, self._first - start), None)
        l, u, g = low[some].T, high[some].T, G[:, some]
        use = known[:, some] & ~np.isnan(l)
        with np.errstate(over="ignore", invalid="ignore"):
            missed = np.maximum(l - g, 0.0) + np.maximum(g - u, 0.0)
            score = np.where(use, u - l + self._penalty * missed, 0.0)
        self._rows += use.sum(axis=1)
        self._inside += (use & (l <= g) & (g <= u)).sum(axis=1)
        self._total += score.sum(axis=1)

    def scores(self) -> list[dict[str, float | None]]:
        """The share inside and the mean score of each question; None where no return is known."""
        each = zip(self._rows.tolist(), self._inside.tolist(), self._total.tolist(), strict=True)
        return [
            {"coverage": inside / rows, "interval_score": finite(total / rows)}
            if rows
            else {"coverage": None, "interval_score": None}
            for rows, inside, total in each
        ]
