"""A table that is looked at and then read through in one go."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from emphatic.tables import Table

__all__ = ["FIRST", "close", "keep_first_rows"]

#: Rows at the start of a table that settings, ranges and its identity are found from.
FIRST = 10_000


def keep_first_rows(table: Table) -> Table:
    """The table, its first rows kept in memory until something reads on: its source is not opened for each look."""
    table._source = _FirstRows(table._source)
    return table


def close(table: Table) -> None:
    """Let go of what is still open: a reader that reads ahead must not outlive the program."""
    if isinstance(table._source, _FirstRows):
        table._source.close()


class _FirstRows:
    """A source whose first batches are kept until a reader reads on from them."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._opened: _Opened | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        """From row ``start`` on. A reader from row 0 begins with what is kept, and reads on where that ends."""
        if start:
            return iter(self._source.batches(names, start))
        if self._opened is None or self._opened.rest is None or self._opened.names != names:
            self._opened = _Opened(names, iter(self._source.batches(names, 0)))
        return self._read(self._opened)

    def close(self) -> None:
        """Close the source, if nothing reads on from what is kept."""
        opened, self._opened = self._opened, None
        if opened is not None and isinstance(opened.rest, Generator):
            opened.rest.close()

    def _read(self, opened: _Opened) -> Iterator[Any]:
        at = rows = 0
        while True:
            if at < len(opened.kept):
                batch = opened.kept[at]
            elif opened.rest is None:  # another reader has read on from here
                yield from self._source.batches(opened.names, rows)
                return
            elif rows >= FIRST:
                rest, opened.rest, opened.kept = opened.rest, None, []
                yield from rest
                return
            else:
                batch = next(opened.rest, None)
                if batch is None:
                    return
                opened.kept.append(batch)
            yield batch
            at += 1
            rows += len(batch)


@dataclass
class _Opened:
    """A source that was opened: the columns, the batches read so far, and the rest of them."""

    names: tuple[str, ...]
    rest: Iterator[Any] | None
    kept: list[Any] = field(default_factory=list)
