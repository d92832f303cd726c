"""What a horde of settings scored in one run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scores"]


class Scores(NamedTuple):
    """Of K learners: the error over all steps and at the end, (K,); at chosen points, (K, P); and who diverged."""

    mean: NDArray[np.float64]
    final: NDArray[np.float64]
    curve: NDArray[np.float32]
    diverged: NDArray[np.bool_]
