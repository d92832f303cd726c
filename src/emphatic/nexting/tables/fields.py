"""Fields: what a column holds, and what its text means as numbers, labels or times, in files and on a pipe alike.

Each meaning is defined for one field (``parse_number``, ``parse_label``, ``parse_time``) and for a whole Arrow array of
text (``parse_numbers``, ``parse_labels``, ``parse_times``). Both give the same bits, so that neither the source of a
table nor how it is cut into blocks changes a value.

Time columns are recognised by their type and values, and only then by their name. Dates are seconds since 1970-01-01.
Without a zone they count as UTC, so that the time of day is the one that is written. A numeric column keeps its own
unit, unless its values are dates written as digits (20240301000500) or Unix time in s, ms, µs or ns.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from emphatic.nexting.tables.table import TableError

if TYPE_CHECKING:
    from emphatic.nexting.tables.grid import LongFormat

__all__ = ["Notation", "NumberStyle", "TimeChoice", "TimeColumn", "find_kind", "find_style", "find_time"]

FloatArray = NDArray[np.float64]
T = TypeVar("T")

#: What people write where there is no value.
MISSING = ("", "NA", "N/A", "#N/A", "na", "n/a", "NaN", "nan", "NAN", "NULL", "null", "None", "none", "?", "-", "--")

#: Arrow's units of time. (To divide by these rounds once, to multiply by 1e-3 twice.)
UNITS_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}

#: Pairs of words that are 1 and 0 in a column that holds no others.
_SWITCHES = (
    {"on": 1.0, "off": 0.0},
    {"yes": 1.0, "no": 0.0},
    {"open": 1.0, "closed": 0.0},
    {"home": 1.0, "away": 0.0},
    {"home": 1.0, "not_home": 0.0},
    {"locked": 1.0, "unlocked": 0.0},
)
_SWITCH_WORDS = {word: (value, True) for pair in _SWITCHES for word, value in pair.items()}
#: What may group the digits before the decimal sign: 1.100,5 and 1,100.5, 1 100,5 and 1'100.5.
_GROUPING = (".", ",", "'", "\u2019", " ", "\u00a0", "\u202f")

#: What a sensor that has no value says, among numbers and switches.
_ABSENT = ("unavailable", "unknown")

_WORDS = {"true": (1.0, True), "false": (0.0, True)} | dict.fromkeys((*MISSING, *_ABSENT), (math.nan, True))
_MISSING_WORDS = frozenset(MISSING)
_MISSING_ARRAY = pa.array(MISSING)

#: Whole seconds within years whose nanoseconds a float64 holds exactly: there every way to compute them agrees.
_PLAIN_ISO = re.compile(r"(?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2})?Z?")
_BELOW_MICRO = re.compile(r"[.,][0-9]{6}([0-9]{1,3})")
#: Universal time by its name at the end of a stamp.
_NAMED_ZONE = r"\s*\b(UTC|GMT)$"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class NumberStyle:
    """How numbers are written: with a decimal comma, with this sign between thousands, as a switch (on and off), and
    with a percent sign after them, which is not part of them (50% is 50); and what stands for a missing value."""

    comma: bool = False
    thousands: str | None = None
    switch: bool = False
    percent: bool = False
    missing: tuple[str, ...] = ()

    @functools.cached_property
    def missing_numbers(self) -> FloatArray:
        """The numbers among what stands for a missing value."""
        numbers = [parse_number(text)[0] for text in self.missing]
        return np.array([number for number in numbers if not math.isnan(number)])


PLAIN = NumberStyle()


def as_text(value: object) -> str | None:
    """A JSON value as a field: itself, if it is text, else as JSON writes it.

    Half a surrogate pair, which JSON can write and UTF-8 cannot, becomes the replacement character.
    """
    if value is None:
        return None
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
    except RecursionError:  # a list in a list in a list …, which is neither a number nor a label
        text = "nested too deeply"
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def as_name(name: str) -> str:
    """A name of JSON as the name of a column, which Arrow ends at a null character: that is replaced too."""
    return (as_text(name) or "").replace("\0", "\ufffd")


def is_missing(text: str | None) -> bool:
    """Whether a field is there to say that there is no value."""
    return text is None or text.strip() in _MISSING_WORDS


def is_absent(text: str | None) -> bool:
    """Whether a sensor says that it has no value, in a field of a number or a switch."""
    return is_missing(text) or (text is not None and text.strip().lower() in _ABSENT)


def missing_texts(array: pa.Array) -> pa.Array:
    """Where an array of text says that there is no value."""
    return pc.or_(pc.is_null(array), pc.fill_null(pc.is_in(pc.utf8_trim_whitespace(array), _MISSING_ARRAY), True))


# ---------------------------------------------------------------------- numbers


def parse_number(text: str | None, style: NumberStyle = PLAIN) -> tuple[float, bool]:
    """The number a field holds, NaN if none; and whether it could be read (a missing value can).

    True and false are 1 and 0, in any case.

    >>> parse_number("1e3"), parse_number("true"), parse_number("--"), parse_number("1_000")
    ((1000.0, True), (1.0, True), (nan, True), (nan, False))
    >>> parse_number("1.100,5", NumberStyle(comma=True, thousands=".")), parse_number("OFF", NumberStyle(switch=True))
    ((1100.5, True), (0.0, True))
    >>> parse_number("50 %", NumberStyle(percent=True)), parse_number("50 %")
    ((50.0, True), (nan, False))
    """
    if text is None:
        return math.nan, True
    text = text.strip()
    if style.percent:
        text = text.removesuffix("%").rstrip()
    if text in _WORDS:
        return _WORDS[text]
    if style.missing:
        value, readable = parse_number(text, replace(style, missing=()))
        is_code = text in style.missing or value in style.missing_numbers
        return (math.nan, True) if is_code else (value, readable)
    if style.thousands and re.fullmatch(_grouped(style), text):
        text = text.replace(style.thousands, "")
    if style.comma:
        text = text.replace(",", ".")
    try:
        word = text.lower()
        known = _WORDS.get(word) or (_SWITCH_WORDS.get(word) if style.switch else None)
        # Python reads 1_000 as a number; Arrow does not, and here it is a word.
        return known or (float("_" if "_" in text else text), True)
    except ValueError:
        return math.nan, False


def parse_numbers(array: pa.Array, style: NumberStyle = PLAIN) -> tuple[FloatArray, int]:
    """``parse_number`` of an Arrow array of text: the values, and how many could not be read."""
    if style.percent:
        signs = pc.replace_substring_regex(pc.utf8_trim_whitespace(array), "%$", "")
        array = pc.utf8_trim_whitespace(signs)
    plain = array
    if style.thousands:
        grouped = pc.match_substring_regex(pc.utf8_trim_whitespace(array), f"^{_grouped(style)}$")
        plain = pc.if_else(grouped, pc.replace_substring(array, style.thousands, ""), array)
    plain = pc.replace_substring(plain, ",", ".") if style.comma else plain
    # Arrow's parser is much the quickest, but all or nothing; most columns need no trimming.
    for prepare in (lambda text: text, pc.utf8_trim_whitespace):
        try:
            values = np.array(prepare(plain).cast(pa.float64()).to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            continue
        nan = np.isnan(values)
        if int(nan.sum()) == array.null_count:
            return values, 0
        # Arrow reads more spellings of NaN than there are missing words.
        spelled = array.filter(pa.array(nan)).drop_null().to_pylist()
        return values, sum(not parse_number(word)[1] for word in spelled)
    # Some field is no number for Arrow: each different text is parsed once, as on a pipe.
    coded = array.dictionary_encode()
    words = coded.dictionary.to_pylist()
    # No number has a colon, and every time of day has: there are many of them in a column of times.
    clocks = pc.match_substring(coded.dictionary, ":").to_pylist() if not style.missing else [False] * len(words)
    unreadable = math.nan, False
    meanings = [unreadable if clock else parse_number(word, style) for word, clock in zip(words, clocks, strict=True)]
    meanings.append((math.nan, True))
    values, readable = (np.array(column) for column in zip(*meanings, strict=True))
    at = coded.indices.fill_null(len(meanings) - 1).to_numpy(zero_copy_only=False)
    return values[at], int((~readable[at]).sum())


def _grouped(style: NumberStyle) -> str:
    """The pattern of a number whose digits are grouped."""
    return rf"[-+]?[0-9]{{1,3}}({re.escape(style.thousands or '')}[0-9]{{3}})+({_sign(style.comma)}[0-9]*)?"


def _sign(comma: bool) -> str:
    return "," if comma else r"\."


def find_style(columns: list[pa.Array], delimiter: str | None) -> NumberStyle:
    """How the numbers in arrays of text are written.

    A number such as 1,234 may be either: next to a delimiter that is a comma (where it must have been quoted) it is
    one thousand, elsewhere it has a decimal comma. Signs between thousands count where some number has no other
    reading: 1.100,5, 1,100.5 or 1.100.000.

    >>> find_style([pa.array(["1.100,5", "2,25"])], ";") == NumberStyle(comma=True, thousands=".")
    True
    >>> find_style([pa.array(["1.5", "2"])], ",") == PLAIN
    True
    """
    texts = pa.concat_arrays(columns)
    signs = "".join(_GROUPING).replace(".", "")
    # Most have one point, or none: these are only counted.
    odd = texts.filter(pc.match_substring_regex(texts, rf"[0-9][{signs}][0-9]|\.[0-9]+\."))
    if not len(odd):
        return PLAIN
    plain = int(
        pc.sum(pc.match_substring_regex(texts, r"^\s*[-+]?[0-9]+\.[0-9]+([eE][-+]?[0-9]+)?\s*%?\s*$")).as_py() or 0
    )
    texts = pc.utf8_trim_whitespace(pc.replace_substring_regex(odd, r"\s*%\s*$", ""))

    def count(pattern: str) -> int:
        return int(pc.sum(pc.match_substring_regex(texts, f"^[-+]?{pattern}$")).as_py() or 0)

    exponent = "([eE][-+]?[0-9]+)?"
    commas = count(f"[0-9]+,[0-9]+{exponent}")
    if delimiter == ",":
        commas -= count("[0-9]{1,3},[0-9]{3}")
    commas += count(r"[0-9]{1,3}(\.[0-9]{3})+,[0-9]+")
    points = plain + count(r"[0-9]{1,3}(,[0-9]{3})+\.[0-9]+")
    comma = commas > points
    for sign in _GROUPING:
        if sign == ("," if comma else "."):
            continue
        group = f"[0-9]{{1,3}}({re.escape(sign)}[0-9]{{3}})"
        # 1.100 alone is ambiguous, 1.100.000 is not.
        repeats = "+" if sign not in ",." or (sign == delimiter) else "{2,}"
        if count(f"{group}+{_sign(comma)}[0-9]+") or count(f"{group}{repeats}"):
            return NumberStyle(comma, sign)
    return NumberStyle(comma)


def is_switch(array: pa.Array) -> bool:
    """Whether an array of text holds one pair of words, such as ON and OFF, and no others."""
    words = {word.strip().lower() for word in array.unique().slice(0, 100).to_pylist() if not is_absent(word)}
    return bool(words) and any(words <= pair.keys() for pair in _SWITCHES)


# ---------------------------------------------------------------------- labels


def parse_label(text: str | None) -> str | None:
    """The word a field holds, without the blanks around it; None where missing."""
    word = None if text is None else text.strip()
    return None if word in _MISSING_WORDS else word


def parse_labels(array: pa.Array) -> NDArray[np.object_]:
    """``parse_label`` of an Arrow array of text."""
    text = pc.utf8_trim_whitespace(array)
    text = pc.if_else(pc.is_in(text, _MISSING_ARRAY), pa.scalar(None, pa.string()), text)
    return np.asarray(text.to_numpy(zero_copy_only=False), object)


# ---------------------------------------------------------------------- times


def parse_time(text: str | None, form: str | None, style: NumberStyle = PLAIN) -> float:
    """The time a field holds, in seconds since 1970 (of the day, for a time of day); NaN where missing or unreadable.

    ``form`` is ``iso``, a format of ``strptime`` (where ``Q%q`` is a quarter), the same after ``clock`` for a time of
    day, or None for a number.

    >>> parse_time("2007-02-01 00:01", "iso"), parse_time("1/2/2007", "%d/%m/%Y")
    (1170288060.0, 1170288000.0)
    >>> parse_time("1970-Q2", "%Y-Q%q") / 86400.0
    90.0
    >>> parse_time("00:01:30.5", "clock %H:%M:%S")
    90.5
    """
    if form is None:
        return parse_number(text, style)[0]
    if form == _HOURS:
        return 3600.0 * parse_number(text, style)[0]
    if form == "iso" and text is not None and _PLAIN_ISO.fullmatch(text):
        when = _datetime(text)
        return math.nan if when is None else when.timestamp()
    return float(parse_times(pa.array([text], pa.string()), form)[0])


def parse_times(array: pa.Array, form: str | None, style: NumberStyle = PLAIN) -> FloatArray:
    """``parse_time`` of an Arrow array of text."""
    if form is None:
        return parse_numbers(array, style)[0]
    if form == _HOURS:
        return 3600.0 * parse_numbers(array, style)[0]
    array = pc.utf8_trim_whitespace(array)
    if form == "iso":
        return _iso(array)
    if form.startswith("clock "):  # a time of day is one of the first day of 1970
        array, form = pc.binary_join_element_wise("1970-01-01", array, " "), f"%Y-%m-%d {form[6:]}"
    if "%q" in form:
        array, form = _begin_quarters(array), form.replace("Q%q", "%b")
    # strptime has no fractions of a second: they are cut off, parsed by themselves and added.
    fraction: FloatArray | float = 0.0
    if pc.any(pc.match_substring_regex(array, r":\d\d[.,]\d")).as_py():
        digits = pc.extract_regex(array, r":\d\d[.,](?P<f>\d+)").field("f")
        fraction = np.nan_to_num(parse_numbers(pc.binary_join_element_wise("0", digits, "."))[0])
        array = pc.replace_substring_regex(array, r"(:\d\d)[.,]\d+", r"\1")
    stamps = pc.strptime(array, format=form, unit="s", error_is_null=True)
    if stamps.null_count > array.null_count:
        array = pc.replace_substring_regex(array, _NAMED_ZONE, "")
        stamps = pc.strptime(array, format=form, unit="s", error_is_null=True)
    seconds = timestamps(stamps)
    # No year below 1653: 07 is 2007.
    recent: FloatArray = np.where(np.abs(seconds) < 1e10, seconds, np.nan) + fraction
    return recent


def _begin_quarters(array: pa.Array) -> pa.Array:
    """Texts with the first month of a quarter in the place of its number, as in 1980-Q2; null where there is none."""
    array = pc.if_else(pc.match_substring_regex(array, "[Qq][1-4]"), array, pa.scalar(None, pa.string()))
    for quarter, month in enumerate(("Jan", "Apr", "Jul", "Oct"), 1):
        array = pc.replace_substring_regex(array, f"[Qq]{quarter}", month)
    return array


def timestamps(array: pa.Array) -> FloatArray:
    """Seconds since 1970 of an Arrow array of timestamps (of the day, of times of day)."""
    count = array.cast(pa.int32() if pa.types.is_time32(array.type) else pa.int64()).cast(pa.float64(), safe=False)
    seconds: FloatArray = np.array(count.to_numpy(zero_copy_only=False)) / UNITS_PER_SECOND[array.type.unit]
    return seconds


def _iso(array: pa.Array) -> FloatArray:
    # Nanoseconds reach from 1678 to 2261, and not every version of pyarrow says so; 9999 stands for "no date" anyway.
    in_range = pc.match_substring_regex(array, r"^(1[789]|2[01])\d\d")
    array = pc.if_else(in_range, array, pa.scalar(None, pa.string()))
    for text in (array, None):
        text = pc.replace_substring_regex(array, _NAMED_ZONE, "Z") if text is None else text
        for of in (pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
            try:
                return timestamps(text.cast(of))
            except pa.ArrowInvalid:
                continue
    array = text
    return timestamps(pa.array([_nanoseconds(text) for text in array.to_pylist()], pa.int64()).cast(of))


def _nanoseconds(text: str | None) -> int | None:
    """Of an ISO date that ``datetime`` reads, all nine digits of its fraction: as Arrow has it, where both read it."""
    when = _datetime(text)
    if text is None or when is None:
        return None
    below = _BELOW_MICRO.search(text)
    return (when - _EPOCH) // timedelta(microseconds=1) * 1000 + (int(below[1].ljust(3, "0")) if below else 0)


def _datetime(text: str | None) -> datetime | None:
    try:
        when = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


# ---------------------------------------------------------------------- columns


def as_plain(array: pa.Array) -> pa.Array:
    """The array without dictionary, and text as the one type of text."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pt.is_dictionary(array.type):
        array = as_plain(array.dictionary).take(array.indices)
    return array.cast(pa.string()) if pt.is_large_string(array.type) or pt.is_string_view(array.type) else array


