"""Blocks: consecutive rows of a stream, with everything that is true of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emphatic.tables.clock import Clock

if TYPE_CHECKING:
    from emphatic.tables.notation import ParsedRow

__all__ = ["Block"]


@dataclass(eq=False, slots=True)
class Block:
    """Consecutive rows of a stream, the first of them row number ``row``.

    A source decides once which rows do not follow the row before and says so in ``gap``. Whoever learns from a block,
    scores it or writes it reads ``gap`` and never looks at times itself.

    Args:
        row: The number of the first row in the stream, counted from 0.
        values: The signals (B, C), NaN where a value is missing.
        time: The time of each row (B,), in seconds since the epoch or in the time column's own unit, NaN where it is
            missing; None without a time column.
        labels: Each text column by name, None where a label is missing.
        unreadable: For each signal, the number of values that could not be parsed; they are missing in ``values``.
        infinite: For each signal, the number of infinite values; they are missing in ``values``.
        numbers: The number of each row in its file (B,), counted from 0 and including rows that were dropped.
        after_drop: The rows (B,) before which a row of the file was dropped.
        gap: The rows (B,) that do not follow the row before: time jumped, a row was dropped, or a sequence was cut.
    """

    row: int
    values: NDArray[np.float64]
    time: NDArray[np.float64] | None
    labels: dict[str, NDArray[np.object_]]
    unreadable: NDArray[np.int64] = field(repr=False)
    infinite: NDArray[np.int64] = field(repr=False)
    numbers: NDArray[np.int64] | None = field(default=None, repr=False)
    after_drop: NDArray[np.bool_] | None = field(default=None, repr=False)
    gap: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[ParsedRow],
        names: Sequence[str],
        categories: Sequence[str] = (),
        clock: Clock | None = None,
        row: int = 0,
    ) -> Block:
        """The block of the next readings of a live stream.

        Args:
            rows: The readings, as ``RowParser.parse`` gives them.
            names: The signals, in the order of ``ParsedRow.values``.
            categories: The text columns.
            clock: Finds the gaps, and is advanced by these rows; None for a stream without times. Pass ``clock.copy()``
                if the block may be rejected.
            row: The number of the first row in the stream.
        """
        count, C = len(rows), len(names)
        unreadable, infinite = np.zeros(C, np.int64), np.zeros(C, np.int64)
        if count == 1:  # a reading at a time: a few microseconds
            (reading,) = rows
            values = np.array([reading.values])
            labels = {name: np.array([reading.labels[name]], object) for name in categories}
            troubled: Sequence[ParsedRow] = rows if reading.problems else ()
        else:
            values = np.array([reading.values for reading in rows]).reshape(count, C)
            labels = {name: np.array([reading.labels[name] for reading in rows], object) for name in categories}
            troubled = [reading for reading in rows if reading.problems]
        for reading in troubled:
            for j, name in enumerate(names):
                unreadable[j] += f"{name!r} is not a number" in reading.problems
                infinite[j] += f"{name!r} is not finite" in reading.problems
        if clock is None:
            return cls(row, values, None, labels, unreadable, infinite, gap=np.zeros(count, np.bool_))
        time = np.array([reading.time for reading in rows])
        gap = np.array([clock.find_gap(rows[0].time)]) if count == 1 else clock.find_gaps(time)
        return cls(row, values, time, labels, unreadable, infinite, gap=gap)

    def find_gaps(self, clock: Clock | None) -> NDArray[np.bool_]:
        """The rows that do not follow the row before by this clock, or because a row between the two was dropped."""
        after_drop = np.zeros(len(self), np.bool_) if self.after_drop is None else self.after_drop
        return after_drop if clock is None or self.time is None else clock.find_gaps(self.time, after_drop)
