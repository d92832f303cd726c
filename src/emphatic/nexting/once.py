"""A table that is looked at and then read through in one go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from emphatic.tables import Table

__all__ = ["FIRST", "read_once"]

#: Rows at the start of a table that settings, ranges and its identity are found from.
FIRST = 10_000


def read_once(table: Table) -> Table:
    """The table, its first rows kept in memory until something reads on: its source is not opened for each look."""
    table._source = _Once(table._source)
    return table


class _Once:
    """A source whose first batches are kept until someone reads on from them."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._names: tuple[str, ...] = ()
        self._rest: Iterator[Any] | None = None
        self._kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def batches(self, names: tuple[str, ...], start: int) -> Iterator[Any]:
        """From row ``start`` on. A new reader from row 0 begins with what is kept, and reads on where that ends."""
        if start or (self._rest is not None and names != self._names):
            return iter(self._source.batches(names, start))
        if self._rest is None:
            self._names, self._rest = names, iter(self._source.batches(names, 0))
        return self._from_the_first(self._rest)

    def _from_the_first(self, rest: Iterator[Any]) -> Iterator[Any]:
        for at in range(len(self._kept)):
            yield self._kept[at]
        have = sum(map(len, self._kept))
        for batch in rest:
            if have < FIRST:
                self._kept.append(batch)
                have += len(batch)
            elif self._rest is rest:
                self._rest, self._kept = None, []  # the next reader opens the source anew
            yield batch
        if self._rest is rest:
            self._rest, self._kept = None, []