def is_text(array: pa.Array) -> bool:
    return bool(pt.is_string(array.type))


def find_kind(array: pa.Array, style: NumberStyle = PLAIN) -> str:
    """By type or value: ``number``, ``percent``, ``switch``, ``date``, ``clock`` (time of day), ``text`` or ``other``.

    A column of text is one of numbers if more than half of the values present are; a column without any value
    is one of numbers, all missing. ``percent`` are numbers with a percent sign. A switch holds two words such as ON and
    OFF, and no others.
    """
    of = array.type
    if is_text(array):
        if _is_numeric(array, style):
            return "number"
        if pc.any(pc.match_substring(array, "%")).as_py() and _is_numeric(array, replace(style, percent=True)):
            return "percent"
        if is_switch(array):
            return "switch"
        if date_format(array):
            return "date"
        return "clock" if clock_format(array) else "text"
    if pt.is_timestamp(of) or pt.is_date(of):
        return "date"
    if pt.is_time(of):
        return "clock"
    numeric = pt.is_integer(of) or pt.is_floating(of) or pt.is_decimal(of) or pt.is_boolean(of) or pt.is_duration(of)
    return "number" if numeric or pt.is_null(of) else "other"


def _is_numeric(array: pa.Array, style: NumberStyle) -> bool:
    values, unreadable = as_floats(array, style)
    return unreadable == 0 or unreadable < int((~np.isnan(values)).sum())


