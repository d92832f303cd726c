"""Robot logs as tables: a column for each number in the messages of each topic, joined by time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emphatic.common.names import suggestion
from emphatic.tables.dropped_rows import DroppedRows
from emphatic.tables.fields import PLAIN
from emphatic.tables.recordings import Topic, open_recording, read_topic
from emphatic.tables.table_errors import TableError

__all__ = ["TIME", "RobotLog"]

#: The column of times: when messages were logged, which all messages have, and not the stamps in their headers.
TIME = "log_time"
_ROWS, _CELLS = 1 << 13, 1 << 20
_UNREADABLE = "unreadable"


class RobotLog:
    """The messages of some topics, as rows: one for each time at which a message of any of them was logged.

    A row has the last value of every column, NaN before its first. Messages of several topics at one time are one
    row; if a topic has several at one time, each begins a row, so that none is lost. ``rare`` has the topics and fields
    that are no columns, and why.
    """

    style = PLAIN
    rows = None
    joined = True

    def __init__(self, path: Path, topics: Collection[str] | None = None) -> None:
        self.dropped = DroppedRows()
        self._recording = open_recording(path)
        known = sorted(self._recording.channels)
        for topic in topics or ():
            if topic not in known:
                raise TableError(
                    f"{path}: there is no topic {topic!r}.{suggestion(topic, known)} It has: {', '.join(known)}."
                )
        self.rare: dict[str, str] = {}
        self._topics: dict[str, Topic] = {}
        self._place: dict[str, slice] = {}
        self._names: list[str] = []  # all columns but the time
        for name in known if topics is None else dict.fromkeys(topics):
            found = read_topic(self._recording, name)
            if isinstance(found, str):
                self.rare[name] = found
                continue
            self.rare |= {f"{name}.{field}": why for field, why in found.left_out.items()}
            if found.columns:
                self._place[name] = slice(len(self._names), len(self._names) + len(found.columns))
                self._names += [f"{name}.{field}" for field in found.columns]
                self._topics[name] = found
        if not self._topics:
            why = "; ".join(f"{name}: {reason}" for name, reason in list(self.rare.items())[:8])
            raise TableError(f"{path}: no topic has numbers, so there is no signal to learn from. {why}")
        self._batch = max(64, min(_ROWS, _CELLS // len(self._names)))

    def look(self) -> Any:
        """The first rows, all columns as the numbers that they are."""
        first = next(self.batches((TIME, *self._names), 0))
        return pa.table({name: _numbers(first.column(name)) for name in first.schema.names})

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        """All rows from ``start`` on. Only topics that have a column among ``names`` are decoded."""
        wanted = {name for name, at in self._place.items() if not set(names).isdisjoint(self._names[at])}
        held = np.full(len(self._names), np.nan)
        grid, times = np.empty((self._batch, len(held))), np.empty(self._batch, np.int64)
        unreadable: dict[int, set[int]] = {}
        rows, last, here = 0, -1, set[str]()
        for time, name, data in self._recording.messages(list(self._topics)):
            if time != last or name in here:
                if rows == self._batch:
                    yield from self._rows(names, grid, times, rows, unreadable, start)
                    start, rows = max(0, start - rows), 0
                    unreadable.clear()
                if not 0 <= time < 1 << 63:
                    raise TableError(f"{self._recording.name}: a message of {name!r} is of no possible time, {time}.")
                grid[rows], times[rows], last = held, time, time
                here.clear()
                rows += 1
            here.add(name)
            if name in wanted:
                at, found = self._place[name], self._topics[name].read(data)
                held[at] = grid[rows - 1, at] = found
                if None in found:
                    for j in (at.start + i for i, value in enumerate(found) if value is None):
                        unreadable.setdefault(j, set()).add(rows - 1)
        yield from self._rows(names, grid, times, rows, unreadable, start)

    def _rows(
        self, names: tuple[str, ...], grid: NDArray[np.float64], times: NDArray[np.int64], rows: int,
        unreadable: dict[int, set[int]], start: int,
    ) -> Iterator[Any]:  # fmt: skip
        """The rows of one batch that are not before ``start``. A column with a value that is no number is one of text,
        where that value is counted."""
        if start >= rows:
            return
        arrays, at = [], {name: j for j, name in enumerate(self._names)}
        for name in names:
            if name == TIME:
                arrays.append(pa.array(times[start:rows]).cast(pa.timestamp("ns", "UTC")))
                continue
            j = at[name]
            values = grid[start:rows, j]
            if bad := unreadable.get(j):
                numbers = [None if np.isnan(value) else repr(value) for value in values.tolist()]
                arrays.append(pa.array([_UNREADABLE if i in bad else text for i, text in enumerate(numbers, start)]))
            else:
                arrays.append(pa.array(values.copy()))
        yield pa.record_batch(arrays, list(names))


def _numbers(column: Any) -> Any:
    """A column of which some values may be text, without these."""
    if not pa.types.is_string(column.type):
        return column
    return pa.array([None if text in (None, _UNREADABLE) else float(text) for text in column.to_pylist()], pa.float64())
