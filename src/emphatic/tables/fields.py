"""Fields: what a text means as a number, a label or a time, in files and on a pipe alike.

Each meaning is defined for one field (``number``, ``label``, ``time``) and for a whole Arrow array of text
(``numbers``, ``labels``, ``times``); both give the same bits, so that neither the source of a table nor how it is cut
changes a value.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = [
    "MISSING", "PLAIN", "UNITS_PER_SECOND", "NumberStyle", "as_name", "as_text", "find_style", "is_missing",
    "is_switch", "label", "labels", "number", "numbers", "time", "times", "timestamps",
]  # fmt: skip

FloatArray = NDArray[np.float64]

#: What people write where there is no value.
MISSING = ("", "NA", "N/A", "#N/A", "na", "n/a", "NaN", "nan", "NAN", "NULL", "null", "None", "none", "?", "-", "--")

#: Arrow's units of time. (To divide by these rounds once, to multiply by 1e-3 twice.)
UNITS_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}

#: Pairs of words that are 1 and 0 in a column that holds no others.
_SWITCHES = ({"on": 1.0, "off": 0.0}, {"yes": 1.0, "no": 0.0}, {"open": 1.0, "closed": 0.0})
_SWITCH_WORDS = {word: (value, True) for pair in _SWITCHES for word, value in pair.items()}
#: What may group the digits before the decimal sign: 1.100,5 and 1,100.5, 1 100,5 and 1'100.5.
_GROUPING = (".", ",", "'", "\u2019", " ", "\u00a0", "\u202f")

_WORDS = {"true": (1.0, True), "false": (0.0, True)} | dict.fromkeys(MISSING, (math.nan, True))
_MISSING_WORDS = frozenset(MISSING)
_MISSING_ARRAY = pa.array(MISSING)

#: Whole seconds within years whose nanoseconds a float64 holds exactly: there every way to compute them agrees.
_PLAIN_ISO = re.compile(r"(?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2})?Z?")
_BELOW_MICRO = re.compile(r"[.,][0-9]{6}([0-9]{1,3})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class NumberStyle:
    """How numbers are written: with a decimal comma, with this sign between thousands, as a switch (on and off), and
    with a percent sign after them, which is not part of them (50% is 50)."""

    comma: bool = False
    thousands: str | None = None
    switch: bool = False
    percent: bool = False


PLAIN = NumberStyle()


def as_text(value: Any) -> str | None:
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


# ---------------------------------------------------------------------- numbers


def number(text: str | None, style: NumberStyle = PLAIN) -> tuple[float, bool]:
    """The number a field holds, NaN if none; and whether it could be read (a missing value can).

    True and false are 1 and 0, in any case.

    >>> number("1e3"), number("true"), number("--"), number("1_000")
    ((1000.0, True), (1.0, True), (nan, True), (nan, False))
    >>> number("1.100,5", NumberStyle(comma=True, thousands=".")), number("OFF", NumberStyle(switch=True))
    ((1100.5, True), (0.0, True))
    >>> number("50 %", NumberStyle(percent=True)), number("50 %")
    ((50.0, True), (nan, False))
    """
    if text is None:
        return math.nan, True
    text = text.strip()
    if style.percent:
        text = text.removesuffix("%").rstrip()
    if text in _WORDS:
        return _WORDS[text]
    if style.thousands and re.fullmatch(_grouped(style), text):
        text = text.replace(style.thousands, "")
    if style.comma:
        text = text.replace(",", ".")
    try:
        word = text.lower()
        known = _WORDS.get(word) or (_SWITCH_WORDS.get(word) if style.switch else None)
        return known or (float("_" if "_" in text else text), True)
    except ValueError:
        return math.nan, False


def numbers(array: Any, style: NumberStyle = PLAIN) -> tuple[FloatArray, int]:
    """``number`` of an Arrow array of text: the values, and how many could not be read."""
    if style.percent:
        signs = pc.replace_substring_regex(pc.utf8_trim_whitespace(array), "%$", "")
        array = pc.utf8_trim_whitespace(signs)
    plain = array
    if style.thousands:
        grouped = pc.match_substring_regex(pc.utf8_trim_whitespace(array), f"^{_grouped(style)}$")
        plain = pc.if_else(grouped, pc.replace_substring(array, style.thousands, ""), array)
    plain = pc.replace_substring(plain, ",", ".") if style.comma else plain
    for prepare in (lambda text: text, pc.utf8_trim_whitespace):  # most need no trimming
        try:
            values = np.array(prepare(plain).cast(pa.float64()).to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            continue
        nan = np.isnan(values)
        if int(nan.sum()) == array.null_count:
            return values, 0
        # Arrow reads more spellings of NaN than there are missing words.
        spelled = array.filter(pa.array(nan)).drop_null().to_pylist()
        return values, sum(not number(word)[1] for word in spelled)
    coded = array.dictionary_encode()
    found = [number(word, style) for word in coded.dictionary.to_pylist()] + [(math.nan, True)]
    values, readable = (np.array(part) for part in zip(*found, strict=True))
    at = coded.indices.fill_null(len(found) - 1).to_numpy(zero_copy_only=False)
    return values[at], int((~readable[at]).sum())


def _grouped(style: NumberStyle) -> str:
    """The pattern of a number whose digits are grouped."""
    return rf"[-+]?[0-9]{{1,3}}({re.escape(style.thousands or '')}[0-9]{{3}})+({_sign(style.comma)}[0-9]*)?"


def _sign(comma: bool) -> str:
    return "," if comma else r"\."


def find_style(columns: list[Any], delimiter: str | None) -> NumberStyle:
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
        one = "+" if sign not in ",." or (sign == delimiter) else "{2,}"
        if count(f"{group}+{_sign(comma)}[0-9]+") or count(f"{group}{one}"):
            return NumberStyle(comma, sign)
    return NumberStyle(comma)


def is_switch(array: Any) -> bool:
    """Whether an array of text holds one pair of words, such as ON and OFF, and no others."""
    words = {word.strip().lower() for word in array.unique().slice(0, 100).to_pylist() if not is_missing(word)}
    return bool(words) and any(words <= pair.keys() for pair in _SWITCHES)


# ---------------------------------------------------------------------- labels


def label(text: str | None) -> str | None:
    """The word a field holds, without the blanks around it; None where missing."""
    word = None if text is None else text.strip()
    return None if word in _MISSING_WORDS else word


def labels(array: Any) -> NDArray[np.object_]:
    """``label`` of an Arrow array of text."""
    text = pc.utf8_trim_whitespace(array)
    text = pc.if_else(pc.is_in(text, _MISSING_ARRAY), pa.scalar(None, pa.string()), text)
    return np.asarray(text.to_numpy(zero_copy_only=False), object)


# ---------------------------------------------------------------------- times


def time(text: str | None, form: str | None, style: NumberStyle = PLAIN) -> float:
    """The time a field holds, in seconds since 1970 (of the day, for a time of day); NaN where missing or unreadable.

    ``form`` is ``iso``, a format of ``strptime``, the same after ``clock`` for a time of day, or None for a number.

    >>> time("2007-02-01 00:01", "iso"), time("1/2/2007", "%d/%m/%Y"), time("00:01:30.5", "clock %H:%M:%S")
    (1170288060.0, 1170288000.0, 90.5)
    """
    if form is None:
        return number(text, style)[0]
    if form == "iso" and text is not None and _PLAIN_ISO.fullmatch(text):
        when = _datetime(text)
        return math.nan if when is None else when.timestamp()
    return float(times(pa.array([text], pa.string()), form)[0])


def times(array: Any, form: str | None, style: NumberStyle = PLAIN) -> FloatArray:
    """``time`` of an Arrow array of text."""
    if form is None:
        return numbers(array, style)[0]
    array = pc.utf8_trim_whitespace(array)
    if form == "iso":
        return _iso(array)
    if form.startswith("clock "):
        array, form = pc.binary_join_element_wise("1970-01-01", array, " "), f"%Y-%m-%d {form[6:]}"
    fraction: Any = 0.0
    if pc.any(pc.match_substring_regex(array, r":\d\d[.,]\d")).as_py():
        digits = pc.extract_regex(array, r":\d\d[.,](?P<f>\d+)").field("f")
        fraction = np.nan_to_num(numbers(pc.binary_join_element_wise("0", digits, "."))[0])
        array = pc.replace_substring_regex(array, r"(:\d\d)[.,]\d+", r"\1")
    whole = timestamps(pc.strptime(array, format=form, unit="s", error_is_null=True))
    recent: FloatArray = np.where(np.abs(whole) < 1e10, whole, np.nan) + fraction  # no year below 1653: 07 is 2007
    return recent


def timestamps(array: Any) -> FloatArray:
    """Seconds since 1970 of an Arrow array of timestamps (of the day, of times of day)."""
    count = array.cast(pa.int32() if pa.types.is_time32(array.type) else pa.int64()).cast(pa.float64(), safe=False)
    seconds: FloatArray = np.array(count.to_numpy(zero_copy_only=False)) / UNITS_PER_SECOND[array.type.unit]
    return seconds


def _iso(array: Any) -> FloatArray:
    # Nanoseconds reach from 1678 to 2261, and not every version of pyarrow says so; 9999 stands for "no date" anyway.
    in_range = pc.match_substring_regex(array, r"^(1[789]|2[01])\d\d")
    array = pc.if_else(in_range, array, pa.scalar(None, pa.string()))
    for of in (pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
        try:
            return timestamps(array.cast(of))
        except pa.ArrowInvalid:
            continue
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