def as_floats(array: pa.Array, style: NumberStyle = PLAIN) -> tuple[NDArray[np.float64], int]:
    """The values as float64, NaN where missing; and how many were there but are no numbers.

    True is 1, durations are in seconds, text is read by ``parse_numbers``.
    """
    if style.missing:
        values, _ = as_floats(array, replace(style, missing=()))
        values = np.where(np.isin(values, style.missing_numbers), np.nan, values)
        if not is_text(array):
            return values, 0
        words = pc.is_in(pc.utf8_trim_whitespace(array), pa.array(style.missing, pa.string()))
        is_word = np.asarray(pc.fill_null(words, False).to_numpy(zero_copy_only=False), np.bool_)
        readable = pc.if_else(pa.array(is_word), pa.scalar(None, pa.string()), array)
        return np.where(is_word, np.nan, values), parse_numbers(readable, replace(style, missing=()))[1]
    if is_text(array):
        return parse_numbers(array, style)
    if pt.is_duration(array.type):
        return as_floats(array.cast(pa.int64()))[0] / UNITS_PER_SECOND[array.type.unit], 0
    if pt.is_null(array.type):
        return np.full(len(array), np.nan), 0
    if pt.is_float16(array.type):
        array = array.cast(pa.float32())
    return np.array(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)), 0


