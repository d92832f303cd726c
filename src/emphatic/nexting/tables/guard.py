"""Which readings are learned from as they are: far ones are pulled in, or taken for missing.

A ``ReadingGuard`` belongs to a stream, as its ``Clock`` does: it is advanced row by row, and what it decides is carried
by the block. Whoever learns uses the guarded readings, whoever scores or raises alarms the readings themselves.

For each signal it follows the range of what it let through. A reading is far where it is beyond that range by more than
half of it, and by more than ten times the mean excess of the eight most extreme readings, for a heavy tail reaches
further. Then

- a single one is pulled in: from the last reading towards the end of the range, by (reach / distance)², where the reach
  is the distance from which on readings are far. From the second on they widen the range a little;
- the same one again, in the next rows or later, is taken for missing. After 15 rows of it it is a level;
- others on the same side, three in a row, are a new level: the range follows them, doubling in each row, and includes
  the reading after 15 rows at the latest.

A reading that is among the lowest or the highest of another signal, whose range overlaps with that of this one, is not
far: sensors of a kind share the ends of their scale. 0 is left out, for it is the end of many scales.

A code for missing readings such as −999, 65535 or 1e20 is taken for missing wherever it lies apart from the range,
however long it stays. A signal that was constant so far has no range, and nothing in it is far but a code.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from emphatic.nexting.tables.table import MISSING, PULLED_IN, READ, Block

__all__ = ["MISSING", "PULLED_IN", "READ", "ReadingGuard"]

Array = NDArray[np.float64]

#: The most different readings of a signal that are named.
_SENTINELS = 8


class ReadingGuard:
    """Decides for each reading of a stream whether it is learned from as it is.

    Args:
        C: The number of signals.
        exempt: The places of signals that are left as they are.

    >>> guard = ReadingGuard(1).warm_up(np.sin(np.arange(500.0))[:, None])
    >>> guarded, verdicts = guard.judge(np.array([[0.5], [1000.0], [0.6], [-999.0], [0.7], [1000.0]]))
    >>> np.round(guarded[:, 0], 1).tolist(), verdicts[:, 0].tolist()
    ([0.5, 0.5, 0.6, nan, 0.7, nan], [0, 1, 0, 2, 0, 2])
    >>> guard.pulled_in.tolist(), guard.missing.tolist()
    ([1], [2])
    """

    def __init__(self, C: int, exempt: Sequence[int] = ()) -> None:
        from emphatic.nexting.tables.guard_kernels import EXEMPT, MEMORY, REMEMBERED, WIDTH

        self._state = np.zeros((C, WIDTH))
        self._state[:, MEMORY : MEMORY + REMEMBERED] = np.nan
        self._state[list(exempt), EXEMPT] = 1.0
        #: For each signal the readings that were taken for missing, and how often.
        self._taken: list[dict[float, int]] = [{} for _ in range(C)]

    def warm_up(self, values: Array) -> Self:
        """Find ranges from the first rows, which are still to come. Returns self.

        Sound are the readings between the quantiles .1 and .9, and from there outwards all up to one that would be far;
        those beyond it too, if they are many and different.

        Args:
            values: The rows (B, C), NaN where a value is missing.
        """
        from emphatic.nexting.tables.guard_kernels import EXEMPT, find_range

        for state, column in zip(self._state, values.T, strict=True):
            readings = np.sort(column[np.isfinite(column)])
            if len(readings) and not state[EXEMPT]:
                find_range(readings, state)
        return self

    def judge(self, values: Array) -> tuple[Array, NDArray[np.uint8]]:
        """Judge the next rows.

        Args:
            values: The rows (B, C), NaN where a value is missing.

        Returns:
            The readings to learn from (B, C), NaN where there is none, and what became of each: ``READ``, also where a
            value is missing, ``PULLED_IN`` or ``MISSING``. Where all are as read the first is ``values`` itself.
        """
        values = np.ascontiguousarray(values, np.float64)
        guarded, verdicts = np.empty(values.shape), np.empty(values.shape, np.uint8)
        count = _kernel()(values, self._state, guarded, verdicts)
        if count:
            self._count_taken(values, verdicts == MISSING)
        return (guarded if count else values), verdicts

    def _count_taken(self, values: Array, taken: NDArray[np.bool_]) -> None:
        """Count the readings that were taken for missing, of each signal those that came first."""
        for c in np.flatnonzero(taken.any(axis=0)).tolist():
            counts = self._taken[c] = dict(self._taken[c])  # (a copy of this guard has the former one)
            for value, count in Counter(values[taken[:, c], c].tolist()).items():
                if value in counts or len(counts) < _SENTINELS:
                    counts[value] = counts.get(value, 0) + count

    def sentinels(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """For each signal the readings that were taken for missing more than once, as text, and how often.

        Args:
            names: The signals.
        """
        repeated = [{f"{v:.10g}": n for v, n in counts.items() if n > 1} for counts in self._taken]
        return {name: counts for name, counts in zip(names, repeated, strict=True) if counts}

    def mark(self, block: Block) -> Block:
        """Judge the rows of a block, which carries the result. Returns the block.

        Args:
            block: The next rows.
        """
        block.guarded, block.verdicts = self.judge(block.values)
        return block

    @property
    def pulled_in(self) -> NDArray[np.int64]:
        """How many readings of each signal were pulled in."""
        from emphatic.nexting.tables.guard_kernels import PULLED

        return self._state[:, PULLED].astype(np.int64)

    @property
    def missing(self) -> NDArray[np.int64]:
        """How many readings of each signal were taken for missing."""
        from emphatic.nexting.tables.guard_kernels import LOST

        return self._state[:, LOST].astype(np.int64)

    def counts(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """How many readings of each signal were ``pulled_in`` and taken for ``missing``, where there are any.

        Args:
            names: The signals.
        """
        pairs = zip(names, self.pulled_in.tolist(), self.missing.tolist(), strict=True)
        return {name: {"pulled_in": pulled, "missing": missing} for name, pulled, missing in pairs if pulled or missing}

    def copy(self) -> ReadingGuard:
        """A guard at the same place, which goes on by itself."""
        guard = ReadingGuard.__new__(ReadingGuard)
        guard._state, guard._taken = self._state.copy(), list(self._taken)
        return guard

    def state(self) -> list[list[float | None]]:
        """The whole state, as JSON can hold it: a list a signal, with those that were taken for missing at its end."""
        return [
            [*(None if math.isnan(number) else number for number in signal), *chain.from_iterable(taken.items())]
            for signal, taken in zip(self._state.tolist(), self._taken, strict=True)
        ]

    @classmethod
    def restore(cls, state: Sequence[Sequence[float | None]]) -> ReadingGuard:
        """The guard of which this is the state; ValueError if it is none.

        Args:
            state: As ``state`` returns it.
        """
        guard = cls(len(state))
        width = guard._state.shape[1]
        stored = np.array([signal[:width] for signal in state], np.float64).reshape(len(state), -1)
        ends = [[float(number or 0.0) for number in signal[width:]] for signal in state]
        guard._taken = [{v: int(n) for v, n in zip(end[::2], end[1::2], strict=False)} for end in ends]
        if stored.shape != guard._state.shape:
            raise ValueError("its guard of readings does not fit")
        guard._state = stored
        return guard


@functools.cache
def _kernel() -> Callable[..., int]:
    from emphatic.engines.compiled import direct
    from emphatic.nexting.tables.guard_kernels import guard

    return cast(Callable[..., int], direct(guard))
