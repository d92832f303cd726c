"""Tables in another arrangement: rows sorted by time, and long format (time, sensor, value) made wide. In memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from emphatic.tables import columns, fields, times
from emphatic.tables.dropped_rows import ROW
from emphatic.tables.fields import NumberStyle
from emphatic.tables.frames import Frame
from emphatic.tables.table_errors import TableError

if TYPE_CHECKING:
    from emphatic.tables.files import Source
    from emphatic.tables.times import TimeColumn

__all__ = ["find_long", "pivot", "sort"]

_KEY = re.compile(
    r"(sensor|tag|variable|channel|metric|measurement|point|signal|param|parameter|item|entity|topic|field|key|series|"
    r"device|probe|station|node|name|id)[ _]?(id|name|no|nr|number)?"
)
_VALUE = re.compile(r"(value|val|reading|state|data|measurement|y)s?")


def sort(source: Source, names: Sequence[str], when: TimeColumn) -> Frame:
    """All rows in the order of time. One without a time stays behind the row that it followed."""
    table = _read(source, names)
    if ROW not in table.column_names:
        table = table.append_column(ROW, pa.array(np.arange(table.num_rows)))
    time = when.seconds(table)
    known = np.maximum.accumulate(np.where(np.isfinite(time), np.arange(len(time)), -1))
    time = np.where(known >= 0, time[known], -np.inf)
    frame = Frame(table.take(pa.array(np.argsort(time, kind="stable"))))
    for name in ("style", "delimiter", "nested", "unnamed", "dropped", "units", "rare"):
        if hasattr(source, name):
            setattr(frame, name, getattr(source, name))
    return frame


def find_long(look: Any, kinds: dict[str, str], when: TimeColumn | None, style: NumberStyle) -> tuple[str, str] | None:
    """The columns of sensors and values, if the first rows of a table are in long format.

    They are if the same time comes with several sensors, and with each of them once; or by their names, if there is
    one column of values.
    """
    own = [name for name in kinds if when is None or name not in when.names]
    values = [name for name in own if kinds[name] in ("number", "percent")]
    if when is None or look.num_rows < 4:
        return None
    time = when.seconds(look)
    for key in own:
        others = [name for name in values if name != key]
        named = _KEY.fullmatch(key.strip().lower()) is not None
        if not others or not (kinds[key] == "text" or (named and kinds[key] == "number")):
            continue
        words = _labels(look, key)
        sensors = len(set(words) - {None})
        if not 2 <= sensors <= look.num_rows / 2:
            continue
        moments, pairs = len(np.unique(time)), len(set(zip(time.tolist(), words, strict=True)))
        many = 1.5 * moments <= look.num_rows and pairs >= 0.99 * look.num_rows
        if many or (named and kinds[key] == "text" and len(others) == 1 and _VALUE.fullmatch(others[0].lower())):
            return key, others[0]
    return None


def pivot(name: str, source: Source, chosen: Sequence[str], time: str | bool | None) -> Frame:
    """A column for each sensor, from a table with a row for each reading: ``chosen`` are its sensor and value columns.

    With several columns of values, a column's name is that of the sensor and of the value.
    """
    look, style = source.look(), source.style
    kinds = {c: columns.kind(columns.plain(look.column(c)), style) for c in look.column_names}
    key, *values = chosen
    for column in chosen:
        if column not in kinds:
            raise TableError(f"{name}: there is no column {column!r} to pivot. It has: {', '.join(map(repr, kinds))}.")
    for column in values:
        if kinds[column] not in ("number", "percent", "switch"):
            raise TableError(f"{name}: column {column!r} holds no numbers, so it cannot be the value to pivot.")
    others = {column: kind for column, kind in kinds.items() if column not in chosen}
    when, why, _ = times.find(name, look, others, time, style)
    if when is None:
        raise TableError(f"{name}: a pivot needs a time column, and {why}. Name it: time=…")
    table = _read(source, (*chosen, *when.names))
    seconds, words = when.seconds(table), _labels(table, key)
    usable = np.isfinite(seconds) & np.array([word is not None for word in words], np.bool_)
    if not usable.any():
        raise TableError(f"{name}: no row has both a time and a {key!r}.")
    moments, row = np.unique(seconds[usable], return_inverse=True)
    place = {word: i for i, word in enumerate(dict.fromkeys(w for w, use in zip(words, usable, strict=True) if use))}
    at = np.array([place[word] for word, use in zip(words, usable, strict=True) if use])
    cells = row * len(place) + at
    dropped = source.dropped
    _count(dropped, f"no time or no {key!r}", ~usable)
    _, last = np.unique(cells[::-1], return_index=True)
    again = np.ones(len(cells), np.bool_)
    again[len(cells) - 1 - last] = False
    _count(dropped, f"another reading of the same {key!r} at the same time follows", again)
    wide: dict[str, Any] = {when.name: _stamps(moments, when)}
    for value in values:
        own = replace(style, switch=kinds[value] == "switch", percent=kinds[value] == "percent")
        numbers, _ = columns.numbers(columns.plain(table.column(value)), own)
        grid = np.full(len(moments) * len(place), np.nan)
        grid[cells[~again]] = numbers[usable][~again]
        for word, i in place.items():
            wide[f"{word} {value}" if len(values) > 1 else str(word)] = grid[i :: len(place)]
    frame = Frame(pa.table(wide))
    frame.dropped = dropped
    return frame


def _read(source: Source, names: Sequence[str]) -> Any:
    """All rows, as one Arrow table. Parts of a column may be numbers and others text: then all of it is text."""
    batches = list(source.batches(tuple(names), 0))
    parts = []
    for i, column in enumerate(batches[0].schema.names):
        arrays = [columns.plain(batch.column(i)) for batch in batches]
        if len({array.type for array in arrays}) > 1:
            arrays = [array.cast(pa.string()) for array in arrays]
        parts.append((column, pa.chunked_array(arrays)))
    return pa.table(dict(parts))


def _labels(table: Any, column: str) -> list[Any]:
    array = columns.plain(table.column(column))
    if not columns.is_text(array):
        values = columns.numbers(array)[0]
        return [None if np.isnan(value) else f"{value:g}" for value in values.tolist()]
    labels: list[Any] = fields.labels(array).tolist()
    return labels


def _stamps(seconds: Any, when: TimeColumn) -> Any:
    if not when.dated:
        return pa.array(seconds)
    return pa.array(np.round(seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us", when.zone))


def _count(dropped: Any, why: str, rows: Any) -> None:
    if rows.any():
        dropped.add(why, int(np.argmax(rows)) + 1, int(rows.sum()))