# ---------------------------------------------------------------------- time columns

_DATES = ["%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y"]
_DATES += ["%d-%b-%Y", "%d %b %Y", "%d/%b/%Y", "%b %d %Y", "%b %d, %Y", "%d-%b-%y", "%Y.%m.%d", "%Y-%b-%d"]
#: Months without a day: each is its first one.
_MONTHS = ("%b %Y", "%Y-%m", "%m/%Y", "%Y/%m", "%b-%Y", "%Y %b", "%Y-%b", "%b-%y", "%b %y", "%m.%Y", "%YM%m")
#: Quarters: each is the first day of its first month; ``Q%q`` is not one of ``strptime``.
_QUARTERS = ("%YQ%q", "%Y-Q%q", "%Y Q%q", "Q%q %Y", "Q%q-%Y", "Q%q/%Y", "%Y/Q%q")
_CLOCKS = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
_DATE_FORMATS = sorted(
    (f"{date}{clock}" for clock in ("", *(f" {clock}" for clock in _CLOCKS)) for date in _DATES),
    key=lambda form: form.endswith("%p") and not form.startswith("%m"),  # AM and PM: the month comes first
)
#: Dates written as digits, and what to divide by to get the year.
_DIGITS = {"%Y%m%d%H%M%S": 1e10, "%Y%m%d%H%M": 1e8, "%Y%m%d": 1e4, "%Y%m": 1e2}
_DAY = 86400.0
#: A column of this name may hold a time that is only a count; one like the other may hold Unix time.
_TIME_NAME = re.compile(
    r"(t|ts|x_value|time|time[ _]?stamps?|date|date[ _]?time|epoch|unix|unix[ _]?time|yyyymm(dd)?(hh)?)"
    r"([ _]?[\[(]?(n|u|µ|m)?(s|sec|seconds)[\])]?)?"
)
#: Columns of whole years, and of the months, days, hours, minutes and seconds beside them.
_YEAR = re.compile(r"(calendar[ _]?)?(year|yr|yy|yyyy|jahr|année|annee|año|anno|jaar)s?")
_MONTH, _DAY_OF_MONTH = (
    re.compile(r"month|mon|mm|mo|monat|mois|mes|mese|maand"),
    re.compile(r"day|dd|dy|dom|tag|jour|dia|giorno"),
)
_HOUR, _MINUTE, _SECOND = (
    re.compile(r"hour|hours|hr|hh|stunde|heure|hora|ora|uur"),
    re.compile(r"minute|minutes|min|mi|mn|mm|minuto"),
    re.compile(r"second|seconds|sec|ss|sekunde|seconde|segundo|secondo"),
)
_YEARS, _HOURS = "%Y", "hour"
_LIKE_TIME = re.compile(r"time|date|stamp|epoch|when|_at$|(^|_)ts(_|$)")
_EARLIEST, _LATEST = datetime(2001, 1, 1, tzinfo=UTC).timestamp(), datetime(2100, 1, 1, tzinfo=UTC).timestamp()
#: Dates may go back this often, and numbers that the user says are times: clocks are put back, loggers start again.
_BACKWARDS = 0.01
_ZONE = r":[0-9]{2}(?:[.,][0-9]+)? *(?P<zone>Z|UTC|GMT|[-+][0-9]{2}(?::?[0-9]{2})?)$"


