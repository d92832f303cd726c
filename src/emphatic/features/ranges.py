"""Where the knots of a scale lie: over a given range, or over what a warm-up saw."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emphatic.features.plan import Scale
from emphatic.learning.inputs import refusal

__all__ = ["find_knots"]

#: The share of the warm-up left out at either end, and how much wider the range is made then, by its own width.
TAIL, MARGIN = 0.005, 0.05


def find_knots(scale: Scale, seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """Increasing knots: equally spaced, or half-way from there to the quantiles of what was seen.

    Half-way, so that they differ even where most readings are equal, and no two are far apart.
    """
    finite = np.clip(seen[np.isfinite(seen)], -1e300, 1e300)
    if scale.range is None and not len(seen):
        raise refusal("values", "warm_up", "have rows where a range is to be found", "none")
    low, high = scale.range or _range(finite)
    equal = np.linspace(low, high, scale.knots)
    if not (np.diff(equal) > 0).all():
        raise refusal("range", "a part", f"be wide enough for {scale.knots} different knots", repr(scale.range))
    if scale.spacing == "equal" or not len(finite):
        return equal
    quantiles = np.quantile(np.clip(finite, low, high), np.linspace(0.0, 1.0, scale.knots))
    quantiles[0], quantiles[-1] = low, high
    return 0.5 * equal + 0.5 * quantiles


def _range(finite: NDArray[np.float64]) -> tuple[float, float]:
    """The middle 99%, a twentieth of its width wider at either end; around what is constant, as wide as it is large."""
    if not len(finite):
        return -1.0, 1.0
    low, high = (float(q) for q in np.quantile(finite, (TAIL, 1.0 - TAIL)))
    if not _apart(low, high):
        low, high = float(finite.min()), float(finite.max())
    if not _apart(low, high):
        half = abs(low) if abs(low) > 1e-300 else 1.0
        return low - half, low + half
    margin = MARGIN * (high - low)
    return low - margin, high + margin


def _apart(low: float, high: float) -> bool:
    """Whether floats between them can be distinguished."""
    return high - low > 1e-9 * max(abs(low), abs(high))
