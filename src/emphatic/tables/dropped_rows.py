"""Rows that could not be used: how many, why, and where the first of them stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["AFTER_DROP", "ROW", "DroppedRows", "ReadingPass"]

#: Columns that the batches of a file of text have beside its own: the number of each row in the file, from 0 on, and
#: whether a row was dropped since the one before it.
ROW, AFTER_DROP = "\x1erow", "\x1eafter drop"


@dataclass
class DroppedRows:
    """Counts by reason, with the line (of a frame: the row) of the first of each; and rows that were filled up."""

    reasons: dict[str, tuple[int, int]] = field(default_factory=dict)
    short: int = 0

    def add(self, why: str, line: int, count: int = 1) -> None:
        """Count some more, the first of them at this line."""
        before, first = self.reasons.get(why, (0, line))
        self.reasons[why] = before + count, first

    @property
    def count(self) -> int:
        """How many there are, for any reason."""
        return sum(count for count, _ in self.reasons.values())

    def facts(self) -> list[dict[str, Any]]:
        """As JSON can hold it."""
        return [{"why": why, "count": count, "first": first} for why, (count, first) in self.reasons.items()]


class ReadingPass:
    """One pass over the lines of a file: the number of the next line, and of the next row, dropped ones included."""

    def __init__(self, line: int) -> None:
        self.dropped = DroppedRows()
        self.line = line
        self._row = 0
        self._last: int | None = None

    def number_rows(self, batch: Any, kept: Sequence[int] | None = None, rows: int = 0) -> Any:
        """A batch with its two columns. Its rows are those at ``kept`` of the next ``rows`` of the file; or all."""
        at = np.arange(len(batch)) if kept is None else np.array(kept, np.int64)
        numbers = self._row + at
        self._row += len(batch) if kept is None else rows
        after = np.zeros(len(at), np.bool_)
        if len(at):
            # The first row of all has nothing before it to be cut from.
            after = np.diff(numbers, prepend=numbers[0] - 1 if self._last is None else self._last) > 1
            self._last = int(numbers[-1])
        return batch.append_column(ROW, pa.array(numbers)).append_column(AFTER_DROP, pa.array(after))
