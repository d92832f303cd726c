"""Opening a table: from a path or a frame, on behalf of whatever function the user called."""

from __future__ import annotations

import csv
import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from emphatic.learning.inputs import refusal
from emphatic.tables.table import Table
from emphatic.tables.table_errors import Caller, reading

if TYPE_CHECKING:
    from emphatic.tables.files import File, Source

__all__ = ["open_source", "pivot_columns", "table_of", "topic_names"]


def open_source(
    source: Any,
    caller: Caller,
    *,
    time: str | bool | None = None,
    delimiter: str | None = None,
    names: Sequence[str] | None = None,
    sort: bool = False,
    pivot: str | Sequence[str] | bool | None = None,
    words: Collection[str] = (),
    topics: str | Sequence[str] | None = None,
) -> Table:
    """``open_table``; errors name what the user called."""
    function = caller.function
    if time is True or not isinstance(time, str | bool | None):
        raise refusal("time", function, "be the name of a column, False or None", repr(time))
    if not isinstance(sort, bool):
        raise refusal("sort", function, "be True or False", repr(sort))
    if delimiter is not None and (
        not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0'
    ):
        raise refusal("delimiter", function, "be one ASCII character, not a quote or a line's end", repr(delimiter))
    columns, chosen = pivot_columns(pivot, function), topic_names(topics, function)
    if not isinstance(source, str | os.PathLike):
        from emphatic.tables.frames import Frame

        if chosen is not None:
            raise refusal("topics", function, "be left out for other than a robot log", repr(chosen))
        return table_of("the table", Frame(source, names, caller), time, sort=sort, pivot=columns, words=words)
    if names is not None:
        raise refusal("names", function, "be left out for a file", repr(list(names)))
    from emphatic.tables.files import open_file

    name = os.fspath(source)
    with reading(name):
        opened, file = open_file(name, delimiter, chosen)
    return table_of(name, opened, time, file, sort, columns, words=words)


def table_of(
    name: str,
    source: Source,
    time: str | bool | None = None,
    file: File | None = None,
    sort: bool = False,
    pivot: Sequence[str] | None = None,
    ordered: bool = True,
    words: Collection[str] = (),
) -> Table:
    """The table that a source holds. ``pivot`` are the columns to pivot, () to take the rows as they are.

    Rows that are not ``ordered`` by time are refused, unless they need not be.
    """
    with reading(name, file.not_utf8 if file else lambda: None):
        if pivot:
            from emphatic.tables import arrangement

            source = arrangement.pivot(name, source, pivot, time)
        return Table(name, source, file, time, sort, pivot is not None, ordered, words)


def pivot_columns(pivot: str | Sequence[str] | bool | None, function: str) -> tuple[str, ...] | None:
    """The columns to pivot; () to take the rows as they are, None if nothing was said."""
    if pivot is None or pivot is False:
        return None if pivot is None else ()
    if isinstance(pivot, str):
        pivot = [part.strip() for part in next(csv.reader([pivot], skipinitialspace=True), [])]
    names = () if pivot is True else tuple(pivot)
    if len(names) < 2 or len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise refusal("pivot", function, "name two columns, 'sensor,value', or be False", repr(pivot))
    return names


def topic_names(topics: str | Sequence[str] | None, function: str) -> tuple[str, ...] | None:
    """The topics of a robot log to read; None for all."""
    if topics is None:
        return None
    if isinstance(topics, str):
        topics = [part.strip() for part in next(csv.reader([topics], skipinitialspace=True), [])]
    names = tuple(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise refusal("topics", function, "name topics of a robot log, '/odom,/imu'", repr(topics))
    return names
