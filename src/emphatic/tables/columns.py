"""Columns: of what kind each one is, and its values as numbers, typed or text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from emphatic.tables import fields
from emphatic.tables.fields import PLAIN, NumberStyle

__all__ = ["is_text", "kind", "numbers", "plain"]


def plain(array: Any) -> Any:
    """The array without dictionary, and text as the one type of text."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pt.is_dictionary(array.type):
        array = plain(array.dictionary).take(array.indices)
    return array.cast(pa.string()) if pt.is_large_string(array.type) or pt.is_string_view(array.type) else array


def is_text(array: Any) -> bool:
    return bool(pt.is_string(array.type))


def kind(array: Any, style: NumberStyle = PLAIN) -> str:
    """By type or value: ``number``, ``percent``, ``switch``, ``date``, ``clock`` (time of day), ``text`` or ``other``.

    A column of text is one of numbers if more than half of the values present are; a column without any value
    is one of numbers, all missing. ``percent`` are numbers with a percent sign. A switch holds two words such as ON and
    OFF, and no others.
    """
    of = array.type
    if is_text(array):
        from emphatic.tables import times

        if _is_numeric(array, style):
            return "number"
        if pc.any(pc.match_substring(array, "%")).as_py() and _is_numeric(array, replace(style, percent=True)):
            return "percent"
        if fields.is_switch(array):
            return "switch"
        if times.date_format(array):
            return "date"
        return "clock" if times.clock_format(array) else "text"
    if pt.is_timestamp(of) or pt.is_date(of):
        return "date"
    if pt.is_time(of):
        return "clock"
    numeric = pt.is_integer(of) or pt.is_floating(of) or pt.is_decimal(of) or pt.is_boolean(of) or pt.is_duration(of)
    return "number" if numeric or pt.is_null(of) else "other"


def _is_numeric(array: Any, style: NumberStyle) -> bool:
    values, unreadable = numbers(array, style)
    return unreadable == 0 or unreadable < int((~np.isnan(values)).sum())


def numbers(array: Any, style: NumberStyle = PLAIN) -> tuple[NDArray[np.float64], int]:
    """The values as float64, NaN where missing; and how many were there but are no numbers.

    True is 1, durations are in seconds, text is read by ``fields.numbers``.
    """
    if is_text(array):
        return fields.numbers(array, style)
    if pt.is_duration(array.type):
        return numbers(array.cast(pa.int64()))[0] / fields.UNITS_PER_SECOND[array.type.unit], 0
    if pt.is_null(array.type):
        return np.full(len(array), np.nan), 0
    if pt.is_float16(array.type):
        array = array.cast(pa.float32())
    return np.array(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)), 0