@dataclass(frozen=True)
class TimeColumn:
    """Where the time stands: one column, or a date and a time of day; how each is written; its unit and its zone.

    A format is one of ``parse_time``; typed columns have the one that their text would have. ``zone`` is the one that
    all stamps have, UTC if they have several, None if they have none.
    """

    names: tuple[str, ...]
    formats: tuple[str | None, ...]
    a_second: float = 1.0
    dated: bool = True
    style: NumberStyle = PLAIN
    zone: str | None = None

    @property
    def name(self) -> str:
        return "+".join(self.names)

    @property
    def format(self) -> str:
        """How it is written, in words."""
        units = {1.0: "s", 1e3: "ms", 1e6: "µs", 1e9: "ns"}
        if self.formats == (None,):
            return f"Unix time in {units.get(self.a_second, '?')}" if self.dated else "a number"
        return " ".join("ISO 8601" if form == "iso" else (form or "").removeprefix("clock ") for form in self.formats)

    def seconds(self, batch: pa.Table | pa.RecordBatch) -> FloatArray:
        """The time of each row of an Arrow table, NaN where missing or unreadable."""
        if self.formats[0] == _YEARS:
            return calendar_seconds([as_plain(batch.column(name)) for name in self.names])
        columns = [
            _seconds(as_plain(batch.column(name)), form, self.style)
            for name, form in zip(self.names, self.formats, strict=True)
        ]
        time = np.sum(columns, axis=0) / self.a_second
        return np.where(np.isfinite(time), time, np.nan)

    def parse(self, texts: Sequence[str | None]) -> float:
        """``seconds`` of one row, from the text of each column."""
        if self.formats[0] == _YEARS:
            return float(calendar_seconds([pa.array([text], pa.string()) for text in texts])[0])
        seconds = (parse_time(text, form, self.style) for text, form in zip(texts, self.formats, strict=True))
        time = sum(seconds) / self.a_second
        return time if math.isfinite(time) else math.nan

    def write(self, time: float) -> float | str:
        """A time as text, or as a number in the unit of the column: the inverse of ``parse``, in ISO for dates."""
        if not self.dated or self.formats == (None,):
            return time * self.a_second
        when = datetime.fromtimestamp(time, UTC)
        return (when if self.zone else when.replace(tzinfo=None)).isoformat()


def calendar_seconds(columns: Sequence[pa.Array]) -> FloatArray:
    """Seconds since 1970 of columns of years and, in this order and perhaps, of months, days, hours, minutes and
    seconds. NaN where one cannot be read.

    >>> calendar_seconds([pa.array([1970, 1970]), pa.array(["2", "Mar"])]).tolist()
    [2678400.0, 5097600.0]
    """
    numbers = [_whole_numbers(columns, i) for i in range(6)]
    limits = ((1, 9999), (1, 12), (1, 31), (0, 24), (0, 59), (0, 60))
    known = np.logical_and.reduce([(n >= low) & (n <= high) for n, (low, high) in zip(numbers, limits, strict=True)])
    years, months, days, hours, minutes, seconds = (np.where(known, n, 1.0).astype(np.int64) for n in numbers)
    begins = ((years - 1970) * 12 + months - 1).astype("datetime64[M]").astype("datetime64[D]") + (days - 1)
    time = begins.astype("datetime64[s]").astype(np.float64) + (3600 * hours + 60 * minutes + seconds)
    return np.where(known, time, np.nan)


def _whole_numbers(columns: Sequence[pa.Array], i: int) -> FloatArray:
    """Column i of years, months, days, hours, minutes and seconds, the first one where there is none; months may be
    written by their names."""
    if i >= len(columns):
        return np.full(len(columns[0]), 1.0 if i < 3 else 0.0)
    values, unreadable = as_floats(columns[i])
    if unreadable and i == 1:
        names = pa.array([(text or "").strip()[:3] for text in columns[i].to_pylist()], pa.string())
        months = parse_times(pc.binary_join_element_wise("1970", names, " "), "%Y %b")
        values = np.where(np.isnan(values), np.round(months / (365.25 * _DAY / 12.0)) + 1.0, values)
    return np.where(values % 1.0 == 0.0, values, np.nan)


