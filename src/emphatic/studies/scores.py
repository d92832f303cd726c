"""The scores of a horde of settings in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scores"]

#: An error so many times as large as the usual one is that of a learner that diverges.
_BEYOND = 1e6


class Scores(NamedTuple):
    """Of K learners: the error over all steps and at the end, (K,); at chosen points, (K, P); and which diverged.

    A learner whose weights would no longer have been finite has an infinite error from there on, and so over all steps.
    It has diverged, and so has every learner whose error, over all steps or at the end, is more than a million times as
    large as that of the first weights and that of θ = 0.
    """

    mean: NDArray[np.float64]
    final: NDArray[np.float64]
    curve: NDArray[np.float32]
    diverged: NDArray[np.bool_]

    @classmethod
    def of(
        cls, mean: NDArray[np.float64], final: NDArray[np.float64], curve: NDArray[np.float64],
        frozen: NDArray[np.bool_], usual: float,
    ) -> Scores:  # fmt: skip
        """From errors, of which the curve (P, K) is infinite where it should be; ``usual`` is one without learning."""
        mean, final = (np.where(frozen, np.inf, error) for error in (mean, final))
        most = _BEYOND * (usual or 1.0)
        with np.errstate(over="ignore"):
            return cls(mean, final, curve.T.astype(np.float32), ~((mean <= most) & (final <= most)))

    @classmethod
    def averaged(cls, tasks: Sequence[Scores]) -> Scores:
        """The mean over several tasks; a learner that diverged in one of them has diverged."""
        if len(tasks) == 1:
            return tasks[0]
        with np.errstate(over="ignore"):
            mean, final, curve = (np.mean([getattr(one, name) for one in tasks], axis=0) for name in cls._fields[:3])
        return cls(mean, final, curve, np.any([one.diverged for one in tasks], axis=0))
