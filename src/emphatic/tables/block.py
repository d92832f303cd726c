"""Blocks: some rows of a table, as numbers, times and labels."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from emphatic.tables.clock import Clock

__all__ = ["Block"]


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of a table, the first of them row number ``row``.

    ``values`` is (B, C) with NaN where missing; ``time`` is (B,) in seconds since the epoch or in the time column's own
    unit, NaN where missing, or None without a time column; ``labels`` has each text column, None where missing.
    ``unreadable`` and ``infinite`` count, for each signal, the values that were there but no number, or not finite:
    both are missing in ``values``. ``numbers`` (B,) are the numbers of the rows in the file, counted from 0 and with
    those that were dropped; ``after_drop`` (B,) marks rows before which one was dropped.
    """

    row: int
    values: NDArray[np.float64]
    time: NDArray[np.float64] | None
    labels: dict[str, NDArray[np.object_]]
    unreadable: NDArray[np.int64] = field(repr=False)
    infinite: NDArray[np.int64] = field(repr=False)
    numbers: NDArray[np.int64] | None = field(default=None, repr=False)
    after_drop: NDArray[np.bool_] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.values)

    def find_gaps(self, clock: Clock | None) -> NDArray[np.bool_]:
        """For each row, whether it does not follow on the one before it: by its time, or for a row that was dropped."""
        after = np.zeros(len(self), np.bool_) if self.after_drop is None else self.after_drop
        return after if clock is None or self.time is None else clock.find_gaps(self.time, after)
