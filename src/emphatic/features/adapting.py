"""Adaptive ranges: the current knots of each scale, and statistics of recent readings.

A range that a part was given stays. A range that was found in the warm-up moves when recent readings have left it:

- *The level has moved*: more than 2% of a signal's recent readings lay beyond one end of its range, and fewer than 0.5%
  at or beyond the other end (its outer tenth). Then the range slides towards the reading, by at most 1% of its
  width for each reading in a row that lay beyond (and faster after 100 in a row, so that no jump is too far), and the
  ranges of the signal's traces slide along with it.
- *It no longer fits*: more than half of the recent readings of a source lay beyond its range. Then the range of that
  source slides likewise or, where the other end is in use and the reading is no farther than a width, is stretched.

"Recent" is an exponential average over as many readings as the warm-up had, at least 500. Features keep their places in
the range: what was learned for its third bin now applies to other values, and the learner corrects that over time. (To
keep the values and reuse only the bins left behind is worse: a reused bin starts with a weight from the other end of
the range, whereas sliding is wrong by a fraction of a bin.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emphatic.features.plan import CHANGE, FeaturePlan
from emphatic.features.readings import Array

__all__ = ["EDGE", "KNOWN", "AdaptiveRanges", "leaders"]

#: How much of a range is its end.
EDGE = 0.1
#: The fewest readings that count as recent.
LEAST = 500.0
#: Statistics of a scale's recent readings: how many count as recent (0 where the range is fixed); the shares below
#: the range, at its low end, at its high end and above; how many in a row lay above, or minus how many below.
KNOWN = 6


@dataclass
class AdaptiveRanges:
    """The knots of all scales now and after the warm-up, statistics of recent readings then and now, and counts."""

    knots: Array
    recent: Array
    first_knots: Array
    first_recent: Array
    moves: NDArray[np.int64]

    @classmethod
    def fixed(cls, plan: FeaturePlan, knots: Sequence[Array]) -> AdaptiveRanges:
        """Ranges that do not adapt."""
        flat, recent = np.concatenate([np.empty(0), *knots]), np.zeros((len(plan.scales), KNOWN))
        return cls(flat, recent, flat.copy(), recent.copy(), np.zeros((len(plan.scales), 2), np.int64))

    @classmethod
    def found(cls, plan: FeaturePlan, knots: Sequence[Array], sensed: Array) -> AdaptiveRanges:
        """Ranges of which those found in a warm-up with these values of the sources adapt."""
        made = cls.fixed(plan, knots)
        first, _ = leaders(plan)
        for scale, k in plan.scales.items():
            if first[k] == k:
                seen = sensed[np.isfinite(sensed[:, scale.source]), scale.source]
                low, high = knots[k][0], knots[k][-1]
                ends = (seen < low + EDGE * (high - low), seen > high - EDGE * (high - low))
                made.recent[k, 0] = max(LEAST, len(seen))
                made.recent[k, 2:4] = [np.mean(end) if len(seen) else 0.0 for end in ends]
        made.first_recent[:] = made.recent
        return made

    def fix(self) -> None:
        """Stop adapting."""
        self.recent[:], self.first_recent[:], self.first_knots[:] = 0.0, 0.0, self.knots

    def restart(self) -> None:
        """Restore the state after the warm-up."""
        self.knots[:], self.recent[:], self.moves[:] = self.first_knots, self.first_recent, 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        return {name: array.copy() for name, array in vars(self).items()}

    @classmethod
    def restore(cls, plan: FeaturePlan, arrays: Mapping[str, NDArray[Any]]) -> AdaptiveRanges:
        """Restore what was saved; files from before ranges adapted have only knots, and such ranges do not adapt."""
        flat = _checked(plan, arrays["knots"])
        made = cls.fixed(plan, _apart(plan, flat))
        if "recent" in arrays:
            made.first_knots[:] = _checked(plan, arrays["first_knots"])
            for own, given in ((made.recent, arrays["recent"]), (made.first_recent, arrays["first_recent"])):
                fits = given.shape == own.shape and given.dtype == own.dtype and np.isfinite(given).all()
                if not fits or ((given[:, 0] != 0.0) & (given[:, 0] < LEAST)).any():
                    raise ValueError("the arrays do not fit the parts")
                own[:] = given
            if arrays["moves"].shape != made.moves.shape or arrays["moves"].dtype != np.int64:
                raise ValueError("the arrays do not fit the parts")
            made.moves[:] = arrays["moves"]
        return made

    def each(self, plan: FeaturePlan) -> list[Array]:
        """The knots of each scale now."""
        return _apart(plan, self.knots)


def leaders(plan: FeaturePlan) -> tuple[list[int], list[int]]:
    """For each scale whose range adapts, the one that is watched for its source, and the one that its signal follows.

    The scales of a source have the same range, and the first is watched. A signal's ranges follow its readings or,
    where there is no scale of those, its shortest trace; changes follow nothing. −1 means none.
    """
    sources = list(plan.sources)
    first: dict[int, int] = {}
    lead: dict[int, int] = {}
    found = [(scale.source, k) for scale, k in plan.scales.items() if scale.range is None]
    for source, k in found:
        first.setdefault(source, k)
    for source in sorted(first, key=lambda at: (sources[at].op, sources[at].steps)):
        if sources[source].op != CHANGE:
            lead.setdefault(sources[source].column, first[source])
    watched, followed = [-1] * len(plan.scales), [-1] * len(plan.scales)
    for source, k in found:
        watched[k] = first[source]
        followed[k] = lead[sources[source].column] if sources[source].op != CHANGE else -1
    return watched, followed


def _apart(plan: FeaturePlan, flat: Array) -> list[Array]:
    ends = np.cumsum([0, *(scale.knots for scale in plan.scales)]).tolist()
    return [flat[a:b] for a, b in pairwise(ends)]


def _checked(plan: FeaturePlan, flat: NDArray[Any]) -> Array:
    """Increasing knots for every scale."""
    fine = flat.dtype == np.float64 and flat.shape == (sum(scale.knots for scale in plan.scales),)
    if not fine or not all(np.isfinite(at).all() and (np.diff(at) > 0).all() for at in _apart(plan, flat)):
        raise ValueError("the arrays do not fit the parts")
    return flat