class TimeChoice(NamedTuple):
    """The time column, if there is one, or why there is none; and what is wrong with the order of its rows."""

    column: TimeColumn | None
    why: str = ""
    disorder: TableError | None = None


def find_time(
    name: str, look: pa.Table, kinds: dict[str, str], wanted: str | bool | None, style: NumberStyle
) -> TimeChoice:
    """The time column of a table, from its first rows: the one that is wanted, or the obvious one."""
    if wanted is False:
        return TimeChoice(None, "it was left out on request")
    if isinstance(wanted, str):
        column = _wanted(name, look, kinds, wanted, style)
        steps = _steps(column.seconds(look))
        # A few numbers of no date may be what someone tries out.
        disorder = _disorder(name, column, steps, _BACKWARDS) if column.dated or len(steps) >= 10 else None
        return TimeChoice(column, "", disorder)
    unsorted, why = None, "no column reads as a time"
    for column, rank in _candidates(look, kinds, style):
        time = column.seconds(look)
        steps = _steps(time)
        if len(steps) and not np.any(steps):
            why = f"column {column.name!r} never changes"
            continue
        is_date = kinds[column.names[0]] == "date" or column.formats[0] == _YEARS
        disorder = _disorder(name, column, steps, _BACKWARDS if is_date else 0.0)
        # A column whose name says nothing must come first, or go in even steps: it may count something else.
        likely = rank < 2 or column.names[0] == next(iter(kinds)) or _regular(steps)
        if disorder is None and (is_date or (len(steps) and likely)):
            return TimeChoice(column)
        # Of a name that may mean a duration, times are only those that would go in even steps if they were sorted.
        if disorder is not None and column.dated and rank < 2 and (rank == 0 or _regular(_steps(np.sort(time)))):
            unsorted = unsorted or TimeChoice(column, "", disorder)
        elif disorder is not None and rank < 2:
            why = f"column {column.name!r} goes backwards"
    return unsorted or TimeChoice(None, why)


def _candidates(look: pa.Table, kinds: dict[str, str], style: NumberStyle) -> list[tuple[TimeColumn, int]]:
    """Columns that may hold the time, with a rank: 0 by type or name, 1 if the name is like one, else 2."""
    clocks = [c for c in kinds if kinds[c] == "clock"]
    candidates = []
    for date in sorted((c for c in kinds if kinds[c] == "date"), key=_rank):
        column = _time_column(look, kinds, (date,))
        if not np.any(np.nan_to_num(column.seconds(look)) % _DAY):
            hours = _beside(kinds, _HOUR, ("number",))
            if clocks:
                column = _time_column(look, kinds, (date, clocks[0]))
            elif hours is not None and _are_hours(look, column, hours):
                column = replace(column, names=(date, hours), formats=(*column.formats, _HOURS))
        candidates.append((column, 0))
    for numeric in sorted((c for c in kinds if kinds[c] == "number"), key=_rank):
        rank = _rank(numeric)
        if rank and not _is_large(look.column(numeric), style):
            continue
        column = _time_column(look, kinds, (numeric,), style)
        day = column.formats in (("%Y%m%d",), ("%Y%m",))
        if day and clocks:
            pair = _time_column(look, kinds, (numeric, clocks[0]), style)
            candidates.append((pair, min(rank, 1)))
        elif (column.dated and not (day and rank == 2)) or rank == 0:
            candidates.append((column, rank))
    for year in (name for name in kinds if _YEAR.fullmatch(name.strip().lower())):
        if kinds[year] == "number" and _are_years(look.column(year), style):
            candidates.append((_years(look, kinds, year), 0))
    return candidates


def _are_years(column: pa.ChunkedArray, style: NumberStyle) -> bool:
    """Whether a column holds whole years."""
    values = as_floats(as_plain(column), style)[0]
    values = values[np.isfinite(values)]
    return bool(len(values)) and bool(((values % 1.0 == 0.0) & (values >= 1000.0) & (values < 3000.0)).all())


def _beside(
    kinds: dict[str, str], pattern: re.Pattern[str], kind: Sequence[str], taken: Sequence[str] = ()
) -> str | None:
    """The first column of such a name and kind that is not taken: MM is the month, mm the minute."""
    free = (name for name in kinds if name not in taken and kinds[name] in kind)
    return next((name for name in free if pattern.fullmatch(name.strip().lower())), None)


def _are_hours(look: pa.Table, date: TimeColumn, hours: str) -> bool:
    """Whether a column holds the hours of the days beside it: whole ones from 0 to 24, each in few rows of a day."""
    values = as_floats(as_plain(look.column(hours)))[0]
    known = np.isfinite(values)
    if not known.any() or not ((values[known] % 1.0 == 0.0) & (values[known] >= 0.0) & (values[known] <= 24.0)).all():
        return False
    time = date.seconds(look)[known] + 3600.0 * values[known]
    return len(np.unique(time)) > 2 * len(np.unique(date.seconds(look)[known]))


def _is_unique(time: FloatArray) -> bool:
    """Whether hardly any time comes twice."""
    return len(np.unique(time)) > 0.9 * len(time)


