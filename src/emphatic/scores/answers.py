"""The answers to a question that need no learning: the present reading, and its trace over the horizon.

Both the online blend (``emphatic.hordes.blend``) and the offline fit use them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["PlainAnswers"]


class PlainAnswers:
    """Those of C signals at H horizons, one block of rows after the other."""

    def __init__(self, gammas: ArrayLike, C: int) -> None:
        self._gammas = [float(gamma) for gamma in np.asarray(gammas, np.float64)]
        self._traces = np.full((C * len(self._gammas), 1), np.nan)

    def __call__(self, held: NDArray[np.float64]) -> NDArray[np.float64]:
        """(2, Q, B) of the next rows (B, C), in which the last reading is held where one is missing."""
        from emphatic.scores import kernels

        H = len(self._gammas)
        answers = np.empty((2, len(self._traces), len(held)))
        for q, state in enumerate(self._traces):
            x = np.ascontiguousarray(held[:, q // H], np.float64)
            answers[0, q] = x
            kernels.forward(x, self._gammas[q % H], state, answers[1, q])
        return answers
