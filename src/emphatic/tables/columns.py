"""Columns: of what kind each one is, and its values as numbers or labels.

All conversions go value by value, so that what a column gives does not depend on how the table is cut.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

__all__ = ["A_SECOND", "MISSING", "decimal_comma", "is_text", "kind", "labels", "numbers", "plain"]

#: What people write where there is no value.
MISSING = ("", "NA", "N/A", "#N/A", "na", "n/a", "NaN", "nan", "NAN", "NULL", "null", "None", "none", "?", "-", "--")

_WORDS = {"true": (1.0, False), "false": (0.0, False)} | dict.fromkeys(MISSING, (np.nan, False))

#: How many of Arrow's units of time a second has. (To divide by these rounds once, to multiply by 1e-3 twice.)
A_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def plain(array: Any) -> Any:
    """The array without dictionary, and text as the one type of text."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pt.is_dictionary(array.type):
        array = plain(array.dictionary).take(array.indices)
    return array.cast(pa.string()) if pt.is_large_string(array.type) or pt.is_string_view(array.type) else array


def is_text(array: Any) -> bool:
    return bool(pt.is_string(array.type))


def kind(array: Any, comma: bool = False) -> str:
    """``number``, ``date``, ``clock`` (a time of day), ``text``, or ``other``, by type or by most of the values.

    A column of text is one of numbers if more than half of the values present are; a column without any value
    is one of numbers, all missing.
    """
    of = array.type
    if is_text(array):
        from emphatic.tables import times

        values, unreadable = numbers(array, comma)
        if unreadable == 0 or unreadable < int((~np.isnan(values)).sum()):
            return "number"
        if times.date_format(array):
            return "date"
        return "clock" if times.clock_format(array) else "text"
    if pt.is_timestamp(of) or pt.is_date(of):
        return "date"
    if pt.is_time(of):
        return "clock"
    numeric = pt.is_integer(of) or pt.is_floating(of) or pt.is_decimal(of) or pt.is_boolean(of) or pt.is_duration(of)
    return "number" if numeric or pt.is_null(of) else "other"


def numbers(array: Any, comma: bool = False) -> tuple[NDArray[np.float64], int]:
    """The values as float64, NaN where missing; and how many were there but are no numbers.

    ``comma`` reads 1,5 as 1.5. True is 1, durations are in seconds.
    """
    if is_text(array):
        return _parsed(pc.replace_substring(array, ",", ".") if comma else array)
    if pt.is_duration(array.type):
        return numbers(array.cast(pa.int64()))[0] / A_SECOND[array.type.unit], 0
    if pt.is_null(array.type):
        return np.full(len(array), np.nan), 0
    if pt.is_float16(array.type):
        array = array.cast(pa.float32())
    return np.array(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)), 0


def _parsed(array: Any) -> tuple[NDArray[np.float64], int]:
    for text in (array, pc.utf8_trim_whitespace(array)):
        try:
            return np.array(text.cast(pa.float64()).to_numpy(zero_copy_only=False)), 0
        except pa.ArrowInvalid:
            continue
    coded = array.dictionary_encode()
    found = [_number(word) for word in coded.dictionary.to_pylist()] + [(np.nan, False)]
    values, bad = (np.array(part) for part in zip(*found, strict=True))
    at = coded.indices.fill_null(len(found) - 1).to_numpy(zero_copy_only=False)
    return values[at], int(bad[at].sum())


def _number(word: str) -> tuple[float, bool]:
    """The number a word stands for, and whether it stands for none."""
    word = word.strip()
    if word in _WORDS:
        return _WORDS[word]
    try:
        return _WORDS.get(word.lower()) or (float("_" if "_" in word else word), False)
    except ValueError:
        return np.nan, True


def labels(array: Any) -> NDArray[np.object_]:
    """Text as an array of str, None where missing."""
    text = pc.utf8_trim_whitespace(array)
    text = pc.if_else(pc.is_in(text, _markers), pa.scalar(None, pa.string()), text)
    return np.asarray(text.to_numpy(zero_copy_only=False), object)


def decimal_comma(columns: list[Any]) -> bool:
    """Whether text is rather of numbers like 1,5 than of numbers like 1.5."""

    def share(sign: str) -> int:
        pattern = rf"^\s*[-+]?\d+{re.escape(sign)}\d+([eE][-+]?\d+)?\s*$"
        return sum(pc.sum(pc.match_substring_regex(text, pattern)).as_py() or 0 for text in columns if is_text(text))

    return share(",") > share(".")


_markers = pa.array(MISSING)