def _years(look: pa.Table, kinds: dict[str, str], year: str) -> TimeColumn:
    """A column of years, with the months, days, hours, minutes and seconds beside it where there are any."""
    names, formats = [year], [_YEARS]
    finer = [(_MONTH, "month"), (_DAY_OF_MONTH, "day"), (_HOUR, _HOURS), (_MINUTE, "minute"), (_SECOND, "second")]
    for pattern, form in finer:
        name = _beside(kinds, pattern, ("number", "text") if form == "month" else ("number",), names)
        # Where no time comes twice there is nothing finer: "min" is then the least value, not a minute.
        is_clock = form in (_HOURS, "minute", "second")
        if name is None or (is_clock and _is_unique(calendar_seconds([as_plain(look.column(n)) for n in names]))):
            break
        names.append(name)
        formats.append(form)
    while len(names) > 1:
        time = calendar_seconds([as_plain(look.column(n)) for n in names])
        if np.isnan(time).mean() <= 0.1:
            break
        names.pop()
        formats.pop()
    return TimeColumn(tuple(names), tuple(formats))


def _is_large(column: pa.ChunkedArray, style: NumberStyle) -> bool:
    """Whether some of the first numbers may be a date: most columns hold none, and there may be very many."""
    values = as_floats(as_plain(column.slice(0, 50)), style)[0]
    return bool(np.any(values >= 1850 * min(_DIGITS.values())))


def _wanted(name: str, look: pa.Table, kinds: dict[str, str], wanted: str, style: NumberStyle) -> TimeColumn:
    names = (wanted,) if wanted in kinds else tuple(column.strip() for column in wanted.split("+"))
    unknown = [column for column in names if column not in kinds]
    if unknown:
        raise TableError(
            f"{name}: there is no column {unknown[0]!r} to take the time from. It has: {_list_columns(kinds)}."
        )
    together = next((column for column, _ in _candidates(look, kinds, style) if column.names == names), None)
    if len(names) > 1 and together is not None:
        return together
    have = tuple(kinds[column] for column in names)
    if have not in (("date",), ("number",), ("date", "clock"), ("number", "clock")):
        raise TableError(
            f"{name}: column {wanted!r} does not read as a time (it is {' and '.join(have)}). A time column holds "
            "numbers, ISO dates such as 2007-02-01 17:24:00, or is a date and a time of day as 'Date+Time'."
        )
    return _time_column(look, kinds, names, style)


def _disorder(name: str, column: TimeColumn, steps: FloatArray, allowed: float) -> TableError | None:
    """What is wrong with the order of the rows, if more than this share of the steps go back."""
    back = int((steps < 0).sum())
    if back <= allowed * len(steps):
        return None
    remedy = "or pass time=False to take the rows as they come."
    if np.mean(steps <= 0) >= 0.9:
        how = f"its rows run from the newest to the oldest by column {column.name!r}."
    else:
        how = f"its rows are not sorted by time: column {column.name!r} goes back {back:,} times."
    return TableError(f"{name}: {how} Sort them by time, with sort=True if they fit in memory; {remedy}")


