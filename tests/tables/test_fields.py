"""Fields: what one text means is what it means in a column, and the other way round."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emphatic.nexting.tables import fields
from emphatic.nexting.tables.fields import NumberStyle

WORDS = [
    *fields.MISSING,
    "true",
    "False",
    "TRUE",
    "inf",
    "-Infinity",
    "nAn",
    "nan(1)",
    "1_000",
    "1 000",
    "١",
    "0x10",
    "ON",
    "off",
    "Yes",
    "no",
    "closed",
    "50%",
    "1,5 %",
    "%",
    "5%%",
    "ON %",
]
NUMBERS = ["1", "-2.5", "+3", ".5", "5.", "1e3", "1E-07", "1e400", "1e-400", "007", "1,5", "1.234,5", "1,234.5", "-0"]
texts = st.one_of(
    st.none(),
    st.sampled_from(WORDS + NUMBERS),
    st.text("0123456789+-.,eE_ nainfty()", max_size=8),
    st.floats().map(repr),
    st.text(max_size=5),
)
padded = st.tuples(texts, st.sampled_from(["", " ", "\t ", "\u2003"])).map(
    lambda pair: None if pair[0] is None else pair[1] + pair[0] + pair[1]
)


def same(a: Any, b: Any) -> None:
    """To the bit, but for the many NaN."""
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    np.testing.assert_array_equal(np.signbit(np.nan_to_num(a)), np.signbit(np.nan_to_num(b)))


def column(values: list[str | None]) -> Any:
    return pa.array(values, pa.string())


@given(
    st.lists(padded, max_size=8), st.booleans(), st.sampled_from([None, ".", ",", " ", "'", "\u00a0"]), st.booleans(),
    st.booleans(),
)  # fmt: skip
@example(["1.5", "nan(1)"], False, None, False, False)
@example(["nan", "2"], False, None, False, False)
@example(["1.234,5", "1.234", "1.23", "-1.234.567"], True, ".", False, False)
@example(["1.5%", "50 %\u2003", "%", "nan%", "7"], False, None, False, True)
def test_a_number_alone_is_the_number_in_a_column(
    values: list[str | None], comma: bool, thousands: str | None, switch: bool, percent: bool
) -> None:
    if thousands == ("," if comma else "."):
        thousands = None
    style = NumberStyle(comma, thousands, switch, percent)
    alone = [fields.parse_number(value, style) for value in values]
    together, unreadable = fields.parse_numbers(column(values), style)
    same([value for value, _ in alone], together)
    assert unreadable == sum(not readable for _, readable in alone)
    assert all(math.isnan(value) for value, readable in alone if not readable)


@pytest.mark.parametrize(
    ("text", "value", "readable"),
    [
        ("N/A", math.nan, True), ("--", math.nan, True), (" ", math.nan, True), (None, math.nan, True),
        ("true", 1.0, True), ("FALSE", 0.0, True), (" 7 ", 7.0, True), ("+3", 3.0, True), ("1e400", math.inf, True),
        ("infinity", math.inf, True), ("1_000", math.nan, False), ("1,5", math.nan, False),
        ("1,234.5", math.nan, False), ("Error", math.nan, False), ("[1]", math.nan, False),
    ],
)  # fmt: skip
def test_what_is_a_number(text: str | None, value: float, readable: bool) -> None:
    np.testing.assert_equal(fields.parse_number(text), (value, readable))


def test_a_decimal_comma() -> None:
    assert fields.parse_number("1,5", NumberStyle(comma=True)) == (1.5, True)
    assert fields.parse_number("1.5", NumberStyle(comma=True)) == (1.5, True)
    assert not fields.parse_number("1.234,5", NumberStyle(comma=True))[1]
    assert not fields.parse_number("1,2,3", NumberStyle(comma=True))[1]


@given(st.lists(padded, max_size=8))
def test_a_label_alone_is_the_label_in_a_column(values: list[str | None]) -> None:
    assert [fields.parse_label(value) for value in values] == fields.parse_labels(column(values)).tolist()
    assert [fields.parse_label(value) is None for value in values] == [fields.is_missing(value) for value in values]


def test_blanks_are_the_same_characters_to_both() -> None:
    blank = [chr(i) for i in range(0x3100) if chr(i).isspace()] + ["\ufeff", "\u200b"]
    values: list[str | None] = [f"{c}a{c}" for c in blank]
    assert [fields.parse_label(value) for value in values] == fields.parse_labels(column(values)).tolist()


def _iso(when: datetime, digits: int, zone: str, between: str) -> str:
    text = when.strftime(f"%Y-%m-%d{between}%H:%M:%S")
    return text + ("." + f"{when.microsecond:06d}789"[:digits] if digits else "") + zone


moments = st.datetimes(datetime(1900, 1, 1), datetime(2150, 1, 1))
iso = st.builds(
    _iso, moments, st.integers(0, 9), st.sampled_from(["", "", "Z", "+01:00", "-0330"]), st.sampled_from(" T")
)
junk = st.sampled_from(
    [None, "", "NA", "soon", "9999-12-31", "2007-02-30", "20070201", "2007-02-01", "2007-02-01 24:00"]
)
FORMATS: dict[str, Callable[[datetime], str]] = {
    form: lambda when, form=form: when.strftime(form)  # type: ignore[misc]
    for form in ("%d/%m/%Y", "%m/%d/%Y %H:%M", "%Y/%m/%d %H:%M:%S", "%d.%m.%y %H:%M", "%m/%d/%y %I:%M:%S %p")
}


@given(st.lists(st.one_of(iso, iso, junk), max_size=6))
@example(["2007-02-01T00:00:00.123456789", "2007-02-01T00:00:00Z"])
@example(["2007-02-01 00:00", "yesterday"])
def test_an_iso_time_alone_is_the_time_in_a_column(values: list[str | None]) -> None:
    same([fields.parse_time(value, "iso") for value in values], fields.parse_times(column(values), "iso"))


@pytest.mark.parametrize("form", FORMATS)
@given(st.data())
def test_a_time_alone_is_the_time_in_a_column(form: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.one_of(moments.map(FORMATS[form]), junk), max_size=6))
    clock = f"clock {form.partition(' ')[2] or '%H:%M'}"
    for tried in (form, clock):
        same([fields.parse_time(value, tried) for value in values], fields.parse_times(column(values), tried))


@given(moments, st.sampled_from([0, 60, -210]))
def test_iso_times_are_what_they_say(when: datetime, minutes: int) -> None:
    when = when.replace(year=min(when.year, 2099), day=min(when.day, 28))  # later, nanoseconds are rounded
    zoned = when.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=minutes)))
    assert fields.parse_time(zoned.isoformat(), "iso") == zoned.timestamp()
    naive = when.replace(microsecond=0)
    assert fields.parse_time(naive.isoformat(" "), "iso") == naive.replace(tzinfo=UTC).timestamp()


def test_times_of_day_and_numbers() -> None:
    assert fields.parse_time("17:24:30.25", "clock %H:%M:%S") == 17 * 3600 + 24 * 60 + 30.25
    assert fields.parse_time("1/2/07 12:30:00.5 PM", "%d/%m/%y %I:%M:%S %p") == 1170288000 + 12.5 * 3600 + 0.5
    assert fields.parse_time("0,25", None, NumberStyle(comma=True)) == 0.25
    assert math.isnan(fields.parse_time("1/2/2007", "iso"))
    assert math.isnan(fields.parse_time(None, "iso"))
