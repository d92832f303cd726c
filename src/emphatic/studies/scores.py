"""What a horde of settings scored in one run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scores"]

#: An error so many times as large as at first is that of a learner that diverges.
_BEYOND = 1e6


class Scores(NamedTuple):
    """Of K learners: the error over all steps and at the end, (K,); at chosen points, (K, P); and who diverged.

    Whose weights would no longer have been finite has an infinite error from there on, and so over all steps. He has
    diverged, and so has everyone whose error came to a million times that of the first weights.
    """

    mean: NDArray[np.float64]
    final: NDArray[np.float64]
    curve: NDArray[np.float32]
    diverged: NDArray[np.bool_]

    @classmethod
    def of(
        cls, mean: NDArray[np.float64], final: NDArray[np.float64], curve: NDArray[np.float64],
        frozen: NDArray[np.bool_], first: float,
    ) -> Scores:  # fmt: skip
        """From errors, of which the curve (P, K) is infinite where it should be; ``first`` is the error at first."""
        mean, final = (np.where(frozen, np.inf, error) for error in (mean, final))
        most = _BEYOND * (first or 1.0)
        with np.errstate(over="ignore"):
            return cls(mean, final, curve.T.astype(np.float32), ~((mean <= most) & (final <= most)))