def _time_column(
    look: pa.Table, kinds: dict[str, str], names: tuple[str, ...], style: NumberStyle = PLAIN
) -> TimeColumn:
    array = as_plain(look.column(names[0]))
    formats: list[str | None] = []
    if kinds[names[0]] == "number":
        values = as_floats(array, style)[0]
        middle = float(np.median(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
        form = _digit_format(array, values, middle, style)
        name = names[0].strip().lower()
        if (_YEAR.fullmatch(name) or name == "date") and _are_years(look.column(names[0]), style):
            return _years(look, kinds, names[0])
        if form is None:
            units = unix_units(middle)
            return TimeColumn(names[:1], (None,), units or 1.0, units is not None, style)
        formats.append(form)
    else:
        formats.append(date_format(array) or "iso")
    formats += [clock_format(as_plain(look.column(n))) or "clock %H:%M:%S" for n in names[1:]]
    return TimeColumn(names, tuple(formats), style=style, zone=_zone(array))


def _digit_format(array: pa.Array, values: FloatArray, middle: float, style: NumberStyle) -> str | None:
    """The format of dates that are written as digits only."""
    for form, a_year in _DIGITS.items():
        if 1850 <= middle / a_year < 2100:
            present = np.isfinite(values)
            return form if np.isfinite(_seconds(array, form, style)[present]).mean() >= 0.9 else None
    return None


def _zone(array: pa.Array) -> str | None:
    """The zone of an array of dates: that which all have, UTC if they have several, None if some have none."""
    if pt.is_timestamp(array.type):
        return str(array.type.tz) if array.type.tz else None
    if not is_text(array):
        return None
    texts = pc.utf8_trim_whitespace(array.slice(0, 10_000))
    present = texts.filter(pc.invert(pc.is_in(texts, pa.array(MISSING)))).drop_null()
    zones = set(pc.extract_regex(present, _ZONE).field("zone").to_pylist())
    if not zones or zones & {None, ""}:
        return None
    offsets = {
        "+00:00" if zone in ("Z", "UTC", "GMT") else f"{zone[:3]}:{zone[3:].removeprefix(':') or '00'}"
        for zone in zones
    }
    return "UTC" if len(offsets) > 1 or offsets == {"+00:00"} else offsets.pop()


def unix_units(time: float) -> float | None:
    """How many units of a number make a second, if it looks like Unix time (of 2001 to 2099) in s, ms, µs or ns."""
    return next((units for units in UNITS_PER_SECOND.values() if _EARLIEST <= time / units < _LATEST), None)


def is_time_name(column: str) -> bool:
    """Whether a column is called as columns of times are.

    >>> is_time_name("Timestamp"), is_time_name("temperature")
    (True, False)
    """
    return _TIME_NAME.fullmatch(column.strip().lower()) is not None


def _rank(column: str) -> int:
    name = column.strip().lower()
    return 0 if _TIME_NAME.fullmatch(name) else 1 if _LIKE_TIME.search(name) else 2


def _steps(time: FloatArray) -> FloatArray:
    return np.diff(time[np.isfinite(time)])


def _regular(steps: FloatArray) -> bool:
    usual = np.median(steps) if len(steps) else 0.0
    return bool(usual > 0 and np.mean(np.abs(steps - usual) <= 0.1 * usual) >= 0.9)


def _list_columns(kinds: dict[str, str]) -> str:
    names = [repr(column) for column in kinds]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def date_format(array: pa.Array) -> str | None:
    """How a column of text writes its dates, if more than half of it are dates. Whether 1/2 is the first of February
    or the second of January the data decide: by which of them time goes back less often, then by which the rows are
    closer together."""
    return _format(array, ("iso", *_DATE_FORMATS, *_MONTHS, *_QUARTERS))


def clock_format(array: pa.Array) -> str | None:
    """How a column of text writes the time of day, if more than half of it are such."""
    return _format(array, tuple(f"clock {c}" for c in _CLOCKS))


def _format(array: pa.Array, formats: tuple[str, ...]) -> str | None:
    if not is_text(array):
        return None
    present = array.filter(pc.invert(pc.is_in(pc.utf8_trim_whitespace(array), pa.array(MISSING)))).drop_null()
    best: tuple[tuple[float, ...], str] | None = None
    for form in _likely(tuple(present.slice(0, 50).to_pylist()), formats):
        time = parse_times(present, form)
        time = time[np.isfinite(time)]
        if 2 * len(time) > len(present):
            steps = np.diff(time)
            score = (len(time), -int((steps < 0).sum()), -float(np.ptp(time)))
            best = max(best or (score, form), (score, form), key=lambda scored: scored[0])
    return best[1] if best else None


@functools.lru_cache(64)  # a table's kinds of columns, its time and a pipe's warm-up ask again and again
def _likely(texts: tuple[str, ...], formats: tuple[str, ...]) -> tuple[str, ...]:
    """The formats by which more than half of these texts can be read."""
    few, joined = pa.array(texts, pa.string()), "".join(texts)
    # Most columns of text have no digit, and most dates no letter: then many formats need no try.
    if not any(sign.isdigit() for sign in joined):
        return ()
    absent = [] if any(sign.isalpha() for sign in joined) else ["%b", "%p", "%q"]
    absent += [] if ":" in joined else [":"]
    formats = tuple(form for form in formats if not any(sign in form for sign in absent))
    return tuple(form for form in formats if texts and 2 * np.isfinite(parse_times(few, form)).sum() > len(few))


def _seconds(array: pa.Array, form: str | None, style: NumberStyle = PLAIN) -> FloatArray:
    """Seconds since 1970 (of the day, for a time of day), NaN where missing or written otherwise."""
    of = array.type
    if pt.is_timestamp(of) or pt.is_time(of):
        return timestamps(array)
    if pt.is_date(of):
        return timestamps(array.cast(pa.timestamp("ms")))
    if is_text(array):
        return parse_times(array, form, style)
    values = as_floats(array)[0]
    if form is None:
        return values
    if form == _HOURS:
        return 3600.0 * values
    digits = pa.array(np.where(np.abs(values) < 1e15, values, np.nan), from_pandas=True)
    return parse_times(digits.cast(pa.int64(), safe=False).cast(pa.string()), form)


# ---------------------------------------------------------------------- the notation of a table


@dataclass(frozen=True)
class Notation:
    """How the text of a table is written: the delimiter of CSV (None of others) and its columns in their order, the
    style of numbers, the columns that are switches or have percent signs, the time, and the columns of sensors and
    values in long format."""

    delimiter: str | None = None
    style: NumberStyle = PLAIN
    time: TimeColumn | None = None
    switches: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    percents: tuple[str, ...] = ()
    long: LongFormat | None = None

    def style_of(self, column: str) -> NumberStyle:
        """How the numbers of a column are written."""
        return replace(self.style, switch=column in self.switches, percent=column in self.percents)

    def config(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Notation:
        """The notation of which this is the ``config``."""
        from emphatic.nexting.tables.grid import LongFormat

        try:
            time, long = config["time"], config["long"]
            if time is not None:
                time = _restored(TimeColumn, {**time, "style": _restored(NumberStyle, time["style"])})
            records = {"style": _restored(NumberStyle, config["style"]), "time": time}
            records["long"] = None if long is None else _restored(LongFormat, long)
            notation = _restored(cls, {**config, **records})
            signs = (notation.delimiter, notation.style.thousands)
            formats = () if time is None else time.formats
            if any(sign is not None and len(sign) != 1 for sign in signs):
                raise ValueError
            if not all(isinstance(form, str | None) for form in formats) or (
                time is not None and not time.a_second > 0
            ):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"the model's notation is damaged: {config!r:.200}. Learn the model again.") from None
        return notation


def _restored(kind: type[T], values: Mapping[str, Any]) -> T:
    """A record of these values; JSON has lists where records have tuples."""
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
